"""Crash guard: skips an item of an input that crashes its reader repeatedly, and nothing else.

An input is a log, a session of a database or whatever else is read item by item; it has a name. A note on disk names
the input in progress, so that the next process knows what the previous one was reading when it died, by a crash, kill
-9 or a power cut. That alone proves nothing: the suspect input is read in a child process that acknowledges each item
(`recording/child_process.py`). Only a crash of that child counts, and after three at one item that item is skipped. It
is tried again after a day and by another version of burnd.

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
Item = int | str  # the offset of a line, the id of a row, the name of a content record

CRASHES = 3
RETRY_AFTER_MS = DAY_MS
_MOST_ENTRIES = 1000
_LENGTH, _LARGEST = 4, 1 << 20


class Guard(Protocol):
    """Passes the items of an input to its reader, without those to skip."""

    def each(
        self, name: str, items: Sequence[T], item_of: Callable[[T], Item], skip: Callable[[T], None]
    ) -> Iterator[T]: ...

    def close(self) -> None: ...


class Crashes(msgspec.Struct, array_like=True, frozen=True):
    """The number of crashes at one item of an input, the time of the last one, and the version that crashed."""

    name: str
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
    """Guards the inputs of one reader, with two small writes for each use of `each`."""

    def __init__(self, path: Path) -> None:
        self._fd = _open_note(path)
        self._finalizer = weakref.finalize(self, _close_note, self._fd)
        note = self._read()
        self._crashes = {(one.name, one.item): one for one in note.crashes}
        self._suspects = dict.fromkeys(note.suspects)
        self._in_progress: str | None = None
        self._write()

    def close(self) -> None:
        """Closes the note; the descriptor's number may belong to another file afterwards."""
        self._fd = None
        self._finalizer()

    def each(
        self, name: str, items: Sequence[T], item_of: Callable[[T], Item], skip: Callable[[T], None]
    ) -> Iterator[T]:
        """Yields the items to read while the note names the input; those that crashed their reader go to `skip`."""
        if not items:
            return
        self._set_in_progress(name)
        try:
            yield from _allowed(items, self.skipped(name), item_of, skip)
        finally:
            self._set_in_progress(None)  # also after an exception, which is not a crash

    def skipped(self, name: str) -> frozenset[Item]:
        """The items of an input that are skipped."""
        return frozenset(one.item for one in self._crashes.values() if one.name == name and one.is_skipped)

    def all_skipped(self) -> list[Crashes]:
        """Every skipped item of every input, for `status`."""
        return [one for one in self._crashes.values() if one.is_skipped]

    def is_suspect(self, name: str) -> bool:
        """Whether an input must be read in a child process."""
        return name in self._suspects

    def suspect(self, name: str) -> None:
        self._suspects[name] = None
        self._write()

    def clear(self, name: str) -> None:
        """Ends the suspicion after a child read the whole input without a crash."""
        self._suspects.pop(name, None)
        self._crashes = {key: one for key, one in self._crashes.items() if one.name != name or one.is_skipped}
        self._write()

    def crashed(self, name: str, item: Item, now_ms: int) -> Crashes:
        """Counts a crash of the child at an item."""
        before = self._crashes.pop((name, item), None)
        one = Crashes(name, item, (before.count if before else 0) + 1, now_ms, __version__)
        self._crashes[name, item] = one
        self._crashes = dict(list(self._crashes.items())[-_MOST_ENTRIES:])
        self._write()
        return one

    def due(self, now_ms: int) -> list[str]:
        """The inputs with skipped items to try again. They become suspects, and their crashes are forgotten."""
        old = [one for one in self._crashes.values() if one.is_skipped and _is_due(one, now_ms)]
        names = list(dict.fromkeys(one.name for one in old))
        if names:
            self._crashes = {key: one for key, one in self._crashes.items() if one.name not in names}
            self._suspects.update(dict.fromkeys(names))
            self._write()
        return names

    def _set_in_progress(self, name: str | None) -> None:
        if name != self._in_progress:
            self._in_progress = name
            self._write()

    def _read(self) -> _Note:
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
        current = [self._in_progress] if self._in_progress is not None else []
        note = _Note(list(dict.fromkeys([*self._suspects, *current])), crashes=list(self._crashes.values()))
        data = msgspec.msgpack.encode(note)
        with contextlib.suppress(OSError):  # a full disk: reading goes on without a note
            os.pwrite(self._fd, len(data).to_bytes(_LENGTH, "big") + data, 0)


class Acknowledger:
    """Guards the items in the child: reports each item to the parent before it is read, and then the end."""

    def __init__(self, report: Callable[[Item | None], None] | None, skipped: frozenset[Item]) -> None:
        self._report, self._skipped = report, skipped

    def each(
        self,
        name: str,  # noqa: ARG002
        items: Sequence[T],
        item_of: Callable[[T], Item],
        skip: Callable[[T], None],
    ) -> Iterator[T]:
        for item in _allowed(items, self._skipped, item_of, skip):
            if self._report is not None:
                self._report(item_of(item))
            yield item
        if self._report is not None:
            self._report(None)  # a later crash does not count for the last item

    def close(self) -> None:
        pass


def _allowed(
    items: Sequence[T], skipped: frozenset[Item], item_of: Callable[[T], Item], skip: Callable[[T], None]
) -> Iterator[T]:
    for item in items:
        if skipped and item_of(item) in skipped:
            skip(item)
        else:
            yield item


def _is_due(one: Crashes, now_ms: int) -> bool:
    """Whether to try again: after a day, after an upgrade, or when the clock was set back."""
    return one.version != __version__ or not one.at_ms <= now_ms < one.at_ms + RETRY_AFTER_MS


def _open_note(path: Path) -> int | None:
    """Opens the file of the note; None if that fails, since readers must work without it."""
    try:
        return open_private(path, os.O_RDWR | os.O_CREAT)
    except (OSError, StorageError) as error:
        import structlog  # noqa: PLC0415 - the child imports this module too, and has no log

        structlog.get_logger().warning("crash_guard.unnoted", file=path.name, error=type(error).__name__)
        return None


def _close_note(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
