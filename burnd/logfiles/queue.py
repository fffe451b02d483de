"""Whose turn it is: which file is read next, for how long, and when one that failed is tried again.

It does no I/O and knows no time but the clock it was given.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping

import msgspec

SLOT_BYTES = 4 << 20
FIRST_DELAY = 1.0
LAST_DELAY = 300.0
MANY_FILES = 50  # more than live agents write at once


class Slot(msgspec.Struct, frozen=True, gc=False):
    """Leave to read one file: so many bytes, once."""

    path: str
    max_bytes: int


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A file that could not be read, for `status`."""

    reason: str
    attempts: int
    since: float
    retry_at: float


class _Out(msgspec.Struct):
    """A file having its turn: whether it became dirty meanwhile, and its place in the backlog if it came from there."""

    again: bool = False
    age: float | None = None


class Queue:
    """Live files take turns in the order in which they became dirty. A backlog is read behind them, newest first.

    The backlog has no claim on a turn while live files wait, but gets one when it had none for `backlog_after`
    seconds: neither can starve the other. A file is out for one turn at a time; what is said about it meanwhile
    is remembered until its turn is over.
    """

    def __init__(self, clock: Callable[[], float], *, backlog_after: float = 1.0) -> None:
        self._clock = clock
        self._backlog_after = backlog_after
        self._live: dict[str, float] = {}  # in order of their turns, with the time since when each waits
        self._backlog: dict[str, float] = {}  # with their modification times, oldest first
        self._backlog_served = clock()
        self._out: dict[str, _Out] = {}
        self._failures: dict[str, Failure] = {}
        self._retries: list[tuple[float, str]] = []
        self._unread: set[str] = set()  # files with old lines, or with more new ones than one slot reads

    def __len__(self) -> int:
        """Files waiting for a turn or having one; those that wait after a failure do not count."""
        return len(self._live) + len(self._backlog) + len(self._out)

    @property
    def has_live(self) -> bool:
        """Whether a file that just grew waits for its turn."""
        return bool(self._live)

    @property
    def is_behind(self) -> bool:
        """Whether sums are incomplete: old logs, a file that takes several slots, or many files wait."""
        return bool(self._unread) or len(self) > MANY_FILES

    @property
    def failures(self) -> Mapping[str, Failure]:
        return self._failures

    def lag(self) -> float:
        """How long the live file that is next has been waiting."""
        since = next(iter(self._live.values()), None)
        return 0.0 if since is None else self._clock() - since

    def add(self, path: str) -> None:
        """A file is dirty. One that failed lately keeps waiting: a busy file must not undo its own back-off."""
        out = self._out.get(path)
        if out is not None:
            out.again = True
        elif path not in self._failures:
            self._backlog.pop(path, None)
            self._live.setdefault(path, self._clock())

    def backfill(self, files: Iterable[tuple[str, float]], *, is_old: bool = True) -> None:
        """Queues files at low priority, with their modification times, which only decide the order.

        The queue is behind until files with `is_old` have been read.
        """
        files = list(files)
        if is_old:
            self._unread.update(path for path, _ in files if path not in self._failures)
        if not self._backlog:
            self._backlog_served = self._clock()
        known = (self._live, self._out, self._failures)
        fresh = {path: mtime for path, mtime in files if not any(path in place for place in known)}
        self._backlog = dict(sorted((self._backlog | fresh).items(), key=lambda item: item[1]))

    def take(self) -> Slot | None:
        """Whose turn it is now, if anybody's. Every turn ends with `done` or `failed`."""
        now = self._clock()
        self._wake_failed(now)
        overdue = now - self._backlog_served >= self._backlog_after
        if self._backlog and (overdue or not self._live):
            path, age = self._backlog.popitem()
            self._backlog_served = now
            self._out[path] = _Out(age=age)
        elif self._live:
            path = next(iter(self._live))
            del self._live[path]
            self._out[path] = _Out()
        else:
            return None
        return Slot(path=path, max_bytes=SLOT_BYTES)

    def is_out(self, path: str) -> bool:
        """Whether a file is having its turn."""
        return path in self._out

    def done(self, path: str, *, more: bool) -> None:
        """A turn went well, also if the file is gone; `more` says that another can be used at once."""
        out = self._out.pop(path)
        self._failures.pop(path, None)
        if more:
            self._unread.add(path)
        else:
            self._unread.discard(path)
        if more and out.age is not None and not out.again:
            # Nobody writes to it, so it will come to its end: the newest session is whole before the next begins.
            self._backlog[path] = out.age
        elif more or out.again:
            self._live[path] = self._clock()

    def failed(self, path: str, reason: str) -> None:
        """The file could not be read. It is tried again after a while that doubles each time."""
        del self._out[path]
        self._unread.discard(path)
        now = self._clock()
        before = self._failures.get(path)
        attempts = 1 if before is None else before.attempts + 1
        retry_at = now + min(FIRST_DELAY * 2.0 ** min(attempts - 1, 30), LAST_DELAY)
        since = now if before is None else before.since
        self._failures[path] = Failure(reason=reason, attempts=attempts, since=since, retry_at=retry_at)
        heapq.heappush(self._retries, (retry_at, path))

    def retry_failed(self) -> None:
        """Somebody asks for everything that can be read now: what failed is tried at once."""
        self._retries.clear()
        for path in self._failures.keys() - self._out.keys():
            self._live.setdefault(path, self._clock())

    def forget(self, path: str) -> None:
        """The file is gone for good; if it is having its turn, that goes on."""
        self._live.pop(path, None)
        self._backlog.pop(path, None)
        if path not in self._out:
            self._failures.pop(path, None)
            self._unread.discard(path)

    def due(self) -> float | None:
        """When a file that failed is to be tried next."""
        while self._retries and not self._is_current(*self._retries[0]):
            heapq.heappop(self._retries)
        return self._retries[0][0] if self._retries else None

    def _wake_failed(self, now: float) -> None:
        while (at := self.due()) is not None and at <= now:
            _, path = heapq.heappop(self._retries)
            self._live.setdefault(path, at)

    def _is_current(self, at: float, path: str) -> bool:
        failure = self._failures.get(path)
        return failure is not None and failure.retry_at == at
