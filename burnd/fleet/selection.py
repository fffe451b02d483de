"""Turns filters and dimensions into SQL for ClickHouse and DuckDB; `Engine` has what they write differently.

Times are compared and divided into local days as milliseconds, with the offsets of the time zone in the SQL, so that
both engines have the days of `burnd.queries.periods`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, NamedTuple, Protocol

from burnd.contract.reports import FLEET_DIMENSIONS, UNLABELLED, Filters
from burnd.index.sums import SHIFT_MS
from burnd.queries import dimensions
from burnd.queries.names import Project, no_such, project_among
from burnd.queries.periods import (
    HOUR_SLOTS,
    day_name,
    hour_name,
    hour_slot,
    moment,
    month_name,
    stretches,
    week_name,
    zone_of,
)
from burnd.queries.selection import AGENTS, WORKFLOWS
from burnd.queries.view import Mistaken, NoSession, Refusal
from burnd.records.times import DAY_MS, HOUR_MS, to_iso

TAG = "tag:"
_TIMES: dict[str, Callable[[int], str]] = {"day": day_name, "week": week_name, "month": month_name, "hour": hour_name}
_COLUMNS = {
    "model": "coalesce(model_name, model)",
    "provider": "coalesce(provider_name, provider)",
    "project": "coalesce(project_key, project)",
    "branch": "git_branch",
    "session": "session_id",
    "activity": "activity",
    "source": "source",
    "version": "version",
    "machine": "machine_id",
    "user": '"user"',
    "team": "team",
}
_TYPE = "coalesce(agent_type, agent, CASE WHEN agent_id IS NOT NULL THEN 'subagent' END)"
_NOT_WORDS = re.compile(r"[^a-z0-9]+")
_MOST_SHOWN = 8
Rows = Sequence[Sequence[Any]]


class Engine(Protocol):
    """A database with the views of a push. Amounts are `Decimal` or text, counts are `int`."""

    def rows(self, sql: str) -> Rows:
        """The rows of a query."""

    def sums(self, columns: Sequence[str], where: str, begin: int | None, end: int | None) -> Rows:
        """Sums of turns by these columns, with each turn once: first the columns, then what `FleetSum.add` takes."""

    def text(self, value: str) -> str:
        """A text in SQL."""

    def milliseconds(self, column: str) -> str:
        """A time as milliseconds since 1970."""

    def hour(self, column: str) -> str:
        """The beginning of a time's hour of UTC, as milliseconds since 1970."""

    def divided(self, expression: str, by: int) -> str:
        """The integer quotient of a positive number."""

    def element(self, expression: str, n: int) -> str:
        """An element of a tuple; the first is 1."""

    def tag(self, key: str) -> str:
        """The value of a tag, or NULL."""

    def close(self) -> None:
        """Closes the connection."""


class Scope(NamedTuple):
    """What a report covers: the condition of its filters, its period, and the filters as an answer repeats them."""

    engine: Engine
    condition: str
    begin: int | None
    end: int | None
    filters: dict[str, Any]
    zone: tzinfo
    table: str

    @property
    def where(self) -> str:
        """The condition of filters and period."""
        if self.table == "causes_once":
            days = [to_iso(ms)[:10] if ms is not None else None for ms in (self.begin, self.end)]
            return f"{self.condition} AND {between('day', *(day and self.engine.text(day) for day in days))}"
        return f"{self.condition} AND {between(self.engine.milliseconds('ts'), self.begin, self.end)}"

    def also(self, condition: str) -> Scope:
        return self._replace(condition=f"{self.condition} AND {condition}")


class Dimension(NamedTuple):
    """One way of grouping: SQL expressions, the key of a row made of their values, and names of rows."""

    columns: tuple[str, ...]
    key: Callable[[Sequence[Any]], Hashable]
    describe: Callable[[Sequence[Any]], list[dict[str, Any]]]
    is_time: bool = False


def choose(engine: Engine, filters: Filters, now: int, *, table: str = "turns_once", whole_days: bool = False) -> Scope:
    """Resolves filters. With `whole_days` dates are those of UTC, and the period is widened. Raises Mistaken."""
    zone = UTC if whole_days else zone_of(filters.tz)
    begin = moment(filters.since, now, zone) if filters.since is not None else None
    end = moment(filters.until, now, zone, is_end=True) if filters.until is not None else None
    if begin is not None and end is not None and begin >= end:
        raise Mistaken("until is before since", f"since is {to_iso(begin)}, until is {to_iso(end)}")
    if whole_days:
        begin = begin - begin % DAY_MS if begin is not None else None
        end = end + -end % DAY_MS if end is not None else None
    values = {name: getattr(filters, name) for name in Filters.params}
    values |= {name: to_iso(at) if at is not None else None for name, at in (("since", begin), ("until", end))}
    answer = {name: value for name, value in values.items() if value not in (None, {})}
    condition = " AND ".join(_conditions(engine, filters, table)) or "1 = 1"
    return Scope(engine, condition, begin, end, answer, zone, table)


def between(column: str, begin: int | str | None, end: int | str | None) -> str:
    bounds = [f"{column} {sign} {at}" for sign, at in ((">=", begin), ("<", end)) if at is not None]
    return " AND ".join(bounds) or "1 = 1"


def _conditions(engine: Engine, filters: Filters, table: str) -> list[str]:
    text, conditions = engine.text, []
    if filters.project is not None:
        conditions.append(_project(engine, filters.project, table))
    if filters.session is not None:
        conditions.append(f"session_id IN ({_listed(engine, _family(engine, filters.session))})")
    if filters.model is not None:
        conditions.append(models(engine, filters.model, table))
    if filters.provider is not None:
        conditions.append(f"lower({_COLUMNS['provider']}) = {text(filters.provider.lower())}")
    if filters.source is not None:
        conditions.append(f"source = {text(filters.source)}")
    if filters.branch is not None:
        conditions.append(f"git_branch = {text(filters.branch)}")
    if filters.activity is not None:
        is_none = filters.activity == UNLABELLED
        conditions.append("activity IS NULL" if is_none else f"activity = {text(filters.activity)}")
    if filters.version is not None:
        whole, part = filters.version, f"{filters.version}."
        conditions.append(f"(version = {text(whole)} OR {_starts(engine, 'version', part)})")
    if filters.workflow is not None:
        conditions.append(_any_of((engine.tag(key) for key in WORKFLOWS), text(filters.workflow)))
    if filters.agent is not None:
        names = (*map(engine.tag, AGENTS), "agent_type", "agent", "agent_id")
        conditions.append(_any_of(names, text(filters.agent)))
    return conditions + [f"{engine.tag(key)} = {text(value)}" for key, value in filters.tags.items()]


def _rows_of(table: str) -> str:
    """All rows with names, copies included: those that count would have to be found."""
    return f"{table.removesuffix('_once')} WHERE NOT deleted"


def _any_of(columns: Iterable[str], value: str) -> str:
    return "(" + " OR ".join(f"coalesce({column}, '') = {value}" for column in columns) + ")"


def _starts(engine: Engine, column: str, prefix: str) -> str:
    return f"substring({column}, 1, {len(prefix)}) = {engine.text(prefix)}"


def _listed(engine: Engine, values: Iterable[str]) -> str:
    return ", ".join(map(engine.text, sorted(values))) or "''"


def _project(engine: Engine, given: str, table: str) -> str:
    """A project by its folder on any machine, its remote, or the end of one."""
    sql = f"SELECT DISTINCT project, project_key FROM {_rows_of(table)}"
    places = [(folder, key) for folder, key in engine.rows(sql)]
    project: Project = project_among(given, places)
    folders = [
        f"(project = {engine.text(own)} OR {_starts(engine, 'project', own.rstrip('/') + '/')})"
        for own in sorted(project.folders)
    ]
    return f"({' OR '.join([f'project_key IN ({_listed(engine, project.keys)})', *folders])})"


def _family(engine: Engine, given: str) -> set[str]:
    """A session by its id or the beginning of one, with all sessions below it."""
    sql = f"SELECT DISTINCT session_id FROM sessions_now WHERE {_starts(engine, 'session_id', given)}"
    found = {row[0] for row in engine.rows(f"{sql} LIMIT {_MOST_SHOWN}")}
    found = {given} if given in found else found
    if not found:
        raise NoSession(f"no session {given[:80]!r} in the fleet", "give its id, or the beginning of one")
    if len(found) > 1:
        raise Refusal(f"{given[:80]!r} matches several sessions", f"give one of: {', '.join(sorted(found))}")
    family, newest = set(found), found
    while newest:
        sql = f"SELECT DISTINCT session_id FROM sessions_now WHERE parent_session_id IN ({_listed(engine, newest)})"
        newest = {row[0] for row in engine.rows(sql)} - family
        family |= newest
    return family


def models(engine: Engine, given: str | list[str], table: str) -> str:
    """The condition for any of these models: by their names in logs or in reports, or else by family."""
    texts = given.split(",") if isinstance(given, str) else given
    names = [name for text in texts if (name := text.strip())]
    if not names:
        raise Mistaken("a model's name must not be empty")
    pairs = [*engine.rows(f"SELECT DISTINCT model, {_COLUMNS['model']} FROM {_rows_of(table)} AND model IS NOT NULL")]
    logged: set[str] = set()
    for name in names:
        exact = {pair[0] for pair in pairs if name.lower() in (pair[0].lower(), pair[1].lower())}
        words = f" {_words(name)} "
        family = exact or {
            one
            for one, name_in_reports in pairs
            if words in f" {_words(one)} " or words in f" {_words(name_in_reports)} "
        }
        if not family:
            raise no_such("model", name, {name_in_reports for _, name_in_reports in pairs})
        logged |= family
    return f"model IN ({_listed(engine, logged)})"


def _words(name: str) -> str:
    return _NOT_WORDS.sub(" ", name.lower()).strip()


def dimension(scope: Scope, by: Sequence[str]) -> Dimension:
    parts = [_single(scope, name) for name in by]
    if len(parts) == 1:
        return parts[0]
    first, second = parts
    cut = len(first.columns)

    def describe(keys: Sequence[Any]) -> list[dict[str, Any]]:
        firsts, seconds = first.describe([key[0] for key in keys]), second.describe([key[1] for key in keys])
        return [{**b, **a, "keys": {by[0]: a["key"], by[1]: b["key"]}} for a, b in zip(firsts, seconds, strict=True)]

    def key(values: Sequence[Any]) -> Hashable:
        return first.key(values[:cut]), second.key(values[cut:])

    return Dimension(first.columns + second.columns, key, describe, first.is_time or second.is_time)


def time_of(by: Sequence[str], key: Any) -> Any:
    """The part of a row's key by which rows of a time are sorted."""
    if len(by) == 1:
        return key
    return key[0] if by[0] in _TIMES else key[1]


def _single(scope: Scope, by: str) -> Dimension:
    engine = scope.engine
    if by in _TIMES:
        column = _local(scope, HOUR_MS if by == "hour" else DAY_MS)
        name = _TIMES[by]
        if by == "hour":
            return Dimension((column,), lambda values: int(values[0]), lambda keys: _plain(map(name, keys)), True)
        return Dimension((column,), lambda values: name(int(values[0])), _plain, True)
    if by == "agent":
        stamped = f"coalesce({', '.join(map(engine.tag, AGENTS))})"
        columns = (stamped, f"CASE WHEN {stamped} IS NULL THEN {_TYPE} END")
        return Dimension(columns, tuple, _agents)
    if by == "pr":
        raise Mistaken("pull requests are not pushed", "group by branch, or leave out --fleet")
    if by == "machine":
        return Dimension(("machine_id",), _first, lambda keys: _machines(engine, keys))
    if by == "session":
        return Dimension(("session_id",), _first, lambda keys: _sessions(engine, keys))
    column = engine.tag(by.removeprefix(TAG)) if by.startswith(TAG) else _COLUMNS[by]
    return Dimension((column,), _first, _plain)


def _local(scope: Scope, unit: int) -> str:
    """The number of the local day or hour of a turn, as `burnd.queries.periods` counts them.

    Where clocks differ from UTC by whole hours it is computed from the turn's hour, so that sums by hour can be read.
    """
    engine = scope.engine
    hours = f"SELECT {engine.hour('ts')} AS hour FROM turns WHERE NOT deleted GROUP BY 1"
    ((first, last),) = engine.rows(f"SELECT min(hour), max(hour) FROM ({hours}) AS hours")
    parts = stretches(int(first or 0), int(last or 0) + HOUR_MS, scope.zone)
    is_whole = all(part.offset % HOUR_MS == 0 and part.end % HOUR_MS == 0 for part in parts)
    at = engine.hour("ts") if is_whole else engine.milliseconds("ts")
    cases = []
    for part in parts:
        number = engine.divided(f"({at} + {part.offset + SHIFT_MS})", unit)
        if unit == HOUR_MS:
            number = f"{number} * {HOUR_SLOTS} + {hour_slot(part.offset)}"
        cases.append(f"WHEN {at} < {part.end} THEN {number}")
    return f"CASE {' '.join(cases)} END"


def _first(values: Sequence[Any]) -> Hashable:
    return values[0]  # type: ignore[no-any-return]


def _plain(keys: Any) -> list[dict[str, Any]]:
    return [{"key": key} for key in keys]


def _agents(keys: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"key": stamped if stamped is not None else type_, "stamped": stamped is not None} for stamped, type_ in keys
    ]


def _machines(engine: Engine, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Machines by their newest names; those with the same name also by the beginnings of their ids."""
    where = f"machine_id IN ({_listed(engine, keys)})"
    rows = engine.rows(f"SELECT machine_id, argMax(machine, seq) FROM sessions WHERE {where} GROUP BY 1")
    names: dict[str, str | None] = {row[0]: row[1] for row in rows}
    labels = {key: names.get(key) or key for key in keys}
    counts = Counter(labels.values())
    return [
        {"key": labels[key] if counts[labels[key]] == 1 else f"{labels[key]} {key[:8]}", "machineId": key}
        for key in keys
    ]


def _sessions(engine: Engine, keys: Sequence[str]) -> list[dict[str, Any]]:
    sql = (
        f"SELECT session_id, max(parent_session_id), max({_COLUMNS['project']}), "
        f"min({engine.milliseconds('created_at')}) "
        f"FROM sessions_now WHERE session_id IN ({_listed(engine, keys)}) GROUP BY 1"
    )
    facts = {row[0]: row[1:] for row in engine.rows(sql)} if keys else {}
    rows = []
    for key in keys:
        parent, project, created = facts.get(key, (None, None, None))
        created_at = to_iso(int(created)) if created is not None else None
        about = {"parentSessionId": parent, "project": project, "createdAt": created_at, "title": None}
        rows.append({"key": key, **about})
    return rows


def split(by: str, names: Sequence[str]) -> list[str]:
    """Parses one or two dimensions of a fleet. Raises Mistaken."""
    return dimensions.split(by, (*names, *FLEET_DIMENSIONS))


def refuse(params: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Raises Mistaken for a parameter that a fleet has no data for."""
    for name, reason in reasons.items():
        if params.get(name):
            raise Mistaken(f"--{name.replace('_', '-')} is not possible with --fleet: {reason}", "leave it out")
