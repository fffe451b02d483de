"""Decides which log is read next, and when one that failed is tried again. Does no I/O."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping

import msgspec

FIRST_DELAY = 1.0
LAST_DELAY = 300.0
MANY_FILES = 50  # more than live agents write at once


class Failure(msgspec.Struct, frozen=True, gc=False):
    reason: str
    attempts: int
    since: float
    retry_at: float


class _ActiveLog(msgspec.Struct):
    """A log in work: whether it changed meanwhile, and its age if it came from the backlog."""

    again: bool = False
    age: float | None = None


class Queue:
    """Live logs in order of change; large ones, with more than one read takes; old ones.

    One task reads live logs, another large and old ones, so that neither kind waits for the other. A log is in work
    from `take...` to `done`, `release`, `defer` or `failed`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.live: dict[str, float] = {}  # in order, each with the time since when it waits
        self.large: dict[str, None] = {}  # in order
        self.old: dict[str, float] = {}  # with their modification times, oldest first
        self.busy: dict[str, _ActiveLog] = {}
        self._failures: dict[str, Failure] = {}
        self._retries: list[tuple[float, str]] = []
        self._flushing: dict[str, int] = {}  # logs that a flush waits for, with the reads that each still needs
        self._unread: set[str] = set()  # logs with old lines, or with more new ones than one read takes

    def __len__(self) -> int:
        """Counts logs that wait or are in work, without those that wait for a retry."""
        return len(self.live) + len(self.large) + len(self.old) + len(self.busy)

    @property
    def has_old(self) -> bool:
        return bool(self.large or self.old)

    @property
    def has_only_live(self) -> bool:
        return not (self.busy or self.has_old)

    @property
    def is_flushing(self) -> bool:
        return bool(self._flushing)

    @property
    def is_behind(self) -> bool:
        """Whether totals are incomplete: old logs, a log that takes several reads, or many logs wait."""
        return bool(self._unread) or len(self) > MANY_FILES

    @property
    def failures(self) -> Mapping[str, Failure]:
        return self._failures

    def lag(self) -> float:
        since = next(iter(self.live.values()), None)
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def add(self, path: str) -> None:
        if path in self.busy:
            self.busy[path].again = True
        elif path not in self._failures:
            self.old.pop(path, None)
            if path not in self.large:
                self.live.setdefault(path, self._clock())

    def backfill(self, files: Iterable[tuple[str, float]]) -> None:
        files = list(files)
        self._unread.update(path for path, _ in files if path not in self._failures)
        for path in self.busy.keys() & {path for path, _ in files}:
            self.busy[path].again = True  # it may have been read before the change
        waiting = (self.live, self.large, self.busy, self._failures)
        fresh = {path: mtime for path, mtime in files if not any(path in place for place in waiting)}
        self.old = dict(sorted((self.old | fresh).items(), key=lambda item: item[1]))

    def begin_flush(self) -> None:
        """Tracks the logs that wait now: the flush is done when each was read, however it grows."""
        self._flushing = dict.fromkeys((*self.live, *self.large, *self.old), 1)
        self._flushing |= {path: 1 + work.again for path, work in self.busy.items()}

    def take(self) -> str | None:
        while self._retries and (at := self.due()) is not None and at <= self._clock():
            _, path = heapq.heappop(self._retries)
            if path not in self.busy:
                self.live.setdefault(path, at)
        if not self.live:
            return None
        path = next(iter(self.live))
        del self.live[path]
        self.busy[path] = _ActiveLog()
        return path

    def take_old(self) -> str | None:
        """Large logs in turn, then old ones, newest first and each to its end."""
        if self.large:
            path = next(iter(self.large))
            del self.large[path]
            self.busy[path] = _ActiveLog()
        elif self.old:
            path, age = self.old.popitem()
            self.busy[path] = _ActiveLog(age=age)
        else:
            return None
        return path

    def take_quiet(self, path: str) -> bool:
        """Takes a log to settle it; False if another task reads it or is about to."""
        if path in self.large or path in self.old or path in self.busy:
            return False
        self.busy[path] = _ActiveLog()
        return True

    def is_old(self, path: str) -> bool:
        """Whether a log in work is old and was not written to meanwhile."""
        work = self.busy.get(path)
        return work is not None and work.age is not None and not work.again

    def done(self, path: str, *, more: bool) -> None:
        work = self.busy.pop(path)
        self._failures.pop(path, None)
        if path in self._flushing:
            reads = 1 if more else self._flushing.pop(path) - 1
            if reads:
                self._flushing[path] = reads
        if more:
            self._unread.add(path)
        else:
            self._unread.discard(path)
        if more and work.age is not None and not work.again:
            self.old[path] = work.age  # the newest session is completed first
        elif more:
            self.large[path] = None
        elif work.again:
            self.live[path] = self._clock()

    def release(self, path: str) -> None:
        if self.busy.pop(path).again:
            self.add(path)

    def defer(self, path: str) -> None:
        """Leaves a live log to the task that reads large ones."""
        self.busy.pop(path)
        self.large[path] = None

    def failed(self, path: str, reason: str) -> None:
        del self.busy[path]
        self._flushing.pop(path, None)
        self._unread.discard(path)
        now = self._clock()
        before = self._failures.get(path)
        attempts = 1 if before is None else before.attempts + 1
        retry_at = now + min(FIRST_DELAY * 2.0 ** min(attempts - 1, 30), LAST_DELAY)
        since = now if before is None else before.since
        self._failures[path] = Failure(reason=reason, attempts=attempts, since=since, retry_at=retry_at)
        heapq.heappush(self._retries, (retry_at, path))

    def retry_failed(self) -> None:
        self._retries.clear()
        for path in self._failures.keys() - self.busy.keys() - self.large.keys():
            self.live.setdefault(path, self._clock())

    def forget(self, path: str) -> None:
        for waiting in (self.live, self.large, self.old):
            waiting.pop(path, None)
        if path not in self.busy:
            self._failures.pop(path, None)
            self._flushing.pop(path, None)
            self._unread.discard(path)

    def due(self) -> float | None:
        while self._retries:
            at, path = self._retries[0]
            failure = self._failures.get(path)
            if failure is not None and failure.retry_at == at:
                return at
            heapq.heappop(self._retries)
        return None
