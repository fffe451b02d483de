"""Whole lines of logs that were compressed when they had grown cold: read like others, in pieces, but from the front.

Such a file never grows. Its cursor counts the bytes that come out of it; that it was read to its end stands where other
cursors keep the hash of a file's head.
"""

from __future__ import annotations

import errno
import io
import os
from typing import BinaryIO, NamedTuple, cast

import zstandard

from burnd.logfiles.scanner import open_regular
from burnd.logfiles.tail import MAX_LINE, Chunk, Cursor, Line, Misfit

_DONE = b"read to its end"
_BLOCK = 1 << 20
_LARGEST_WINDOW = 1 << 27
MOST_UNPACKED = 512 << 20  # far more than a conversation; a small file may claim to unpack to any size


def read_compressed(path: str, cursor: Cursor | None, *, root: str | None, max_bytes: int) -> Chunk:
    """Read on from `cursor`. Raises Refused for what must not be read, OSError for what cannot be read now."""
    with os.fdopen(open_regular(path, root=root), "rb") as file:
        found = os.fstat(file.fileno())
        looks = (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)
        fits = cursor is not None and (cursor.dev, cursor.ino, cursor.size, cursor.ctime_ns) == looks
        if cursor is not None and fits and cursor.head == _DONE:
            return Chunk([], cursor, found.st_size, more=False)
        start = cursor.offset if cursor is not None and fits else 0
        try:
            read = _lines(file, start, max_bytes)
        except zstandard.ZstdError as error:
            raise OSError(errno.EIO, "it is damaged, or no zstd") from error
    now = Cursor(
        dev=found.st_dev,
        ino=found.st_ino,
        offset=read.end,
        lines=len(read.lines),
        head=b"" if read.more else _DONE,
        size=found.st_size,
        ctime_ns=found.st_ctime_ns,
    )
    rewound: Misfit | None = "rewritten" if cursor is not None and not fits else None
    return Chunk(read.lines, now, found.st_size, more=read.more, rewound=rewound, skipped=read.skipped, cut=read.cut)


class _Read(NamedTuple):
    """Lines, (offset, size) of those that are too long, where the next begins, and whether there is one.

    `cut` is the first line beyond the limit of unpacked bytes.
    """

    lines: list[Line]
    skipped: list[tuple[int, int]]
    end: int
    more: bool
    cut: tuple[int, int] | None = None


def _lines(file: BinaryIO, start: int, most: int) -> _Read:
    """The lines from `start` on, of about `most` bytes."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    with decompressor.stream_reader(file, read_across_frames=True, closefd=False) as stream:
        text = cast("BinaryIO", io.BufferedReader(stream, _BLOCK))
        _pass(text, start)
        lines: list[Line] = []
        skipped: list[tuple[int, int]] = []
        at = start
        while at - start < most:
            line = text.readline(MAX_LINE + 1)
            if not line:
                return _Read(lines, skipped, at, more=False)
            size = len(line)
            if at + size > MOST_UNPACKED:
                return _Read(lines, skipped, at, more=False, cut=(at, size))
            if size > MAX_LINE:
                size += _rest_of_line(text, line, MOST_UNPACKED - at - size)
                skipped.append((at, size))
            else:
                lines.append((at, line.removesuffix(b"\n")))
            at += size
        return _Read(lines, skipped, at, more=True)


def _pass(text: BinaryIO, count: int) -> None:
    while count > 0 and (passed := len(text.read(min(count, _BLOCK)))):
        count -= passed


def _rest_of_line(text: BinaryIO, begun: bytes, most: int) -> int:
    """The length of the rest of a line, up to about `most` bytes."""
    size, line = 0, begun
    while line and not line.endswith(b"\n") and size <= most:
        line = text.readline(_BLOCK)
        size += len(line)
    return size
