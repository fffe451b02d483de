"""Adapter for what watchdog 7.1 hides on Linux: lost events, refused watches, the number of watched folders."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
from collections.abc import Callable, Sequence

from watchdog.observers.api import BaseObserver
from watchdog.observers.inotify import InotifyEmitter
from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchCallback,
    WatchDescriptor,
)

from burnd.logfiles.scanner import Suffix
from burnd.logfiles.watcher import Inbox, Unwatchable, Watched

EVENTS_LOST = "events were lost"
_STOP_SECONDS = 2.0
_PIPES_WORTH = 2  # descriptors: an instance takes one and a pipe
_LIMITS = {
    errno.ENOSPC: ("watch limit", ("fs.inotify.max_user_watches", "user.max_inotify_watches")),
    errno.EMFILE: ("instance limit", ("fs.inotify.max_user_instances", "user.max_inotify_instances")),
}


def observe_with_inotify(roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Watched:
    """Raises Unwatchable, or FileNotFoundError if a root has just gone."""
    _check_descriptors()
    try:
        channel = Channel(inbox)
        channel.start()
        return _Inotify(channel, roots, inbox, suffix)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise explain(error) from error


def _check_descriptors() -> None:
    """Raises Unwatchable if there are too few for an instance.

    inotify reports the same error for a lack of instances, and watchdog leaks a descriptor of an incomplete instance.
    """
    spare: list[int] = []
    try:
        for _ in range(_PIPES_WORTH):
            spare += os.pipe()
    except OSError as error:
        reason = f"no descriptor is free ({os.strerror(error.errno or 0)})"
        raise Unwatchable(reason, "raise the limit of open files (ulimit -n)", passes=True) from error
    finally:
        for fd in spare:
            os.close(fd)


class _Inotify(Watched):
    def __init__(self, channel: Channel, roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> None:
        self._channel = channel
        super().__init__(BaseObserver(InotifyEmitter, inotify_fd=channel), roots, inbox, suffix)

    def alive(self) -> bool:
        return self._channel.is_alive() and super().alive()

    def refusal(self) -> Unwatchable | None:
        return self._channel.refusal

    def watched(self) -> int | None:
        return len(self._channel.watched)

    def stop(self) -> None:
        super().stop()
        self._channel.close_quietly()


class Channel(InotifyFD):
    def __init__(self, inbox: Inbox) -> None:
        super().__init__()
        self._inbox = inbox
        self.refusal: Unwatchable | None = None
        self.watched: set[WatchDescriptor] = set()

    def add_callback(self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId) -> WatchDescriptor:
        # watchdog ignores this error except for the root.
        try:
            wd = super().add_callback(path, mask, callback, id_)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.ENOMEM):
                self.refusal = explain(error)
                self._inbox.put(cause="a folder could not be watched")
            raise
        if wd >= 0:
            self.watched.add(wd)
        return wd

    def _add_callback(self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId) -> WatchDescriptor:
        # Private: for folders made inside new folders, the original adds some twice, each time with a warning that
        # lists all watched paths.
        watch = self._get_or_create_watch(path, mask)
        watch.callbacks[id_] = callback
        return watch.wd

    def handle_event(self, event: InotifyEvent) -> None:
        # A moved file counts as one removed and one created: watchdog delays all events by half a second to wait for
        # the other half of a move. Folders need the pairs.
        whole = event
        if event.is_move and not event.is_directory:
            kind = InotifyConstants.IN_DELETE if event.is_moved_from else InotifyConstants.IN_CREATE
            whole = dataclasses.replace(event, mask=kind, cookie=0)
        super().handle_event(whole)
        if event.is_queue_overflow:
            # Only now: watchdog has just renewed its watches, and a scan must come after that.
            self._inbox.put(cause=EVENTS_LOST)
        elif event.is_ignored:
            self.watched.discard(event.wd)

    def close_quietly(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.stop()
            self.join(_STOP_SECONDS)


def explain(error: OSError, read: Callable[[str], int | None] | None = None) -> Unwatchable:
    """The limit that was reached, its value, and what to raise."""
    limit = _LIMITS.get(error.errno or 0)
    if limit is None:
        return Unwatchable(f"inotify does not work here ({os.strerror(error.errno or 0)})")
    what, (system, own) = limit
    read = read or _setting
    values = {system: read(system), own: read(own)}
    highest, ours = values[system], values[own]
    limits = f"{system}={'?' if highest is None else highest}"
    if ours is not None and (highest is None or ours < highest):
        limits += f", {own}={ours}"
    return Unwatchable(f"inotify {what} ({limits})", f"raise {system}")


def _setting(name: str) -> int | None:
    try:
        with open("/proc/sys/" + name.replace(".", "/"), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
