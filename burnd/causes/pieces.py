"""Reads counted pieces of rails: what they hold of some of their turns, explained anew where it is not told apart."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from burnd.attribution.sums import unpack
from burnd.causes import counting
from burnd.causes.cause import EVERY, CauseKey, Numbered, key_of, numbered
from burnd.causes.packs import Cells, Place, unpacked
from burnd.causes.rails import Span, load_span
from burnd.index.grains import bucket_of
from burnd.index.store import keyed
from burnd.protocol import UNKNOWN_AGENT

PieceKey = tuple[int, str, int]  # session, rail, n


class TurnRow(NamedTuple):
    """A turn by its number, its class, and where it stands."""

    id: int
    kind: int
    session: int
    rail: str
    turn_index: int
    ts: int
    place: int
    branch: int
    subagent: int

    @property
    def piece(self) -> PieceKey:
        return self.session, self.rail, self.turn_index // counting.LENGTH

    @property
    def key(self) -> Place:
        return bucket_of(self.ts), self.kind, self.place, self.branch, self.subagent


class _Counted(NamedTuple):
    """A piece by time: what was counted, and how many turns where."""

    cells: list[Cells]
    turns: list[tuple[Place, int]]


class Pieces:
    """The pieces of rails in one state of the index; remembers which causes there are."""

    def __init__(self, db: sqlite3.Connection, ledger: Path) -> None:
        self._db = db
        self._ledger = ledger
        self._causes: dict[int, Numbered] = {}
        self._keys: dict[CauseKey, int | None] = {}
        self._agents: dict[int, str] = {0: ""}
        self._opened: dict[PieceKey, _Counted | None] = {}  # asked for again at another level, as is this
        self._fed: dict[tuple[int, str, int, frozenset[int]], counting.Paid] = {}

    def _learn(self, causes: Iterable[int]) -> None:
        missing = [(cause,) for cause in sorted({cause for cause in causes if cause not in self._causes})]
        for row in keyed(self._db, "SELECT id, level, whole, subject FROM causes WHERE id IN ({keys})", missing):
            self._causes[row[0]] = numbered(*row)

    def open(self, pieces: Iterable[PieceKey]) -> None:
        """Reads these pieces and what their causes are, all at once: one by one it would take twice as long."""
        missing = sorted({piece for piece in pieces if piece not in self._opened})
        self._opened.update(dict.fromkeys(missing))
        for session, rail, n, data in keyed(self._db, _SOME, missing):
            pack = unpacked(data)
            self._opened[session, rail, n] = _Counted(pack.of_activity(EVERY), pack.turns)
        opened = (counted for piece in missing if (counted := self._opened[piece]) is not None)
        self._learn(row[0] for counted in opened for cells in counted.cells for row in cells.rows)

    def by_activity(self, activities: frozenset[int], sessions: frozenset[int]) -> Iterator[tuple[int, Cells]]:
        """What turns of these activities paid in these sessions' pieces, with their session."""
        for session, data in self._db.execute(_OF_SESSIONS, (msgspec.json.encode(sorted(sessions)).decode(),)):
            pack = unpacked(data)
            found = [cells for activity in activities for cells in pack.of_activity(activity)]
            self._learn(row[0] for cells in found for row in cells.rows)
            for cells in found:
                yield session, cells

    def at_level(self, cells: Cells, level: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The causes that are summed up at a level, by the number they have there, with what is counted."""
        causes = self._causes
        for row in cells.rows:
            if (number := causes[row[0]].at(level)) is not None:
                yield number, row[1:]

    def of_turns(self, turns: Sequence[TurnRow], level: int, *, one_by_one: bool) -> Iterator[tuple[int, ...]]:
        """(place, class, cause, ...) of these turns, which are all of one piece that is open.

        Where all turns that were counted together are wanted, they are told by what was counted; else, or where that
        is asked for, the piece is explained anew.
        """
        session, rail, n = turns[0].piece
        counted = self._opened[session, rail, n]
        if counted is None:
            return
        keys = [turn.key for turn in turns]
        wanted = Counter(keys)
        whole = set() if one_by_one else {place for place, count in counted.turns if wanted.get(place) == count}
        for cells in counted.cells if whole else ():
            if cells.place in whole:
                _, kind, place, _, _ = cells.place
                for number, paid in self.at_level(cells, level):
                    yield place, kind, number, *paid
        left = frozenset(turn.id for turn, key in zip(turns, keys, strict=True) if key not in whole)
        if left:
            yield from self._explained(session, rail, n, left, level)

    def _explained(
        self, session: int, rail: str, n: int, turns: frozenset[int], level: int
    ) -> Iterator[tuple[int, ...]]:
        place = (session, rail, n, turns)
        if place not in self._fed:
            self._fed[place] = self._feed(*place)
        for dims, groups in self._fed[place].items():
            agent = self._agent(dims.subagent)
            for group, paid in groups.items():
                if (number := self._number(key_of(group, agent).at(level))) is not None:
                    yield dims.place, dims.kind, number, *unpack(paid)[:-1]

    def _feed(self, session: int, rail: str, n: int, turns: frozenset[int]) -> counting.Paid:
        before = counting.before(self._db, session, rail, n)
        if before is None:  # it was never counted, and says so by what is missing in the sum
            return {}
        span = Span(n * counting.LENGTH, (n + 1) * counting.LENGTH, before.newest)
        entries = load_span(self._db, self._ledger, session, rail, span)
        every = counting.dims_of(self._db, session, rail, n)
        places = {key: (by_time,) for key, (number, by_time, _) in every.items() if number in turns}
        return counting.add_up(before.rail(), entries, places)

    def _number(self, key: CauseKey | None) -> int | None:
        if key is None:
            return None
        if key not in self._keys:
            found = self._db.execute(_BY_KEY, key._asdict()).fetchone()
            self._keys[key] = found[0] if found else None
        return self._keys[key]

    def _agent(self, subagent: int) -> str:
        if subagent not in self._agents:
            found = self._db.execute(AGENT, (subagent,)).fetchone()
            self._agents[subagent] = found[0] if found else UNKNOWN_AGENT
        return self._agents[subagent]


AGENT = "SELECT n.name FROM subagents s JOIN names n ON n.id = s.type WHERE s.id = ?"
_NAME = "coalesce((SELECT id FROM names WHERE name = :{0} AND name <> ''), iif(:{0} = '', 0, NULL))"
_BY_KEY = "SELECT id FROM causes WHERE kind = :kind" + "".join(
    f" AND {name} = {_NAME.format(name)}" for name in ("tool", "target", "agent")
)
_SOME = """
WITH w(session, rail, n) AS ({keys})
SELECT w.session, w.rail, w.n, s.counted FROM w
CROSS JOIN segments s ON s.session = w.session AND s.rail = w.rail AND s.n = w.n
"""
_OF_SESSIONS = "SELECT session, counted FROM segments WHERE session IN (SELECT value FROM json_each(?))"
