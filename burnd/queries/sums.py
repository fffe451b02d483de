"""Turns a selection, a group-by, a period and a time zone into SQL over the sums of turns and of causes.

`Reader` counts turns from `time_sums` if only class, activity and time are needed, else from `sums`. `CauseReader`
adds up causes from `cause_blocks` (all sessions) or `cause_sums` (by group of turns). Edges of the period, and mixed
sessions (whose tags change while they run), are read turn by turn. docs/architecture.md describes the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from burnd.attribution import segments
from burnd.attribution.cause_keys import FILE, NAMED, PAID_LEVELS, TOOL, CauseKey
from burnd.attribution.rates import Sums
from burnd.index.sums import (
    BUCKET_MS,
    COUNT_TURNS,
    DAY,
    FIRST_EDITS,
    MEASURES,
    SHIFT_MS,
    begin_of,
    bucket_of,
)
from burnd.queries.money import SumRow, TurnClasses
from burnd.queries.periods import HOUR_SLOTS, Stretch, hour_slot, stretches
from burnd.queries.selection import OUT, Groups, Selection
from burnd.queries.view import View
from burnd.records.times import DAY_MS, HOUR_MS

Key = Literal["place", "activity", "branch", "version", "session", "subagent", "agent_type", "group", "time", "turn"]
_NULL = "NULL"
# How many of MEASURES to read: PRICED (cost), BILLED (plus counts), or all (plus quality).
PRICED, BILLED = MEASURES.index("searches") + 1, MEASURES.index("edits")


class By(NamedTuple):
    """`time` is the number of the local day or hour, by `unit`."""

    keys: tuple[Key, ...] = ()
    unit: Literal["day", "hour"] | None = None

    def plus(self, other: By) -> By:
        unit = "hour" if "hour" in (self.unit, other.unit) else self.unit or other.unit
        return By(tuple(dict.fromkeys((*self.keys, *other.keys))), unit)


class Clause(NamedTuple):
    """A condition, and the values bound in it."""

    sql: str
    bound: tuple[Any, ...] = ()


class Grouping(NamedTuple):
    """A list that puts the rows of a table into groups, joined as g. Its texts are SQL."""

    rows: str  # the list, in JSON
    group: str  # the group of a row of g
    session: str  # its session
    condition: str  # of the join, with {session} and {turn} for columns of the table
    source: str = "json_each(?) g"


class Table(NamedTuple):
    """A source of rows, named x. Its texts are SQL."""

    source: str  # what follows FROM
    only: str  # a condition on all rows
    columns: dict[str, str]  # by key
    counted: tuple[str, ...]  # sums to read
    time: str = "x.ts"  # in units of `unit_ms`
    unit_ms: int = 1
    first_ms: int = SHIFT_MS  # from the year 1 on, so that no number is negative

    def clock(self, unit: str, zone: Sequence[Stretch]) -> str:
        """The number of the local day, or of the local hour as `hour_name` has it."""
        numbers = [self._number(unit, stretch.offset) for stretch in zone]
        if len(numbers) < 2:
            return numbers[0] if numbers else _NULL
        ends = [(stretch.end + SHIFT_MS - self.first_ms) // self.unit_ms for stretch in zone[:-1]]
        cases = " ".join(f"WHEN {self.time} < {end} THEN {number}" for end, number in zip(ends, numbers, strict=False))
        return f"CASE {cases} ELSE {numbers[-1]} END"

    def _number(self, unit: str, offset: int) -> str:
        length = HOUR_MS if unit == "hour" else DAY_MS
        if unit == "day" and self.unit_ms == DAY_MS and not offset:
            return self.time  # so that SQLite can use the order of the rows
        number = f"({self.time} * {self.unit_ms} + {self.first_ms + offset}) / {length}"
        return number if unit == "day" else f"{number} * {HOUR_SLOTS} + {hour_slot(offset)}"


_COLUMNS = {
    name: f"x.{name}" for name in ("session", "class", "place", "branch", "activity", "version", "subagent", "ts")
}
# Most turns are no subagent's: nothing needs to be looked up for these.
_COLUMNS["agent_type"] = "CASE x.subagent WHEN 0 THEN NULL ELSE (SELECT type FROM subagents WHERE id = x.subagent) END"
_SUMMED = tuple(f"sum(x.{name})" for name in MEASURES)
SUMS = Table("sums x", "1", _COLUMNS, _SUMMED, "x.bucket", BUCKET_MS, 0)
_QUARTERS = SUMS._replace(source="time_sums x", only="x.level = 0")
_DAYS = _QUARTERS._replace(only="x.level = 1", unit_ms=DAY_MS)
_DAYS_BY_ACTIVITY = _DAYS._replace(only="x.level = 2")
_TURN_COLUMNS = _COLUMNS | {
    "turn": "x.id",
    "branch": "coalesce(x.branch, 0)",
    "activity": "coalesce(x.activity, -1)",
    "version": "coalesce(x.version, 0)",
}
TURNS = Table(f"turns x LEFT JOIN {FIRST_EDITS}", "1", _TURN_COLUMNS, COUNT_TURNS)
_BILLED_TURNS = TURNS._replace(source="turns x")  # without measures of quality
_TURNS_BY_TIME = _BILLED_TURNS._replace(source="turns x INDEXED BY turns_by_time")
_UNLOGGED = Table(
    "unlogged x",
    "1",
    _COLUMNS | {"turn": "0", "branch": "0", "activity": "-1", "version": "0", "subagent": "0", "agent_type": "NULL"},
    ("0", *(f"sum(x.{name})" for name in MEASURES[1:8]), "sum(x.requests)", *["0"] * 5),
)
_RETRIED = Table(
    "prompts p CROSS JOIN turns x ON x.id = p.turn",
    "p.retries > 0",
    _TURN_COLUMNS | {"session": "p.session"},
    ("count(*)",),
)
# A child session is a part of its parent's work.
_ENDINGS = Table(
    "endings e JOIN sessions s ON s.id = e.session CROSS JOIN turns x ON x.id = e.turn",
    "s.parent_session_id IS NULL",
    _TURN_COLUMNS | {"session": "e.session"},
    ("count(*)",),
)
_CAUSE_BLOCKS = Table("cause_blocks x", "1", _COLUMNS, tuple(f"sum(x.{name})" for name in Sums._fields))
_GROUP_COLUMNS = {name: column.replace("x.", "w.") for name, column in _COLUMNS.items()}
_OF_GROUP = "CROSS JOIN cause_sums x ON x.turn_group = "
_BY_DAY = _CAUSE_BLOCKS._replace(
    source=f"turn_groups w {_OF_GROUP} w.id",
    only=f"w.grain = {segments.DAYS}",
    columns=_GROUP_COLUMNS,
    time="w.bucket",
    unit_ms=BUCKET_MS,
    first_ms=0,
)
_BY_ACTIVITY = _BY_DAY._replace(only=f"w.grain = {segments.ACTIVITIES}")
# The groups by quarter `t` of groups `w`.
_BY_QUARTER = _BY_DAY._replace(
    source=f"turn_groups w CROSS JOIN turn_groups t ON t.id > w.id AND t.id <= w.id + w.quarters {_OF_GROUP} t.id",
    time="t.bucket",
)
_TURNS_TO_ATTRIBUTE = _BILLED_TURNS._replace(counted=("x.session", "x.rail", "x.turn_index"))


class Reader:
    """Sums a selection's turns; `measures` is how many of MEASURES to read.

    `sizes` are context sizes to distinguish besides those of the prices.
    """

    def __init__(
        self,
        view: View,
        selection: Selection,
        classes: TurnClasses,
        sizes: tuple[int, ...] = (),
        measures: int = BILLED,
    ) -> None:
        self._view = view
        self._measures = measures
        self._turns = TURNS if measures > BILLED else _BILLED_TURNS
        self._selection = selection
        own = [one for one in classes.values() if selection.classes is None or one.id in selection.classes]
        needed = {one.id: {*sizes, *(one.price.thresholds if one.price else ())} for one in own}
        # These classes lack a context size at which prices now change: their turns are read one by one.
        coarse = [one for one in own if not one.is_unlogged and not needed[one.id] <= set(one.sizes)]
        self._coarse = frozenset(one.id for one in coarse)
        cuts = sorted({size for one in coarse for size in needed[one.id]}, reverse=True)
        self._tier = f"CASE {' '.join(f'WHEN {_CONTEXT} > {size} THEN {size}' for size in cuts)} ELSE 0 END"
        self._fine = frozenset(one.id for one in own) - self._coarse if self._coarse else selection.classes
        self._by_session: Grouping | None = None
        self._stretches: list[Stretch] | None = None
        # The selected period, as far as anything is recorded.
        self.begin = self.end = 0
        ((first, last),) = view.rows("SELECT min(first_bucket), max(last_bucket) FROM endings")
        if first is not None:
            begin, end = begin_of(first), begin_of(last + 1)
            self.begin = begin if selection.begin is None else max(begin, selection.begin)
            self.end = end if selection.end is None else min(end, selection.end)

    @property
    def period(self) -> Stretch:
        return Stretch(self.begin, self.end)

    def read(self, by: By) -> list[SumRow]:
        """Rows by keys and class. A key can occur more than once.

        The extra column is the context-size tier, if the class has none.
        """
        rows: list[SumRow] = []
        if self.begin >= self.end:
            return rows
        if self._coarse:
            rows += self._facts(self._turns, by, self._coarse, self._tier)
        if self._fine is None or self._fine:
            rows += self._sums(by)
            rows += self._facts(_UNLOGGED, by, self._fine)
        return rows

    def retried(self, by: By) -> list[SumRow]:
        """Counts prompts that were retried, at their first edits; the extra column is the number of retries."""
        active = [_active(bucket_of(self.begin), bucket_of(self.end) + 1, "p.session")]
        is_cut = self._selection.begin is not None or self._selection.end is not None
        return self._facts(_RETRIED, by, self._selection.classes, "p.retries", active if is_cut else [])

    def endings(self, by: By, extra: str) -> list[SumRow]:
        """Counts sessions at their last turns (x), with an extra column that may use the ending (e)."""
        return self._facts(_ENDINGS, by, self._selection.classes, extra)

    def turns(self) -> set[int]:
        return {keys[0] for keys, *_ in self._facts(self._turns, By(("turn",)), self._selection.classes)}

    # Which tables

    def _sums(self, by: By) -> list[SumRow]:
        rows: list[SumRow] = []
        selection = self._selection
        # If a UTC offset is not a multiple of 15 minutes, read turn by turn.
        zone = self.zone(by)
        (begin, end), edges = ((0, 0), [self.period]) if self.is_uneven(by) else _whole_buckets(self.period)
        is_plain = selection.is_of_all_sessions and (selection.places, selection.versions) == (None, None)
        is_over_sessions = is_plain and {"activity", "time"}.issuperset(by.keys)
        is_by_utc_day = by.unit is None or (by.unit == "day" and not any(part.offset % DAY_MS for part in zone))
        by_activity = selection.activities is not None or "activity" in by.keys
        if begin < end and is_over_sessions and (is_by_utc_day or not by_activity):
            by_day = _DAYS_BY_ACTIVITY if by_activity else _DAYS
            rows += self._over_sessions(by_day if is_by_utc_day else _QUARTERS, by, begin, end)
        elif begin < end:
            is_cut = selection.begin is not None or selection.end is not None
            rows += self.select(SUMS, by, [_active(begin, end), _between(begin, end)] if is_cut else [])
        for edge in edges:
            rows += self.select(self._turns, by, [during(edge)])
        return rows + self.mixed(self._turns, by, self._fine)

    def _over_sessions(self, table: Table, by: By, begin: int, end: int) -> list[SumRow]:
        """Partial and stale days are read from `sums`."""
        unit = table.unit_ms // BUCKET_MS
        first, last = -(-begin // unit), end // unit
        if first >= last:
            first = last = -(-end // unit)
        rest = [(begin, min(end, first * unit), "1"), (max(begin, last * unit), end, "1")]
        fresh = [_between(first, last)]
        if stale := self._view.rows(
            f"{_STALE_DAYS} WHERE day >= {first * unit // DAY} AND day < {-(-last * unit // DAY)}"
        ):
            fresh.append(Clause(f"x.bucket / {DAY // unit} NOT IN ({_STALE_DAYS})"))
            days = min(stale)[0] * DAY, (max(stale)[0] + 1) * DAY
            rest.append((max(days[0], first * unit), min(days[1], last * unit), f"x.bucket / {DAY} IN ({_STALE_DAYS})"))
        rows = self.select(table, by, fresh) if first < last else []
        for since, until, condition in rest:
            if since < until:
                rows += self.select(SUMS, by, [_active(since, until), _between(since, until), Clause(condition)])
        return rows

    def _facts(
        self,
        table: Table,
        by: By,
        classes: frozenset[int] | None,
        extra: str = _NULL,
        terms: Sequence[Clause] = (),
    ) -> list[SumRow]:
        """Rows of a table whose times are exact to the millisecond, so that no period cuts them."""
        if self.begin >= self.end:
            return []
        rows = self.select(table, by, [*terms, during(self.period)], extra, classes)
        return rows + self.mixed(table, by, classes, extra)

    def mixed(self, table: Table, by: By, classes: frozenset[int] | None, extra: str = _NULL) -> list[SumRow]:
        """Rows of mixed sessions."""
        groups = self._selection.groups
        if groups is None or not groups.mixed:
            return []
        during_period = [during(self.period)]
        by_time = self.select(table, by, during_period, extra, classes, _groups_of_times(groups))
        return by_time + self.select(table, by, during_period, extra, classes, _groups_of_turns(groups))

    def zone(self, by: By) -> list[Stretch]:
        """The period, divided where the clocks change; empty if the group-by has no time."""
        if by.unit is None:
            return []
        if self._stretches is None:
            self._stretches = stretches(self.begin, self.end, self._selection.zone)
        return self._stretches

    def is_uneven(self, by: By) -> bool:
        """A local day or hour may begin within a bucket, as in a zone like +05:07."""
        zone = self.zone(by)
        cuts = [stretch.offset for stretch in zone] + [stretch.begin for stretch in zone[1:]]
        return any(cut % BUCKET_MS for cut in cuts)

    def windows(self, windows: Sequence[Stretch]) -> list[SumRow]:
        """Sums per window; the group key is its index. Ignores filters except those on the class.

        Edges of windows, and days that are stale, are read from the turns.
        """
        stale = {row[0] for row in self._view.rows(_STALE_DAYS)}
        whole: list[tuple[int, int, int]] = []
        cut: list[tuple[int, int, int]] = []
        for number, window in enumerate(windows):
            (begin, end), edges = _whole_buckets(window)
            cut += [(number, edge.begin, edge.end) for edge in edges]
            for day in sorted(stale.intersection(range(begin // DAY, -(-end // DAY)))):
                first, last = max(begin, day * DAY), min(end, (day + 1) * DAY)
                whole.append((number, begin, first))
                cut.append((number, begin_of(first), begin_of(last)))
                begin = last
            whole.append((number, begin, end))
        every = [(number, window.begin, window.end) for number, window in enumerate(windows)]
        by = By(("group",))
        rows = self.select(_QUARTERS, by, [], grouping=_groups_of_windows("x.bucket", whole))
        rows += self.select(_TURNS_BY_TIME, by, [], grouping=_groups_of_windows("x.ts", cut))
        if self._coarse:
            grouping = _groups_of_windows("x.ts", every)
            rows += self.select(_TURNS_BY_TIME, by, [], self._tier, self._coarse, grouping)
        return rows

    # One statement

    def select(
        self,
        table: Table,
        by: By,
        terms: Iterable[Clause],
        extra: str = _NULL,
        classes: frozenset[int] | Literal["fine"] | None = "fine",
        grouping: Grouping | None = None,
    ) -> list[SumRow]:
        """Rows of a table under these conditions and those of the selection, except for its period.

        Rows are grouped by the tags of whole sessions, unless another grouping is given.
        """
        columns, rest, bound = self.statement(table, by, terms, self._fine if classes == "fine" else classes, grouping)
        counted = table.counted[: self._measures] if len(table.counted) == len(MEASURES) else table.counted
        read = [*(columns[key] for key in by.keys), columns["class"], extra, *counted]
        width = len(by.keys)
        groups = ",".join(str(n + 1) for n in range(width + 1 + (extra != _NULL)))
        rows = self._view.rows(f"SELECT {','.join(read)} {rest} GROUP BY {groups}", bound)
        return [(row[:width], row[width], row[width + 1], row[width + 2 :]) for row in rows]

    def statement(
        self,
        table: Table,
        by: By,
        terms: Iterable[Clause],
        classes: frozenset[int] | None,
        grouping: Grouping | None = None,
    ) -> tuple[dict[str, str], str, list[Any]]:
        """The columns by key, FROM and WHERE of a statement, and the values bound in it."""
        selection = self._selection
        columns = {"time": table.clock(by.unit or "day", self.zone(by)), **table.columns}
        terms = [Clause(table.only), *terms, *selected(selection, table, classes)]
        source, bound, session = table.source, list[Any](), columns["session"]
        if selection.groups is not None and grouping is None:
            grouping = self._groups_of_sessions(selection.groups)
        if grouping is not None:
            columns["group"] = grouping.group
            source = f"{grouping.source} CROSS JOIN {source}"
            bound.append(grouping.rows)
            # All conditions on the session are checked on the list: SQLite might else look up every selected session.
            terms = [term._replace(sql=term.sql.replace(session, grouping.session)) for term in terms]
            terms.append(Clause(grouping.condition.format(session=session, turn=columns.get("turn"))))
        if selection.agent_groups is not None:
            # Most turns are no subagent's: to see that is quicker than to look for 0 in a list.
            subagent, listed = columns["subagent"], "(SELECT value FROM json_each(?))"
            of_agents = Clause(f"{subagent} <> 0 AND {subagent} IN {listed}", (_json(selection.subagents),))
            if selection.groups is not None:
                either = f"({columns['group']} IN {listed} OR {of_agents.sql})"
                of_agents = Clause(either, (_json(selection.agent_groups), *of_agents.bound))
            terms.append(of_agents)
        where = " AND ".join(term.sql for term in terms)
        return columns, f"FROM {source} WHERE {where}", [*bound, *(value for term in terms for value in term.bound)]

    def _groups_of_sessions(self, groups: Groups) -> Grouping:
        """Mixed sessions are in none."""
        if self._by_session is None:
            ((last,),) = self._view.rows("SELECT coalesce(max(id), 0) FROM sessions")
            numbers = [groups.rest] * (last + 1)
            for session, group in groups.whole.items():
                numbers[session] = group
            for session in groups.mixed:
                numbers[session] = OUT
            condition = f"g.value <> {OUT} AND {{session}} = g.key"
            self._by_session = Grouping(_json(numbers), "g.value", "g.key", condition)
        return self._by_session


def _groups_of_times(groups: Groups) -> Grouping:
    """Without turns that have a tag of their own."""
    rows = [
        (session, begin, end, group)
        for session, parts in groups.parts.items()
        for begin, end, group in parts
        if group != OUT
    ]
    # LIMIT makes SQLite decode each element once, and not for every turn.
    columns = "value ->> 0 AS session, value ->> 1 AS begin, value ->> 2 AS until, value ->> 3 AS number"
    source = f"(SELECT {columns} FROM json_each(?) LIMIT -1) g"
    condition = "{session} = g.session AND x.ts >= g.begin AND x.ts < g.until"
    condition += f" AND {{turn}} NOT IN (SELECT value FROM json_each('{_json([*groups.single])}'))"
    return Grouping(_json(rows), "g.number", "g.session", condition, source)


def _groups_of_turns(groups: Groups) -> Grouping:
    """For turns that have a tag of their own."""
    rows = [(turn, group) for turn, group in groups.single.items() if group != OUT]
    # The session makes SQLite look up prompts and endings by it instead of scanning them for every turn.
    of_session = "{session} = (SELECT session FROM turns WHERE id = g.value ->> 0)"
    return Grouping(_json(rows), "(g.value ->> 1)", "x.session", f"{of_session} AND {{turn}} = g.value ->> 0")


def _groups_of_windows(column: str, windows: Sequence[tuple[int, int, int]]) -> Grouping:
    """`windows` are number, begin and end."""
    condition = f"{column} >= g.value ->> 1 AND {column} < g.value ->> 2"
    return Grouping(_json(windows), "(g.value ->> 0)", "x.session", condition)


def selected(chosen: Selection, table: Table, classes: frozenset[int] | None) -> list[Clause]:
    """The conditions of a selection, except those on time, tags and subagents."""
    columns = table.columns
    return [
        *within(columns["class"], classes),
        *within(columns["place"], chosen.places),
        *within(columns["activity"], chosen.activities),
        *within(columns["version"], chosen.versions),
        *within(columns["branch"], chosen.branches),
        *within(columns["session"], chosen.sessions),
    ]


def within(column: str, chosen: frozenset[int] | None) -> list[Clause]:
    """No condition for None."""
    if chosen is None:
        return []
    return [Clause(f"{column} IN (SELECT value FROM json_each(?))", (_json(sorted(chosen)),))]


def _json(values: Collection[Any]) -> str:
    return msgspec.json.encode(values).decode()


def during(stretch: Stretch) -> Clause:
    return Clause("x.ts >= ? AND x.ts < ?", (stretch.begin, stretch.end))


def _between(begin: int, end: int, bucket: str = "x.bucket") -> Clause:
    return Clause(f"{bucket} >= {begin} AND {bucket} < {end}")


def _active(begin: int, end: int, session: str = "x.session") -> Clause:
    """Only sessions that have turns between these buckets can have rows there."""
    return Clause(f"{session} IN (SELECT session FROM endings WHERE last_bucket >= {begin} AND first_bucket < {end})")


def _whole_buckets(stretch: Stretch) -> tuple[tuple[int, int], list[Stretch]]:
    """The buckets within a stretch, and what is left of it at its edges."""
    begin, end = -(-(stretch.begin + SHIFT_MS) // BUCKET_MS), bucket_of(stretch.end)
    if begin >= end:
        return (0, 0), [stretch]
    edges = (stretch._replace(end=begin_of(begin)), stretch._replace(begin=begin_of(end)))
    return (begin, end), [edge for edge in edges if edge.begin < edge.end]


_CONTEXT = "x.input + x.cache_read + x.cache_create_5m + x.cache_create_1h"
_STALE_DAYS = "SELECT day FROM stale_days"


class CauseRow(NamedTuple):
    """Tokens of one cause in turns of one class; `counts` are in the order of `Sums`."""

    keys: tuple[Any, ...]
    turn_class: int
    cause: int
    counts: Sequence[int]


class Buckets(NamedTuple):
    """Whole buckets from `begin` to before `end`, and the rest of the period."""

    begin: int
    end: int
    edges: list[Stretch]


class Ranking(NamedTuple):
    """How to find the `most` heaviest rows, once among the causes in `separate` and once among the rest.

    `weight` makes SQL for the weight of a row, given the column of its class. `aliases` has the causes to read, all if
    empty, each with the one as which it counts.
    """

    weight: Callable[[str], str]
    most: int
    aliases: Mapping[int, int] = MappingProxyType({})
    separate: Collection[int] = ()


Part = tuple[Table, str, list[Clause]]  # with the column of the cause
CauseId = tuple[Any, ...]  # keys of a row, and its cause


class CauseReader:
    """Reads cause sums of one selection; `reader` is the turn Reader of the same selection."""

    def __init__(self, view: View, ledger: Path, selection: Selection, reader: Reader) -> None:
        self._view = view
        self._ledger = ledger
        self._selection = selection
        self._reader = reader
        self._attributed: dict[By, list[tuple[tuple[Any, int], segments.ByCause]]] = {}

    def read(self, level: int, by: By = By()) -> Iterator[CauseRow]:  # noqa: B008 - it is immutable
        """A cause may come several times, from several tables."""
        if self._reader.begin >= self._reader.end:
            return
        begin, end, _ = self.buckets(by)
        if begin < end:
            has_blocks = self._selection.is_of_all_sessions and self._selection.versions is None
            if has_blocks and _OF_BLOCKS.issuperset(by.keys):
                yield from self._over_all_sessions(level, by, begin, end)
            else:
                yield from map(CauseRow._make, self.of_groups(level, by, begin, end))
        yield from self._turn_by_turn(level, by)

    def of_causes(self, level: int, by: By, causes: Collection[int]) -> Iterator[CauseRow]:
        begin, end, _ = self.buckets(by)
        if begin < end:
            only = self.among(By(), [(cause,) for cause in causes])
            yield from map(CauseRow._make, self.of_groups(level, by, begin, end, only))
        yield from (row for row in self._turn_by_turn(level, by) if row.cause in causes)

    def of_groups(
        self, level: int, by: By, begin: int, end: int, only: Callable[[Table, str], Clause] | None = None
    ) -> list[SumRow]:
        """Rows of `cause_sums`; the extra column is the cause at the level: its tool or subject."""
        rows: list[SumRow] = []
        for table, cause, terms in self._parts(level, by, begin, end):
            more = [only(table, cause)] if only is not None else []
            rows += self._reader.select(table, by, [*terms, *more], cause, self._selection.classes)
        return rows

    def _parts(self, level: int, by: By, begin: int, end: int) -> list[Part]:
        """Tables to read for buckets: whole groups inside one local day or hour, groups by quarter hour for the rest.

        Groups by activity have no quarters: turns of the rest are attributed again.
        """
        terms, is_whole = self._whole_groups(by, begin, end)
        terms.append(Clause(f"x.level = {level}"))
        cause, joined = ("x.cause", "")
        if FILE <= level <= NAMED:
            cause, joined = segments.SUBJECT, " CROSS JOIN causes c ON c.id = x.cause"
        by_activity = self._needs_activity(by)
        table, by_quarter = (
            one._replace(source=one.source + joined) for one in (_BY_ACTIVITY if by_activity else _BY_DAY, _BY_QUARTER)
        )
        if is_whole is None:
            return [(table, cause, terms)]
        parts: list[Part] = [(table, cause, [*terms, Clause(is_whole)])]
        if not by_activity:
            parts.append((by_quarter, cause, [*terms, Clause(f"NOT ({is_whole})"), _between(begin, end, "t.bucket")]))
        return parts

    def _whole_groups(self, by: By, begin: int, end: int) -> tuple[list[Clause], str | None]:
        """Conditions for groups overlapping the buckets, and one selecting groups to read whole (None: all)."""
        terms, limits, last = list[Clause](), [], "w.bucket + w.span"
        if self._is_cut or (begin, end) != self.buckets(by)[:2]:
            terms.append(_active(begin, end, "w.session"))
            terms.append(Clause(f"w.bucket < {end} AND {last} >= {begin}"))
            limits.append(f"w.bucket >= {begin} AND {last} < {end}")
        zone = self._reader.zone(by)
        if by.unit == "hour" or any(stretch.offset % DAY_MS for stretch in zone):
            clocks = (_BY_DAY._replace(time=time).clock(by.unit or "day", zone) for time in ("w.bucket", f"({last})"))
            limits.append(f"(w.span = 0 OR {' = '.join(clocks)})")
        return terms, " AND ".join(limits) or None

    def heaviest(self, level: int, by: By, ranking: Ranking) -> tuple[list[CauseRow], int]:
        """The `most` heaviest causes, once among `separate` and once among the rest; returns their rows and the
        number of the rest. Always includes turns that are attributed again.
        """
        begin, end, _ = self.buckets(by)
        aliases = ranking.aliases
        attributed = [row for row in self._turn_by_turn(level, by) if not aliases or row.cause in aliases]
        ranked, number = self.ranked(level, by, ranking) if begin < end else ([], 0)
        ids = {*ranked, *((*row.keys, aliases.get(row.cause, row.cause)) for row in attributed)}
        members: dict[int, list[int]] = {}
        for cause, other in aliases.items():
            members.setdefault(other, []).append(cause)
        keys = [(*key, cause) for *key, first in ids for cause in members.get(first, [first])]
        rows = [*map(CauseRow._make, self.of_groups(level, by, begin, end, self.among(by, keys)))] if keys else []
        counted = {(*row.keys, aliases.get(row.cause, row.cause)) for row in rows}
        new = {key for key in ids - counted if key[-1] not in ranking.separate}
        return rows + attributed, number + len(new)

    def ranked(self, level: int, by: By, ranking: Ranking) -> tuple[list[CauseId], int]:
        """Ranks in SQL over whole buckets; returns keys with cause, and the count."""
        begin, end, _ = self.buckets(by)
        # Joined: there may be too many for a CASE.
        pairs = _json([*ranking.aliases.items()])
        listed = f"SELECT value ->> 0 AS cause, value ->> 1 AS other FROM json_each('{pairs}') LIMIT -1"
        selects, bound = [], []
        for table, cause, terms in self._parts(level, by, begin, end):
            if ranking.aliases:
                table = table._replace(source=f"{table.source} CROSS JOIN ({listed}) s ON s.cause = {cause}")
                cause = "s.other"
            columns, rest, values = self._reader.statement(table, by, terms, self._selection.classes)
            read = [*(columns[key] for key in by.keys), cause, ranking.weight(columns["class"]), _TOKENS]
            selects.append(f"SELECT {','.join(f'{column} AS c{n}' for n, column in enumerate(read))} {rest}")
            bound += values
        width = len(by.keys) + 1
        keys = ",".join(f"c{n}" for n in range(width))
        is_separate = f"c{width - 1} IN ({','.join(map(str, sorted(ranking.separate)))})"
        inner = f"SELECT {keys}, total(c{width}) AS w, total(c{width + 1}) AS n FROM ({' UNION ALL '.join(selects)})"
        sql = (
            f"SELECT * FROM (SELECT {keys}, is_separate, row_number() OVER (PARTITION BY is_separate "
            f"ORDER BY w DESC, n DESC, {keys}) AS rank, count(*) OVER (PARTITION BY is_separate) AS number "
            f"FROM (SELECT *, {is_separate} AS is_separate FROM ({inner} GROUP BY {keys}))) "
            f"WHERE rank <= {ranking.most}"
        )
        rows = self._view.rows(sql, bound)
        return [row[:width] for row in rows], next((row[-1] for row in rows if not row[width]), 0)

    def among(self, by: By, ids: Iterable[CauseId]) -> Callable[[Table, str], Clause]:
        """A condition on keys and cause."""
        listed = sorted(ids)

        def condition(table: Table, cause: str) -> Clause:
            of_key = {"group": "g.value", "time": table.clock(by.unit or "day", self._reader.zone(by)), **table.columns}
            columns = [*(of_key[key] for key in by.keys), f"+{cause}"]  # no look-up of each cause in each group
            values = ",".join(f"value ->> {n}" for n in range(len(columns)))
            sql, bound = f"({','.join(columns)}) IN (SELECT {values} FROM json_each(?))", (_json(listed),)
            if by.keys[:1] != ("session",):
                return Clause(sql, bound)
            # lets SQLite use the index by session
            sessions = _json(sorted({key[0] for key in listed}))
            return Clause(f"w.session IN (SELECT value FROM json_each(?)) AND {sql}", (sessions, *bound))

        return condition

    @property
    def _is_cut(self) -> bool:
        return self._selection.begin is not None or self._selection.end is not None

    def _needs_activity(self, by: By) -> bool:
        return self._selection.activities is not None or "activity" in by.keys

    def buckets(self, by: By) -> Buckets:
        """The whole buckets of the period, and its edges; none if local time is not aligned to quarter hours."""
        if self._reader.is_uneven(by):
            return Buckets(0, 0, [self._reader.period])
        (begin, end), edges = _whole_buckets(self._reader.period)
        block = segments.BLOCK_DAYS * DAY
        if begin < end and self._selection.begin is None:  # so that blocks are whole
            begin = begin // block * block
        if begin < end and self._selection.end is None:
            end = -(-end // block) * block
        return Buckets(begin, end, edges)

    def _over_all_sessions(self, level: int, by: By, begin: int, end: int) -> Iterator[CauseRow]:
        """Stale blocks, and buckets outside blocks, are read from groups."""
        length = segments.BLOCK_DAYS * DAY
        stale = {row[0] for row in self._view.rows("SELECT block FROM stale_blocks")}
        whole = [block for block in range(-(-begin // length), end // length) if block not in stale]
        if whole:
            activity = Clause(f"x.activity {'<>' if self._needs_activity(by) else '='} 0")
            terms = [*within("x.block", frozenset(whole)), Clause(f"x.level = {level}"), activity]
            rows = self._reader.select(_CAUSE_BLOCKS, by, terms, "x.cause", self._selection.classes)
            yield from map(CauseRow._make, rows)
        for block in (*whole, end // length + 1):
            if begin < (upto := min(block * length, end)):
                yield from map(CauseRow._make, self.of_groups(level, by, begin, upto))
            begin = (block + 1) * length

    def _turn_by_turn(self, level: int, by: By) -> Iterator[CauseRow]:
        """Turns outside whole buckets, and mixed sessions."""
        if by not in self._attributed:
            self._attributed[by] = [*self._attribute(by)]
        sums = self._attributed[by]
        numbers = self._numbers_of({key for _, causes in sums for key in causes}, level)
        for (keys, turn_class), causes in sums:
            for key, counts in causes.items():
                if (number := numbers[key]) is not None:
                    yield CauseRow(keys, turn_class, number, counts)

    def _attribute(self, by: By) -> Iterator[tuple[tuple[Any, int], segments.ByCause]]:
        wide, classes, reader = By(("turn", *by.keys), by.unit), self._selection.classes, self._reader
        begin, end, edges = self.buckets(by)
        parts = []
        if self._needs_activity(by) and begin < end:
            _, is_whole = self._whole_groups(by, begin, end)
            if is_whole is not None:
                terms, _ = self._whole_groups(by, begin - 1, end + 1)
                terms += [Clause(f"NOT ({is_whole})"), during(reader.period)]
                parts.append(reader.select(_turns_of_groups(), wide, terms, classes=classes))
            edges = []
        parts += [reader.select(_TURNS_TO_ATTRIBUTE, wide, [during(edge)], classes=classes) for edge in edges]
        parts.append(reader.mixed(_TURNS_TO_ATTRIBUTE, wide, classes))
        rows = [(counts, keys, turn_class) for keys, turn_class, _, counts in chain(*parts)]
        rows.sort(key=_segment)
        for segment, some in groupby(rows, key=_segment):
            buckets = {turn: (tuple(keys), turn_class) for _, (turn, *keys), turn_class in some}
            yield from segments.explain_turns(self._view.db, self._ledger, *segment, buckets).items()

    def _numbers_of(self, keys: set[CauseKey], level: int) -> dict[CauseKey, int | None]:
        """None if a cause does not count at the level or has no row yet."""
        targets: dict[CauseKey, CauseKey] = {}
        for key in keys:
            if level == TOOL and key.level in PAID_LEVELS:
                targets[key] = key.whole
            elif level != TOOL and key.level == level:
                targets[key] = key.subject if FILE <= level <= NAMED else key
        rows = self._view.keyed(_BY_NAME, [tuple(key) for key in {*targets.values()}])
        numbers = {CauseKey(*row[1:]): row[0] for row in rows}
        return {key: numbers.get(targets[key]) if key in targets else None for key in keys}


def _turns_of_groups() -> Table:
    """The turns `x` of groups `w` by activity."""
    length, bucket = segments.LENGTH, f"(x.ts + {SHIFT_MS}) / {BUCKET_MS}"
    same = " AND ".join(
        f"{_TURN_COLUMNS[name]} = w.{name}" for name in ("class", "place", "branch", "version", "subagent", "activity")
    )
    return _TURNS_TO_ATTRIBUTE._replace(
        source="turn_groups w CROSS JOIN segments e ON e.id = w.segment CROSS JOIN turns x INDEXED BY turns_by_session "
        f"ON x.session = e.session AND x.rail = e.rail AND x.turn_index >= e.n * {length} "
        f"AND x.turn_index < (e.n + 1) * {length} AND {bucket} BETWEEN w.bucket AND w.bucket + w.span AND {same}",
        only=f"w.grain = {segments.ACTIVITIES}",
        columns=_GROUP_COLUMNS | {"turn": "x.id"},
    )


def _segment(row: tuple[Any, ...]) -> tuple[int, str, int]:
    session, rail, turn_index = row[0]
    return session, rail, turn_index // segments.LENGTH


_TOKENS = " + ".join(f"x.{name}" for name in Sums._fields[:6])
_OF_BLOCKS = frozenset(("place", "activity"))
_BY_NAME = """
WITH w(kind, tool, target, agent) AS ({keys})
SELECT c.id, w.kind, w.tool, w.target, w.agent FROM w
LEFT JOIN names t ON t.name = w.tool LEFT JOIN names g ON g.name = w.target LEFT JOIN names a ON a.name = w.agent
CROSS JOIN causes c ON c.kind = w.kind AND c.tool = iif(w.tool = '', 0, t.id)
  AND c.target = iif(w.target = '', 0, g.id) AND c.agent = iif(w.agent = '', 0, a.id)
"""
