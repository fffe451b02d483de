"""Reads lines of the ledger and of sidecars from any byte position, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

CHUNK = 1 << 20
MAX_LINE = 64 << 20
_MAX_GAP = 16 << 10  # reading these bytes too is not slower than a second read


def read_lines(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int, bytes]]:
    """(position, length, line with its newline) for every whole line that begins in [start, stop).

    A start inside a line skips the rest of it. A line above MAX_LINE is damaged and returned as b"".
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
        error.filename = error.filename or str(path)  # not set by os.pread
        raise
    finally:
        os.close(fd)


def read_spans(path: Path, spans: Iterable[tuple[int, int]]) -> dict[int, bytes]:
    """The lines at these (position, length), by position, without those beyond the end of the file."""
    lines: dict[int, bytes] = {}
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for group in _adjacent(sorted(spans)):
            begin = group[0][0]
            data = os.pread(fd, group[-1][0] + group[-1][1] - begin, begin)
            for position, length in group:
                line = data[position - begin : position - begin + length]
                if len(line) == length:
                    lines[position] = line
    finally:
        os.close(fd)
    return lines


def _adjacent(spans: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Groups spans for one read each: small gaps, and at most a chunk."""
    group: list[tuple[int, int]] = []
    begin = end = 0
    for span in spans:
        position, length = span
        if group and (position - end > _MAX_GAP or position + length - begin > CHUNK):
            yield group
            group = []
        if not group:
            begin = position
        group.append(span)
        end = position + length
    if group:
        yield group


def last_newline(fd: int, size: int) -> int:
    end = size
    while end > 0:
        begin = max(0, end - CHUNK)
        newline = os.pread(fd, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def _line_start(fd: int, start: int) -> int:
    if start <= 0 or os.pread(fd, 1, start - 1) == b"\n":
        return max(start, 0)
    position = start
    while chunk := os.pread(fd, CHUNK, position):
        newline = chunk.find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(chunk)
    return position


def _whole_lines(fd: int, position: int) -> Iterator[tuple[bytes, int]]:
    pending = bytearray()
    dropped = 0
    while chunk := os.pread(fd, CHUNK, position):
        position += len(chunk)
        first, newline, rest = chunk.partition(b"\n")
        if not newline:
            pending += chunk
            if len(pending) > MAX_LINE:
                dropped += len(pending)
                pending.clear()
            continue
        length = dropped + len(pending) + len(first) + 1
        yield (b"" if dropped or length > MAX_LINE else bytes(pending) + first + b"\n"), length
        pending.clear()
        dropped = 0
        *whole, tail = rest.split(b"\n")
        for line in whole:
            yield line + b"\n", len(line) + 1
        pending += tail
