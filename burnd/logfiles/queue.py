"""Decides which log is read next, and when one that failed is tried again. Does no I/O."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping

import msgspec

FIRST_DELAY = 1.0
LAST_DELAY = 300.0
MANY_FILES = 50  # more than live agents write at once


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A log that could not be read, for `status`."""

    reason: str
    attempts: int
    since: float
    retry_at: float


class _ActiveLog(msgspec.Struct):
    """A log that is being worked on: whether it changed meanwhile, and its age if it came from the backlog."""

    again: bool = False
    age: float | None = None


class Queue:
    """Live logs in the order in which they changed; large ones, with more to read than is read at once; old ones.

    Live logs are read by one task, large and old ones by another, so that neither kind waits for the other. A log is
    worked on by one task at a time, from `take...` to `done`, `release`, `defer` or `failed`; a change meanwhile is
    remembered until then.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.live: dict[str, float] = {}  # in order, with the time since when each waits
        self.large: dict[str, None] = {}  # in order
        self.old: dict[str, float] = {}  # with their modification times, oldest first
        self.busy: dict[str, _ActiveLog] = {}
        self._failures: dict[str, Failure] = {}
        self._retries: list[tuple[float, str]] = []
        self._flushing: dict[str, int] = {}  # logs that a flush waits for, and how often each is yet to be read
        self._unread: set[str] = set()  # logs with old lines, or with more new ones than one read takes

    def __len__(self) -> int:
        """The number of logs that wait or are worked on; those that wait after a failure do not count."""
        return len(self.live) + len(self.large) + len(self.old) + len(self.busy)

    @property
    def has_old(self) -> bool:
        """Whether large or old logs wait."""
        return bool(self.large or self.old)

    @property
    def has_only_live(self) -> bool:
        """Whether no log is worked on and no large or old one waits."""
        return not (self.busy or self.has_old)

    @property
    def is_flushing(self) -> bool:
        """Whether some log that waited at `begin_flush` was not read to its end since."""
        return bool(self._flushing)

    @property
    def is_behind(self) -> bool:
        """Whether sums are incomplete: old logs, a log that takes several reads, or many logs wait."""
        return bool(self._unread) or len(self) > MANY_FILES

    @property
    def failures(self) -> Mapping[str, Failure]:
        return self._failures

    def lag(self) -> float:
        """How long the live log that waits longest has waited."""
        since = next(iter(self.live.values()), None)
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def add(self, path: str) -> None:
        """Adds a log that changed. One that failed waits for its retry all the same."""
        if path in self.busy:
            self.busy[path].again = True
        elif path not in self._failures:
            self.old.pop(path, None)
            if path not in self.large:
                self.live.setdefault(path, self._clock())

    def backfill(self, files: Iterable[tuple[str, float]]) -> None:
        """Adds old logs, with their modification times."""
        files = list(files)
        self._unread.update(path for path, _ in files if path not in self._failures)
        for path in self.busy.keys() & {path for path, _ in files}:
            self.busy[path].again = True  # it may have been read before it changed
        waiting = (self.live, self.large, self.busy, self._failures)
        fresh = {path: mtime for path, mtime in files if not any(path in place for place in waiting)}
        self.old = dict(sorted((self.old | fresh).items(), key=lambda item: item[1]))

    def begin_flush(self) -> None:
        """Begins to track the logs that wait now: a flush is done when all of them were read, however they grow."""
        self._flushing = dict.fromkeys((*self.live, *self.large, *self.old), 1)
        self._flushing |= {path: 1 + work.again for path, work in self.busy.items()}

    def take(self) -> str | None:
        """The live log to read next."""
        now = self._clock()
        while (at := self.due()) is not None and at <= now:
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
        """The large or old log to read next: large ones in turn, old ones newest first and each to its end."""
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
        """Takes a log to settle it, not to read it; False if another task reads it or is about to."""
        if path in self.large or path in self.old or path in self.busy:
            return False
        self.busy[path] = _ActiveLog()
        return True

    def is_old(self, path: str) -> bool:
        """Whether a log that is being read is an old one, which nothing was written to meanwhile."""
        work = self.busy.get(path)
        return work is not None and work.age is not None and not work.again

    def done(self, path: str, *, more: bool) -> None:
        """Ends the work on a log that was read, also if it is gone; `more` if there is more to read at once."""
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
            self.old[path] = work.age  # the newest session is complete before the next begins
        elif more:
            self.large[path] = None
        elif work.again:
            self.live[path] = self._clock()

    def release(self, path: str) -> None:
        """Ends the work on a log that was not read."""
        if self.busy.pop(path).again:
            self.add(path)

    def defer(self, path: str) -> None:
        """Leaves a live log to the task that reads large ones."""
        self.busy.pop(path)
        self.large[path] = None

    def failed(self, path: str, reason: str) -> None:
        """Ends the work on a log that could not be read. It is tried again after a while that doubles each time."""
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
        """Lets the logs that failed be tried at once."""
        self._retries.clear()
        for path in self._failures.keys() - self.busy.keys() - self.large.keys():
            self.live.setdefault(path, self._clock())

    def forget(self, path: str) -> None:
        """Drops a log that was deleted; a task that is reading it continues."""
        for waiting in (self.live, self.large, self.old):
            waiting.pop(path, None)
        if path not in self.busy:
            self._failures.pop(path, None)
            self._flushing.pop(path, None)
            self._unread.discard(path)

    def due(self) -> float | None:
        """When a log that failed is to be tried next."""
        while self._retries and not self._is_current(*self._retries[0]):
            heapq.heappop(self._retries)
        return self._retries[0][0] if self._retries else None

    def _is_current(self, at: float, path: str) -> bool:
        failure = self._failures.get(path)
        return failure is not None and failure.retry_at == at
