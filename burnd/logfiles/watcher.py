"""Which paths changed, as sets and never as events; it decides when to trust watchdog, when to poll and when to scan.

Watching is a hint. The truth is the scan that the caller does whenever it is told `scan_all`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Literal, Self

import anyio
import anyio.to_thread
import msgspec

from burnd.logfiles.dirty import LIMIT, Drained, Inbox
from burnd.logfiles.observe import Observe, observe
from burnd.logfiles.scanner import SUFFIX, Root, Suffix, walk
from burnd.logfiles.supervise import Supervisor

_ROUTINE = _POLLING, _TIMER = ("polling", "timer")
_SCAN_SHARE = 20  # when polling, rest at least so many times as long as a scan takes


class Times(msgspec.Struct, frozen=True):
    """How often things are done, in seconds."""

    window: float = 0.005  # how long hints are gathered before they are handed out
    roots: float = 5.0
    alive: float = 10.0
    scan: float = 55.0  # the truth, within a minute, and most of what an idle daemon costs
    poll: float = 2.0  # scans when polling, and the least time between scans caused by events
    retry: float = 3600.0  # from giving up watching to trying again
    jump: float = 60.0  # waking up so much later than planned means that the machine slept


class Dirty(msgspec.Struct, frozen=True):
    """Files that changed. With `scan_all`, others may have changed too, for the reason given."""

    paths: set[str]
    scan_all: bool = False
    reason: str = ""


def boot_clock() -> float:
    """Seconds since the machine was started, with the time that it slept where the system can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Watcher:
    """Waits for changes below the named roots, which need not exist. An async context manager.

    One task calls `changes` again and again; after every scan it was asked for, it tells `scanned`.
    """

    def __init__(
        self,
        named: Sequence[str],
        *,
        suffix: Suffix = SUFFIX,
        times: Times | None = None,
        clock: Callable[[], float] = boot_clock,
        observe: Observe = observe,
    ) -> None:
        self._suffix = suffix
        self._times = times or Times()
        self._clock = clock
        self._inbox = Inbox(self._wake)
        self._supervisor = Supervisor(
            named,
            self._inbox,
            observe,
            suffix=suffix,
            roots_every=self._times.roots,
            alive_every=self._times.alive,
            retry_after=self._times.retry,
        )
        self._scan_at = float("-inf")
        self._scan_reason = "start"
        self._scanned_at = float("-inf")
        self._scan_took = 0.0
        self._expected = float("inf")
        self._bell = anyio.Event()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._bell = anyio.Event()
        self._thread = anyio.CapacityLimiter(1)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._supervisor.stop, limiter=self._thread)

    @property
    def state(self) -> Literal["watching", "polling", "waiting"]:
        return self._supervisor.state

    @property
    def detail(self) -> str:
        return self._supervisor.detail

    @property
    def remedy(self) -> str:
        return self._supervisor.remedy

    @property
    def roots(self) -> list[Root]:
        """The roots that are there now: what a scan is to walk."""
        return self._supervisor.roots

    def add_roots(self, named: Sequence[str]) -> None:
        """Watch below these as well; they need not exist yet."""
        self._supervisor.add_roots(named)
        self._ring()

    async def changes(self) -> Dirty:
        """What changed since the last call; waits until something did or a scan is due."""
        while True:
            await self._rest()
            drained = self._inbox.drain()
            try:
                await self._look_after_the_watch(drained.cause)
                dirty = await self._gather(drained)
            except BaseException:
                self._inbox.restore(drained)  # whoever cancels a call still gets its hints from the next
                raise
            if dirty.paths or dirty.scan_all:
                return dirty

    def scanned(self, *, directories: int, seconds: float) -> None:
        """Tell what a scan found and cost: it shows what watchdog missed, and how often polling may scan."""
        self._scan_took = seconds
        self._supervisor.compare(directories)
        if self.state == "polling":
            self._scan_at = max(self._scan_at, self._clock() + self._interval())

    async def _rest(self) -> None:
        now = self._tell_time()
        planned = max(now, min(self._scan_at, self._supervisor.due()))
        self._expected = planned
        with anyio.move_on_after(planned - now):
            await self._bell.wait()
            # A writer's flush is several events; waiting for the rest of them makes it one wake-up.
            await anyio.sleep(self._times.window)
        self._bell = anyio.Event()
        self._tell_time()

    def _tell_time(self) -> float:
        """The time, which also shows whether the machine slept since it was last told."""
        now = self._clock()
        if now - self._expected > self._times.jump:
            self._want_scan("the machine slept")
        self._expected = now
        return now

    async def _look_after_the_watch(self, cause: str | None) -> None:
        now = self._clock()
        if cause is not None or now >= self._supervisor.due():
            await anyio.to_thread.run_sync(self._supervisor.check, now, cause, limiter=self._thread)
        news = self._supervisor.take_news()
        if news is not None:
            self._want_scan(news, at_once=True)
        elif cause is not None:
            self._want_scan(cause)

    def _want_scan(self, reason: str, *, at_once: bool = False) -> None:
        now = self._clock()
        # A flood of events must not become a flood of scans.
        at = now if at_once else max(now, self._scanned_at + self._times.poll)
        # Told even where a scan is due anyway, unless that has a reason of its own: it may happen only once.
        if at < self._scan_at or self._scan_reason in _ROUTINE:
            self._scan_at = min(at, self._scan_at)
            self._scan_reason = reason

    async def _gather(self, drained: Drained) -> Dirty:
        now = self._clock()
        if now >= self._scan_at:
            dirty = Dirty(paths=drained.paths, scan_all=True, reason=self._scan_reason)
            self._scanned_at = now
            self._scan_at = now + self._interval()
            self._scan_reason = _POLLING if self.state == "polling" else _TIMER
            return dirty
        paths = drained.paths
        if drained.folders:
            paths = paths | await self._files_in(drained.folders)
        return Dirty(paths=paths)

    def _interval(self) -> float:
        if self.state != "polling":
            return self._times.scan
        return min(max(self._times.poll, _SCAN_SHARE * self._scan_took), self._times.scan)

    async def _files_in(self, folders: set[str]) -> set[str]:
        found = await anyio.to_thread.run_sync(_list, folders, self._suffix, limiter=self._thread)
        if len(found) > LIMIT:
            self._want_scan("a large folder appeared")
            return set()
        return found

    def _wake(self) -> None:
        # Called from watchdog's threads; after the loop is closed nobody is left to be woken.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._bell.set()


def _list(folders: Iterable[str], suffix: Suffix) -> set[str]:
    found = itertools.chain.from_iterable(walk(folder, suffix=suffix) for folder in folders)
    return {file.path for file in itertools.islice(found, LIMIT + 1)}
