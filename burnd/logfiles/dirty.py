"""The set of paths that changed since somebody last asked, filled by the watcher's threads and bounded in size."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

LIMIT = 10_000
BURST = 4_096


class Drained(msgspec.Struct, frozen=True):
    """What came in since the last drain. A cause means that more happened than the paths tell: scan everything."""

    paths: set[str]
    folders: set[str]
    cause: str | None


class Inbox:
    """Collects hints from any thread. Nothing here raises, waits or does I/O.

    `wake` is called once per drain at most, from the thread that brought the first hint.
    """

    def __init__(self, wake: Callable[[], None], *, limit: int = LIMIT, burst: int = BURST) -> None:
        self._wake = wake
        self._limit = limit
        self._burst = burst
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._paths: set[str] = set()
        self._folders: set[str] = set()
        self._cause: str | None = None
        self._events = 0
        self._rung = False

    def changed(self, path: str) -> None:
        """A file was made, written, moved or removed."""
        with self._lock:
            self._count()
            if len(self._paths) < self._limit:
                self._paths.add(path)
            elif path not in self._paths:
                self._cause = self._cause or "too many changed files"
            first = self._ring()
        if first:
            self._wake()

    def appeared(self, folder: str) -> None:
        """A folder came to be; files may have been put into it before anybody watched it."""
        with self._lock:
            self._count()
            if len(self._folders) < self._limit:
                self._folders.add(folder)
            else:
                self._cause = self._cause or "too many new folders"
            first = self._ring()
        if first:
            self._wake()

    def ignored(self) -> None:
        """Something changed that nobody wants to read; many of these still mean that others may have been lost."""
        with self._lock:
            self._count()
            first = self._cause is not None and self._ring()
        if first:
            self._wake()

    def alarm(self, cause: str) -> None:
        """Events are missing, or were told badly: only a scan shows what changed."""
        with self._lock:
            self._cause = self._cause or cause
            first = self._ring()
        if first:
            self._wake()

    def drain(self) -> Drained:
        with self._lock:
            drained = Drained(paths=self._paths, folders=self._folders, cause=self._cause)
            self._clear()
        return drained

    def restore(self, drained: Drained) -> None:
        """Put back what was fetched by somebody who could not use it."""
        with self._lock:
            self._paths |= drained.paths
            self._folders |= drained.folders
            self._cause = drained.cause or self._cause
            first = self._ring()
        if first:
            self._wake()

    def _count(self) -> None:
        self._events += 1
        if self._events > self._burst:
            self._cause = self._cause or "burst of events"

    def _ring(self) -> bool:
        first, self._rung = not self._rung, True
        return first
