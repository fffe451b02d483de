"""Compares models, or any other dimension, by activity; and releases of a harness with the one before."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from burnd.attribution.cause_keys import MISS
from burnd.classify.activity import LABELS
from burnd.contract.reports import COMPARED, UNLABELLED, CompareParams
from burnd.index.sums import MEASURES, SHIFT_MS
from burnd.pricing import SEARCH_UNITS, UNITS_PER_USD, Price, Tokens, cost, rates_over, usd
from burnd.queries import dimensions, names
from burnd.queries.dimensions import Dimension
from burnd.queries.limits import SAME_RESET_MS
from burnd.queries.money import SumRow, Tally, TurnClass, TurnClasses, shown_model, unlogged_of
from burnd.queries.selection import Scope, Selection, choose
from burnd.queries.summary import rate, wilson
from burnd.queries.sums import PRICED, By, CauseReader, Reader
from burnd.queries.view import Missing, View
from burnd.records.times import DAY_MS

MOST_DAYS = 31


class Peak(NamedTuple):
    """The highest reading of a window, before the selected time (part 0) or in it (part 1)."""

    resets_at: int | None
    part: int
    ts: int
    percent: float


def quota_shares(
    view: View, scope: Scope, by: By, label: Callable[[tuple[Any, ...], TurnClass], Hashable | None]
) -> dict[Hashable, float]:
    """The share of the used quota by label, over the newest days with readings. The label None is left out."""
    begin, end = scope.selection.begin or -(1 << 62), scope.selection.end or 1 << 62
    days = [row[0] for row in view.rows(_DAYS, (begin, end, begin))]
    if not days:
        return {}
    begin, end = max(begin, min(days) * DAY_MS - SHIFT_MS), min(end, (max(days) + 1) * DAY_MS - SHIFT_MS)
    peaks: defaultdict[str, list[Peak]] = defaultdict(list)
    # From a day earlier, for the use of windows that were already open.
    for source, *peak in view.rows(_PEAKS, (begin, begin - DAY_MS, end)):
        peaks[source].append(Peak(*peak))
    filled = {source: points for source, own in peaks.items() if (points := _points(own)) > 0}
    if not filled:
        return {}
    classes = scope.classes
    whole: defaultdict[str, int] = defaultdict(int)
    selection = Selection(begin=begin, end=end)
    for _, number, tier, counts in Reader(view, selection, scope.classes, measures=PRICED).read(By()):
        turn_class = classes[number]
        if not turn_class.is_unlogged:
            whole[turn_class.source] += turn_class.units(tier, counts) or 0
    parts: defaultdict[tuple[Hashable, str], int] = defaultdict(int)
    selection = scope.selection._replace(begin=begin, end=end)
    for keys, number, tier, counts in Reader(view, selection, scope.classes, measures=PRICED).read(by):
        turn_class = classes[number]
        if not turn_class.is_unlogged and (name := label(keys, turn_class)) is not None:
            parts[name, turn_class.source] += turn_class.units(tier, counts) or 0
    used: defaultdict[Hashable, float] = defaultdict(float)
    for (name, source), units in parts.items():
        if units and source in filled:
            used[name] += filled[source] * (units / whole[source])
    total = sum(filled.values())
    return {name: points / total for name, points in used.items()}


def _points(peaks: Iterable[Peak]) -> float:
    """The percentage points by which windows filled up in the selected time.

    Windows are distinguished by their resets, to two minutes; without a reset, a lower reading starts a new window.
    """
    points, before, window = 0.0, 0.0, None
    for peak in sorted(peaks, key=lambda peak: (peak.resets_at is None, peak.resets_at or peak.ts, peak.part, peak.ts)):
        if window is not None and peak.resets_at is not None:
            is_same = peak.resets_at - window <= SAME_RESET_MS
        else:
            is_same = window is None and peak.resets_at is None and peak.percent >= before
        before = before if is_same else 0.0
        window = window if is_same else peak.resets_at
        points += max(peak.percent - before, 0.0) if peak.part else 0.0
        before = max(before, peak.percent)
    return points


_EMPTIES, _EDITS = MEASURES.index("empties"), MEASURES.index("edits")
# The newest days with readings, found by stepping back from one to the next.
_NEWEST = f"SELECT (max(ts) + {SHIFT_MS}) / {DAY_MS} FROM quotas WHERE window = '5h' AND ts >= ? AND ts <"
_DAYS = f"""
WITH RECURSIVE days(day) AS (
  SELECT ({_NEWEST} ?)
  UNION ALL SELECT ({_NEWEST} days.day * {DAY_MS} - {SHIFT_MS}) FROM days WHERE days.day IS NOT NULL
) SELECT day FROM days WHERE day IS NOT NULL LIMIT {MOST_DAYS}
"""
_PEAKS = """
SELECT n.name, q.resets_at, q.ts >= ?, max(q.ts), max(q.used_percent) FROM quotas q JOIN names n ON n.id = q.source
WHERE q.window = '5h' AND q.ts >= ? AND q.ts < ?
GROUP BY q.source, q.resets_at, 3, CASE WHEN q.resets_at IS NULL THEN q.position END
"""


MOST_COMPARED = 100
_ARITHMETIC = "the same tokens at that model's prices: arithmetic, not a prediction of what it would have used"


CellKey = tuple[Any, str]  # the key of what is compared, and the activity


class Cell:
    __slots__ = ("retried", "tally", "what_if", "what_if_unpriced")

    def __init__(self) -> None:
        self.tally = Tally()
        self.retried: dict[int, int] = {}  # prompts that were retried, by how often
        self.what_if = self.what_if_unpriced = 0

    def add(self, turn_class: TurnClass, tier: int | None, counts: Sequence[int], target: Price | None) -> None:
        """With a target, also the cost at its prices."""
        self.tally.add(turn_class, tier, counts)
        if target is not None:
            rates = rates_over(target, turn_class.tier if tier is None else tier, turn_class.terms)
            units = cost(Tokens(*counts[1:7]), rates) + counts[7] * SEARCH_UNITS if rates else 0
            if turn_class.own_rates is None:
                self.what_if_unpriced += units
            else:
                self.what_if += units

    @property
    def is_mostly_one_shot(self) -> bool:
        """The median of retries is 0, or there is none, however often the other prompts were retried."""
        prompts, one_shot = self.tally.prompts, self.tally.one_shot_prompts
        return one_shot * 2 > prompts or not prompts

    def answer(self, name: Any, category: str, least: int, share: float | None) -> dict[str, Any]:
        tally, turns, priced = self.tally, self.tally.turns, self.tally.priced
        edits, one_shots, prompts, one_shot_prompts = tally.counts[_EDITS:]
        return {
            "model": name,
            "category": category,
            "turns": turns,
            "editTurns": edits,
            "oneShotTurns": one_shots,
            "editPrompts": prompts,
            "oneShotPrompts": one_shot_prompts,
            "pricedTurns": priced,
            "costUsd": tally.cost_usd,
            "costPerTurn": tally.units / UNITS_PER_USD / priced if priced else None,
            "oneShotRate": rate(one_shots, edits),
            "oneShotTurnRate": rate(one_shots, edits),
            "oneShotPromptRate": rate(one_shot_prompts, prompts),
            "oneShotInterval": wilson(one_shot_prompts, prompts),
            "cacheHitRate": tally.cache_hit_rate,
            "medianRetries": median({0: one_shot_prompts, **self.retried}),
            "quotaShare": share,
            "noData": turns == 0,
            "insufficientSample": 0 < turns < least,
            "insufficientPrompts": 0 < prompts < least,
        }


def compare(view: View, params: CompareParams) -> dict[str, Any]:
    by = dimensions.split(params.by, COMPARED)
    scope = choose(view, params, dimensions.tag_keys(by))
    what_if = _priced_name(view, scope.classes, params.what_if) if params.what_if is not None else None
    target = view.prices.find(what_if) if what_if is not None else None
    if params.models is not None:
        requested, others = names.by_model(view, scope.classes, params.models), scope.selection.classes
        of_models = requested if others is None else requested & others
        scope = scope._replace(selection=scope.selection._replace(classes=of_models))
    dimension = dimensions.dimension(view, by, scope.selection)
    thresholds = target.thresholds if target else ()
    reader = Reader(view, scope.selection, scope.classes, thresholds, measures=len(MEASURES))
    by_cell = dimension.by.plus(By(("activity",)))
    rows = reader.read(by_cell)
    classes, label = scope.classes, dimension.label
    labels = [label(keys, classes[number]) for keys, number, _, _ in rows]
    rows_shown = _shown(view, params, dimension, _ranks(rows, labels, classes))
    order = [*rows_shown][:MOST_COMPARED]
    compared = frozenset(order)
    in_cells = compared if target is None else frozenset(rows_shown)  # the others are only counted
    activities: dict[int, str] = dict(view.rows(f"SELECT id, name FROM names WHERE name IN ({_MARKS})", LABELS))
    cells: defaultdict[CellKey, Cell] = defaultdict(Cell)
    for key, (keys, number, tier, counts) in zip(labels, rows, strict=True):
        turn_class = classes[number]
        if key in in_cells and not turn_class.is_unlogged:
            cells[key, activities.get(keys[-1], UNLABELLED)].add(turn_class, tier, counts, target)

    def place_of(keys: Sequence[Any], turn_class: TurnClass) -> CellKey | None:
        key = label(keys, turn_class)
        return (key, activities.get(keys[-1], UNLABELLED)) if key in compared else None

    if not all(cell.is_mostly_one_shot for cell in cells.values()):
        for keys, number, retries, (count,) in reader.retried(by_cell):
            if (place := place_of(keys, classes[number])) is not None:
                retried = cells[place].retried
                retried[retries] = retried.get(retries, 0) + count
    present = {activity for (key, activity), cell in cells.items() if key in compared and not cell.tally.is_nothing}
    categories = [label for label in (*LABELS, UNLABELLED) if label in present]
    shares = quota_shares(view, scope, by_cell, place_of)
    every = [(key, category) for key in order for category in categories]
    texts = {key: facts["key"] for key, facts in rows_shown.items()}
    answer: dict[str, Any] = {
        "filters": scope.filters,
        "by": params.by,
        "models": [texts[key] for key in order],
        "categories": categories,
        "minSample": params.min_sample,
        "cells": [
            cells[place].answer(texts[place[0]], place[1], params.min_sample, shares.get(place)) for place in every
        ],
        "coverage": _coverages(order, texts, cells, params.min_sample),
        "notes": _notes(order, texts, categories, cells),
        "moreModels": len(rows_shown) - len(order),
        "unlogged": unlogged_of(rows, scope.classes),
    }
    if len(by) > 1:
        for cell, place in zip(answer["cells"], every, strict=True):
            cell["keys"] = rows_shown[place[0]]["keys"]
        for coverage, key in zip(answer["coverage"], order, strict=True):
            coverage["keys"] = rows_shown[key]["keys"]
    if what_if is not None:
        _add_what_if(answer, shown_model(view.prices, what_if), [cells[place] for place in every], cells.values())
    return answer


def _ranks(rows: Iterable[SumRow], labels: Iterable[Any], classes: TurnClasses) -> dict[Any, tuple[int, int]]:
    """The most expensive have the lowest rank."""
    units: defaultdict[Any, int] = defaultdict(int)
    turns: defaultdict[Any, int] = defaultdict(int)
    for key, (_, number, tier, counts) in zip(labels, rows, strict=True):
        turn_class = classes[number]
        if not turn_class.is_unlogged:
            units[key] += turn_class.units(tier, counts) or 0
            turns[key] += counts[0] - counts[_EMPTIES]
    return {key: (-units[key], -turns[key]) for key in units}


def _priced_name(view: View, classes: TurnClasses, given: str) -> str:
    """A name in the price list, or the only used model that is meant, as in other filters. Raises Missing."""
    if view.prices.find(given) is not None:
        return given
    used = {classes[number].model for number in names.models_like(classes, given)}
    priced = sorted(name for name in used if view.prices.find(name) is not None)
    if len(priced) == 1:
        return priced[0]
    near = priced or view.prices.similar_names(given)
    hint = f"did you mean: {', '.join(near)}" if near else "use a name from a price list, such as gpt-5"
    raise Missing(f"{given[:80]!r} {'may be one of several models' if priced else 'has no price'}", hint)


def _shown(
    view: View, params: CompareParams, dimension: Dimension, ranks: Mapping[Any, tuple[int, int]]
) -> dict[Any, dict[str, Any]]:
    """In order; equal ones by name. A requested model is included even without turns."""
    names: dict[Any, dict[str, Any]] = {}
    for key, facts in zip(ranks, dimension.describe([*ranks]), strict=True):
        keys = facts.get("keys")
        text = facts["key"] if keys is None else ", ".join(str(one or "(none)") for one in keys.values())
        names[key] = {**facts, "key": text}
    names = {key: names[key] for key in sorted(names, key=lambda key: (ranks[key], str(names[key]["key"])))}
    requested = params.models or []
    for name in requested.split(",") if isinstance(requested, str) else requested:
        model = shown_model(view.prices, name.strip())
        if params.by == "model" and model not in names and view.prices.find(name.strip()) is not None:
            names[model] = {"key": model}
    return names


def _notes(
    order: Sequence[Any], names: Mapping[Any, Any], categories: Sequence[str], cells: Mapping[CellKey, Cell]
) -> list[dict[str, Any]]:
    """A note for each category in which only one of those compared has data."""
    notes = []
    for category in categories:
        having = [names[key] for key in order if cells[key, category].tally.turns]
        if len(having) == 1:
            note = f"of those compared, only {having[0] or '(none)'} has data for {category}"
            notes.append({"category": category, "model": having[0], "note": note})
    return notes


def _coverages(
    order: Sequence[Any], names: Mapping[Any, Any], cells: Mapping[CellKey, Cell], least: int
) -> list[dict[str, Any]]:
    own: defaultdict[Any, dict[str, Tally]] = defaultdict(dict)
    for (key, category), cell in cells.items():
        if cell.tally.turns:
            own[key][category] = cell.tally
    coverages = []
    for key in order:
        tallies = own[key].values()
        whole = Tally.over(tallies)
        unlabelled = own[key].get(UNLABELLED)
        coverages.append(
            {
                "model": names[key],
                "turns": whole.turns,
                "pricedTurns": whole.priced,
                "harnessTurns": whole.harness_turns,
                "partialTurns": whole.partial,
                "openTurns": whole.open,
                "labelledTurns": whole.turns - (unlabelled.turns if unlabelled is not None else 0),
                "editPrompts": whole.prompts,
                "categories": len(tallies),
                "sufficientCategories": sum(tally.turns >= least for tally in tallies),
            }
        )
    return coverages


def _add_what_if(answer: dict[str, Any], model: str, shown_cells: Sequence[Cell], cells: Collection[Cell]) -> None:
    """Turns without a price are compared with nothing."""
    for row, cell in zip(answer["cells"], shown_cells, strict=True):
        turns, units = (
            (cell.tally.priced, cell.what_if) if cell.tally.priced else (cell.tally.turns, cell.what_if_unpriced)
        )
        row["whatIfCostUsd"] = float(usd(units)) if turns else None
        row["whatIfCostPerTurn"] = float(usd(units)) / turns if turns else None
    whole = Tally.over([cell.tally for cell in cells])
    unpriced = sum(cell.what_if_unpriced for cell in cells)
    answer["whatIf"] = {
        "model": model,
        "costUsd": float(usd(sum(cell.what_if for cell in cells))) if whole.has_price else None,
        "actualUsd": whole.cost_usd,
        "unpricedTurns": whole.unpriced,
        "unpricedCostUsd": float(usd(unpriced)) if whole.unpriced else None,
        "note": _ARITHMETIC,
    }


def median(counts: Mapping[int, int]) -> float | None:
    """Of values given by how often each occurs."""
    if len(counts) == 1:
        ((value, count),) = counts.items()
        return float(value) if count else None
    values = sorted(counts)
    passed = [*accumulate(counts[value] for value in values)]
    whole = passed[-1] if passed else 0
    if not whole:
        return None
    return (values[bisect(passed, (whole - 1) // 2)] + values[bisect(passed, whole // 2)]) / 2


_MARKS = ",".join("?" * len(LABELS))


# A release is compared for each model alone: other models have other prices. It needs enough requests and sessions,
# since one long session would decide the figures otherwise.
_LEAST_REQUESTS: Final = 200
_LEAST_SESSIONS: Final = 5
_COST_GROWTH: Final = 1.25
_MISS_GROWTH: Final = 1.5
_MISS_POINTS: Final = 0.02
_MISSES: Final = -2  # in the counts of causes


class ReleaseKey(NamedTuple):
    source: str
    model: str
    version: int


class ReleaseUse:
    __slots__ = ("misses", "requests", "sessions", "units")

    def __init__(self) -> None:
        self.requests = self.units = self.misses = 0
        self.sessions: set[int] = set()

    @property
    def is_enough(self) -> bool:
        return self.requests >= _LEAST_REQUESTS and len(self.sessions) >= _LEAST_SESSIONS

    @property
    def cost_per_request(self) -> float:
        return self.units / self.requests / UNITS_PER_USD

    @property
    def miss_rate(self) -> float:
        return self.misses / self.requests

    def answer(self, version: str) -> dict[str, Any]:
        return {
            "version": version,
            "requests": self.requests,
            "sessions": len(self.sessions),
            "costPerRequest": self.cost_per_request,
            "missRate": self.miss_rate,
        }


def release_changes(view: View, ledger: Path, scope: Scope) -> list[dict[str, Any]]:
    """Releases that made requests a quarter costlier, or cache misses half as frequent again and 2 of 100 more."""
    uses = _uses(view, ledger, scope)
    names: dict[int, str] = dict(view.keyed(_NAMES, [(number,) for number in {key.version for key in uses}]))
    releases: defaultdict[tuple[str, str], list[tuple[tuple[int, ...], str, ReleaseUse]]] = defaultdict(list)
    for key, use in uses.items():
        order = _order(names.get(key.version, ""))
        if order is not None and use.is_enough and use.units:
            releases[key.source, key.model].append((order, names[key.version], use))
    changes = []
    for (source, model), some in releases.items():
        some.sort(key=lambda one: one[0])
        for (_, before_name, before), (_, name, use) in pairwise(some):
            is_costlier = use.cost_per_request >= _COST_GROWTH * before.cost_per_request
            more_misses = use.miss_rate - before.miss_rate
            is_missing = more_misses >= _MISS_POINTS and use.miss_rate >= _MISS_GROWTH * before.miss_rate
            if is_costlier or is_missing:
                extra = (use.cost_per_request - before.cost_per_request) * use.requests
                what = [*(["cost"] if is_costlier else []), *(["misses"] if is_missing else [])]
                facts = {"source": source, "model": model, "what": what, "extraUsd": max(extra, 0.0)}
                changes.append(facts | {"before": before.answer(before_name), "after": use.answer(name)})
    return sorted(changes, key=lambda one: (-one["extraUsd"], one["source"], one["model"], one["after"]["version"]))


def _uses(view: View, ledger: Path, scope: Scope) -> dict[ReleaseKey, ReleaseUse]:
    uses: defaultdict[ReleaseKey, ReleaseUse] = defaultdict(ReleaseUse)
    reader = Reader(view, scope.selection, scope.classes)
    for (session, version), number, tier, counts in reader.read(By(("session", "version"))):
        turn_class = scope.classes[number]
        if version and not turn_class.is_unlogged and not turn_class.is_open:
            use = uses[ReleaseKey(turn_class.source, turn_class.model, version)]
            use.requests += counts[0]
            use.units += turn_class.units(tier, counts) or 0
            use.sessions.add(session)
    if not any(use.is_enough for use in uses.values()):
        return {}
    for row in CauseReader(view, ledger, scope.selection, reader).read(MISS, By(("version",))):
        turn_class = scope.classes[row.turn_class]
        key = ReleaseKey(turn_class.source, turn_class.model, row.keys[0])
        if key in uses:
            uses[key].misses += row.counts[_MISSES]
    return uses


def _order(version: str) -> tuple[int, ...] | None:
    """The numbers of a release; None if it has other parts."""
    numbers = version.split("-", 1)[0].split(".")
    return tuple(map(int, numbers)) if all(number.isdecimal() for number in numbers) else None


_NAMES = "SELECT id, name FROM names WHERE id IN ({keys})"
