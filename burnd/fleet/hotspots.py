"""Hotspots of a fleet: the cost of all machines by tool, file, command, prompt and so on. Rows add up to the summary.

Causes are pushed by session and day of UTC, so the period is widened to whole days of UTC, and filters by tag, agent,
branch, activity and version are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from burnd.attribution.cause_keys import MISSED, PROMPTED, TOOL, CauseKey
from burnd.classify.tools import kind as tool_kind
from burnd.contract.reports import Filters, HotspotsParams
from burnd.fleet.reports import TOKENS, FleetSum, add_up, totals_of, whole_of
from burnd.fleet.selection import TAG, Dimension, Engine, Scope, choose, dimension, refuse, split
from burnd.pricing import UNITS_PER_USD
from burnd.protocol import OTHER, UNKNOWN_AGENT
from burnd.queries.hotspots import (
    LEVELS_OF,
    NO_PROMPT,
    NO_SECOND,
    TOOLS_OF,
    HotspotRows,
    Label,
    one_spelling,
    row_answers,
    split_cause,
)
from burnd.queries.money import CauseSum
from burnd.queries.view import Mistaken
from burnd.records.times import to_iso

_NOT_PUSHED = "causes are pushed by session and day"
_OF_CAUSES = ("model", "provider", "project", "session", "source", "machine", "user", "team")
_REFUSED = {name: _NOT_PUSHED for name in Filters.params if name not in (*_OF_CAUSES, "since", "until", "tz")}
_SUMS = (
    *(f"sum({name})" for name in TOKENS),
    *("sum(entered)", "sum(calls)", "sum(errors)", "sum(cost_usd)", "count(cost_usd)"),
)
_OF_TURNS = (
    *(f"sum({name})" for name in TOKENS),
    *("sum(input + cache_create_5m + cache_create_1h)", "count(*)", "0", "sum(cost_usd)", "count(cost_usd)"),
)
_PAID = f"kind NOT IN ('{MISSED}', '{PROMPTED}')"
_TOTAL = " + ".join(f"sum({name})" for name in TOKENS)
_CONTEXT = "sum(input + cache_read + cache_create_5m + cache_create_1h)"
_WEIGHTS = {"cost": "coalesce(sum(cost_usd), 0)", "tokens": _TOTAL, "rides": f"{_CONTEXT} - sum(entered)"}


def hotspots(engine: Engine, params: HotspotsParams, now: int) -> dict[str, Any]:
    cause, second = split_cause(params.by, lambda name: split(name, _OF_CAUSES))
    refuse(vars(params), _REFUSED)
    if second and second[0].startswith(TAG):
        raise Mistaken(f"--by {params.by} is not possible with --fleet: {_NOT_PUSHED}", f"use {cause} alone")
    turns = choose(engine, params, now, whole_days=True)
    causes = choose(engine, params, now, table="causes_once", whole_days=True)
    total = whole_of(add_up(turns, dimension(turns, ["model"])))
    grouped = dimension(causes, second) if second else None
    table = _FleetRows(cause, params, causes, grouped)
    facts: dict[Any, dict[str, Any]] = {}
    if cause == "prompt":
        facts = table.add_prompts(turns)
    else:
        table.add_causes()
    whole = _sum_of(total)
    rows = table.ranked(whole, total.turns)
    seconds = [*dict.fromkeys(label.second for label, _ in rows if label.second != NO_SECOND)]
    names = dict(zip(seconds, (one["key"] for one in grouped.describe(seconds)), strict=True)) if grouped else {}
    return {
        "filters": turns.filters,
        "by": params.by,
        "rank": params.rank,
        **totals_of(turns, total),
        "rows": row_answers(
            rows, _sum_of(total).units, cause, second, names, lambda label: facts.get(label.prompt, {})
        ),
        "moreRows": table.left_out,
        "pending": 0,
    }


def _sum_of(total: FleetSum) -> CauseSum:
    whole = CauseSum()
    whole.tokens, whole.units, whole.is_priced = [*total.tokens], _units(total.cost), total.cost_usd is not None
    return whole


def _units(cost: Any) -> int:
    return int(Decimal(cost or 0) * UNITS_PER_USD)


def _cause_sum(values: Sequence[Any]) -> CauseSum:
    *counts, cost, priced = values
    one = CauseSum()
    one.tokens = [int(value or 0) for value in counts[:6]]
    one.entered, one.calls, one.errors = (int(value or 0) for value in counts[6:])
    one.units, one.is_priced = _units(cost), bool(priced)
    return one


class _FleetRows(HotspotRows):
    def __init__(self, by: str, params: HotspotsParams, scope: Scope, second: Dimension | None) -> None:
        super().__init__(by, params.rank, params.limit)
        self._scope, self._dimension = scope, second
        self._keys = second.columns if second is not None else ()

    def _read(self, columns: Sequence[str], where: str, order: str = "") -> list[tuple[list[Any], Any, CauseSum]]:
        """Sums by these columns and by the second dimension: values, key of the second dimension, sum."""
        every = (*columns, *self._keys)
        keys = [f"{column} AS key_{n}" for n, column in enumerate(every)]
        names = ", ".join(f"key_{n}" for n in range(len(every)))
        inner = f"SELECT {', '.join([*keys, '*'])} FROM causes_once WHERE {self._scope.where} AND {where}"
        sql = f"SELECT {names}, {', '.join(_SUMS)} FROM ({inner}) AS chosen GROUP BY {names}{order}"
        rows, cut, end = [], len(columns), len(every)
        for row in self._scope.engine.rows(sql):
            second = self._dimension.key(row[cut:end]) if self._dimension is not None else NO_SECOND
            rows.append(([*row[:cut]], second, _cause_sum(row[end:])))
        return rows

    def add_causes(self) -> None:
        self._rest = CauseSum()
        if self._by == "cache-miss":
            for (reason, proof), second, one in self._read(("tool", "target"), f"kind = '{MISSED}'"):
                self._sum(Label(self._by, reason or "", None, second, proof or "")).merge(one)
            return
        place = ("coalesce(project_key, project)",) if self._by == "prefix" else ()
        every = self._read(("kind", "tool", "agent", *place), _PAID)
        tools = one_spelling(values[1] or "" for values, _, _ in every)
        level = LEVELS_OF.get(self._by, TOOL)
        if level != TOOL:
            self._add_subjects({values[1] or "" for values, _, _ in every if values[0] == "call"}, level)
        rest = CauseSum()
        for (kind, tool, agent, *project), second, one in every:
            key = CauseKey(kind, tool or "", "", agent or "")
            label = self._label(key, project[0] if project else None, tools)
            if label is None:
                rest.merge(one)
                continue
            if label.kind == "subagent":  # calls made by an agent are not calls of the agent
                one.calls = one.errors = 0
            self._sum(label._replace(second=second)).merge(one)
        for label, one in self._sums.items():
            if label.kind == self._by and self._by in ("file", "command", "skill"):
                rest.subtract(one)
        self._rest = rest

    def _add_subjects(self, tools: set[str], level: int) -> None:
        """Adds the heaviest subjects, ranked by the database: a fleet has very many files."""
        kind = TOOLS_OF.get(self._by)
        own = [
            tool for tool in sorted(tools) if CauseKey("call", tool).level == level and kind in (None, tool_kind(tool))
        ]
        if not own:
            return
        engine = self._scope.engine
        where = f"kind = 'call' AND tool IN ({', '.join(map(engine.text, own))})"
        columns = ", ".join(("target", *self._keys))
        subjects = f"SELECT DISTINCT {columns} FROM causes_once WHERE {self._scope.where} AND {where}"
        ((number,),) = engine.rows(f"SELECT count(*) FROM ({subjects}) AS d")
        # Several agents may have the same name.
        limit = int(number) if self._by == "subagent" else self._limit
        rows = self._read(("target",), where, f" ORDER BY {_WEIGHTS[self._rank]} DESC, key_0 LIMIT {limit}")
        self.left_out = int(number) - len(rows)
        for (target,), second, one in rows:
            name = target or (UNKNOWN_AGENT if self._by == "subagent" else f"(no {self._by})")
            self._sum(Label(self._by, name, None, second)).merge(one)

    def add_prompts(self, turns: Scope) -> dict[Any, dict[str, Any]]:
        """Adds the heaviest prompts. Returns the first turn of each."""
        engine, at = turns.engine, turns.engine.milliseconds("ts")
        weight = _WEIGHTS[self._rank].replace("sum(entered)", "sum(input + cache_create_5m + cache_create_1h)")
        where = f"{turns.where} AND prompt_id IS NOT NULL"
        first = f"({at}) * 1000000 + turn_index"
        sql = (
            f"SELECT session_id, prompt_id, argMin(rail_id, {first}), argMin(turn_index, {first}), min({at}), "
            f"{', '.join(_OF_TURNS)} FROM turns_once WHERE {where} "
            f"GROUP BY session_id, prompt_id ORDER BY {weight} DESC, 1, 2 LIMIT {self._limit}"
        )
        facts: dict[Any, dict[str, Any]] = {}
        for session, prompt, rail, index, ms, *values in engine.rows(sql):
            key: Any = (session, prompt)
            facts[key] = {"sessionId": session, "railId": rail, "turnIndex": int(index), "at": to_iso(int(ms))}
            self._sum(Label(self._by, prompt, key)).merge(_cause_sum(values))
        ((number,),) = engine.rows(
            f"SELECT count(*) FROM (SELECT DISTINCT session_id, prompt_id FROM turns_once WHERE {where}) AS d"
        )
        self.left_out = int(number) - len(facts)
        without = f"FROM turns_once WHERE {turns.where} AND prompt_id IS NULL HAVING count(*) > 0"
        for row in engine.rows(f"SELECT {', '.join(_OF_TURNS)} {without}"):
            self._sum(Label(OTHER, NO_PROMPT)).merge(_cause_sum(row))
        return facts
