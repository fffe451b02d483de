"""Finds the rails that changed and counts as much of them as is done at once, in one state of the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from burnd.causes import counting
from burnd.causes.cause import CauseKey, Numbered, numbered
from burnd.causes.counting import Care, GiveWay, Segment, at_once, begin_of, carefree, segments
from burnd.causes.packs import Counted, Naming, counted, opened, packed
from burnd.causes.pieces import AGENT
from burnd.causes.rolling import rolled
from burnd.causes.writing import Finished, Piece, Written
from burnd.protocol import UNKNOWN_AGENT


class Recount(NamedTuple):
    """A rail that was counted again, as far as it was: its pieces now, and what was stored of them before."""

    session: int
    rail: str
    now: list[Segment]
    stored: dict[int, Counted]
    finished: Finished


class Planned(NamedTuple):
    """What was counted at once, the agents whose turns are among it, and the causes that were stored before."""

    recounts: list[Recount]
    agents: dict[int, str]
    stored: dict[int, Numbered]

    def causes(self) -> set[CauseKey]:
        return Naming(self.agents).every(segment for recount in self.recounts for segment in recount.now)


def plan(
    db: sqlite3.Connection, ledger: Path, most: int, give_way: GiveWay = at_once, care: Care = carefree
) -> Planned:
    """Counts the rails that were marked last, about so many messages of them."""
    recounts: list[Recount] = []
    left = most
    for mark in db.execute(_MARKS).fetchall():
        recounts.append(_recount(db, ledger, _Marked(*mark), left, give_way, care))
        left -= sum(segment.messages for segment in recounts[-1].now)
        if left <= 0:
            break
    seen = {dims.subagent for recount in recounts for segment in recount.now for dims in segment.sums}
    return Planned(recounts, _agents(db, seen), _stored_causes(db, recounts))


class _Marked(NamedTuple):
    id: int
    session: int
    rail: str
    turn_index: int
    times: int


def _recount(db: sqlite3.Connection, ledger: Path, mark: _Marked, most: int, give_way: GiveWay, care: Care) -> Recount:
    session, rail = mark.session, mark.rail
    begin, upto = 0, None
    now: list[Segment] = []
    left = most
    if _has_turns(db, session, rail):
        begin = begin_of(db, session, rail, mark.turn_index)
        for segment in segments(db, ledger, session, rail, mark.turn_index, give_way, care):
            now.append(segment)
            left -= segment.messages
            if left <= 0 and segment.state is not None:
                upto = (segment.n + 1) * counting.LENGTH
                break
    end = _NO_END if upto is None else upto // counting.LENGTH
    stored = {n: opened(data) for n, data in db.execute(_STORED, (session, rail, begin, end))}
    return Recount(session, rail, now, stored, Finished(mark.id, mark.times, upto))


def _has_turns(db: sqlite3.Connection, session: int, rail: str) -> bool:
    sql = "SELECT 1 FROM turns WHERE session = ? AND rail = ? LIMIT 1"
    return db.execute(sql, (session, rail)).fetchone() is not None


def _agents(db: sqlite3.Connection, subagents: set[int]) -> dict[int, str]:
    found = {}
    for number in subagents - {0}:
        rows = db.execute(AGENT, (number,)).fetchall()
        found[number] = rows[0][0] if rows else UNKNOWN_AGENT
    return found


def written(planned: Planned, numbers: dict[CauseKey, Numbered]) -> Written:
    """What is to be written of it, once its causes have numbers."""
    pieces: list[Piece] = []
    gone: list[tuple[int, str, int]] = []
    changes: list[tuple[int, Counted, Counted]] = []
    naming = Naming(planned.agents)
    for session, rail, now, stored, _ in planned.recounts:
        for segment in now:
            made = counted(segment, naming, numbers)
            changes.append((session, stored.get(segment.n, {}), made))
            sums = packed(made, segment.turns)
            pieces.append(Piece(session, rail, segment.n, segment.newest, segment.state, sums))
        for n in stored.keys() - {segment.n for segment in now}:
            changes.append((session, stored[n], {}))
            gone.append((session, rail, n))
    by_number = planned.stored | {cause.id: cause for cause in numbers.values()}
    return Written(pieces, gone, rolled(changes, by_number), [recount.finished for recount in planned.recounts])


def _stored_causes(db: sqlite3.Connection, recounts: Sequence[Recount]) -> dict[int, Numbered]:
    stored = (made for recount in recounts for made in recount.stored.values())
    numbers = {cause for made in stored for cells in made.values() for cause in cells}
    found = {}
    for number in numbers:
        (row,) = db.execute("SELECT id, level, whole, subject FROM causes WHERE id = ?", (number,)).fetchall()
        found[number] = numbered(*row)
    return found


_NO_END = 1 << 62
_MARKS_AT_ONCE = 500
_MARKS = f"SELECT id, session, rail, turn_index, times FROM changed ORDER BY id DESC LIMIT {_MARKS_AT_ONCE}"
_STORED = "SELECT n, counted FROM segments WHERE session = ? AND rail = ? AND n >= ? AND n < ?"
