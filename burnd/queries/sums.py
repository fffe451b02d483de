"""Turns a selection, a group-by, a period and a time zone into SQL over the sums, and its rows into counts.

`Reader.read` takes the fewest rows that give the answer exactly. What needs only class, activity and time comes from
`time_sums`, what needs no activity or no time from `session_sums`; whatever of these is stale, and all else, from
`sums`. Only the quarters of an hour that the period cuts, and sessions whose tags change while they run, are read from
the turns themselves. docs/architecture.md describes the tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from burnd.index.sums import BUCKET_MS, COUNT_TURNS, DAY, FIRST_EDITS, MEASURES, SHIFT_MS, begin_of, bucket_of
from burnd.queries.periods import HOUR_PLACES, Stretch, hour_place, stretches
from burnd.queries.selection import OUT, Groups, Selection
from burnd.queries.tally import Kinds, Parts
from burnd.queries.view import View
from burnd.records.times import DAY_MS, HOUR_MS

Key = Literal["place", "activity", "branch", "version", "session", "subagent", "agent_type", "group", "time", "turn"]
_NOTHING = "NULL"
# How many of the measures a report needs: those that a price is for, those of a bill, or all with the quality of work.
PRICED, BILLED = MEASURES.index("searches") + 1, MEASURES.index("edits")


class By(NamedTuple):
    """The keys to group by, besides the class. `time` is the number of the local day or hour, by `unit`."""

    keys: tuple[Key, ...] = ()
    unit: Literal["day", "hour"] | None = None

    def plus(self, other: By) -> By:
        """The keys of both."""
        unit = "hour" if "hour" in (self.unit, other.unit) else self.unit or other.unit
        return By(tuple(dict.fromkeys((*self.keys, *other.keys))), unit)


class Clause(NamedTuple):
    """A condition, and the values bound in it."""

    sql: str
    bound: tuple[Any, ...] = ()


class Grouping(NamedTuple):
    """A JSON list, named g, that puts rows into groups: its columns of group and session, and the condition."""

    rows: str
    group: str
    session: str
    condition: str
    source: str = "json_each(?) g"


class Table(NamedTuple):
    """A source of rows, named x: its columns by key, what is counted, and the column and unit of its time."""

    source: str
    only: str
    columns: dict[str, str]
    counted: tuple[str, ...]
    time: str = "x.ts"
    unit_ms: int = 1
    first_ms: int = SHIFT_MS  # from the year 1 on, so that no number is negative

    def clock(self, unit: str, zone: Sequence[Stretch]) -> str:
        """The number of the local day, or of the local hour as `hour_name` has it; offsets as in these stretches."""
        numbers = [self._number(unit, stretch.offset) for stretch in zone]
        if len(numbers) < 2:
            return numbers[0] if numbers else _NOTHING
        ends = [(stretch.end + SHIFT_MS - self.first_ms) // self.unit_ms for stretch in zone[:-1]]
        cases = " ".join(f"WHEN {self.time} < {end} THEN {number}" for end, number in zip(ends, numbers, strict=False))
        return f"CASE {cases} ELSE {numbers[-1]} END"

    def _number(self, unit: str, offset: int) -> str:
        length = HOUR_MS if unit == "hour" else DAY_MS
        if unit == "day" and self.unit_ms == DAY_MS and not offset:
            return self.time  # so that SQLite can use the order of the rows
        number = f"({self.time} * {self.unit_ms} + {self.first_ms + offset}) / {length}"
        return number if unit == "day" else f"{number} * {HOUR_PLACES} + {hour_place(offset)}"


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
_SESSION_QUARTERS = SUMS._replace(source="session_sums x", only="x.level = 0")
_SESSION_ACTIVITIES = SUMS._replace(source="session_sums x", only="x.level = 1")
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


class Reader:
    """Reads one selection: the first `measures` of the sums.

    `sizes` are context sizes to distinguish besides those of the prices.
    """

    def __init__(
        self,
        view: View,
        selection: Selection,
        kinds: Kinds,
        sizes: tuple[int, ...] = (),
        measures: int = BILLED,
    ) -> None:
        self._view = view
        self._measures = measures
        self._turns = TURNS if measures > BILLED else _BILLED_TURNS
        self._selection = selection
        own = [kind for kind in kinds if selection.kinds is None or kind.id in selection.kinds]
        needed = {kind.id: {*sizes, *(kind.price.thresholds if kind.price else ())} for kind in own}
        # These classes lack a context size at which prices now change: their turns are read one by one.
        coarse = [kind for kind in own if not kind.is_unlogged and not needed[kind.id] <= set(kind.sizes)]
        self._coarse = frozenset(kind.id for kind in coarse)
        cuts = sorted({size for kind in coarse for size in needed[kind.id]}, reverse=True)
        self._tier = f"CASE {' '.join(f'WHEN {_CONTEXT} > {size} THEN {size}' for size in cuts)} ELSE 0 END"
        self._fine = frozenset(kind.id for kind in own) - self._coarse if self._coarse else selection.kinds
        self._by_session: Grouping | None = None
        self._stretches: list[Stretch] | None = None
        # The selected period, as far as anything is recorded.
        self.begin = self.end = 0
        ((first, last),) = view.rows("SELECT min(first_bucket), max(last_bucket) FROM endings")
        if first is not None:
            begin, end = begin_of(first), begin_of(last + 1)
            self.begin = begin if selection.begin is None else max(begin, selection.begin)
            self.end = end if selection.end is None else min(end, selection.end)

    def read(self, by: By) -> list[Parts]:
        """Counts by these keys and by class; several for the same keys if they were read from several tables.

        The extra column is the context size that decides the price where the class does not have it.
        """
        rows: list[Parts] = []
        if self.begin >= self.end:
            return rows
        if self._coarse:
            rows += self._facts(self._turns, by, self._coarse, self._tier)
        if self._fine is None or self._fine:
            rows += self._sums(by)
            rows += self._facts(_UNLOGGED, by, self._fine)
        return rows

    def retried(self, by: By) -> list[Parts]:
        """Counts prompts that were retried, at their first edits; the extra column is the number of retries."""
        active = [_active(bucket_of(self.begin), bucket_of(self.end) + 1, "p.session")]
        is_cut = self._selection.begin is not None or self._selection.end is not None
        return self._facts(_RETRIED, by, self._selection.kinds, "p.retries", active if is_cut else [])

    def endings(self, by: By, extra: str) -> list[Parts]:
        """Counts sessions at their last turns (x), with an extra column that may use the ending (e)."""
        return self._facts(_ENDINGS, by, self._selection.kinds, extra)

    def turns(self) -> set[int]:
        """The numbers of the selected turns."""
        return {keys[0] for keys, *_ in self._facts(self._turns, By(("turn",)), self._selection.kinds)}

    # Which tables

    def _sums(self, by: By) -> list[Parts]:
        rows: list[Parts] = []
        (begin, end), edges = self._cut(by)
        selection = self._selection
        by_activity = selection.activities is not None or "activity" in by.keys
        if by_activity and by.unit is None and not self._is_over_sessions(by):
            rows += self._whole_sessions(by)
            edges = []
        elif begin < end and self._is_over_sessions(by) and (self._is_by_day(by) or not by_activity):
            rows += self._over_sessions(by, begin, end, by_activity=by_activity)
        elif begin < end:
            is_cut = selection.begin is not None or selection.end is not None
            terms = [_active(begin, end), _between(begin, end)] if is_cut else []
            rows += self.select(SUMS, by, terms) if by_activity else self._fresh_and_stale(_SESSION_QUARTERS, by, terms)
        for edge in edges:
            rows += self.select(self._turns, by, [during(edge)])
        return rows + self.mixed(self._turns, by, self._fine)

    def _cut(self, by: By) -> tuple[tuple[int, int], list[Stretch]]:
        """The whole buckets of the period, and its edges. No bucket is whole if a local hour begins within one."""
        zone = self._zone(by)
        cuts = [stretch.offset for stretch in zone] + [stretch.begin for stretch in zone[1:]]
        period = Stretch(self.begin, self.end)
        return ((0, 0), [period]) if any(cut % BUCKET_MS for cut in cuts) else _whole_buckets(period)

    def _is_over_sessions(self, by: By) -> bool:
        selection = self._selection
        is_plain = selection.is_of_all_sessions and (selection.places, selection.versions) == (None, None)
        return is_plain and {"activity", "time"}.issuperset(by.keys)

    def _is_by_day(self, by: By) -> bool:
        """Whether days of UTC are enough."""
        return by.unit is None or (by.unit == "day" and not any(part.offset % DAY_MS for part in self._zone(by)))

    def _fresh_and_stale(self, table: Table, by: By, terms: list[Clause]) -> list[Parts]:
        """From a condensed table, except for sessions that are stale."""
        if not self._view.rows(f"{_STALE_SESSIONS} LIMIT 1"):
            return self.select(table, by, terms)
        rows = self.select(table, by, [*terms, Clause(f"x.session NOT IN ({_STALE_SESSIONS})")])
        return rows + self.select(SUMS, by, [*terms, Clause(f"x.session IN ({_STALE_SESSIONS})")])

    def _over_sessions(self, by: By, begin: int, end: int, *, by_activity: bool) -> list[Parts]:
        """Days or quarters of an hour from `time_sums`; partial days, and days that are stale, from `sums`."""
        table, unit = (_DAYS_BY_ACTIVITY if by_activity else _DAYS, DAY) if self._is_by_day(by) else (_QUARTERS, 1)
        first, last = -(-begin // unit), end // unit
        if first >= last:
            first = last = -(-end // unit)
        rest = [(begin, min(end, first * unit), "1"), (max(begin, last * unit), end, "1")]
        fresh = [_between(first, last)]
        if stale := self._view.rows(_STALE, (first * unit // DAY, -(-last * unit // DAY))):
            fresh.append(Clause(f"x.bucket / {DAY // unit} NOT IN ({_STALE_DAYS})"))
            days = min(stale)[0] * DAY, (max(stale)[0] + 1) * DAY
            rest.append((max(days[0], first * unit), min(days[1], last * unit), f"x.bucket / {DAY} IN ({_STALE_DAYS})"))
        rows = self.select(table, by, fresh) if first < last else []
        for since, until, condition in rest:
            if since < until:
                rows += self.select(SUMS, by, [_active(since, until), _between(since, until), Clause(condition)])
        return rows

    def _whole_sessions(self, by: By) -> list[Parts]:
        """Whole sessions by activity from `session_sums`; those across an edge of the period by turns."""
        if self._selection.begin is None and self._selection.end is None:
            return self._fresh_and_stale(_SESSION_ACTIVITIES, by, [])
        (begin, end), _ = self._cut(by)
        sessions = self._view.rows(_TOUCHING, (begin, end, bucket_of(self.begin), bucket_of(self.end - 1)))
        inside = frozenset(session for session, is_inside in sessions if is_inside)
        across = frozenset(session for session, is_inside in sessions if not is_inside)
        rows = self._fresh_and_stale(_SESSION_ACTIVITIES, by, within("x.session", inside))
        if across:
            rows += self.select(self._turns, by, [during(Stretch(self.begin, self.end)), *within("x.session", across)])
        return rows

    def _facts(
        self,
        table: Table,
        by: By,
        kinds: frozenset[int] | None,
        extra: str = _NOTHING,
        terms: Sequence[Clause] = (),
    ) -> list[Parts]:
        """All selected rows of a table that has times to the millisecond."""
        if self.begin >= self.end:
            return []
        rows = self.select(table, by, [*terms, during(Stretch(self.begin, self.end))], extra, kinds)
        return rows + self.mixed(table, by, kinds, extra)

    def mixed(self, table: Table, by: By, kinds: frozenset[int] | None, extra: str = _NOTHING) -> list[Parts]:
        """The rows of sessions whose tags change while they run."""
        groups = self._selection.groups
        if groups is None or not groups.mixed:
            return []
        period = during(Stretch(self.begin, self.end))
        by_time = self.select(table, by, [period], extra, kinds, groups_of_times(groups))
        return by_time + self.select(table, by, [period], extra, kinds, groups_of_turns(groups))

    def _zone(self, by: By) -> list[Stretch]:
        """The period, divided where the clocks change; empty if the group-by has no time."""
        if by.unit is None:
            return []
        if self._stretches is None:
            self._stretches = stretches(self.begin, self.end, self._selection.zone)
        return self._stretches

    def windows(self, windows: Sequence[Stretch]) -> list[Parts]:
        """The bills of many windows of time by their number, in a few statements; only classes are selected.

        Whole buckets come from `time_sums`; the edges of windows, and days that are stale, from the turns.
        """
        stale = {row[0] for row in self._view.rows("SELECT day FROM stale_days")}
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
        rows = self._in_windows(_QUARTERS, "x.bucket", whole, self._fine)
        rows += self._in_windows(_TURNS_BY_TIME, "x.ts", cut, self._fine)
        if self._coarse:
            rows += self._in_windows(_TURNS_BY_TIME, "x.ts", every, self._coarse, self._tier)
        return rows

    def _in_windows(
        self,
        table: Table,
        column: str,
        windows: Sequence[tuple[int, int, int]],
        kinds: frozenset[int] | None,
        extra: str = _NOTHING,
    ) -> list[Parts]:
        during = f"{column} >= w.value ->> 1 AND {column} < w.value ->> 2"
        terms = [Clause(table.only), Clause(during), *within("x.class", kinds)]
        sql = (
            f"SELECT w.value ->> 0, x.class, {extra}, {','.join(table.counted[:BILLED])} "
            f"FROM json_each(?) w CROSS JOIN {table.source} "
            f"WHERE {' AND '.join(term.sql for term in terms)} GROUP BY 1, 2{'' if extra == _NOTHING else ', 3'}"
        )
        bound = [_json(windows), *(value for term in terms for value in term.bound)]
        return [(row[:1], row[1], row[2], row[3:]) for row in self._view.rows(sql, bound)]

    # One statement

    def select(
        self,
        table: Table,
        by: By,
        terms: Iterable[Clause],
        extra: str = _NOTHING,
        kinds: frozenset[int] | Literal["fine"] | None = "fine",
        grouping: Grouping | None = None,
    ) -> list[Parts]:
        """The rows of a table under these conditions and those of the selection, except for its period.

        Rows are grouped by the tags of whole sessions, unless another grouping is given.
        """
        selection = self._selection
        columns = {**table.columns, "time": table.clock(by.unit or "day", self._zone(by))}
        terms = [Clause(table.only), *terms, *selected(selection, table, self._fine if kinds == "fine" else kinds)]
        source, bound, session = table.source, [], columns["session"]
        if selection.groups is not None:
            grouping = grouping or self._groups_of_sessions()
            columns["group"] = grouping.group
            source = f"{grouping.source} CROSS JOIN {source}"
            bound.append(grouping.rows)
            # All conditions on the session are checked on the list: SQLite might else look up every selected session.
            terms = [term._replace(sql=term.sql.replace(session, grouping.session)) for term in terms]
            terms.append(Clause(grouping.condition.format(session=session, turn=columns.get("turn"))))
        if selection.agent_groups is not None:
            terms.append(self._of_agents(columns))
        counted = table.counted[: self._measures] if len(table.counted) == len(MEASURES) else table.counted
        read = [*(columns[key] for key in by.keys), columns["class"], extra, *counted]
        width = len(by.keys)
        sql = (
            f"SELECT {','.join(read)} FROM {source} WHERE {' AND '.join(term.sql for term in terms)} "
            f"GROUP BY {','.join(str(n + 1) for n in range(width + 1 + (extra != _NOTHING)))}"
        )
        rows = self._view.rows(sql, [*bound, *(value for term in terms for value in term.bound)])
        return [(row[:width], row[width], row[width + 1], row[width + 2 :]) for row in rows]

    def _of_agents(self, columns: Mapping[str, str]) -> Clause:
        """The condition that turns are of a selected subagent, or of a group whose tag names a selected agent."""
        selection, subagent = self._selection, columns["subagent"]
        # Most turns are no subagent's: to see that is quicker than to look for 0 in a list.
        of_subagents = f"{subagent} <> 0 AND {subagent} IN (SELECT value FROM json_each(?))"
        if selection.groups is None:
            return Clause(of_subagents, (_json(selection.subagents),))
        in_groups = f"{columns['group']} IN (SELECT value FROM json_each(?))"
        return Clause(
            f"({in_groups} OR {of_subagents})", (_json(selection.agent_groups or ()), _json(selection.subagents))
        )

    def _groups_of_sessions(self) -> Grouping:
        """The group of each session; mixed sessions are in none."""
        if self._by_session is None:
            groups = self._selection.groups
            assert groups is not None  # noqa: S101 - for the type checker: it is called with groups only
            ((last,),) = self._view.rows("SELECT coalesce(max(id), 0) FROM sessions")
            numbers = [groups.rest] * (last + 1)
            for session, group in groups.whole.items():
                numbers[session] = group
            for session in groups.mixed:
                numbers[session] = OUT
            condition = f"g.value <> {OUT} AND {{session}} = g.key"
            self._by_session = Grouping(_json(numbers), "g.value", "g.key", condition)
        return self._by_session


def groups_of_times(groups: Groups) -> Grouping:
    """The groups of mixed sessions by time, without turns that have a tag of their own."""
    rows = [
        (session, begin, end, group)
        for session, parts in groups.parts.items()
        for begin, end, group in parts
        if group != OUT
    ]
    # LIMIT makes SQLite decode each element once, and not for every turn.
    columns = "value ->> 0 AS session, value ->> 1 AS begin, value ->> 2 AS until, value ->> 3 AS number"
    source = f"(SELECT {columns} FROM json_each(?) LIMIT -1) g"
    during = "{session} = g.session AND x.ts >= g.begin AND x.ts < g.until"
    condition = f"{during} AND {{turn}} NOT IN (SELECT value FROM json_each('{_json([*groups.single])}'))"
    return Grouping(_json(rows), "g.number", "g.session", condition, source)


def groups_of_turns(groups: Groups) -> Grouping:
    """The groups of turns that have a tag of their own."""
    rows = [(turn, group) for turn, group in groups.single.items() if group != OUT]
    # The session makes SQLite look up prompts and endings by it instead of scanning them for every turn.
    of_session = "{session} = (SELECT session FROM turns WHERE id = g.value ->> 0)"
    return Grouping(_json(rows), "(g.value ->> 1)", "x.session", f"{of_session} AND {{turn}} = g.value ->> 0")


def selected(chosen: Selection, table: Table, kinds: frozenset[int] | None) -> list[Clause]:
    """The conditions of a selection on the columns of a table; not those on time, tags and subagents."""
    columns = table.columns
    return [
        *within(columns["class"], kinds),
        *within(columns["place"], chosen.places),
        *within(columns["activity"], chosen.activities),
        *within(columns["version"], chosen.versions),
        *within(columns["branch"], chosen.branches),
        *within(columns["session"], chosen.sessions),
    ]


def within(column: str, chosen: frozenset[int] | None) -> list[Clause]:
    """The condition that a column has one of these values; none for None."""
    if chosen is None:
        return []
    return [Clause(f"{column} IN (SELECT value FROM json_each(?))", (_json(sorted(chosen)),))]


def _json(values: Collection[Any]) -> str:
    return msgspec.json.encode(values).decode()


def during(stretch: Stretch) -> Clause:
    return Clause("x.ts >= ? AND x.ts < ?", (stretch.begin, stretch.end))


def _between(begin: int, end: int) -> Clause:
    return Clause(f"x.bucket >= {begin} AND x.bucket < {end}")


def _active(begin: int, end: int, session: str = "x.session") -> Clause:
    """Only sessions that have turns between these buckets can have rows there."""
    return Clause(f"{session} IN (SELECT session FROM endings WHERE last_bucket >= {begin} AND first_bucket < {end})")


def _whole_buckets(stretch: Stretch) -> tuple[tuple[int, int], list[Stretch]]:
    """The buckets that lie within a stretch, and what is left of it at its edges."""
    begin, end = -(-(stretch.begin + SHIFT_MS) // BUCKET_MS), bucket_of(stretch.end)
    if begin >= end:
        return (0, 0), [stretch]
    edges = (stretch._replace(end=begin_of(begin)), stretch._replace(begin=begin_of(end)))
    return (begin, end), [edge for edge in edges if edge.begin < edge.end]


_CONTEXT = "x.input + x.cache_read + x.cache_create_5m + x.cache_create_1h"
_STALE_DAYS = "SELECT day FROM stale_days"
_STALE = f"{_STALE_DAYS} WHERE day >= ? AND day < ?"
_STALE_SESSIONS = "SELECT session FROM stale_sessions"
_TOUCHING = (
    "SELECT session, first_bucket >= ? AND last_bucket < ? FROM endings WHERE last_bucket >= ? AND first_bucket <= ?"
)
