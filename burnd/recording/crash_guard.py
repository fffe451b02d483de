"""Crash guard: skips an item of an input that crashes its reader repeatedly.

An input, such as a log or a database session, has a name and is read by items. A note on disk names the input in
progress, so the next process knows what the previous one was reading when it died. That proves nothing yet: the suspect
input is read in a child that acknowledges each item (`recording/child_process.py`). A crash of that child, or
a minute at one item, counts; after three at one item, that item is skipped. It is tried again after a day and by
another version of burnd.

Search and causes cannot run in a child. There the crashes of the process itself count (`InProcessGuard`), if it
recorded a fatal signal: not kill -9, lack of memory or a power cut.

The note is not synced: it only has to outlive the process.
"""

from __future__ import annotations

import contextlib
import faulthandler
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
WHOLE = ""  # the item of a crash outside of all items
CRASHES_OF_WHOLE = 10
CRASH, LAST_CRASH = "crash", "crash.last"  # files beside the notes; a fatal signal writes to the first
RETRY_AFTER_MS = DAY_MS
_MOST_ENTRIES = 1000
_LENGTH, _LARGEST = 4, 1 << 20


class Guard(Protocol):
    """Passes the items of an input to its reader, without those to skip."""

    def each(
        self, name: str, items: Sequence[T], item_of: Callable[[T], Item], skip: Callable[[T], None]
    ) -> Iterator[T]: ...

    def skipped(self, name: str) -> frozenset[Item]: ...

    def close(self) -> None: ...


class Crashes(msgspec.Struct, array_like=True, frozen=True):
    """The crashes at one item of an input: number, time and version of the last."""

    name: str
    item: Item
    count: int
    at_ms: int
    version: str

    @property
    def is_skipped(self) -> bool:
        return self.count >= _limit(self.item)


class _Note(msgspec.Struct, array_like=True, frozen=True):
    suspects: Sequence[str] = ()
    item: Item | None = None  # in progress, of an InProcessGuard
    crashes: Sequence[Crashes] = ()


class CrashGuard:
    """Guards the inputs of one reader, with two small writes for each use of `each`."""

    def __init__(self, path: Path) -> None:
        self._fd = _open_note(path)
        self._finalizer = weakref.finalize(self, _close_note, self._fd)
        self._previous = note = self._read()
        self._crashes = {(one.name, one.item): one for one in note.crashes}
        self.suspected = dict.fromkeys(note.suspects)
        self._in_progress: Sequence[str] = ()
        self._item: Item | None = None
        self._write()

    def close(self) -> None:
        """Closes the note; its descriptor may belong to another file afterwards."""
        self._fd = None
        self._finalizer()

    def each(
        self, name: str, items: Sequence[T], item_of: Callable[[T], Item], skip: Callable[[T], None]
    ) -> Iterator[T]:
        """Yields the items to read while the note names the input; those to skip go to `skip`."""
        if not items:
            return
        skipped = self.skipped(name) if self._crashes else frozenset()
        self._in_progress = [name]
        self._write()
        try:
            yield from _allowed(items, skipped, item_of, skip) if skipped else items
        finally:
            self._in_progress = ()  # also after an exception, which is not a crash
            self._write()

    def skipped(self, name: str) -> frozenset[Item]:
        return frozenset(one.item for one in self._crashes.values() if one.name == name and one.is_skipped)

    def all_skipped(self) -> list[Crashes]:
        return [one for one in self._crashes.values() if one.is_skipped]

    def suspect(self, name: str) -> None:
        self.suspected[name] = None
        self._write()

    def clear(self, name: str) -> None:
        crashes = {key: one for key, one in self._crashes.items() if one.name != name or one.is_skipped}
        if name in self.suspected or len(crashes) < len(self._crashes):
            self.suspected.pop(name, None)
            self._crashes = crashes
            self._write()

    def crashed(self, name: str, item: Item, now_ms: int) -> Crashes:
        """Counts a crash of the child at an item."""
        return self._count(Crashes(name, item, self._number(name, item) + 1, now_ms, __version__))

    def _number(self, name: str, item: Item) -> int:
        before = self._crashes.get((name, item))
        return before.count if before is not None else 0

    def _count(self, one: Crashes) -> Crashes:
        # A new dict: another thread may iterate over the old one.
        crashes = {key: other for key, other in self._crashes.items() if key != (one.name, one.item)}
        crashes[one.name, one.item] = one
        self._crashes = dict(list(crashes.items())[-_MOST_ENTRIES:])
        self._write()
        return one

    def due(self, now_ms: int) -> list[str]:
        """Makes inputs with skipped items suspects again, without their crashes; returns them."""
        old = [one for one in self._crashes.values() if one.is_skipped and _is_due(one, now_ms)]
        names = list(dict.fromkeys(one.name for one in old))
        if names:
            self._crashes = {key: one for key, one in self._crashes.items() if one.name not in names}
            self.suspected.update(dict.fromkeys(names))
            self._write()
        return names

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
        names = list(dict.fromkeys([*self.suspected, *self._in_progress]))
        note = _Note(names, self._item, list(self._crashes.values()))
        data = msgspec.msgpack.encode(note)
        with contextlib.suppress(OSError):  # a full disk: reading continues without a note
            os.pwrite(self._fd, len(data).to_bytes(_LENGTH, "big") + data, 0)


class SkippedItem(Exception):
    """Raised instead of working on a skipped item."""


class InProcessGuard(CrashGuard):
    """Guards work of the process itself, by its own crashes.

    After a crash every input in progress is suspect and taken alone. One that crashes the process alone is taken item
    by item; its earlier crashes count for the item, which is skipped after three in all.
    """

    def __init__(self, path: Path, now_ms: int) -> None:
        super().__init__(path)
        note, self.suspected = self._previous, {}
        if path.with_name(LAST_CRASH).exists():
            for name in note.suspects:
                self.crashed(name, WHOLE if note.item is None else note.item, now_ms)
        self._write()

    def crashed(self, name: str, item: Item, now_ms: int) -> Crashes:
        """Counts a crash at an item, together with those of its input as a whole."""
        count = max(self._number(name, item), self._number(name, WHOLE)) + 1
        return self._count(Crashes(name, item, count, now_ms, __version__))

    def suspects(self) -> frozenset[str]:
        return frozenset(one.name for one in self._crashes.values() if not one.is_skipped)

    def takes_items(self, name: str) -> bool:
        return any(one.name == name and 1 < one.count < _limit(one.item) for one in self._crashes.values())

    def due(self, now_ms: int) -> list[str]:
        """The inputs with skipped items to try again; one more crash skips them again."""
        old = [one for one in self.all_skipped() if _is_due(one, now_ms)]
        for one in old:
            self._count(msgspec.structs.replace(one, count=_limit(one.item) - 1))
        return list(dict.fromkeys(one.name for one in old))

    def set_in_progress(self, names: Sequence[str], item: Item | None = None) -> None:
        """Names the inputs in progress until the next call."""
        if (names, item) != (self._in_progress, self._item):
            self._in_progress, self._item = names, item
            self._write()

    @contextlib.contextmanager
    def item(self, name: str, item: Item) -> Iterator[None]:
        """Names the item in progress while the block runs. Raises SkippedItem."""
        if item in self.skipped(name):
            raise SkippedItem(name)
        before = self._in_progress, self._item
        self.set_in_progress([name], item)
        try:
            yield
        finally:
            self._crashes.pop((name, item), None)
            self.set_in_progress(*before)

    def summary(self, kind: str) -> str:
        """A sentence about skipped items for `status`, or an empty text."""
        skipped = self.all_skipped()
        if not skipped:
            return ""
        name, item = skipped[0].name, skipped[0].item
        what = name if item == WHOLE else f"{kind} {item} of {name}"
        more = f" and {len(skipped) - 1:,} more" if len(skipped) > 1 else ""
        return f"passes over {what}{more}, which crashed burnd repeatedly"


def record_crashes(folder: Path) -> None:
    """Makes fatal signals write a traceback to the folder, and moves the previous one to `LAST_CRASH`.

    Called once at the start, before any guard. The traceback has no data.
    """
    trace, last = folder / CRASH, folder / LAST_CRASH
    with contextlib.suppress(OSError, StorageError):
        last.unlink(missing_ok=True)
        if trace.is_file() and trace.stat().st_size:
            os.replace(trace, last)
        fd = open_private(trace, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        faulthandler.enable(fd, all_threads=False)  # open until the process ends


class Acknowledger:
    """Guards items in the child: reports each to the parent before it is read, then the end."""

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

    def skipped(self, name: str) -> frozenset[Item]:  # noqa: ARG002
        return self._skipped

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


def _limit(item: Item) -> int:
    return CRASHES_OF_WHOLE if item == WHOLE else CRASHES


def _is_due(one: Crashes, now_ms: int) -> bool:
    """Whether to try again: after a day, an upgrade, or a clock that was set back."""
    return one.version != __version__ or not one.at_ms <= now_ms < one.at_ms + RETRY_AFTER_MS


def _open_note(path: Path) -> int | None:
    """Opens the note's file; None if that fails, since readers must work without it."""
    try:
        return open_private(path, os.O_RDWR | os.O_CREAT)
    except (OSError, StorageError) as error:
        import structlog  # noqa: PLC0415 - the child imports this module too, and has no log

        structlog.get_logger().warning("crash_guard.unnoted", file=path.name, error=type(error).__name__)
        return None


def _close_note(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
