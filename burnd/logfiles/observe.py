"""Starting and stopping watchdog: turns its events into hints in an inbox, and tells whether it can be relied on."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Protocol

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

from burnd.logfiles.dirty import Inbox
from burnd.logfiles.scanner import Suffix

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
ROOT_LOST = "a watched root was removed"


class Unwatchable(Exception):
    """Raised when watching cannot work here for now; its text says why, and `remedy` what to do, for `status`.

    What `passes` may be over in a moment, without anybody's doing.
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
    """How a watch is started: blocking, to be called in a worker thread. Raises Unwatchable."""

    def __call__(self, roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Observation: ...


def observe(roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Observation:
    """Watch with the best means this system has."""
    if sys.platform == "linux":
        # Imported late: the module binds inotify's functions, which other systems do not have.
        from burnd.logfiles.inotify import observe_with_inotify  # noqa: PLC0415

        return observe_with_inotify(roots, inbox, suffix)
    return Watched(Observer(), roots, inbox, suffix)


class Watched:
    """One observer with one recursive watch per root."""

    def __init__(self, observer: BaseObserver, roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> None:
        self._observer = observer
        handler = Hints(inbox, suffix, roots)
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


class Hints(FileSystemEventHandler):
    """Puts what happened into the inbox. It must never raise: that would end watchdog's thread without a word."""

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
