"""Adds up rows of one table of the index: which of them are selected, and by what they are grouped, as SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import msgspec

from burnd.index.grains import BUCKET_MS, GRAINS, SHIFT_MS
from burnd.index.sums import TURN_MEASURES
from burnd.queries.periods import Stretch
from burnd.queries.selection import OUT, Groups, Selection
from burnd.queries.view import View
from burnd.records.times import DAY_MS, HOUR_MS

Row = tuple[Any, ...]  # the keys that were asked for, kind, what is beside it, and then what is counted
Key = Literal["place", "activity", "branch", "session", "subagent", "agent_type", "group", "time", "turn"]
NOTHING = "NULL"


Parts = tuple[Row, int, Any, Row]  # the same taken apart: keys, kind, what is beside it, counts


class By(NamedTuple):
    """What rows are grouped by, besides their kind. `time` is the local day or hour, as `unit` says."""

    keys: tuple[Key, ...] = ()
    unit: Literal["day", "hour"] | None = None

    @property
    def unit_ms(self) -> int:
        return HOUR_MS if self.unit == "hour" else DAY_MS

    def parts(self, rows: Iterable[Row]) -> Iterator[Parts]:
        """Rows that were read by these keys, taken apart."""
        kind = len(self.keys)
        beside, counts = kind + 1, kind + 2
        for row in rows:
            yield row[:kind], row[kind], row[beside], row[counts:]


class Table(NamedTuple):
    """A table: how a column is called in it, its sums, and how its time is told, from the year 1 on."""

    name: str
    columns: dict[str, str]
    counted: tuple[str, ...]
    column: str = "x.ts"
    length: int = 1  # of what the column counts, in milliseconds
    first: int = SHIFT_MS

    def clock_by(self, unit: int, offset: int) -> str:
        """The number of the local day or hour."""
        if self.length == unit and not offset:
            return self.column  # so SQLite knows that rows are in its order
        return f"({self.column} * {self.length} + {self.first + offset}) / {unit}"


class Clause(NamedTuple):
    """A condition, and what is bound in it."""

    sql: str
    bound: tuple[Any, ...] = ()


# Most turns are no subagent's: nothing needs to be looked up for these.
AGENT_TYPE = "CASE x.subagent WHEN 0 THEN NULL ELSE (SELECT type FROM subagents WHERE id = x.subagent) END"
_COLUMNS = {
    name: f"x.{name}" for name in ("session", "class", "place", "branch", "activity", "subagent", "version", "turn")
}
_COLUMNS["agent_type"] = AGENT_TYPE
_TOKENS = tuple(f"sum(x.{name})" for name in TURN_MEASURES[1:7])
_EVERYTHING = tuple(f"sum(x.{name})" for name in TURN_MEASURES)
_EDITS = "x.has_edits IS 1 AND x.quality <> 'empty'"
_ONE_SHOT = f"{_EDITS} AND coalesce(x.retries, 0) = 0"

SUMS = Table("(SELECT * FROM sums WHERE segment = 0)", _COLUMNS, _EVERYTHING, "x.bucket", BUCKET_MS, 0)
QUARTERS = SUMS._replace(name="(SELECT * FROM time_sums WHERE level = 0 AND cause = 0)")
DAYS = SUMS._replace(name="(SELECT * FROM time_sums WHERE level = 1 AND cause = 0)", length=DAY_MS)
SESSION_SUMS = SUMS._replace(name="(SELECT * FROM session_sums WHERE level = 0 AND cause = 0)")
SESSION_ACTIVITIES = SUMS._replace(name="(SELECT * FROM session_sums WHERE level = 1 AND cause = 0)")
TURNS = Table(
    "turns",
    _COLUMNS | {"turn": "x.id", "branch": "coalesce(x.branch, 0)", "activity": "coalesce(x.activity, -1)"},
    (
        "count(*)",
        *_TOKENS,
        "sum(x.searches)",
        "sum(x.quality = 'partial')",
        "sum(x.quality = 'empty')",
        f"sum({_EDITS})",
        f"sum({_ONE_SHOT})",
        *["0"] * 4,
    ),
)
UNLOGGED = Table(
    "unlogged",
    _COLUMNS | {"turn": "0", "branch": "0", "activity": "-1", "subagent": "0", "agent_type": "NULL"},
    ("count(*)", *_TOKENS, "sum(x.searches)", "sum(x.requests)", *["0"] * 7),
)
PROMPTS = TURNS._replace(
    name="(SELECT t.*, p.retries AS tries FROM prompts p CROSS JOIN turns t ON t.id = p.turn)", counted=("count(*)",)
)


# Sessions that had any of these subagents, with which.
_OF_AGENTS = """
SELECT DISTINCT session, subagent FROM sums
WHERE segment = 0 AND subagent <> 0 AND subagent IN (SELECT value FROM json_each(?))
"""


_MOST_CASES = 100
_TOKEN_COLUMNS = 6
_FIGURE = (
    "coalesce((SELECT CAST(substr(n.name, instr(n.name, '=') + 1) AS REAL) "
    "FROM classes c JOIN names n ON n.id = c.terms WHERE c.id = x.class AND instr(n.name, '=')), 0)"
)


def within(column: str, chosen: frozenset[int] | None) -> list[Clause]:
    if chosen is None:
        return []
    return [Clause(f"{column} IN (SELECT value FROM json_each(?))", (as_json(chosen),))]


def during(stretch: Stretch) -> Clause:
    return Clause("x.ts >= ? AND x.ts < ?", (stretch.begin, stretch.end))


def as_json(values: Any) -> str:
    return msgspec.json.encode(sorted(values) if isinstance(values, frozenset) else values).decode()


class _Listed(NamedTuple):
    """A table `m` that a statement is given: its columns, of which `g` is a group, and its rows."""

    columns: tuple[str, ...]
    rows: list[Any] | dict[int, int]

    @property
    def sql(self) -> str:
        values = ",".join(f"json_extract(value, '$[{n}]')" for n in range(len(self.columns)))
        if isinstance(self.rows, dict):  # far quicker to take apart
            values = "CAST(key AS INTEGER), value"
        return f"WITH m({','.join(self.columns)}) AS MATERIALIZED (SELECT {values} FROM json_each(?)) "


class _Read(NamedTuple):
    """What a statement adds up: a table, by what, from where, at what distance from UTC, with what beside the kind."""

    table: Table
    by: By
    source: str
    offset: int
    beside: str
    listed: _Listed | None = None

    @property
    def group(self) -> str:
        return "m.g" if self.listed is not None else "0"


class Scan:
    """Reads rows of tables under one selection."""

    def __init__(self, view: View, chosen: Selection) -> None:
        self.view = view
        self.chosen = chosen
        self._pairs: list[Row] | None = None  # sessions with the chosen subagents that they had
        self._every: dict[int, int] | None = None  # session with its group

    def plain(self, table: Table, by: By, terms: Iterable[Clause], offset: int = 0, beside: str = NOTHING) -> list[Row]:
        """Sums over rows of sessions whose turns are all tagged the same, or over rows of no session."""
        groups = self.chosen.groups
        read = _Read(table, by, f"{table.name} x", offset, beside)
        if groups is None:
            return self._run(read, [*terms, *self._agents(read)])
        # SQLite would look a session's group up in a list; here it is a dictionary.
        needed: tuple[Key, ...] = ("session", "subagent")
        wide = by._replace(keys=(*needed, *(key for key in by.keys if key not in ("group", *needed))))
        rows = self._run(read._replace(by=wide), terms)
        return list(self._in_groups(rows, by, wide, groups))

    def _in_groups(self, rows: Iterable[Row], by: By, wide: By, groups: Groups) -> Iterator[Row]:
        """Rows by session and subagent as rows by what was asked for."""
        chosen, of, mixed, width = self.chosen, groups.of, groups.mixed, len(wide.keys)
        places = [wide.keys.index(key) if key != "group" else -1 for key in by.keys]
        for row in rows:
            session, subagent = row[:2]
            group = of(session)
            if chosen.takes(group, subagent) and session not in mixed:
                yield (*(group if place < 0 else row[place] for place in places), *row[width:])

    def by_session(
        self,
        table: Table,
        by: By,
        terms: Iterable[Clause],
        offset: int = 0,
        beside: str = NOTHING,
        sessions: frozenset[int] | None = None,
    ) -> list[Row]:
        """The same from a table that is ordered by session, of all sessions or of these."""
        groups, agents = self.chosen.groups, self.chosen.agent_groups
        read = _Read(table, by, f"{table.name} x", offset, beside)
        if groups is None and agents is None:
            return self._run(read, [*terms, *within("x.session", sessions)])
        read = read._replace(source=f"m CROSS JOIN {table.name} x ON x.session = m.session")
        numbered = self._numbered(groups, sessions) if groups is not None else None
        if agents or (agents is None and numbered is not None):
            numbered = numbered if agents is None else self._with_agents(agents, numbered or {})
            read = read._replace(listed=_Listed(("session", "g"), numbered or {}))
            return self._run(read, [*terms, *self._agents(read)])
        pairs = self._of_agents()
        if numbered is not None:
            rows = [(session, subagent, numbered[session]) for session, subagent in pairs if session in numbered]
        else:
            rows = [(session, subagent, 0) for session, subagent in pairs if sessions is None or session in sessions]
        source = f"{read.source} AND {table.columns['subagent']} = m.subagent"
        return self._run(read._replace(source=source, listed=_Listed(("session", "subagent", "g"), rows)), terms)

    def sessions_of_agents(self) -> frozenset[int]:
        """Those that had any of the chosen subagents."""
        return frozenset(session for session, _ in self._of_agents())

    def _with_agents(self, agents: frozenset[int], numbered: dict[int, int]) -> dict[int, int]:
        """Those of the sessions that are in these groups or had any of the chosen subagents."""
        theirs = self.sessions_of_agents()
        return {session: group for session, group in numbered.items() if group in agents or session in theirs}

    def _of_agents(self) -> list[Row]:
        if self._pairs is None:
            self._pairs = self.view.rows(_OF_AGENTS, (as_json(self.chosen.subagents),))
        return self._pairs

    def _numbered(self, groups: Groups, sessions: frozenset[int] | None) -> dict[int, int]:
        """Sessions with the group that all of their turns are in: these, or all there are."""
        if sessions is not None:
            return _without(dict(zip(sessions, map(groups.of, sessions), strict=True)), groups)
        if self._every is None:
            every = self.view.rows("SELECT session FROM endings") if groups.rest != OUT else ()
            self._every = _without(dict.fromkeys(chain.from_iterable(every), groups.rest) | groups.whole, groups)
        return self._every

    def mixed(
        self,
        table: Table,
        by: By,
        terms: Iterable[Clause],
        offset: int = 0,
        beside: str = NOTHING,
        sessions: frozenset[int] | None = None,
    ) -> list[Row]:
        """Sums over rows of sessions whose tags change with time or from turn to turn; of all of them or of these."""
        groups = self.chosen.groups
        if groups is None or not groups.parts:
            return []
        turn = table.columns["turn"]
        others = Clause(f"{turn} NOT IN (SELECT value FROM json_each(?))", (as_json(list(groups.single)),))
        parts = [part for part in groups.parts if part[-1] >= 0 and (sessions is None or part[0] in sessions)]
        single = [(turn, *where) for turn, where in groups.single.items() if where[1] >= 0]
        own = f"m CROSS JOIN {table.name} x ON x.session = m.session"
        listed = _Listed(("session", "begin", "end", "g"), parts)
        read = _Read(table, by, f"{own} AND x.ts >= m.begin AND x.ts < m.end", offset, beside, listed)
        rows = self._run(read, [*terms, others, *self._agents(read)])
        listed = _Listed(("turn", "session", "g"), single)
        read = read._replace(source=f"{own} AND {turn} = m.turn", listed=listed)
        return rows + self._run(read, [*terms, *self._agents(read)])

    def terms(self, table: Table, kinds: frozenset[int] | None) -> list[Clause]:
        """The selection's conditions on a table that has sessions, for turns of these kinds; without time."""
        chosen, columns = self.chosen, table.columns
        return [
            *within(columns["class"], kinds),
            *within(columns["place"], chosen.places),
            *(within(columns["activity"], chosen.activities) if "activity" in columns else ()),
            *within(columns["version"], chosen.versions),
            *within(columns["branch"], chosen.branches),
            *within(columns["session"], chosen.sessions),
        ]

    def _run(self, read: _Read, terms: Iterable[Clause]) -> list[Row]:
        """The rows of a statement that holds under these conditions."""
        table, by, terms = read.table, read.by, [*terms]
        special = {"time": table.clock_by(by.unit_ms, read.offset), "group": read.group}
        columns = [*(special.get(key) or table.columns[key] for key in by.keys), "x.class", read.beside]
        groups = [str(n + 1) for n in range(len(columns) - (read.beside == NOTHING))]
        sql = (
            (read.listed.sql if read.listed else "")
            + f"SELECT {','.join((*columns, *table.counted))} FROM {read.source} "
            + f"WHERE {' AND '.join(term.sql for term in terms) or '1'} "
            + f"GROUP BY {','.join(groups)}"
        )
        bound = [as_json(read.listed.rows)] if read.listed else []
        found = self.view.rows(sql, [*bound, *(value for term in terms for value in term.bound)])
        return _hours(found, by, read.offset) if by.unit == "hour" else found

    def _agents(self, read: _Read) -> list[Clause]:
        chosen, subagent = self.chosen, read.table.columns.get("subagent")
        if chosen.agent_groups is None or subagent is None:
            return []
        # Most turns are no subagent's: to see that is quicker than to look for 0 in a list.
        one = f"{subagent} <> 0 AND {subagent} IN (SELECT value FROM json_each(?))"
        if not chosen.agent_groups:
            return [Clause(one, (as_json(chosen.subagents),))]
        other = f"{read.group} IN (SELECT value FROM json_each(?))"
        return [Clause(f"({one} OR {other})", (as_json(chosen.subagents), as_json(chosen.agent_groups)))]


def _without(numbered: dict[int, int], groups: Groups) -> dict[int, int]:
    """Sessions with their groups, less those that are out of all groups or in several."""
    mixed = groups.mixed
    return {session: group for session, group in numbered.items() if group != OUT and session not in mixed}


def weighed(rates: Mapping[int, Sequence[int]], columns: Sequence[str]) -> str:
    """What a row weighs, where rates by class tell what each of its columns weighs.

    Written as cases, since looking rates up in a table would take as long as all the rest. Only harness figures are
    looked up: there may be one for each turn.
    """
    classes: dict[tuple[int, ...], list[int]] = {}
    for kind, weights in rates.items():
        classes.setdefault(tuple(weights), []).append(kind)
    other = "0"
    if len(classes) > _MOST_CASES:
        other = f"{_FIGURE} * ({' + '.join(f'x.{name}' for name in columns[:_TOKEN_COLUMNS])})"
        classes = {weights: kinds for weights, kinds in classes.items() if not _is_figure(weights)}
    cases = []
    for weights, kinds in classes.items():
        parts = [f"x.{name} * {float(weight)}" for name, weight in zip(columns, weights, strict=True) if weight]
        cases.append(f"WHEN x.class IN ({','.join(map(str, kinds))}) THEN {' + '.join(parts) or '0'}")
    return f"CASE {' '.join(cases)} ELSE {other} END" if cases else other


def _is_figure(weights: Sequence[int]) -> bool:
    """Whether the weights are a harness's figure: equal for all tokens, and no search fee as list prices have."""
    tokens, rest = weights[:_TOKEN_COLUMNS], weights[_TOKEN_COLUMNS:]
    return len(set(tokens)) == 1 and any(tokens) and not any(rest)


def _hours(rows: list[Row], by: By, offset: int) -> list[Row]:
    """An hour is known by its number and its distance from UTC: when clocks are set back, one comes twice."""
    at = by.keys.index("time")
    return [(*row[:at], (row[at], offset), *row[at + 1 :]) for row in rows]


def grains(
    begin: int, end: int, fitting: tuple[int, ...], lengths: Mapping[int, int] = GRAINS
) -> Iterator[tuple[int, int, int]]:
    """Buckets as (grain, from, to), in the longest of these grains that fit, which come longest first."""
    if begin >= end:
        return
    grain, finer = fitting[0], fitting[1:]
    length = lengths[grain]
    first, last = -(-begin // length), end // length
    if first < last:
        yield grain, first, last
        yield from grains(begin, first * length, finer, lengths)
        yield from grains(last * length, end, finer, lengths)
    else:
        yield from grains(begin, end, finer, lengths)
