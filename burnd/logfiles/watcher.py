"""Turns watchdog's events into a set of changed paths, and decides when to trust them, poll or scan.

Events are hints: the caller scans whenever `Changes.scan_all` is set.
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
from functools import partial
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
# Not opened and closed: our own reading would cause endless events.
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
_SCAN_SHARE = 20  # when polling, rest this many times as long as a scan takes


class Times(msgspec.Struct, frozen=True):
    window: float = 0.005  # how long events are collected before they are returned
    roots: float = 5.0
    alive: float = 10.0
    scan: float = 55.0  # most of what an idle daemon costs
    poll: float = 2.0  # scans when polling, and the minimum between scans caused by events
    retry: float = 3600.0  # from giving up watching to trying again
    jump: float = 60.0  # waking so much too late means that the machine slept


class Changes(msgspec.Struct, frozen=True):
    """Changed files. With `scan_all`, others may have changed too, for the reason given."""

    paths: set[str]
    scan_all: bool = False
    reason: str = ""


# Seconds since boot, including sleep if the system counts it.
boot_clock: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Drained(msgspec.Struct):
    """The events since the last drain; a cause requests a scan."""

    paths: set[str] = set()
    folders: set[str] = set()
    cause: str | None = None


class Inbox:
    """Collects changed paths from watchdog's threads, bounded in size. Never raises, waits or does I/O.

    `wake` is called at most once per drain, from the thread of the first event.
    """

    def __init__(self, wake: Callable[[], None], *, limit: int = LIMIT, burst: int = BURST) -> None:
        self._wake, self._limit, self._burst = wake, limit, burst
        self._lock = threading.Lock()
        self._drained = Drained()
        self._events = 0
        self._has_woken = False

    def put(self, path: str = "", *, folder: str = "", cause: str | None = None) -> None:
        """Adds a changed file, a new folder, which may have files without events, or a cause to scan.

        An event of neither is counted: after very many, events of logs may be lost.
        """
        with self._lock:
            drained = self._drained
            names = drained.paths if path else drained.folders
            name = path or folder
            if name and len(names) < self._limit:
                names.add(name)
            elif name and name not in names:
                cause = cause or f"too many {'changed files' if path else 'new folders'}"
            self._events += 1
            if self._events > self._burst:
                cause = cause or "burst of events"
            drained.cause = drained.cause or cause
            wakes = not self._has_woken and bool(drained.paths or drained.folders or drained.cause)
            self._has_woken = self._has_woken or wakes
        if wakes:
            self._wake()

    def drain(self) -> Drained:
        with self._lock:
            drained, self._drained = self._drained, Drained()
            self._events, self._has_woken = 0, False
        return drained

    def restore(self, drained: Drained) -> None:
        """Puts back what a cancelled call had drained."""
        with self._lock:
            self._drained.paths |= drained.paths
            self._drained.folders |= drained.folders
            self._drained.cause = drained.cause or self._drained.cause
        self.put()


class Unwatchable(Exception):
    """Raised when watching cannot work for now; retried soon if it `passes`."""

    def __init__(self, reason: str, remedy: str = "", *, passes: bool = False) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.passes = passes


class Observation(Protocol):
    def alive(self) -> bool: ...

    def refusal(self) -> Unwatchable | None: ...

    def watched(self) -> int | None: ...

    def stop(self) -> None: ...


class Observe(Protocol):
    """Starts a watch; blocking. Raises Unwatchable."""

    def __call__(self, roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Observation: ...


def observe(roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Observation:
    if sys.platform == "linux":
        # Imported late: the module binds inotify's functions, which only Linux has.
        from burnd.logfiles.inotify import observe_with_inotify  # noqa: PLC0415

        return observe_with_inotify(roots, inbox, suffix)
    return Watched(Observer(), roots, inbox, suffix)


class Watched:
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
    """Puts events into the inbox. It must never raise: that would end watchdog's thread silently."""

    def __init__(self, inbox: Inbox, suffix: Suffix, roots: Sequence[str]) -> None:
        self._inbox = inbox
        self._suffix = suffix
        self._roots = frozenset(roots)

    def dispatch(self, event: FileSystemEvent) -> None:
        try:
            paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
            if not event.is_directory:
                for path in [path for path in paths if path.endswith(self._suffix)] or [""]:
                    self._inbox.put(path)
            elif not self._roots.isdisjoint(paths):
                self._inbox.put(cause=ROOT_LOST)
            else:
                is_new = isinstance(event, DirCreatedEvent | DirMovedEvent)
                self._inbox.put(folder=paths[-1] if is_new else "")
        except Exception:  # noqa: BLE001
            self._inbox.put(cause="an event could not be read")


class Watch:
    """Watches roots that come and go: starts an observer, notices when it fails, and polls instead.

    `check`, `compare` and `stop` block and are called in a worker thread, one at a time. `news` requests a scan.
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
        self.due = {"roots": float("-inf")}  # when to check what
        self._observation: Observation | None = None
        self._given_up: Unwatchable | None = None
        self.news: str | None = None
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
        return self._given_up.remedy if self._given_up is not None else ""

    def add_roots(self, named: Sequence[str]) -> None:
        """Safe while another call runs in its thread."""
        self._named = [*self._named, *named]
        self.due["roots"] = float("-inf")

    def check(self, now: float, cause: str | None = None) -> None:
        """Checks what is due; with `cause`, an alarm that the watch raised, everything."""
        self.news = self._check(now, cause) or self.news

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
        """Compares with the number of folders that a scan found, since watchdog does not report those it misses."""
        watched = None if self._observation is None else self._observation.watched()
        self._short = 0 if watched is None else max(0, directories - watched)
        # Twice, since a new folder may be ahead of its watch; restart once, since that may not help.
        self._short_scans = self._short_scans + 1 if self._short else 0
        if self._short_scans == _SHORT_SCANS_BEFORE_RESTART:
            self.due["alive"] = float("-inf")

    def stop(self) -> None:
        if self._observation is not None:
            self._observation.stop()
            self._observation = None
        self.due.pop("alive", None)

    def _is_due(self, what: str, now: float) -> bool:
        at = self.due.get(what)
        if at is None or now < at:
            return False
        self.due[what] = next_tick(now, self._every[what])
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
        # Remove all watches: all programs of a user share the limit, and half a watch misleads.
        self.stop()
        self._given_up = why
        self._deaths = 0
        self.due["retry"] = now + self._every["alive" if why.passes else "retry"]

    def _restart(self, roots: list[Root], now: float) -> None:
        self.stop()
        self.roots = roots
        self._given_up = None
        self.due.pop("retry", None)
        if not roots:
            return
        try:
            self._observation = self._observe([root.path for root in roots], self._inbox, self._suffix)
        except Unwatchable as error:
            self._give_up(error, now)
        except (FileNotFoundError, NotADirectoryError):
            self.roots = []  # gone again: the next check starts over
        except Exception as error:  # noqa: BLE001
            # Whatever fails in the library, scans continue.
            self._give_up(Unwatchable(f"the watcher failed ({type(error).__name__})"), now)
        else:
            self.due["alive"] = next_tick(now, self._every["alive"])
            self._give_up_if_refused(self._observation, now)

    def _give_up_if_refused(self, observation: Observation, now: float) -> bool:
        refusal = observation.refusal()
        if refusal is not None:
            self._give_up(refusal, now)
        return refusal is not None


class Watcher:
    """Waits for changes below the named roots, which need not exist.

    One task calls `changes` in a loop, and `scanned` after every scan made for `scan_all`.
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
        self.watch = Watch(
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
            await anyio.to_thread.run_sync(self.watch.stop, limiter=self._thread)

    def add_roots(self, named: Sequence[str]) -> None:
        self.watch.add_roots(named)
        self._bell.set()

    async def changes(self) -> Changes:
        while True:
            now = self._clock()
            planned = max(now, min(self._scan_at, *self.watch.due.values()))
            has_slept = now - self._expected > self._times.jump
            with anyio.move_on_after(0 if has_slept else planned - now):
                await self._bell.wait()
                # A writer's flush is several events: wait for the rest, for one wake-up.
                await anyio.sleep(self._times.window)
            self._bell = anyio.Event()
            self._expected = self._clock()
            if has_slept or self._expected - planned > self._times.jump:
                self._request_scan("the machine slept")
            drained = self._inbox.drain()
            try:
                changes = await self._gather(drained)
            except BaseException:
                self._inbox.restore(drained)  # the next call returns them
                raise
            if changes.paths or changes.scan_all:
                return changes

    def scanned(self, *, directories: int, seconds: float) -> None:
        self._scan_took = seconds
        self.watch.compare(directories)
        if self.watch.state == "polling":
            self._scan_at = max(self._scan_at, self._clock() + self._interval())

    def _request_scan(self, reason: str, *, at_once: bool = False) -> None:
        now = self._clock()
        # A flood of events must not cause a flood of scans.
        at = now if at_once else max(now, self._scanned_at + self._times.poll)
        # A scan that is due anyway takes this reason if its own is the timer.
        if at < self._scan_at or self._scan_reason in _ROUTINE:
            self._scan_at = min(at, self._scan_at)
            self._scan_reason = reason

    async def _gather(self, drained: Drained) -> Changes:
        now, watch = self._clock(), self.watch
        if drained.cause is not None or now >= min(watch.due.values()):
            await anyio.to_thread.run_sync(watch.check, now, drained.cause, limiter=self._thread)
            now = self._clock()
        if watch.news is not None:
            self._request_scan(watch.news, at_once=True)
            watch.news = None
        elif drained.cause is not None:
            self._request_scan(drained.cause)
        if now >= self._scan_at:
            changes = Changes(paths=drained.paths, scan_all=True, reason=self._scan_reason)
            self._scanned_at = now
            self._scan_at = now + self._interval()
            self._scan_reason = _POLLING if watch.state == "polling" else _TIMER
            return changes
        paths = drained.paths
        if drained.folders:
            in_folders = await anyio.to_thread.run_sync(
                _list_files, drained.folders, self._suffix, limiter=self._thread
            )
            if len(in_folders) > LIMIT:
                self._request_scan("a large folder appeared")
            else:
                paths = paths | in_folders
        return Changes(paths=paths)

    def _interval(self) -> float:
        if self.watch.state != "polling":
            return self._times.scan
        return min(max(self._times.poll, _SCAN_SHARE * self._scan_took), self._times.scan)

    def _wake(self) -> None:
        # Called from watchdog's threads, perhaps after the loop is closed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._bell.set)


def _list_files(folders: Iterable[str], suffix: Suffix) -> set[str]:
    files = itertools.chain.from_iterable(walk(folder, suffix=suffix) for folder in folders)
    return {file.path for file in itertools.islice(files, LIMIT + 1)}
