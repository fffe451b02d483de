"""Turns watchdog's events into a set of changed paths, and decides when to trust it, when to poll and when to scan.

Watching is a hint. The truth is the scan that the caller makes whenever `Changes.scan_all` is set: at the start, after
lost events, when roots or the watch changed, after sleep, and on a timer. What watchdog hides on Linux is in `inotify`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self

import anyio
import anyio.to_thread
import msgspec
from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from burnd.logfiles.scanner import SUFFIX, Root, Suffix, present, walk
from burnd.tasks import next_tick

LIMIT = 10_000  # paths
BURST = 4_096  # events between two drains
ROOT_LOST = "a watched root was removed"
# Without opened and closed: our own reading would make events, and reading because of them would never end.
EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]
_STOP_SECONDS = 2.0
_DEATHS_BEFORE_POLLING = 3
_SHORT_SCANS_BEFORE_RESTART = 2
_ROUTINE = _POLLING, _TIMER = ("polling", "timer")
_SCAN_SHARE = 20  # when polling, rest at least so many times as long as a scan takes


class Times(msgspec.Struct, frozen=True):
    """How often things are done, in seconds."""

    window: float = 0.005  # how long events are collected before they are returned
    roots: float = 5.0
    alive: float = 10.0
    scan: float = 55.0  # the truth, within a minute, and most of what an idle daemon costs
    poll: float = 2.0  # scans when polling, and the least time between scans caused by events
    retry: float = 3600.0  # from giving up watching to trying again
    jump: float = 60.0  # waking up so much later than planned means that the machine slept


class Changes(msgspec.Struct, frozen=True):
    """Files that changed. With `scan_all`, others may have changed too, for the reason given."""

    paths: set[str]
    scan_all: bool = False
    reason: str = ""


def boot_clock() -> float:
    """Seconds since the machine was started, with the time that it slept where the system can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Drained(msgspec.Struct, frozen=True):
    """The events since the last drain. With a cause, more changed than the paths show: scan everything."""

    paths: set[str]
    folders: set[str]
    cause: str | None


class Inbox:
    """Collects changed paths from watchdog's threads, bounded in size. Nothing here raises, waits or does I/O.

    `wake` is called once per drain at most, from the thread that brought the first event.
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
        """Adds a file that was created, written, moved or removed."""
        with self._lock:
            first = self._add(self._paths, path, "too many changed files")
        if first:
            self._wake()

    def appeared(self, folder: str) -> None:
        """Adds a new folder; files may have been put into it before it was watched."""
        with self._lock:
            first = self._add(self._folders, folder, "too many new folders")
        if first:
            self._wake()

    def _add(self, names: set[str], name: str, if_full: str) -> bool:
        """Adds a name; called with the lock, since `drain` replaces the sets. Returns whether to wake."""
        self._count()
        if len(names) < self._limit:
            names.add(name)
        elif name not in names:
            self._cause = self._cause or if_full
        return self._ring()

    def ignored(self) -> None:
        """Counts an event of another file: after many of these, other events may have been lost."""
        with self._lock:
            self._count()
            first = self._cause is not None and self._ring()
        if first:
            self._wake()

    def alarm(self, cause: str) -> None:
        """Asks for a scan, because events are missing or could not be read."""
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
        """Puts back what was drained by a call that was cancelled."""
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


class Unwatchable(Exception):
    """Raised when watching cannot work here for now; its text is the reason and `remedy` what to do, for `status`.

    If it `passes`, it may be over in a moment by itself.
    """

    def __init__(self, reason: str, remedy: str = "", *, passes: bool = False) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.passes = passes


class Observation(Protocol):
    """A running watch over some roots."""

    def alive(self) -> bool: ...

    def refusal(self) -> Unwatchable | None:
        """Why some folders could not be watched, or None."""
        ...

    def watched(self) -> int | None:
        """How many folders are watched, where that can be known."""
        ...

    def stop(self) -> None: ...


class Observe(Protocol):
    """Starts a watch: blocking, called in a worker thread. Raises Unwatchable."""

    def __call__(self, roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Observation: ...


def observe(roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Observation:
    """Watches with the best means of this system."""
    if sys.platform == "linux":
        # Imported late: the module binds inotify's functions, which other systems do not have.
        from burnd.logfiles.inotify import observe_with_inotify  # noqa: PLC0415

        return observe_with_inotify(roots, inbox, suffix)
    return Watched(Observer(), roots, inbox, suffix)


class Watched:
    """One observer with one recursive watch per root."""

    def __init__(self, observer: BaseObserver, roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> None:
        self._observer = observer
        handler = EventHandler(inbox, suffix, roots)
        try:
            for root in roots:
                observer.schedule(handler, root, recursive=True, event_filter=EVENTS)
            observer.start()
        except BaseException:
            self.stop()
            raise

    def alive(self) -> bool:
        return self._observer.is_alive() and all(emitter.is_alive() for emitter in self._observer.emitters)

    def refusal(self) -> Unwatchable | None:
        return None

    def watched(self) -> int | None:
        return None

    def stop(self) -> None:
        self._observer.stop()
        with contextlib.suppress(RuntimeError):  # never started
            self._observer.join(_STOP_SECONDS)


class EventHandler(FileSystemEventHandler):
    """Puts events into the inbox. It must never raise: that would end watchdog's thread without a message."""

    def __init__(self, inbox: Inbox, suffix: Suffix, roots: Sequence[str]) -> None:
        self._inbox = inbox
        self._suffix = suffix
        self._roots = frozenset(roots)

    def dispatch(self, event: FileSystemEvent) -> None:
        try:
            self._note(event)
        except Exception:  # noqa: BLE001
            self._inbox.alarm("an event could not be read")

    def _note(self, event: FileSystemEvent) -> None:
        paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
        if event.is_directory:
            self._note_folder(event, paths)
            return
        wanted = [path for path in paths if path.endswith(self._suffix)]
        for path in wanted:
            self._inbox.changed(path)
        if not wanted:
            self._inbox.ignored()

    def _note_folder(self, event: FileSystemEvent, paths: list[str]) -> None:
        if not self._roots.isdisjoint(paths):
            self._inbox.alarm(ROOT_LOST)
        elif isinstance(event, DirCreatedEvent | DirMovedEvent):
            self._inbox.appeared(paths[-1])
        else:
            self._inbox.ignored()


class Supervisor:
    """Keeps a watch over roots that come and go: starts it, notices when it fails, and polls instead.

    Its methods block and are called from a worker thread, one at a time. `check` does what is due and remembers why a
    scan is needed, for `take_news`.
    """

    def __init__(
        self,
        named: Sequence[str],
        inbox: Inbox,
        observe: Observe,
        *,
        suffix: Suffix,
        roots_every: float,
        alive_every: float,
        retry_after: float,
    ) -> None:
        self._named = list(named)
        self._inbox = inbox
        self._observe = observe
        self._suffix = suffix
        self._every = {"roots": roots_every, "alive": alive_every, "retry": retry_after}
        self._due = {"roots": float("-inf")}
        self._observation: Observation | None = None
        self._given_up: Unwatchable | None = None
        self._news: str | None = None
        self._deaths = 0
        self._short_scans = 0
        self._short = 0
        self.roots: list[Root] = []

    @property
    def state(self) -> Literal["watching", "polling", "waiting"]:
        if not self.roots:
            return "waiting"
        return "watching" if self._observation is not None else "polling"

    @property
    def detail(self) -> str:
        if not self.roots:
            return "waiting for " + ", ".join(self._named)
        if self._observation is None:
            return f"polling: {self._given_up or 'the watcher is starting'}"
        watched = self._observation.watched()
        if watched is None:
            return "watching"
        if self._short:
            return f"watching {watched:,} of {watched + self._short:,} folders, scanning the others"
        return f"watching {watched:,} folders"

    @property
    def remedy(self) -> str:
        """What to do so that folders are watched again."""
        return self._given_up.remedy if self._given_up is not None else ""

    def add_roots(self, named: Sequence[str]) -> None:
        """Adds roots, which the next check looks at. May be called while another call runs in its thread."""
        self._named = [*self._named, *named]
        self._due["roots"] = float("-inf")

    def due(self) -> float:
        return min(self._due.values())

    def check(self, now: float, cause: str | None = None) -> None:
        """Checks the watch. `cause` is an alarm that it raised itself; with one, everything is checked at once."""
        self._news = self._check(now, cause) or self._news

    def take_news(self) -> str | None:
        news, self._news = self._news, None
        return news

    def _check(self, now: float, cause: str | None) -> str | None:
        if cause is not None or self._is_due("roots", now):
            roots = present(self._named)
            if roots != self.roots or cause == ROOT_LOST:
                self._restart(roots, now)
                return "the roots changed"
        if self._observation is None:
            return self._try_again(now)
        if self._give_up_if_refused(self._observation, now):
            return "watching was given up"
        if cause is not None or self._is_due("alive", now):
            return self._check_alive(self._observation, now)
        return None

    def compare(self, directories: int) -> None:
        """Compares with the number of folders that a scan found: watchdog does not report folders that it misses."""
        watched = None if self._observation is None else self._observation.watched()
        self._short = 0 if watched is None else max(0, directories - watched)
        # Twice, since a folder made during the scan may be ahead of its watch; once, since a restart may not help.
        self._short_scans = self._short_scans + 1 if self._short else 0
        if self._short_scans == _SHORT_SCANS_BEFORE_RESTART:
            self._due["alive"] = float("-inf")

    def stop(self) -> None:
        if self._observation is not None:
            self._observation.stop()
            self._observation = None
        self._due.pop("alive", None)

    def _is_due(self, what: str, now: float) -> bool:
        at = self._due.get(what)
        if at is None or now < at:
            return False
        self._due[what] = next_tick(now, self._every[what])
        return True

    def _check_alive(self, observation: Observation, now: float) -> str | None:
        if not observation.alive():
            self._deaths += 1
            if self._deaths >= _DEATHS_BEFORE_POLLING:
                self._give_up(Unwatchable("the watcher keeps failing"), now)
                return "watching was given up"
        elif self._short_scans != _SHORT_SCANS_BEFORE_RESTART:
            return None
        else:
            self._short_scans += 1
        self._restart(self.roots, now)
        return "the watcher was started again"

    def _try_again(self, now: float) -> str | None:
        if not self._is_due("retry", now):
            return None
        self._restart(self.roots, now)
        return None if self._observation is None else "watching again"

    def _give_up(self, why: Unwatchable, now: float) -> None:
        # All watches are removed: the limit is shared by all of a user's programs, and half a watch misleads.
        self.stop()
        self._given_up = why
        self._deaths = 0
        self._due["retry"] = now + self._every["alive" if why.passes else "retry"]

    def _restart(self, roots: list[Root], now: float) -> None:
        self.stop()
        self.roots = roots
        self._given_up = None
        self._due.pop("retry", None)
        if not roots:
            return
        try:
            self._observation = self._observe([root.path for root in roots], self._inbox, self._suffix)
        except Unwatchable as error:
            self._give_up(error, now)
        except (FileNotFoundError, NotADirectoryError):
            self.roots = []  # gone again: the next check of the roots starts over
        except Exception as error:  # noqa: BLE001
            # Whatever fails in the library, scans go on without it.
            self._give_up(Unwatchable(f"the watcher failed ({type(error).__name__})"), now)
        else:
            self._due["alive"] = next_tick(now, self._every["alive"])
            self._give_up_if_refused(self._observation, now)

    def _give_up_if_refused(self, observation: Observation, now: float) -> bool:
        refusal = observation.refusal()
        if refusal is not None:
            self._give_up(refusal, now)
        return refusal is not None


class Watcher:
    """Waits for changes below the named roots, which need not exist. An async context manager.

    One task calls `changes` in a loop, and `scanned` after every scan that was asked for.
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
        """The roots that exist now."""
        return self._supervisor.roots

    def add_roots(self, named: Sequence[str]) -> None:
        """Watches below these as well; they need not exist yet."""
        self._supervisor.add_roots(named)
        self._ring()

    async def changes(self) -> Changes:
        """The changes since the last call; waits for one or until a scan is due."""
        while True:
            await self._rest()
            drained = self._inbox.drain()
            try:
                await self._check_watch(drained.cause)
                changes = await self._gather(drained)
            except BaseException:
                self._inbox.restore(drained)  # the next call returns them
                raise
            if changes.paths or changes.scan_all:
                return changes

    def scanned(self, *, directories: int, seconds: float) -> None:
        """Takes the result of a scan: it shows what watchdog missed, and how often polling may scan."""
        self._scan_took = seconds
        self._supervisor.compare(directories)
        if self.state == "polling":
            self._scan_at = max(self._scan_at, self._clock() + self._interval())

    async def _rest(self) -> None:
        now = self._read_clock()
        planned = max(now, min(self._scan_at, self._supervisor.due()))
        self._expected = planned
        with anyio.move_on_after(planned - now):
            await self._bell.wait()
            # A writer's flush is several events; waiting for the rest of them makes it one wake-up.
            await anyio.sleep(self._times.window)
        self._bell = anyio.Event()
        self._read_clock()

    def _read_clock(self) -> float:
        """The time; asks for a scan if the machine slept since the last call."""
        now = self._clock()
        if now - self._expected > self._times.jump:
            self._want_scan("the machine slept")
        self._expected = now
        return now

    async def _check_watch(self, cause: str | None) -> None:
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
        # The reason is kept even if a scan is due anyway, unless that has one of its own.
        if at < self._scan_at or self._scan_reason in _ROUTINE:
            self._scan_at = min(at, self._scan_at)
            self._scan_reason = reason

    async def _gather(self, drained: Drained) -> Changes:
        now = self._clock()
        if now >= self._scan_at:
            changes = Changes(paths=drained.paths, scan_all=True, reason=self._scan_reason)
            self._scanned_at = now
            self._scan_at = now + self._interval()
            self._scan_reason = _POLLING if self.state == "polling" else _TIMER
            return changes
        paths = drained.paths
        if drained.folders:
            paths = paths | await self._files_in(drained.folders)
        return Changes(paths=paths)

    def _interval(self) -> float:
        if self.state != "polling":
            return self._times.scan
        return min(max(self._times.poll, _SCAN_SHARE * self._scan_took), self._times.scan)

    async def _files_in(self, folders: set[str]) -> set[str]:
        found = await anyio.to_thread.run_sync(_list_files, folders, self._suffix, limiter=self._thread)
        if len(found) > LIMIT:
            self._want_scan("a large folder appeared")
            return set()
        return found

    def _wake(self) -> None:
        # Called from watchdog's threads, perhaps after the loop is closed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._bell.set()


def _list_files(folders: Iterable[str], suffix: Suffix) -> set[str]:
    found = itertools.chain.from_iterable(walk(folder, suffix=suffix) for folder in folders)
    return {file.path for file in itertools.islice(found, LIMIT + 1)}
