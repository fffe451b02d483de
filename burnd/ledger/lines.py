"""Reads whole lines of our own files from any byte position, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

CHUNK = 1 << 20
MAX_LINE = 64 << 20
_NEAR = 16 << 10  # reading over so many bytes takes no longer than reading once more


def read_lines(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int, bytes]]:
    """(position, length, line with its newline) for every whole line that begins in [start, stop).

    A start inside a line moves on to the next one. What follows the last newline is not a line yet. A
    line beyond the limit comes out empty: it is damage, and its bytes would only take up memory.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        position = _line_start(fd, start)
        for line, length in _whole_lines(fd, position):
            if stop is not None and position >= stop:
                return
            yield position, length, line
            position += length
    except OSError as error:
        error.filename = error.filename or str(path)  # which reading does not tell
        raise
    finally:
        os.close(fd)


def read_places(path: Path, places: Iterable[tuple[int, int]]) -> dict[int, bytes]:
    """The lines at these (position, length), by position; one that the file does not have is left out."""
    lines: dict[int, bytes] = {}
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for near in _together(sorted(places)):
            begin = near[0][0]
            data = os.pread(fd, near[-1][0] + near[-1][1] - begin, begin)
            for position, length in near:
                line = data[position - begin : position - begin + length]
                if len(line) == length:
                    lines[position] = line
    finally:
        os.close(fd)
    return lines


def _together(places: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Places that are read in one go: close to each other, and not too much at once."""
    near: list[tuple[int, int]] = []
    begin = end = 0
    for place in places:
        position, length = place
        if near and (position - end > _NEAR or position + length - begin > CHUNK):
            yield near
            near = []
        if not near:
            begin = position
        near.append(place)
        end = position + length
    if near:
        yield near


def last_newline(fd: int, size: int) -> int:
    """The position just behind the last newline of a file: where its whole lines end."""
    end = size
    while end > 0:
        begin = max(0, end - CHUNK)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _line_start(fd: int, start: int) -> int:
    if start <= 0 or os.pread(fd, 1, start - 1) == b"\n":
        return max(start, 0)
    position = start
    while chunk := os.pread(fd, CHUNK, position):
        found = chunk.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(chunk)
    return position


def _whole_lines(fd: int, position: int) -> Iterator[tuple[bytes, int]]:
    held = bytearray()
    dropped = 0
    while chunk := os.pread(fd, CHUNK, position):
        position += len(chunk)
        first, newline, rest = chunk.partition(b"\n")
        if not newline:
            held += chunk
            if len(held) > MAX_LINE:
                dropped += len(held)
                held.clear()
            continue
        length = dropped + len(held) + len(first) + 1
        yield (b"" if dropped or length > MAX_LINE else bytes(held) + first + b"\n"), length
        held.clear()
        dropped = 0
        *whole, tail = rest.split(b"\n")
        for line in whole:
            yield line + b"\n", len(line) + 1
        held += tail
