"""Reading a file that grows: whole lines exactly as they stand on disk, from where the last call stopped.

Called from a worker thread. It knows nothing of JSON, and keeps nothing between calls but the cursor it hands out.
"""

from __future__ import annotations

import os
import re

import msgspec

from burnd.logfiles.cursor import ANCHOR_SIZE, HEAD_SIZE, Cursor, Misfit, digest, misfit
from burnd.logfiles.safe_open import open_regular

MAX_BYTES = 4 << 20
MAX_LINE = 64 << 20
MAX_LINES = 20_000  # at once: as objects, short lines take a hundred times their bytes
_BLANKS = re.compile(rb"[\n\r\t ]*\n")

Line = tuple[int, bytes]  # where it starts, and its bytes without the newline


class Tail(msgspec.Struct, frozen=True, gc=False):
    """What stands after the last newline. Whoever accepts it goes on from `cursor`; who does not, forgets it."""

    offset: int
    size: int
    data: bytes | None  # None when it is longer than a line may be
    cursor: Cursor


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """What one call read. `rewound` says why lines come again; `skipped` is (offset, size) of each over-long line."""

    lines: list[Line]
    cursor: Cursor
    size: int
    more: bool
    rewound: Misfit | None = None
    skipped: list[tuple[int, int]] = []
    cut: tuple[int, int] | None = None  # (offset, size) of the first line that is not read
    ended: bool = False  # its path now names another file or none, and everything was read
    tail: Tail | None = None  # with `ended`: the last line, if it never got its newline


def read(
    path: str,
    cursor: Cursor | None,
    *,
    root: str | None = None,
    max_bytes: int = MAX_BYTES,
    max_line: int = MAX_LINE,
) -> Chunk:
    """Open, read on, close. Raises Refused for what must not be read, OSError for what cannot be read now."""
    fd = open_regular(path, root=root)
    try:
        return read_open(fd, cursor, max_bytes=max_bytes, max_line=max_line)
    finally:
        os.close(fd)


def read_open(fd: int, cursor: Cursor | None, *, max_bytes: int = MAX_BYTES, max_line: int = MAX_LINE) -> Chunk:
    """Read on from `cursor` if the file still fits it, else from the start."""
    found = os.fstat(fd)
    place = _Place(fd, found, max_line)
    if cursor is None:
        place.look(max_bytes)
        return place.chunk(None)
    reason = place.resume(cursor, max_bytes)
    if reason is not None:
        place = _Place(fd, found, max_line)
        place.look(max_bytes)
    return place.chunk(reason)


def unfinished(fd: int, cursor: Cursor, *, max_line: int = MAX_LINE) -> Tail | None:
    """The bytes after the last newline, once everything before them was read; None if there are none.

    A tail that was accepted is consumed: when its newline comes at last, only what was written in between, if
    anything, is a line of its own.
    """
    found = os.fstat(fd)
    if cursor.passed == 0 or found.st_size != cursor.position or found.st_ino != cursor.ino:
        return None
    after = msgspec.structs.replace(
        cursor, offset=cursor.position, passed=0, inside=True, lines=cursor.lines + (not cursor.inside)
    )
    if cursor.passed > max_line:
        return Tail(offset=cursor.offset, size=cursor.passed, data=None, cursor=after)
    anchor_at = cursor.position - cursor.anchor_size
    start = min(cursor.offset, anchor_at)
    data = _pread(fd, cursor.position - start, start)
    if digest(data[anchor_at - start :]) != cursor.anchor:
        return None
    data = data[cursor.offset - start :]
    if b"\n" in data:
        return None
    return Tail(offset=cursor.offset, size=len(data), data=data, cursor=after)


class _Place:
    """A position that moves through one open file, with the bytes that its next cursor will be recognised by."""

    def __init__(self, fd: int, found: os.stat_result, max_line: int) -> None:
        self.fd = fd
        self.found = found
        self.max_line = max_line
        self.offset = 0
        self.passed = 0
        self.count = 0
        self.inside = False
        self.unfinished = False
        self.moved = False
        self.head = b""
        self.before = b""  # the bytes just before the position, as many as an anchor takes
        self.lines: list[Line] = []
        self.skipped: list[tuple[int, int]] = []

    def look(self, max_bytes: int) -> None:
        """Take what stands at the start of the file."""
        self._take(_pread(self.fd, min(max_bytes, self.found.st_size), 0))

    def resume(self, cursor: Cursor, max_bytes: int) -> Misfit | None:
        """Take what comes after `cursor`, or say why it does not fit."""
        self.head = _pread(self.fd, cursor.head_size, 0)
        self.before, data = self._read_after(cursor, max_bytes)
        reason = misfit(cursor, self.found, self.head, self.before)
        if reason is not None:
            return reason
        self.offset, self.passed = cursor.offset, cursor.passed
        self.count, self.inside, self.unfinished = cursor.lines, cursor.inside, cursor.unfinished
        return None if self._take(data) else "changed"

    def _read_after(self, cursor: Cursor, max_bytes: int) -> tuple[bytes, bytes]:
        """Anchor and new bytes from one read, so that no rewrite can slip in between check and use."""
        unread = min(max_bytes, max(0, self.found.st_size - cursor.position))
        both = _pread(self.fd, cursor.anchor_size + unread, cursor.position - cursor.anchor_size)
        return both[: cursor.anchor_size], both[cursor.anchor_size :]

    def _take(self, data: bytes) -> bool:
        """Split what follows the position into lines; what has no newline yet is only passed.

        False if the beginning of the first line, passed earlier, is no longer what it was. Blank lines are not handed
        out, and after very many lines the rest of the data is left for the next call.
        """
        end = data.find(b"\n")
        if end < 0:
            self.passed += len(data)
        else:
            if not self._finish(data[:end]):
                return False
            at = end + 1
            while len(self.lines) < MAX_LINES:
                at = self._skip_blanks(data, at)
                end = data.find(b"\n", at)
                if end < 0:
                    self.passed = len(data) - at
                    break
                self._add(data[at:end], end - at)
                at = end + 1
            else:
                data = data[:at]
                self.passed = 0
        self.before = (self.before + data[-ANCHOR_SIZE:])[-ANCHOR_SIZE:]
        if len(self.head) < HEAD_SIZE:
            self.head = (self.head + data[:HEAD_SIZE])[:HEAD_SIZE]
        self.moved = bool(data)
        return True

    def _skip_blanks(self, data: bytes, at: int) -> int:
        """The position after blank lines, of which there may be millions."""
        found = _BLANKS.match(data, at) if data[at : at + 1] in (b"\n", b"\r", b"\t", b" ") else None
        if found is None:
            return at
        self.count += data.count(b"\n", at, found.end())
        self.offset += found.end() - at
        return found.end()

    def _finish(self, rest: bytes) -> bool:
        """Add the line that ends with `rest` and of which some bytes were passed before."""
        size = self.passed + len(rest)
        line = rest
        if self.passed and size <= self.max_line:
            line = _pread(self.fd, size, self.offset)
            if len(line) != size or b"\n" in line or not line.endswith(rest):
                return False
        self._add(line, size)
        return True

    def _add(self, line: bytes, size: int) -> None:
        if size > self.max_line:
            self.skipped.append((self.offset, size + 1))
        elif line.strip():
            self.lines.append((self.offset, line))
        self.count += not self.inside
        self.inside = False
        self.offset += size + 1

    def chunk(self, rewound: Misfit | None) -> Chunk:
        cursor = Cursor(
            dev=self.found.st_dev,
            ino=self.found.st_ino,
            offset=self.offset,
            passed=self.passed,
            lines=self.count,
            anchor=digest(self.before),
            head=digest(self.head),
            head_size=len(self.head),
            inside=self.inside,
            unfinished=self.unfinished and not self.moved,
            size=self.found.st_size,
            ctime_ns=self.found.st_ctime_ns,
        )
        return Chunk(
            lines=self.lines,
            cursor=cursor,
            size=self.found.st_size,
            # Some file systems report a size that can never be read: only who got on may hope for more.
            more=self.moved and cursor.position < self.found.st_size,
            rewound=rewound,
            skipped=self.skipped,
        )


def _pread(fd: int, size: int, offset: int) -> bytes:
    """Up to `size` bytes, fewer only at the end of the file; some file systems hand out less than was asked for."""
    data = os.pread(fd, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    missing = size - len(data)
    while missing and (data := os.pread(fd, missing, offset + size - missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)
