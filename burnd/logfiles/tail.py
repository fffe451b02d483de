"""Reads the whole lines of growing files, exactly as on disk, from where the last read stopped.

A cursor has the position and hashes that identify the file, never a path nor content.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

import msgspec

from burnd.logfiles.scanner import fingerprint, open_regular

MAX_BYTES = 4 << 20
MAX_LINE = 64 << 20
MAX_LINES = 20_000  # at once: as objects, short lines take a hundred times their bytes
# Long enough to be unique: 256 bytes were sometimes only the common end of lines.
ANCHOR_SIZE = 1024
HEAD_SIZE = 1024
TAIL_QUIET_S = 600.0
_BLANK = (b"\n", b"\r", b"\t", b" ")
_BLANKS = re.compile(rb"[\n\r\t ]*\n")

Line = tuple[int, bytes]  # offset, and bytes without the newline
# "rewritten": the file begins differently, so it was written again in place or its inode was reused. "changed": it
# begins as before, but the bytes before our position differ.
Misfit = Literal["replaced", "rewritten", "truncated", "changed"]

# Reasons of unused lines.
TOO_LONG = "longer than a line may be"
TOO_LARGE = "the compressed log unpacks to more than is read"
FATAL = "reading it crashed again and again"
FATAL_WORDS = "storing the text before this place crashed again and again"
UNFINISHED = "unfinished"
LINES_SHOWN = 20  # in status, of all logs of a source
PLACES_KEPT = 5  # for each reason; others are only counted


class Unused(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Lines of one log that were not used for one reason; `places` has (offset, size) of the first."""

    reason: str
    count: int
    places: tuple[tuple[int, int], ...]


class Cursor(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Lines before `offset` are consumed; the `passed` bytes after it have no newline yet and are read again when it is
    there. Anchor and head are hashes of bytes before `position`.
    """

    dev: int
    ino: int
    offset: int = 0
    passed: int = 0
    lines: int = 0
    anchor: bytes = b""
    head: bytes = b""
    head_size: int = 0
    inside: bool = False  # the line at `offset` continues a last line that was already taken
    unfinished: bool = False  # the passed bytes were tried as a last line and are incomplete
    size: int = 0
    ctime_ns: int = 0
    unused: tuple[Unused, ...] = ()  # unused lines before `offset`
    private: int = 0  # lines before this offset were read while burnd stored no text

    @property
    def position(self) -> int:
        return self.offset + self.passed

    @property
    def has_untried_tail(self) -> bool:
        return self.passed > 0 and self.position == self.size and not self.unfinished

    @property
    def fingerprint(self) -> int | None:
        """None if the file was not read to its end."""
        return fingerprint(self.dev, self.ino, self.size, self.ctime_ns) if self.position == self.size else None


def load_cursor(stored: bytes) -> Cursor | None:
    """A cursor from the index; None if it is unusable, as after damage."""
    try:
        cursor = _cursors.decode(stored)
    except (msgspec.MsgspecError, ValueError):
        return None
    is_valid = min(cursor.offset, cursor.passed, cursor.head_size) >= 0 and cursor.head_size <= HEAD_SIZE
    return cursor if is_valid else None


_cursors = msgspec.msgpack.Decoder(Cursor)


class LastLine(msgspec.Struct, frozen=True, gc=False):
    """The bytes after the last newline, and the cursor behind them for a caller who uses them."""

    offset: int
    size: int
    data: bytes | None  # None if longer than a line may be
    cursor: Cursor


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """The result of one read. `rewound` is why lines come again; `skipped` has (offset, size) of over-long lines."""

    lines: list[Line]
    cursor: Cursor
    size: int
    more: bool
    rewound: Misfit | None = None
    skipped: list[tuple[int, int]] = []
    cut: tuple[int, int] | None = None  # (offset, size) of the first unread line
    tail: LastLine | None = None  # of a file that lost its path: a last line without a newline


def read_open(fd: int, cursor: Cursor | None, *, max_bytes: int = MAX_BYTES, max_line: int = MAX_LINE) -> Chunk:
    """Reads on from `cursor` if the file still fits it, else from the start."""
    stat = os.fstat(fd)
    rewound: Misfit | None = None
    if cursor is not None:
        head = _pread(fd, cursor.head_size, 0)
        # One read for anchor and new bytes, so that no rewrite slips in between check and use.
        anchor_size = min(ANCHOR_SIZE, cursor.position)
        unread = min(max_bytes, max(0, stat.st_size - cursor.position))
        both = _pread(fd, anchor_size + unread, cursor.position - anchor_size)
        anchor, data = both[:anchor_size], both[anchor_size:]
        # Another device number alone is no reason: some file systems get a new one at every mount.
        if stat.st_ino != cursor.ino:
            rewound = "replaced"
        elif stat.st_size < cursor.head_size:
            rewound = "truncated"
        elif _digest(head) != cursor.head:
            rewound = "rewritten"
        elif stat.st_size < cursor.position:
            rewound = "truncated"
        elif _digest(anchor) == cursor.anchor:
            chunk = _split(fd, stat, cursor, head, anchor, data, max_line)
            if chunk is not None:
                return chunk
        rewound = rewound or "changed"
    data = _pread(fd, min(max_bytes, stat.st_size), 0)
    chunk = _split(fd, stat, Cursor(stat.st_dev, stat.st_ino), b"", b"", data, max_line)
    assert chunk is not None  # noqa: S101 - nothing was passed before the start
    return msgspec.structs.replace(chunk, rewound=rewound)


def last_line(fd: int, cursor: Cursor, *, max_line: int = MAX_LINE) -> LastLine | None:
    """The bytes after the last newline, if all before them was read.

    If used, they are consumed: only bytes between them and their later newline are a separate line.
    """
    stat = os.fstat(fd)
    if cursor.passed == 0 or stat.st_size != cursor.position or stat.st_ino != cursor.ino:
        return None
    after = msgspec.structs.replace(
        cursor, offset=cursor.position, passed=0, inside=True, lines=cursor.lines + (not cursor.inside)
    )
    if cursor.passed > max_line:
        return LastLine(offset=cursor.offset, size=cursor.passed, data=None, cursor=after)
    anchor_at = cursor.position - min(ANCHOR_SIZE, cursor.position)
    start = min(cursor.offset, anchor_at)
    data = _pread(fd, cursor.position - start, start)
    if _digest(data[anchor_at - start :]) != cursor.anchor:
        return None
    data = data[cursor.offset - start :]
    if b"\n" in data:
        return None
    return LastLine(offset=cursor.offset, size=len(data), data=data, cursor=after)


def _split(
    fd: int, stat: os.stat_result, cursor: Cursor, head: bytes, anchor: bytes, data: bytes, max_line: int
) -> Chunk | None:
    """Splits the bytes after a cursor into lines; bytes without a newline are only passed.

    None if the start of the first line, passed earlier, has changed. Blank lines are dropped; the rest after very many
    lines is left for the next call.
    """
    lines: list[Line] = []
    skipped: list[tuple[int, int]] = []
    offset, passed, count, inside = cursor.offset, cursor.passed, cursor.lines, cursor.inside
    end = data.find(b"\n")
    if end < 0:
        passed += len(data)
    else:
        line, size = data[:end], passed + end
        if passed and size <= max_line:
            line = _pread(fd, size, offset)
            if len(line) != size or b"\n" in line or not line.endswith(data[:end]):
                return None
        while True:
            if size > max_line:
                skipped.append((offset, size + 1))
            elif line.strip():
                lines.append((offset, line))
            count += not inside
            inside = False
            offset += size + 1
            at = end + 1
            if len(lines) >= MAX_LINES:
                data, passed = data[:at], 0
                break
            if data[at : at + 1] in _BLANK and (blanks := _BLANKS.match(data, at)) is not None:
                count += data.count(b"\n", at, blanks.end())  # there may be millions
                offset += blanks.end() - at
                at = blanks.end()
            end = data.find(b"\n", at)
            if end < 0:
                passed = len(data) - at
                break
            line, size = data[at:end], end - at
    head = (head + data[: HEAD_SIZE - len(head)]) if len(head) < HEAD_SIZE else head
    after = Cursor(
        dev=stat.st_dev,
        ino=stat.st_ino,
        offset=offset,
        passed=passed,
        lines=count,
        anchor=_digest((anchor + data[-ANCHOR_SIZE:])[-ANCHOR_SIZE:]),
        head=_digest(head),
        head_size=len(head),
        inside=inside,
        unfinished=cursor.unfinished and not data,
        size=stat.st_size,
        ctime_ns=stat.st_ctime_ns,
    )
    # Some file systems report a size that can never be read: there is more only after progress.
    more = bool(data) and after.position < stat.st_size
    return Chunk(lines=lines, cursor=after, size=stat.st_size, more=more, skipped=skipped)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _pread(fd: int, size: int, offset: int) -> bytes:
    """Fewer bytes than `size` only at the end of the file, unlike `os.pread`."""
    data = os.pread(fd, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    missing = size - len(data)
    while missing and (data := os.pread(fd, missing, offset + size - missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


class _OpenFile(msgspec.Struct):
    fd: int
    identity: tuple[int, int]  # device and inode
    used: float


class OpenFiles:
    """Reads files by path, and caches the descriptors of recently changed ones, so that a deleted file is read to its
    end.

    A worker thread reads while the event loop expires and releases: an entry is out of the cache while it is read, and
    the lock is never taken during I/O. `wall` time only decides what is worth caching.
    """

    def __init__(
        self,
        *,
        limit: int = 128,
        idle: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._limit = limit
        self._idle = idle
        self._clock, self._wall = clock, wall
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, _OpenFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cache)

    def read(
        self,
        path: str,
        cursor: Cursor | None,
        *,
        root: str | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Chunk:
        """Reads on. A file that lost its path is read to its end first; its last chunk has its last line.

        If another file took its place, that chunk has `more`, and the next call starts on the new file. Raises Refused,
        or OSError if it cannot be read now.
        """
        with self._lock:
            entry = self._cache.pop(path, None)  # ours until it is put back
        fd = open_regular(path, root=root) if entry is None else entry.fd
        keep = False  # a descriptor can go stale: after an error the next call opens the file again
        try:
            # Look up before reading: bytes that reach the old file in between are still read from it.
            current: tuple[int, int] | None = None
            if entry is not None:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    status = os.stat(path, follow_symlinks=False)
                    current = status.st_dev, status.st_ino
            chunk = read_open(fd, cursor, max_bytes=max_bytes)
            if entry is None:
                keep = self._wall() - os.fstat(fd).st_mtime < self._idle
                entry = _OpenFile(fd, (chunk.cursor.dev, chunk.cursor.ino), 0.0)
            elif current == entry.identity or chunk.more:
                keep = True
            else:
                tail = last_line(fd, chunk.cursor)
                chunk = msgspec.structs.replace(chunk, tail=tail, more=current is not None)
        finally:
            if not keep:
                os.close(fd)
        if keep:
            entry.used = self._clock()
            self._put(path, entry)
        return chunk

    def last_line(self, path: str, cursor: Cursor, *, root: str | None = None) -> LastLine | None:
        entry = self._take(path)
        fd = open_regular(path, root=root) if entry is None else entry.fd
        try:
            return last_line(fd, cursor)
        finally:
            if entry is None:
                os.close(fd)
            else:
                self._put(path, entry)

    def paths(self) -> list[str]:
        """The files with a cached descriptor, even if their paths name other files now."""
        with self._lock:
            return list(self._cache)

    def release(self, path: str) -> None:
        entry = self._take(path)
        if entry is not None:
            os.close(entry.fd)

    def expire(self) -> None:
        """Closes files not read for a while, which frees the disk space of deleted ones."""
        oldest = self._clock() - self._idle
        with self._lock:
            idle = [path for path, entry in self._cache.items() if entry.used < oldest]
            entries = [self._cache.pop(path) for path in idle]
        for entry in entries:
            os.close(entry.fd)

    def close(self) -> None:
        for path in self.paths():
            self.release(path)

    def _take(self, path: str) -> _OpenFile | None:
        """Removes an entry from the cache: the caller owns its descriptor until it is put back."""
        with self._lock:
            return self._cache.pop(path, None)

    def _put(self, path: str, entry: _OpenFile) -> None:
        with self._lock:
            surplus = [self._cache.pop(path)] if path in self._cache else []
            self._cache[path] = entry
            while len(self._cache) > self._limit:
                surplus.append(self._cache.popitem(last=False)[1])
        for other in surplus:
            os.close(other.fd)
