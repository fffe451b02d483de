"""Adds up causes of the selected turns, from the fewest rows that give it exactly.

Ages, blocks of days and days come from `cause_sums`, whole sessions from `session_causes`. What lies across an edge of
the selected time, or belongs to a session whose tags change within it, comes from the counted pieces of its rails; and
where a quarter of an hour is cut in two, that piece of the rail is explained anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from burnd.attribution.sums import Sums
from burnd.causes.cause import MISS, TOOL
from burnd.causes.packs import Cells
from burnd.causes.pieces import PieceKey, Pieces, TurnRow
from burnd.causes.rolling import AGE, BLOCKS_AN_AGE
from burnd.index.grains import BLOCK, BUCKET_MS, DAY, GRAINS, SHIFT_MS, begin_of, bucket_of
from burnd.queries.periods import Stretch
from burnd.queries.reading import Reader, grains
from burnd.queries.scanning import By, Clause, Scan, Table, as_json, during, weighed, within
from burnd.queries.selection import OUT, Selection
from burnd.queries.view import View

_SPENT = tuple(f"sum(x.{name})" for name in ("n", *Sums._fields))
_COLUMNS = {name: f"x.{name}" for name in ("session", "class", "place", "branch", "activity", "subagent")}
_SUMS = Table("cause_sums", {name: x for name, x in _COLUMNS.items() if name != "subagent"}, _SPENT)
_SESSIONS = Table("session_causes", {name: x for name, x in _COLUMNS.items() if name != "activity"}, _SPENT)
_TURNS = Table(
    "turns",
    _COLUMNS | {"turn": "x.id", "branch": "coalesce(x.branch, 0)", "activity": "coalesce(x.activity, -1)"},
    ("x.session", "x.rail", "x.turn_index", "x.ts", "x.place", "coalesce(x.branch, 0)", "x.subagent"),
)
_LENGTHS = GRAINS | {AGE: GRAINS[BLOCK] * BLOCKS_AN_AGE}
_EVERY_PLACE = "SELECT id FROM places"
_TURN = By(("turn",))
_MOST_KEPT = 5000  # sessions, whose cells take some 40 MB
_ON_BRANCHES = "SELECT DISTINCT session FROM sums WHERE segment = 0 AND branch IN (SELECT value FROM json_each(?))"
_TOUCHED = "SELECT session FROM endings WHERE last_bucket >= ? AND first_bucket < ?"


# What turns of one class paid for one cause: place (0 where places are not asked for), class, cause, and what is
# counted, as `attribution.Sums` has it. There may be very many of these, so they are plain tuples.
Spent = tuple[int, int, int, tuple[int, ...]]


Rates = Mapping[int, tuple[int, ...]]  # by class, what each column that is counted weighs


class Heaviest(NamedTuple):
    """What the heaviest causes paid, and how many causes there are."""

    rows: list[Spent]
    of: int


class CauseReader:
    """Reads one selection. `reader` is the one that adds up its turns."""

    def __init__(self, view: View, ledger: Path, selection: Selection, reader: Reader) -> None:
        self._view = view
        self._chosen = selection
        self._scan = Scan(view, selection)
        self._begin, self._end = widened(selection, reader)
        self._reader = reader
        self._pieces = Pieces(view.db, ledger)
        # Turns by the piece they stand on, which are asked for again at another level.
        self._mixed: list[list[TurnRow]] | None = None
        self._edges: dict[Stretch, list[list[TurnRow]]] = {}
        self._kept: dict[range, list[Cells]] = {}  # likewise

    def read(self, level: int) -> Iterator[Spent]:
        """Sums by class and cause, several of them for the same where it was read from several places."""
        return self._read(level, By(), [])

    def by_place(self, level: int, causes: frozenset[int]) -> Iterator[Spent]:
        """The same of these causes alone, each place by itself."""
        found = self._read(level, By(("place",)), within("x.cause", causes))
        return (spent for spent in found if spent[2] in causes)

    def _read(self, level: int, by: By, also: list[Clause]) -> Iterator[Spent]:
        if self._begin >= self._end:
            return
        if self._is_by_sums(level):
            yield from self._from_sums(level, by, also)
        elif self._chosen.activities is not None:
            yield from self._by_activity(level)
        else:
            yield from self._from_sessions(level, by, also)
        if self._mixed is None:
            whole = Stretch(self._begin, self._end)
            self._mixed = self._by_piece(self._scan.mixed(_TURNS, _TURN, self._terms(whole)))
        yield from self._of_turns(level, self._mixed)

    # Sums over all sessions

    def _is_by_sums(self, level: int) -> bool:
        """Tools, unlike their targets, are told apart by the type of the agent that called them."""
        return self._chosen.is_by_sums or (self._chosen.is_by_type and level in (TOOL, MISS))

    def heaviest(self, level: int, rates: Rates, most: int) -> Heaviest | None:
        """The same of the heaviest causes alone, where SQLite can weigh them; and how many there are in all.

        What lies at the edges of the selected time is not weighed there: all causes that it has are among them.
        """
        if self._begin >= self._end or not self._chosen.is_by_sums:
            return None
        (begin, end), edges = whole_days(self._begin, self._end)
        at_edges = [spent for edge in edges for spent in self._at_edge(level, edge)]
        at_edges += self._beside_ages(level, begin, end)
        parts = [*self._parts(level, By(), begin, end)]
        ranked = self._view.rows(*_ranking(parts, rates, most)) if parts else []
        shown = frozenset((*(cause for cause, *_ in ranked), *(spent[2] for spent in at_edges)))
        only = within("x.cause", shown)
        rows = [
            s for part in parts for s in _spent(self._scan.plain(_SUMS, By(), [*part, *only], beside="x.cause"), By())
        ]
        count = (ranked[0][2] if ranked else 0) + len({s[2] for s in at_edges} - {s[2] for s in rows})
        return Heaviest([*rows, *at_edges], count)

    def _from_sums(self, level: int, by: By, also: list[Clause]) -> Iterator[Spent]:
        (begin, end), edges = whole_days(self._begin, self._end)
        for part in self._parts(level, by, begin, end):
            yield from _spent(self._scan.plain(_SUMS, by, [*part, *also], beside="x.cause"), by)
        yield from self._beside_ages(level, begin, end)
        for edge in edges:
            yield from self._at_edge(level, edge)

    def _at_edge(self, level: int, edge: Stretch) -> Iterator[Spent]:
        if edge not in self._edges:
            self._edges[edge] = self._by_piece(self._scan.plain(_TURNS, _TURN, self._terms(edge)))
        return self._of_turns(level, self._edges[edge])

    def _parts(self, level: int, by: By, begin: int, end: int) -> Iterator[list[Clause]]:
        """The selected rows of `cause_sums`, in the longest grains that fit."""
        if self._is_by_age(level):
            begin, end = _whole_ages(begin, end)
        for grain, first, last in grains(begin, end, self._grains(level), _LENGTHS):
            # Each age for itself: within it rows are in the order of their causes, and SQLite need not sort them.
            for some in [range(n, n + 1) for n in range(first, last)] if grain == AGE else [range(first, last)]:
                yield [
                    Clause(f"x.level = {level} AND x.grain = {grain}"),
                    self._activity(),
                    self._place(level, grain, by),
                    _buckets(some),
                    *within("x.class", self._chosen.kinds),
                    *self._of_type(),
                ]

    def _of_type(self) -> list[Clause]:
        of_type = self._chosen.agent_type if self._chosen.is_by_type else None
        return [Clause(f"x.cause IN (SELECT id FROM causes WHERE agent = {of_type})")] if of_type is not None else []

    def _is_by_age(self, level: int) -> bool:
        """Targets of activities are kept by age alone."""
        return self._chosen.activities is not None and level not in (TOOL, MISS)

    def _beside_ages(self, level: int, begin: int, end: int) -> Iterator[Spent]:
        """Days that are in no whole age, where nothing shorter is kept: from the pieces."""
        if self._is_by_age(level):
            first, last = _whole_ages(begin, end)
            for some in ((begin, first), (last, end)) if first < last else ((begin, end),):
                yield from self._of_days(level, range(*(bucket // _LENGTHS[DAY] for bucket in some)))

    def _grains(self, level: int) -> tuple[int, ...]:
        return (BLOCK, DAY) if level in (TOOL, MISS) else (AGE, BLOCK, DAY)

    def _activity(self) -> Clause:
        return (within("x.activity", self._chosen.activities) or [Clause("x.activity = 0")])[0]

    def _place(self, level: int, grain: int, by: By) -> Clause:
        """Days of targets, and of activities, are kept by place alone."""
        if self._chosen.places is not None:
            return within("x.place", self._chosen.places)[0]
        told_apart = self._chosen.activities is not None or (grain == DAY and level not in (TOOL, MISS))
        return Clause(f"x.place IN ({_EVERY_PLACE})" if told_apart or by.keys else "x.place = 0")

    # Sums by session

    def _from_sessions(self, level: int, by: By, also: list[Clause]) -> Iterator[Spent]:
        inside, across = self._reader.sessions()
        terms = [Clause(f"x.level = {level}"), *self._scan.terms(_SESSIONS, self._chosen.kinds), *also]
        rows = self._scan.by_session(_SESSIONS, by, terms, beside="x.cause", sessions=inside)
        yield from _spent(rows, by)
        if across:
            terms = [*self._terms(Stretch(self._begin, self._end)), *within("x.session", across)]
            yield from self._of_turns(level, self._by_piece(self._scan.plain(_TURNS, _TURN, terms)))

    # Pieces of rails

    def _by_activity(self, level: int) -> Iterator[Spent]:
        """Whole days from what pieces counted by activity, the rest turn by turn."""
        (begin, end), edges = whole_days(self._begin, self._end)
        yield from self._of_days(level, range(begin // _LENGTHS[DAY], end // _LENGTHS[DAY]))
        for edge in edges:
            yield from self._at_edge(level, edge)

    def _of_days(self, level: int, days: range) -> Iterator[Spent]:
        for cells in self._kept.get(days) or self._on_days(days):
            _, kind, place, _, _ = cells.place
            for number, sums in self._pieces.at_level(cells, level):
                yield place, kind, number, sums

    def _on_days(self, days: range) -> Iterable[Cells]:
        """What pieces counted by activity on these days; kept for another level, unless there is very much of it."""
        if not days:
            return ()
        chosen, day = self._chosen, _LENGTHS[DAY]
        touched = frozenset(row[0] for row in self._view.rows(_TOUCHED, (days[0] * day, (days[-1] + 1) * day)))
        sessions = self._wanted(touched if chosen.sessions is None else chosen.sessions & touched)
        found = self._selected(days, sessions)
        if len(sessions) > _MOST_KEPT:
            return found
        self._kept[days] = [*found]
        return self._kept[days]

    def _selected(self, days: range, sessions: frozenset[int]) -> Iterator[Cells]:
        chosen = self._chosen
        for session, cells in self._pieces.by_activity(chosen.activities or frozenset(), sessions):
            bucket, kind, place, branch, subagent = cells.place
            if (
                bucket in days
                and (chosen.kinds is None or kind in chosen.kinds)
                and (chosen.places is None or place in chosen.places)
                and (chosen.branches is None or branch in chosen.branches)
                and chosen.takes(self._group(session), subagent)
            ):
                yield cells

    def _wanted(self, sessions: frozenset[int]) -> frozenset[int]:
        """Those all of whose turns are tagged the same and may be chosen: to open their pieces takes far longer."""
        chosen, groups = self._chosen, self._chosen.groups
        if chosen.branches is not None:
            sessions &= frozenset(row[0] for row in self._view.rows(_ON_BRANCHES, (as_json(chosen.branches),)))
        if groups is not None:
            mixed = groups.mixed
            sessions = frozenset(s for s in sessions if self._group(s) != OUT and s not in mixed)
        if chosen.agent_groups is not None and not chosen.agent_groups:
            sessions &= self._scan.sessions_of_agents()
        return sessions

    def _group(self, session: int) -> int:
        groups = self._chosen.groups
        return groups.of(session) if groups is not None else 0

    def _terms(self, stretch: Stretch) -> list[Clause]:
        return [during(stretch), *self._scan.terms(_TURNS, self._chosen.kinds)]

    def _by_piece(self, rows: Iterable[tuple[Any, ...]]) -> list[list[TurnRow]]:
        """Turns, told as (number, class, nothing, ...) with where they stand, by the piece that they are on."""
        turns = [TurnRow(number, kind, *rest) for number, kind, _, *rest in rows]
        turns.sort(key=_piece)
        return [list(some) for _, some in groupby(turns, key=_piece)]

    def _of_turns(self, level: int, pieces: Sequence[Sequence[TurnRow]]) -> Iterator[Spent]:
        """What these turns paid."""
        by_activity = self._chosen.activities is not None
        self._pieces.open(turns[0].piece for turns in pieces)
        for turns in pieces:
            for row in self._pieces.of_turns(turns, level, one_by_one=by_activity):
                yield row[0], row[1], row[2], row[3:]


def widened(chosen: Selection, reader: Reader) -> tuple[int, int]:
    """The selected time; where it has no end, up to the end of an age, so that nothing is cut at it."""
    if reader.begin >= reader.end:
        return 0, 0
    age = _LENGTHS[AGE]
    begin = reader.begin if chosen.begin is not None else begin_of(bucket_of(reader.begin) // age * age)
    end = reader.end if chosen.end is not None else begin_of((bucket_of(reader.end - 1) // age + 1) * age)
    return begin, end


def _piece(turn: TurnRow) -> PieceKey:
    return turn.piece


def _ranking(parts: list[list[Clause]], rates: Rates, most: int) -> tuple[str, list[Any]]:
    """The heaviest causes of these parts as (cause, weight, how many there are)."""
    weight = weighed(rates, Sums._fields)
    rows = " UNION ALL ".join(
        f"SELECT x.cause, {weight} AS weight FROM cause_sums x WHERE {' AND '.join(clause.sql for clause in part)}"
        for part in parts
    )
    sql = f"SELECT cause, total(weight), count(*) OVER () FROM ({rows}) GROUP BY cause ORDER BY 2 DESC, 1 LIMIT {most}"
    return sql, [value for part in parts for clause in part for value in clause.bound]


def _buckets(some: range) -> Clause:
    return Clause(f"x.bucket = {some[0]}" if len(some) == 1 else f"x.bucket >= {some[0]} AND x.bucket <= {some[-1]}")


def _spent(rows: Iterable[tuple[int, ...]], by: By) -> Iterator[Spent]:
    if by.keys:
        return ((row[0], row[1], row[2], row[4:]) for row in rows)
    return ((0, row[0], row[1], row[3:]) for row in rows)


def _whole_ages(begin: int, end: int) -> tuple[int, int]:
    """The ages that lie between these quarters of an hour, from the begin of the first to the end of the last."""
    age = _LENGTHS[AGE]
    first, last = -(-begin // age) * age, end // age * age
    return (first, last) if first < last else (begin, begin)


def whole_days(begin: int, end: int) -> tuple[tuple[int, int], list[Stretch]]:
    """The whole UTC days of a time, in quarters of an hour, and what is left of it at its edges."""
    day = GRAINS[DAY]
    first, last = -(-(begin + SHIFT_MS) // (day * BUCKET_MS)), (end + SHIFT_MS) // (day * BUCKET_MS)
    if first >= last:
        return (0, 0), [Stretch(begin, end)]
    inner, outer = begin_of(first * day), begin_of(last * day)
    edges = (Stretch(begin, inner), Stretch(outer, end))
    return (first * day, last * day), [edge for edge in edges if edge.begin < edge.end]
