"""Which line was being read when the process died: one that kills it again and again is passed over at last.

The note is a few bytes that are written without a sync: they outlive the process, which is all they have to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec

from burnd.ledger.files import open_private
from burnd.sources.tail import Line

DEATHS = 2  # at the very line, after the one that told the piece it is in: the fourth start passes it
_CONDEMNED_KEPT = 100
_LENGTH, _LARGEST = 4, 1 << 20


class Note(msgspec.Struct, array_like=True):
    """What was in hand: a piece from `offset` on, or with `exact` the very line there, which killed before."""

    path: str = ""
    offset: int = 0
    exact: bool = False
    deaths: int = 0
    condemned: list[tuple[str, int]] = []


class Hazard:
    """Watches over reading, for two small writes a piece; only a file that somebody died over is read line by line."""

    def __init__(self, path: Path) -> None:
        self._fd = open_private(path, os.O_RDWR | os.O_CREAT)
        self._suspect = self._left_behind()
        self._condemned = self._suspect.condemned
        self._clear()

    def lines(self, path: str, lines: Sequence[Line], passed_over: list[tuple[int, int]]) -> Generator[Line]:
        """The lines to feed; those that must not be are added to `passed_over` as (offset, size)."""
        if not lines:
            return
        try:
            if self._suspect.path != path and not any(known == path for known, _ in self._condemned):
                self._write(Note(path, lines[0][0]))
                yield from lines
            else:
                yield from self._one_by_one(path, lines, passed_over)
        finally:
            self._clear()  # also after an exception: that is no death

    def close(self) -> None:
        os.close(self._fd)

    def _one_by_one(self, path: str, lines: Sequence[Line], passed_over: list[tuple[int, int]]) -> Generator[Line]:
        for offset, line in lines:
            deaths = self._deaths_at(path, offset)
            if deaths >= DEATHS:
                self._condemn(path, offset)
            if (path, offset) in self._condemned:
                passed_over.append((offset, len(line) + 1))
                continue
            self._write(Note(path, offset, True, deaths))
            yield offset, line
        self._suspect = Note()

    def _deaths_at(self, path: str, offset: int) -> int:
        suspect = self._suspect
        return suspect.deaths if suspect.exact and (suspect.path, suspect.offset) == (path, offset) else 0

    def _condemn(self, path: str, offset: int) -> None:
        self._condemned = [*self._condemned, (path, offset)][-_CONDEMNED_KEPT:]

    def _left_behind(self) -> Note:
        """What an earlier process had in hand when it died, that death counted."""
        data = os.pread(self._fd, _LARGEST, 0)
        length = int.from_bytes(data[:_LENGTH], "big")
        try:
            note = msgspec.msgpack.decode(data[_LENGTH : _LENGTH + length], type=Note)
        except (msgspec.MsgspecError, ValueError):
            return Note()
        note.deaths += note.exact
        return note

    def _clear(self) -> None:
        self._write(Note())

    def _write(self, note: Note) -> None:
        note.condemned = self._condemned
        data = msgspec.msgpack.encode(note)
        with contextlib.suppress(OSError):  # a full disk: better no note than a file that is not read
            os.pwrite(self._fd, len(data).to_bytes(_LENGTH, "big") + data, 0)
