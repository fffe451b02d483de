"""The reports of a fleet: summary and compare, with the answers of the socket's methods.

Costs are sums of decimals in the database, and exact. Requests that used nothing are not pushed, so `emptyTurns` is 0,
and the one before the last stands for a session that ended with such a request. Usage that no log has is not pushed
either, so `unlogged` is null.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from burnd.classify.activity import LABELS
from burnd.contract.reports import COMPARED, DIMENSIONS, UNLABELLED, CompareParams, SummaryParams
from burnd.fleet.selection import Dimension, Engine, Scope, choose, dimension, models, refuse, split, time_of
from burnd.protocol import USAGE_FIELDS
from burnd.queries.compare import median
from burnd.queries.summary import OUTCOMES, QUIET_MS, rate, wilson
from burnd.records.times import to_iso

TOKENS = ("input", "output", "reasoning", "cache_read", "cache_create_5m", "cache_create_1h")
MOST_COMPARED = 100
_EDITED = "coalesce(has_edits, false)"


class FleetSum:
    __slots__ = (
        *("cost", "edits", "ended", "harness_cost", "harness_turns", "one_shots", "open", "partial", "priced"),
        *("retried", "tokens", "turns"),
    )

    def __init__(self) -> None:
        self.turns = self.priced = self.open = self.partial = self.harness_turns = self.edits = self.one_shots = 0
        self.cost = self.harness_cost = Decimal(0)
        self.tokens = [0] * 6
        self.retried: Counter[int] = Counter()  # prompts by the number of their retries
        self.ended: Counter[str] = Counter()  # sessions by their outcome

    def add(self, row: Sequence[Any]) -> None:
        """Adds sums of `Engine.sums`."""
        turns, *rest = row
        tokens, (cost, priced, open_, partial, harness, harness_cost, edits, one_shots) = rest[:6], rest[6:]
        self.turns += int(turns)
        self.tokens = [a + int(b or 0) for a, b in zip(self.tokens, tokens, strict=True)]
        self.cost += Decimal(cost or 0)
        self.priced += int(priced)
        self.open += int(open_)
        self.partial += int(partial)
        self.harness_turns += int(harness)
        self.harness_cost += Decimal(harness_cost or 0)
        self.edits += int(edits)
        self.one_shots += int(one_shots)

    def merge(self, other: FleetSum) -> None:
        self.add(
            (
                *(other.turns, *other.tokens, other.cost, other.priced, other.open, other.partial),
                *(other.harness_turns, other.harness_cost, other.edits, other.one_shots),
            )
        )
        self.retried += other.retried
        self.ended += other.ended

    @property
    def prompts(self) -> int:
        return self.retried.total()

    @property
    def cost_usd(self) -> float | None:
        return float(self.cost) if self.priced else None

    @property
    def cache_hit_rate(self) -> float | None:
        fresh, _, _, read, five, hour = self.tokens
        return rate(read, fresh + read + five + hour)

    def answer(self) -> dict[str, Any]:
        return {
            "turns": self.turns,
            "openTurns": self.open,
            "partialTurns": self.partial,
            "unpricedTurns": self.turns - self.priced,
            "emptyTurns": 0,
            "usage": dict(zip(USAGE_FIELDS, self.tokens, strict=True)),
            "costUsd": self.cost_usd,
            "harnessTurns": self.harness_turns,
            "harnessCostUsd": float(self.harness_cost) if self.harness_turns else None,
            "cacheHitRate": self.cache_hit_rate,
        }

    def quality(self) -> dict[str, Any]:
        one_shot = self.retried[0]
        return {
            "editTurns": self.edits,
            "oneShotTurns": self.one_shots,
            "oneShotRate": rate(self.one_shots, self.edits),
            "editPrompts": self.prompts,
            "oneShotPrompts": one_shot,
            "oneShotPromptRate": rate(one_shot, self.prompts),
            "oneShotInterval": wilson(one_shot, self.prompts),
            "sessions": {name: self.ended[name] for name in OUTCOMES},
        }

    def share(self, whole: FleetSum) -> float | None:
        return float(self.cost / whole.cost) if whole.cost and self.priced else None


Sums = dict[Any, FleetSum]
_NOT_TREE = "who started an agent is not pushed"


def summary(engine: Engine, params: SummaryParams, now: int) -> dict[str, Any]:
    by = split(params.by, DIMENSIONS)
    refuse(vars(params), {"tree": _NOT_TREE})
    scope = choose(engine, params, now)
    grouped = dimension(scope, by)
    sums = add_up(scope, grouped)
    if params.quality:
        add_prompts(scope, grouped, sums)
        add_outcomes(scope, grouped, sums, now)
    total = whole_of(sums)
    order = _ordered(sums, by, grouped)
    order = order[-params.limit :] if grouped.is_time else order[: params.limit]
    answer: dict[str, Any] = {
        "filters": scope.filters,
        **totals_of(scope, total),
        "by": params.by,
        "rows": [
            {
                **facts,
                **sums[key].answer(),
                "share": sums[key].share(total),
                **({"quality": sums[key].quality()} if params.quality else {}),
            }
            for key, facts in zip(order, grouped.describe(order), strict=True)
        ],
        "moreRows": len(sums) - len(order),
        **fleet_of(engine),
    }
    if params.quality:
        answer["quality"] = total.quality()
    if params.series:
        days = dimension(scope, ["day"])
        by_day = add_up(scope, days)
        answer["series"] = [
            {"key": key, "turns": by_day[key].turns, "costUsd": by_day[key].cost_usd} for key in sorted(by_day)
        ]
    return answer


def add_up(scope: Scope, grouped: Dimension) -> Sums:
    sums: defaultdict[Any, FleetSum] = defaultdict(FleetSum)
    cut = len(grouped.columns)
    for row in scope.engine.sums(grouped.columns, scope.condition, scope.begin, scope.end):
        sums[grouped.key(row[:cut])].add(row[cut:])
    return dict(sums)


def add_prompts(scope: Scope, grouped: Dimension, sums: Sums) -> None:
    """Adds the prompts of rows: each counts with its first edit, by the retries of its last.

    A group by and not a window, which would sort all edits.
    """
    engine, cut = scope.engine, len(grouped.columns)
    at = f"coalesce({engine.milliseconds('ts')}, 0)"
    first = f"argMin(({', '.join(grouped.columns)}, coalesce({scope.where}, false)), "
    first += f"(coalesce(prompt_retries, -1), {at}, coalesce(turn_index, 0), message_id))"
    prompts = (
        f"SELECT {first} AS first_edit, max(coalesce(prompt_retries, 0)) AS last_retries FROM turns_once "
        f"WHERE {_EDITED} AND prompt_id IS NOT NULL GROUP BY source, session_id, prompt_id"
    )
    keys = ", ".join(f"{engine.element('first_edit', n + 1)} AS key_{n}" for n in range(cut))
    chosen = f"SELECT {keys}, last_retries FROM ({prompts}) AS prompts WHERE {engine.element('first_edit', cut + 1)}"
    names = ", ".join(f"key_{n}" for n in range(cut))
    sql = f"SELECT {names}, last_retries, count(*) FROM ({chosen}) AS chosen GROUP BY {names}, last_retries"
    for *values, retries, count in engine.rows(sql):
        sums[grouped.key(values)].retried[int(retries)] += int(count)


def add_outcomes(scope: Scope, grouped: Dimension, sums: Sums, now: int) -> None:
    """Adds the outcomes of the sessions whose last request is selected. Of copies of a session the newest counts."""
    updated_at = f"coalesce({scope.engine.milliseconds('updated_at')}, 0)"
    facts = ("last_message_id", "outcome", "may_go_on")
    newest = ", ".join(f"argMax({name}, {updated_at}) AS newest_{name}" for name in facts)
    sessions = f"SELECT session_id, {newest} FROM sessions_now WHERE last_message_id IS NOT NULL GROUP BY session_id"
    at = scope.engine.milliseconds("t.ts")
    ended = (
        f"CASE WHEN s.newest_may_go_on AND (t.open OR {at} >= {now - QUIET_MS}) THEN 'unknown' "
        "ELSE s.newest_outcome END AS ended"
    )
    last = (
        f"(SELECT t.*, {ended} FROM turns_once AS t INNER JOIN ({sessions}) AS s "
        "ON s.session_id = t.session_id AND s.newest_last_message_id = t.message_id) AS last"
    )
    keys = ", ".join(f"{column} AS key_{n}" for n, column in enumerate(grouped.columns))
    names = ", ".join(f"key_{n}" for n in range(len(grouped.columns)))
    chosen = f"(SELECT {keys}, * FROM {last} WHERE {scope.where}) AS chosen"
    sql = f"SELECT {names}, ended, count(*) FROM {chosen} GROUP BY {names}, ended"
    for *values, name, count in scope.engine.rows(sql):
        sums[grouped.key(values)].ended[name] += int(count)


def whole_of(sums: Mapping[Any, FleetSum]) -> FleetSum:
    whole = FleetSum()
    for one in sums.values():
        whole.merge(one)
    return whole


def totals_of(scope: Scope, total: FleetSum) -> dict[str, Any]:
    """Totals, and the models that have no price or only their harness's."""
    unpriced: Sequence[str] = ()
    by_harness: Sequence[str] = ()
    if total.turns > total.priced or total.harness_turns:
        by_model = add_up(scope, dimension(scope, ["model"]))
        unpriced = sorted(str(model or "") for model, one in by_model.items() if one.turns > one.priced)
        by_harness = sorted(str(model or "") for model, one in by_model.items() if one.harness_turns)
    return {
        "totals": total.answer(),
        "unpricedModels": list(unpriced),
        "harnessModels": list(by_harness),
        "unlogged": None,
    }


def fleet_of(engine: Engine) -> dict[str, Any]:
    """How current the answer is: the newest request, and the number of machines."""
    machines = "SELECT machine_id, max(ts) AS newest FROM turns WHERE NOT deleted GROUP BY machine_id"
    newest_of = engine.milliseconds("max(newest)")
    ((newest, number),) = engine.rows(f"SELECT {newest_of}, count(*) FROM ({machines}) AS machines")
    return {"newest": to_iso(int(newest)) if number else None, "machines": int(number)}


def _ordered(sums: Sums, by: Sequence[str], grouped: Dimension) -> list[Any]:
    def rank(key: Any) -> tuple[Any, ...]:
        one = sums[key]
        at = (time_of(by, key),) if grouped.is_time else ()
        return (*at, -one.cost, -one.turns, key is None, str(key))

    return sorted(sums, key=rank)


def compare(engine: Engine, params: CompareParams, now: int) -> dict[str, Any]:
    by = split(params.by, COMPARED)
    refuse(vars(params), {"what_if": "prices are not pushed"})
    scope = choose(engine, params, now)
    if params.models is not None:
        scope = scope.also(models(engine, params.models, "turns_once"))
    single = dimension(scope, by)
    cut = len(single.columns)
    grouped = Dimension(
        (*single.columns, "activity"), lambda keys: (single.key(keys[:cut]), keys[cut]), single.describe
    )
    sums = add_up(scope, grouped)
    add_prompts(scope, grouped, sums)
    cells: dict[tuple[Hashable, str], FleetSum] = {}
    for (key, activity), one in sums.items():
        place = key, activity if activity in LABELS else UNLABELLED
        cells.setdefault(place, FleetSum()).merge(one)
    by_name: dict[Any, FleetSum] = {}
    for (key, _), one in cells.items():
        by_name.setdefault(key, FleetSum()).merge(one)
    ranked = sorted(by_name, key=lambda key: (-by_name[key].cost, -by_name[key].turns, str(key)))
    order = ranked[:MOST_COMPARED]
    names = dict(zip(order, _names(single, order), strict=True))
    present = {category for key, category in cells if key in names}
    categories = [label for label in (*LABELS, UNLABELLED) if label in present]
    least = params.min_sample
    return {
        "filters": scope.filters,
        "by": params.by,
        "models": [names[key] for key in order],
        "categories": categories,
        "minSample": least,
        "cells": [
            _cell(names[key], category, cells.get((key, category), FleetSum()), least)
            for key in order
            for category in categories
        ],
        "coverage": [_coverage(names[key], {c: cells[k, c] for k, c in cells if k == key}, least) for key in order],
        "notes": _notes(order, names, categories, cells),
        "moreModels": len(ranked) - len(order),
        "unlogged": None,
    }


def _names(single: Dimension, order: Sequence[Any]) -> list[Any]:
    facts = single.describe(order)
    return [
        one["key"] if "keys" not in one else ", ".join(str(part or "(none)") for part in one["keys"].values())
        for one in facts
    ]


def _cell(name: Any, category: str, one: FleetSum, least: int) -> dict[str, Any]:
    quality = one.quality()
    del quality["sessions"]
    return {
        "model": name,
        "category": category,
        "turns": one.turns,
        "pricedTurns": one.priced,
        "costUsd": one.cost_usd,
        "costPerTurn": float(one.cost) / one.priced if one.priced else None,
        **quality,
        "oneShotTurnRate": quality["oneShotRate"],
        "cacheHitRate": one.cache_hit_rate,
        "medianRetries": median(one.retried),
        "quotaShare": None,
        "noData": one.turns == 0,
        "insufficientSample": 0 < one.turns < least,
        "insufficientPrompts": 0 < one.prompts < least,
    }


def _coverage(name: Any, own: Mapping[str, FleetSum], least: int) -> dict[str, Any]:
    whole = whole_of(own)
    return {
        "model": name,
        "turns": whole.turns,
        "pricedTurns": whole.priced,
        "harnessTurns": whole.harness_turns,
        "partialTurns": whole.partial,
        "openTurns": whole.open,
        "labelledTurns": sum(one.turns for category, one in own.items() if category != UNLABELLED),
        "editPrompts": whole.prompts,
        "categories": sum(one.turns > 0 for one in own.values()),
        "sufficientCategories": sum(one.turns >= least for one in own.values()),
    }


def _notes(
    order: Sequence[Any],
    names: Mapping[Any, Any],
    categories: Sequence[str],
    cells: Mapping[tuple[Hashable, str], FleetSum],
) -> list[dict[str, Any]]:
    """A note for each category in which only one of those compared has data."""
    notes = []
    for category in categories:
        having = [names[key] for key in order if (key, category) in cells and cells[key, category].turns]
        if len(having) == 1:
            note = f"of those compared, only {having[0] or '(none)'} has data for {category}"
            notes.append({"category": category, "model": having[0], "note": note})
    return notes
