"""Crash guard of the log readers: skips a line that crashes its reader repeatedly, and nothing else.

A note names the log in progress, so that the next process knows what the previous one was reading when it died, by a
crash, kill -9 or a power cut. That alone proves nothing: the suspect log is read in a child process that acknowledges
each line. Only a crash of that child counts, and after three at one line that line is skipped. It is tried again after
a day and by another version of burnd.

The note is written without a sync, since it only has to outlive the process.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from burnd import __version__
from burnd.errors import StorageError
from burnd.ledger.files import open_private
from burnd.records.times import DAY_MS

T = TypeVar("T")
Item = int | str  # the offset of a line, or the name of a content record

CRASHES = 3
RETRY_AFTER_MS = DAY_MS
_MOST_ENTRIES = 1000
_LENGTH, _LARGEST = 4, 1 << 20


class Guard(Protocol):
    """Passes the items of a log to its reader, without those to skip."""

    def each(
        self, path: str, items: Sequence[T], name: Callable[[T], Item], skip: Callable[[T], None]
    ) -> Iterator[T]: ...

    def close(self) -> None: ...


class Crashes(msgspec.Struct, array_like=True, frozen=True):
    """The number of crashes at one item of a log, the time of the last one, and the version of burnd that crashed."""

    path: str
    item: Item
    count: int
    at_ms: int
    version: str

    @property
    def is_skipped(self) -> bool:
        return self.count >= CRASHES


class _Note(msgspec.Struct, array_like=True, frozen=True):
    suspects: Sequence[str] = ()
    item: None = None  # unused, as is `deaths`; they keep the format
    deaths: int = 0
    crashes: Sequence[Crashes] = ()


class CrashGuard:
    """Guards the logs of one source, with two small writes for each piece."""

    def __init__(self, path: Path) -> None:
        self._fd = _opened(path)
        self._let_go = weakref.finalize(self, _closed, self._fd)
        note = self._left_behind()
        self._crashes = {(one.path, one.item): one for one in note.crashes}
        self._suspects = dict.fromkeys(note.suspects)
        self._in_hand: str | None = None
        self._write()

    def close(self) -> None:
        """Closes the note; the descriptor's number may belong to another file afterwards."""
        self._fd = None
        self._let_go()

    def each(self, path: str, items: Sequence[T], name: Callable[[T], Item], skip: Callable[[T], None]) -> Iterator[T]:
        """Yields the items to read while the note names the log; those that crashed their reader go to `skip`."""
        if not items:
            return
        self._hold(path)
        try:
            yield from _allowed(items, self.skipped(path), name, skip)
        finally:
            self._hold(None)  # also after an exception, which is not a crash

    def skipped(self, path: str) -> frozenset[Item]:
        """The items of a log that are skipped."""
        return frozenset(one.item for one in self._crashes.values() if one.path == path and one.is_skipped)

    def is_suspect(self, path: str) -> bool:
        """Whether a log must be read in a child process."""
        return path in self._suspects

    def suspect(self, path: str) -> None:
        self._suspects[path] = None
        self._write()

    def clear(self, path: str) -> None:
        """Ends the suspicion after a child read the whole log without a crash."""
        self._suspects.pop(path, None)
        self._crashes = {key: one for key, one in self._crashes.items() if one.path != path or one.is_skipped}
        self._write()

    def crashed(self, path: str, item: Item, now_ms: int) -> Crashes:
        """Counts a crash of the child at an item."""
        before = self._crashes.pop((path, item), None)
        one = Crashes(path, item, (before.count if before else 0) + 1, now_ms, __version__)
        self._crashes[path, item] = one
        self._crashes = dict(list(self._crashes.items())[-_MOST_ENTRIES:])
        self._write()
        return one

    def due(self, now_ms: int) -> list[str]:
        """The logs with skipped items to try again. They become suspects, and their crashes are forgotten."""
        old = [one for one in self._crashes.values() if one.is_skipped and _is_due(one, now_ms)]
        paths = list(dict.fromkeys(one.path for one in old))
        if paths:
            self._crashes = {key: one for key, one in self._crashes.items() if one.path not in paths}
            self._suspects.update(dict.fromkeys(paths))
            self._write()
        return paths

    def _hold(self, path: str | None) -> None:
        if path != self._in_hand:
            self._in_hand = path
            self._write()

    def _left_behind(self) -> _Note:
        data = b""
        with contextlib.suppress(OSError):  # a bad sector
            data = os.pread(self._fd, _LARGEST, 0) if self._fd is not None else b""
        length = int.from_bytes(data[:_LENGTH], "big")
        try:
            return msgspec.msgpack.decode(data[_LENGTH : _LENGTH + length], type=_Note)
        except (msgspec.MsgspecError, ValueError):
            return _Note()

    def _write(self) -> None:
        if self._fd is None:
            return
        in_hand = [self._in_hand] if self._in_hand is not None and self._in_hand not in self._suspects else []
        note = _Note([*self._suspects, *in_hand], crashes=list(self._crashes.values()))
        data = msgspec.msgpack.encode(note)
        with contextlib.suppress(OSError):  # a full disk: reading goes on without a note
            os.pwrite(self._fd, len(data).to_bytes(_LENGTH, "big") + data, 0)


class Acknowledger:
    """Guards the items of one log in the child: reports each item to the parent before it is read, and then the end."""

    def __init__(self, tell: Callable[[Item | None], None] | None, skipped: frozenset[Item]) -> None:
        self._tell, self._skipped = tell, skipped

    def each(self, path: str, items: Sequence[T], name: Callable[[T], Item], skip: Callable[[T], None]) -> Iterator[T]:  # noqa: ARG002
        for item in _allowed(items, self._skipped, name, skip):
            if self._tell is not None:
                self._tell(name(item))
            yield item
        if self._tell is not None:
            self._tell(None)  # a later crash does not count for the last item

    def close(self) -> None:
        pass


def _allowed(
    items: Sequence[T], skipped: frozenset[Item], name: Callable[[T], Item], skip: Callable[[T], None]
) -> Iterator[T]:
    for item in items:
        if skipped and name(item) in skipped:
            skip(item)
        else:
            yield item


def _is_due(one: Crashes, now_ms: int) -> bool:
    """Whether to try again: after a day, after an upgrade, or when the clock was set back."""
    return one.version != __version__ or not one.at_ms <= now_ms < one.at_ms + RETRY_AFTER_MS


def _opened(path: Path) -> int | None:
    """Opens the file of the note; None if that fails, since readers must work without it."""
    try:
        return open_private(path, os.O_RDWR | os.O_CREAT)
    except (OSError, StorageError) as error:
        import structlog  # noqa: PLC0415 - the child imports this module too, and has no log

        structlog.get_logger().warning("crash_guard.unnoted", file=path.name, error=type(error).__name__)
        return None


def _closed(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
