"""Crash guard of search, causes and opencode's rows: skips an input that has crashed the process repeatedly.

The note names the input in progress. It is written without a sync, since it only has to outlive the process. A death
counts only if it was a crash, a fatal signal that the process itself recorded: not kill -9, not lack of memory, not a
power cut. Logs have a crash guard of their own (`recording/crash_guard.py`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import weakref
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from burnd.errors import StorageError
from burnd.ledger.files import open_private

T = TypeVar("T")
Item = int | str
Spot = tuple[str, Item]  # a log and an offset in it, a session and a message

DEATHS = 3  # each over part of what the one before was over, the last over a single item: the fourth start passes it
# Over something of a place, whichever way it is taken: only then the place itself, since kill -9 may come at any time.
DEATHS_OVER_ALL = 10
WHOLE = ""  # in place of an item
_GROUPS = 30  # many suspects, as after a crash in a backlog, are first split into so many groups
CRASH, LAST_CRASH = "crash", "crash.last"  # files beside the notes; a fatal signal writes to the first
_CONDEMNED_KEPT = 100
_LENGTH, _LARGEST = 4, 1 << 20


def note_crashes(folder: Path) -> None:
    """Makes fatal signals write a traceback to the folder, and moves the previous one to `LAST_CRASH`.

    Called once at the start, before any guard. The traceback has function names and line numbers and no data.
    """
    trace, last = folder / CRASH, folder / LAST_CRASH
    with contextlib.suppress(OSError, StorageError):
        last.unlink(missing_ok=True)
        if trace.is_file() and trace.stat().st_size:
            os.replace(trace, last)
        fd = open_private(trace, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        faulthandler.enable(fd, all_threads=False)  # open until the process ends


class PassedOver(Exception):
    """Raised in place of touching what killed the process again and again."""


class Note(msgspec.Struct, array_like=True, frozen=True):
    """What is in hand: something of these places or, where one is told, the very item of the only place."""

    places: Sequence[str] = ()
    item: Item | None = None
    deaths: int = 0  # in a row, over something that this is part of
    condemned: Sequence[Spot] = ()


NOTHING = Note()


class Hazard:
    """Watches over work, for two small writes a piece; only what somebody died over is taken item by item."""

    def __init__(self, path: Path) -> None:
        self._fd = _opened(path)
        self._let_go = weakref.finalize(self, _closed, self._fd)
        self._suspect = self._left_behind(is_crash=path.with_name(LAST_CRASH).exists())
        self.condemned: list[Spot] = [*self._suspect.condemned]
        if (sentenced := _sentenced(self._suspect)) is not None:
            self.condemned = [*self.condemned, sentenced][-_CONDEMNED_KEPT:]
            self._suspect = NOTHING
        self._together = math.ceil(len(self._suspect.places) / _GROUPS) if self._suspect.deaths == 1 else 1
        self._suspects = set(self._suspect.places)  # as long as nobody has worked on all of them
        self._note = NOTHING
        self._write(NOTHING)

    def close(self) -> None:
        """Nothing is noted any more: the descriptor's number may be another file's by now."""
        self._fd = None
        self._let_go()

    def told(self, item: str) -> str:
        """What is passed over, for status: nothing, or a sentence with the place of the first `item`."""
        if not self.condemned:
            return ""
        place, name = self.condemned[0]
        what = f"{item} {name} of {place}" if name != WHOLE else place
        more = f" and {len(self.condemned) - 1:,} more" if len(self.condemned) > 1 else ""
        return f"passes over {what}{more}, over which the process died again and again"

    def forbids(self, place: str, item: Item = WHOLE) -> bool:
        """Whether this item, or all of the place, must not be touched."""
        return (place, item) in self.condemned

    def is_suspect(self, place: str) -> bool:
        """Whether an earlier process died with something of this place in hand."""
        return place in self._suspects

    def is_alone(self, place: str, deaths: int = 1) -> bool:
        """Whether so many died with this place only, so that its items are taken one by one."""
        return self._suspects == {place} and self._suspect.deaths >= deaths

    def concerns(self, place: str, deaths: int = 1) -> bool:
        """Whether its items are told apart: so many died with this place only, or one of them must not be touched."""
        return self.is_alone(place, deaths) or any(known == place for known, _ in self.condemned)

    def allows(self, places: Collection[str]) -> bool:
        """Whether all these may be in hand together: suspects only with a few suspects, so that it narrows down."""
        suspects = len(self._suspects.intersection(places))
        return not suspects or suspects == len(places) <= self._together

    def each(
        self, place: str, items: Sequence[T], name: Callable[[T], Item], passed_over: Callable[[T], None]
    ) -> Generator[T]:
        """The items to work on; those that must not be touched are given to `passed_over`."""
        if self.condemned:
            items = list(self._allowed(place, items, name, passed_over))
        if not items:
            return
        around = self._note
        try:
            if self.is_alone(place):
                for item in items:
                    self._write(Note([place], name(item), self._deaths_over(place, name(item))))
                    yield item
            else:
                self._write(Note([place], None, self._deaths_over(place)))
                yield from items
        finally:
            self._write(around)  # also after an exception: that is no death

    @contextlib.contextmanager
    def over(self, place: str, item: Item) -> Iterator[None]:
        """Around work on a single item. Raises PassedOver."""
        if self.forbids(place, item):
            raise PassedOver(place)
        with self._noted(Note([place], item, self._deaths_over(place, item))):
            yield

    def clear(self, place: str) -> None:
        """All that was there of a place was worked on, and nobody died."""
        self._suspects.discard(place)

    def hold(self, places: Sequence[str]) -> None:
        """These are in hand until others are, or none: for work that goes on in the background."""
        is_part = bool(places) and self._suspects.issuperset(places)
        note = Note(list(places), None, self._suspect.deaths if is_part else 0)
        if note != self._note:
            self._write(note)

    def put_aside(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is in hand for a while, and then what was."""
        return self._noted(NOTHING)

    @contextlib.contextmanager
    def _noted(self, note: Note) -> Iterator[None]:
        """This is in hand for a while, and then what was."""
        around = self._note
        self._write(note)
        try:
            yield
        finally:
            self._write(around)

    def _allowed(
        self, place: str, items: Sequence[T], name: Callable[[T], Item], passed_over: Callable[[T], None]
    ) -> Iterator[T]:
        forbidden = {item for known, item in self.condemned if known == place}
        for item in items:
            if forbidden and name(item) in forbidden:
                passed_over(item)
            else:
                yield item

    def _deaths_over(self, place: str, item: Item | None = None) -> int:
        suspect = self._suspect
        return suspect.deaths if self.is_suspect(place) and suspect.item in (None, item) else 0

    def _left_behind(self, *, is_crash: bool) -> Note:
        """The note of an earlier process that died, with its death counted if it was a crash."""
        data = b""
        with contextlib.suppress(OSError):  # a bad sector: nobody can tell
            data = os.pread(self._fd, _LARGEST, 0) if self._fd is not None else b""
        length = int.from_bytes(data[:_LENGTH], "big")
        try:
            note = msgspec.msgpack.decode(data[_LENGTH : _LENGTH + length], type=Note)
        except (msgspec.MsgspecError, ValueError):
            return NOTHING
        if not is_crash and not note.deaths:
            return Note(condemned=note.condemned)
        is_one = note.item is None or len(note.places) == 1
        return msgspec.structs.replace(note, deaths=note.deaths + is_crash) if is_one else NOTHING

    def _write(self, note: Note) -> None:
        self._note = note
        if self._fd is None:
            return
        data = msgspec.msgpack.encode(msgspec.structs.replace(note, condemned=self.condemned))
        with contextlib.suppress(OSError):  # a full disk: better no note than an input that is not taken in
            os.pwrite(self._fd, len(data).to_bytes(_LENGTH, "big") + data, 0)


def _opened(path: Path) -> int | None:
    """The file of the note; None where it cannot be one, which must not keep anybody from working."""
    try:
        return open_private(path, os.O_RDWR | os.O_CREAT)
    except (OSError, StorageError) as error:
        import structlog  # noqa: PLC0415 - the process that reads along knows this module too, and has no log

        structlog.get_logger().warning("hazard.unnoted", file=path.name, error=type(error).__name__)
        return None


def _closed(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _sentenced(note: Note) -> Spot | None:
    """What is not to be touched any more, after so many deaths."""
    if len(note.places) != 1 or note.deaths < (DEATHS if note.item is not None else DEATHS_OVER_ALL):
        return None
    return (note.places[0], WHOLE if note.item is None else note.item)
