"""Reads what the selected turns paid for, from the fewest rows that give it exactly.

Whole days come from the sums of causes: over all sessions from `cause_blocks`, else from `cause_sums`. A day that the
selected time cuts, and a session whose tags change within it, are followed again for the selected turns alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from burnd.attribution import segments
from burnd.attribution.cause_keys import FILE, NAMED, PAID_LEVELS, TOOL, CauseKey, CauseNumber, cause_number
from burnd.attribution.segments import ALL_ACTIVITIES, SHIFT_MS
from burnd.attribution.tally import Sums
from burnd.index.grains import bucket_of
from burnd.queries.periods import Stretch
from burnd.queries.scanning import AGENT_TYPE, By, Clause, Row, Scan, Table, as_json, during, within
from burnd.queries.selection import Selection
from burnd.queries.sums import Reader
from burnd.queries.view import View
from burnd.records.times import DAY_MS

COUNTED = tuple(f"sum(x.{name})" for name in Sums._fields)
_COLUMNS = {name: f"x.{name}" for name in ("session", "class", "place", "branch", "activity", "version", "subagent")}
_COLUMNS["agent_type"] = AGENT_TYPE
SUMS = Table("cause_sums", _COLUMNS, COUNTED)
_BLOCKS = Table("cause_blocks", _COLUMNS, COUNTED)
_TURNS = Table(
    "turns",
    _COLUMNS
    | {
        "turn": "x.id",
        "branch": "coalesce(x.branch, 0)",
        "activity": "coalesce(x.activity, -1)",
        "version": "coalesce(x.version, 0)",
    },
    ("x.session", "x.rail", "x.turn_index"),
)


class Spent(NamedTuple):
    """What turns of one class paid for one cause: the keys that were asked for, and counts in the order of `Sums`."""

    keys: tuple[Any, ...]
    kind: int
    cause: int
    counts: tuple[int, ...]


class Days(NamedTuple):
    """The whole UTC days of a selected time, from `first` up to `end`, and what is left of it before and after."""

    first: int
    end: int
    edges: list[Stretch]


class CauseReader:
    """Reads one selection. `reader` is the one that adds up its turns."""

    def __init__(self, view: View, ledger: Path, selection: Selection, reader: Reader) -> None:
        self._view = view
        self._ledger = ledger
        self._chosen = selection
        self._scan = Scan(view, selection)
        self._is_empty = reader.begin >= reader.end
        self.stretch = Stretch(reader.begin, reader.end)
        self.days = whole_days(selection, reader)
        self._numbers: dict[int, CauseNumber] = {}
        self._edges: dict[By, list[tuple[Row, dict[Any, segments.ByCause]]]] = {}

    def read(self, level: int, by: By = By()) -> Iterator[Spent]:  # noqa: B008 - it is immutable
        """Sums by these keys, class and cause; several of them for the same where they come from several tables."""
        if self._is_empty:
            return
        if self._chosen.is_by_sums and {"place", "activity"}.issuperset(by.keys):
            yield from self._over_all_sessions(level, by)
        else:
            terms = [*self.terms(level, by), *self._during_days(self.days.first, self.days.end)]
            rows = self._scan.by_session(SUMS, by, terms, beside="x.cause", sessions=self.on_branches())
            yield from self._spent(level, by, rows)
        yield from self._followed(level, by)

    def terms(self, level: int, by: By = By()) -> list[Clause]:  # noqa: B008
        """The selected rows of `cause_sums` at a level, of any day."""
        chosen, scan = self._chosen, self._scan
        levels = PAID_LEVELS if level == TOOL else (level,)
        return [
            Clause(f"x.level IN ({','.join(map(str, levels))})"),
            *_activities(chosen, by),
            *scan.terms(SUMS._replace(columns=_without_activity()), chosen.kinds),
        ]

    def _over_all_sessions(self, level: int, by: By) -> Iterator[Spent]:
        """Whole blocks that are not stale from `cause_blocks`, the other days from the sessions active then."""
        first, end, _ = self.days
        blocks = range(-(-first // segments.BLOCK_DAYS), end // segments.BLOCK_DAYS)
        stale = {row[0] for row in self._view.rows("SELECT block FROM stale_blocks")}
        whole = [block for block in blocks if block not in stale]
        if whole:
            terms = [
                *within("x.block", frozenset(whole)),
                Clause(f"x.level = {level}"),
                *_activities(self._chosen, by),
                *within("x.class", self._chosen.kinds),
                *within("x.place", self._chosen.places),
            ]
            for row in self._scan.plain(_BLOCKS, by, terms, beside="x.cause"):
                yield _spent(by, row)
        for begin, upto in _between(first, end, whole):
            active = self._view.rows(_ACTIVE, (_bucket(begin), _bucket(upto)))
            terms = [*self.terms(level, by), *self._during_days(begin, upto)]
            if upto - begin < end - first or self._chosen.begin is not None or self._chosen.end is not None:
                terms += within("x.session", frozenset(row[0] for row in active))
            yield from self._spent(level, by, self._scan.plain(SUMS, by, terms, beside="x.cause"))

    def on_branches(self) -> frozenset[int] | None:
        """The sessions with turns on the selected branches; None if all branches are selected."""
        if self._chosen.branches is None:
            return None
        return frozenset(row[0] for row in self._view.rows(_ON_BRANCHES, (as_json(self._chosen.branches),)))

    def _during_days(self, first: int, end: int) -> list[Clause]:
        if self._chosen.begin is None and self._chosen.end is None and (first, end) == self.days[:2]:
            return []
        return [Clause(f"x.day >= {first} AND x.day < {end}")]

    def _spent(self, level: int, by: By, rows: list[Row]) -> Iterator[Spent]:
        """Rows of `cause_sums`, by the numbers that their causes have at a level."""
        kind = len(by.keys)
        self._learn({row[kind + 1] for row in rows})
        for row in rows:
            number = self._numbers[row[kind + 1]].at(level)
            if number is not None:
                yield Spent(row[:kind], row[kind], number, row[kind + 2 :])

    def _learn(self, causes: set[int]) -> None:
        missing = [(cause,) for cause in sorted(causes - self._numbers.keys())]
        for row in self._view.keyed("SELECT id, level, whole, subject FROM causes WHERE id IN ({keys})", missing):
            self._numbers[row[0]] = cause_number(*row)

    def _followed(self, level: int, by: By) -> Iterator[Spent]:
        """What turns paid that no whole day of a session has, by following their segments again."""
        if by not in self._edges:
            self._edges[by] = [*self._follow(by)]
        paid = [one for _, some in self._edges[by] for one in some.items()]
        numbers = self._numbers_of({key for _, causes in paid for key in causes}, level)
        for (keys, kind), causes in paid:
            for key, counts in causes.items():
                if (number := numbers[key]) is not None:
                    yield Spent(keys, kind, number, tuple(counts))

    def _follow(self, by: By) -> Iterator[tuple[Row, dict[Any, segments.ByCause]]]:
        wide = By(("turn", *by.keys), by.unit)
        terms = self._scan.terms(_TURNS, self._chosen.kinds)
        rows = [row for edge in self.days.edges for row in self._scan.plain(_TURNS, wide, [during(edge), *terms])]
        rows += self._scan.mixed(_TURNS, wide, [during(self.stretch), *terms])
        rows.sort(key=_segment)
        for segment, some in groupby(rows, key=_segment):
            buckets = {turn: (tuple(keys), kind) for turn, *keys, kind, _, _, _, _ in some}
            yield segment, segments.explain_turns(self._view.db, self._ledger, *segment, buckets)

    def _numbers_of(self, keys: set[CauseKey], level: int) -> dict[CauseKey, int | None]:
        """The rows of causes at a level; None for those that do not count there or have none yet."""
        wanted: dict[CauseKey, CauseKey] = {}
        for key in keys:
            if level == TOOL and key.level in PAID_LEVELS:
                wanted[key] = key.whole
            elif level != TOOL and key.level == level:
                wanted[key] = key.subject if FILE <= level <= NAMED else key
        rows = self._view.keyed(_BY_NAME, [tuple(key) for key in {*wanted.values()}])
        numbers = {CauseKey(*row[1:]): row[0] for row in rows}
        return {key: numbers.get(wanted[key]) if key in wanted else None for key in keys}


def _without_activity() -> dict[str, str]:
    """The columns that a selection narrows in any case: activities have rows of their own."""
    return {name: column for name, column in _COLUMNS.items() if name != "activity"}


def _activities(chosen: Selection, by: By) -> list[Clause]:
    if chosen.activities is not None:
        return within("x.activity", chosen.activities)
    return [Clause(f"x.activity {'<>' if 'activity' in by.keys else '='} {ALL_ACTIVITIES}")]


def whole_days(chosen: Selection, reader: Reader) -> Days:
    """Divides the selected time into whole days and what is left; where it has no end, no block is cut."""
    begin, end = reader.begin + SHIFT_MS, reader.end + SHIFT_MS
    block = segments.BLOCK_DAYS * DAY_MS
    first = begin // block * segments.BLOCK_DAYS if chosen.begin is None else -(-begin // DAY_MS)
    last = -(-end // block) * segments.BLOCK_DAYS if chosen.end is None else end // DAY_MS
    if first >= last:
        return Days(0, 0, [Stretch(reader.begin, reader.end)])
    edges = (Stretch(reader.begin, first * DAY_MS - SHIFT_MS), Stretch(last * DAY_MS - SHIFT_MS, reader.end))
    return Days(first, last, [edge for edge in edges if edge.begin < edge.end])


def _between(first: int, end: int, blocks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The ranges of days that are in none of these blocks."""
    for block in sorted(blocks):
        if first < block * segments.BLOCK_DAYS:
            yield first, block * segments.BLOCK_DAYS
        first = (block + 1) * segments.BLOCK_DAYS
    if first < end:
        yield first, end


def _spent(by: By, row: Row) -> Spent:
    kind = len(by.keys)
    return Spent(row[:kind], row[kind], row[kind + 1], row[kind + 2 :])


def _segment(row: Row) -> tuple[int, str, int]:
    session, rail, turn_index = row[-3:]
    return session, rail, turn_index // segments.LENGTH


def _bucket(day: int) -> int:
    return bucket_of(day * DAY_MS - SHIFT_MS)


_ACTIVE = "SELECT session FROM endings WHERE last_bucket >= ? AND first_bucket < ?"
_ON_BRANCHES = "SELECT DISTINCT session FROM sums WHERE segment = 0 AND branch IN (SELECT value FROM json_each(?))"
_BY_NAME = """
WITH w(kind, tool, target, agent) AS ({keys})
SELECT c.id, w.kind, w.tool, w.target, w.agent FROM w
LEFT JOIN names t ON t.name = w.tool LEFT JOIN names g ON g.name = w.target LEFT JOIN names a ON a.name = w.agent
CROSS JOIN causes c ON c.kind = w.kind AND c.tool = iif(w.tool = '', 0, t.id)
  AND c.target = iif(w.target = '', 0, g.id) AND c.agent = iif(w.agent = '', 0, a.id)
"""
