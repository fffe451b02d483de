"""Descriptors of files that are being written, kept open so that what was written last outlives a replace or unlink."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from burnd.sources.cursor import Cursor
from burnd.sources.safe_open import open_regular
from burnd.sources.tail import MAX_BYTES, MAX_LINE, Chunk, Tail, read_open, unfinished

_Identity = tuple[int, int]


class _Held(msgspec.Struct):
    fd: int
    identity: _Identity
    used: float


class OpenFiles:
    """Reads files by path and holds those that changed lately, at most `limit`, the least recently read leaving first.

    To be used by one thread at a time. `clock` is one that nobody sets. `wall` time is compared with modification
    times; those only decide what is worth holding, never what is read.
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
        self._held: OrderedDict[str, _Held] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

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
        held = self._held.get(path)
        if held is None:
            return self._read_anew(path, cursor, root, max_bytes, max_line)
        self._held.move_to_end(path)
        held.used = self._clock()
        try:
            return self._read_held(path, held, cursor, max_bytes, max_line)
        except OSError:
            self.release(path)  # a descriptor can go stale for good; the next try opens the file again
            raise

    def unfinished(
        self, path: str, cursor: Cursor, *, root: str | None = None, max_line: int = MAX_LINE
    ) -> Tail | None:
        """What stands after the last newline of a file that was read to its end and has been quiet since."""
        held = self._held.get(path)
        if held is not None:
            return unfinished(held.fd, cursor, max_line=max_line)
        fd = open_regular(path, root=root)
        try:
            return unfinished(fd, cursor, max_line=max_line)
        finally:
            os.close(fd)

    def paths(self) -> list[str]:
        """The files that are held, whether their paths still name them or not."""
        return list(self._held)

    def release(self, path: str) -> None:
        held = self._held.pop(path, None)
        if held is not None:
            os.close(held.fd)

    def expire(self) -> None:
        """Let go of files that were not read for a while: a held file's disk space is not free after an unlink."""
        oldest = self._clock() - self._idle
        for path in [path for path, held in self._held.items() if held.used < oldest]:
            self.release(path)

    def close(self) -> None:
        for path in list(self._held):
            self.release(path)

    def _read_held(self, path: str, held: _Held, cursor: Cursor | None, max_bytes: int, max_line: int) -> Chunk:
        # Looked up before reading: bytes that reach the old file in between are still read from it.
        now_there = _identity(path)
        chunk = read_open(held.fd, cursor, max_bytes=max_bytes, max_line=max_line)
        if now_there == held.identity or chunk.more:
            return chunk
        tail = unfinished(held.fd, chunk.cursor, max_line=max_line)
        self.release(path)
        return msgspec.structs.replace(chunk, ended=True, tail=tail, more=now_there is not None)

    def _read_anew(self, path: str, cursor: Cursor | None, root: str | None, max_bytes: int, max_line: int) -> Chunk:
        fd = open_regular(path, root=root)
        try:
            chunk = read_open(fd, cursor, max_bytes=max_bytes, max_line=max_line)
            keep = self._wall() - os.fstat(fd).st_mtime < self._idle
        except BaseException:
            os.close(fd)
            raise
        if keep and self._limit > 0:
            self._hold(path, fd, chunk.cursor)
        else:
            os.close(fd)
        return chunk

    def _hold(self, path: str, fd: int, cursor: Cursor) -> None:
        self._held[path] = _Held(fd=fd, identity=(cursor.dev, cursor.ino), used=self._clock())
        while len(self._held) > self._limit:
            self.release(next(iter(self._held)))


def _identity(path: str) -> _Identity | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
