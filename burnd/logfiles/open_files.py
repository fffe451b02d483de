"""Caches descriptors of growing files, so that their last lines can be read after a replace or unlink."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from burnd.logfiles.cursor import Cursor
from burnd.logfiles.safe_open import open_regular
from burnd.logfiles.tail import MAX_BYTES, MAX_LINE, Chunk, Tail, read_open, unfinished

_Identity = tuple[int, int]


class _Open(msgspec.Struct):
    fd: int
    identity: _Identity
    used: float


class OpenFiles:
    """Reads files by path and caches the descriptors of at most `limit` files that changed lately.

    Over the limit, the least recently read one is closed.
    Safe to use from several threads: a worker thread reads while the event loop expires and releases. An entry is
    taken out of the cache while it is read, so no other thread can close its descriptor; the lock covers the cache
    only and is never held during I/O. `clock` is monotonic. `wall` time is compared with modification times; those
    only decide what is worth caching, never what is read.
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
        self._cache: OrderedDict[str, _Open] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cache)

    def read(
        self,
        path: str,
        cursor: Cursor | None,
        *,
        root: str | None = None,
        max_bytes: int = MAX_BYTES,
        max_line: int = MAX_LINE,
    ) -> Chunk:
        """Read on. A file that lost its path is read to its end first; its last chunk is marked `ended`.

        If another file took its place, that chunk also says `more`, and the next call starts on the new file.
        """
        entry = self._take(path)
        fd = open_regular(path, root=root) if entry is None else entry.fd
        keep = False  # a descriptor can go stale for good: after an error the next call opens the file again
        try:
            # Looked up before reading: bytes that reach the old file in between are still read from it.
            current = None if entry is None else _identity(path)
            chunk = read_open(fd, cursor, max_bytes=max_bytes, max_line=max_line)
            if entry is None:
                keep = self._wall() - os.fstat(fd).st_mtime < self._idle
                entry = _Open(fd, (chunk.cursor.dev, chunk.cursor.ino), 0.0)
            elif current == entry.identity or chunk.more:
                keep = True
            else:
                tail = unfinished(fd, chunk.cursor, max_line=max_line)
                chunk = msgspec.structs.replace(chunk, ended=True, tail=tail, more=current is not None)
        finally:
            if not keep:
                os.close(fd)
        if keep:
            entry.used = self._clock()
            self._put(path, entry)
        return chunk

    def unfinished(
        self, path: str, cursor: Cursor, *, root: str | None = None, max_line: int = MAX_LINE
    ) -> Tail | None:
        """The bytes after the last newline of a file that was read to its end and has been quiet since."""
        entry = self._take(path)
        fd = open_regular(path, root=root) if entry is None else entry.fd
        try:
            return unfinished(fd, cursor, max_line=max_line)
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
        """Close files that were not read for a while: a deleted file's disk space is not free until then."""
        oldest = self._clock() - self._idle
        with self._lock:
            idle = [path for path, entry in self._cache.items() if entry.used < oldest]
            entries = [self._cache.pop(path) for path in idle]
        for entry in entries:
            os.close(entry.fd)

    def close(self) -> None:
        for path in self.paths():
            self.release(path)

    def _take(self, path: str) -> _Open | None:
        """Remove an entry from the cache: its descriptor belongs to the caller until it is put back."""
        with self._lock:
            return self._cache.pop(path, None)

    def _put(self, path: str, entry: _Open) -> None:
        """Add an entry as the most recent one, and close what exceeds the limit."""
        with self._lock:
            surplus = [self._cache.pop(path)] if path in self._cache else []
            self._cache[path] = entry
            while len(self._cache) > self._limit:
                surplus.append(self._cache.popitem(last=False)[1])
        for other in surplus:
            os.close(other.fd)


def _identity(path: str) -> _Identity | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
