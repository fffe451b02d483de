"""Which model does what kind of work best: cost, one-shot rate, cache and retries by model and activity."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from burnd.classify.activity import LABELS
from burnd.contract.reports import COMPARED, UNLABELLED, CompareParams
from burnd.pricing import SEARCH_UNITS, Price, Tokens, cost, rates_over, usd
from burnd.queries import dimensions, naming
from burnd.queries.dimensions import Dimension
from burnd.queries.kinds import Kind, shown_model
from burnd.queries.quality import rate, wilson
from burnd.queries.quota_share import quota_shares
from burnd.queries.selection import Chosen, choose
from burnd.queries.spent import unlogged_of
from burnd.queries.sums import By, Reader
from burnd.queries.tally import Tally
from burnd.queries.view import Missing, View

MOST_COMPARED = 100  # more than anybody can look at side by side
_ARITHMETIC = "the same tokens at that model's prices: arithmetic, not a prediction of what it would have used"


class Place(NamedTuple):
    """A cell: the key of what is compared, and the activity."""

    name: Any
    category: str


class Cell:
    """The turns and prompts of one cell."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.retried: Counter[int] = Counter()  # prompts that were retried, by how often
        self.what_if = self.what_if_unpriced = 0

    def add(self, kind: Kind, tier: int | None, counts: Sequence[int], target: Price | None) -> None:
        """Adds turns of one class; with a target also what they would cost as that."""
        self.tally.add(kind, tier, counts)
        if target is not None:
            rates = rates_over(target, kind.tier if tier is None else tier, kind.terms)
            units = cost(Tokens(*counts[1:7]), rates) + counts[7] * SEARCH_UNITS if rates else 0
            if kind.own_rates is None:
                self.what_if_unpriced += units
            else:
                self.what_if += units

    def answer(self, name: Any, category: str, least: int, share: float | None) -> dict[str, Any]:
        tally, prompts, one_shot = self.tally, self.tally.prompts, self.tally.one_shot_prompts
        return {
            "model": name,
            "category": category,
            "turns": tally.turns,
            "editTurns": tally.edits,
            "oneShotTurns": tally.one_shots,
            "editPrompts": prompts,
            "oneShotPrompts": one_shot,
            "pricedTurns": tally.priced,
            "costUsd": tally.cost_usd,
            "costPerTurn": float(usd(tally.units)) / tally.priced if tally.priced else None,
            "oneShotRate": rate(tally.one_shots, tally.edits),
            "oneShotTurnRate": rate(tally.one_shots, tally.edits),
            "oneShotPromptRate": rate(one_shot, prompts),
            "oneShotInterval": wilson(one_shot, prompts),
            "cacheHitRate": tally.cache_hit_rate,
            "medianRetries": median(self.retried + Counter({0: one_shot})),
            "quotaShare": share,
            "noData": tally.turns == 0,
            "insufficientSample": 0 < tally.turns < least,
            "insufficientPrompts": 0 < prompts < least,
        }


def compare(view: View, params: CompareParams) -> dict[str, Any]:
    """The answer of the method `compare`."""
    by = dimensions.split(params.by, COMPARED)
    target = _target(view, params.what_if)
    chosen = _narrowed(view, params, choose(view, params, dimensions.tag_keys(by)))
    dimension = dimensions.dimension(view, by, chosen.selection)
    reader = Reader(view, chosen.selection, chosen.kinds, target.thresholds if target else ())
    place_of = _places(view, dimension)
    rows = [*reader.read(dimension.by.plus(By(("activity",))))]
    cells: defaultdict[Place, Cell] = defaultdict(Cell)
    whole: defaultdict[Any, Cell] = defaultdict(Cell)
    for keys, number, tier, counts in rows:
        kind = chosen.kinds[number]
        if not kind.is_unlogged:
            place = place_of(keys, kind)
            cells[place].add(kind, tier, counts, target)
            whole[place.name].add(kind, tier, counts, target)
    for keys, number, retries, (count,) in reader.retried(dimension.by.plus(By(("activity",)))):
        cells[place_of(keys, chosen.kinds[number])].retried[retries] += count
    ranked = sorted(whole, key=lambda key: (-whole[key].tally.units, -whole[key].tally.turns, str(key)))
    shown = _shown(view, params, dimension, ranked)
    order = [*shown][:MOST_COMPARED]
    present = {place.category for place, cell in cells.items() if place.name in order and not cell.tally.is_nothing}
    categories = [label for label in (*LABELS, UNLABELLED) if label in present]
    shares = quota_shares(view, chosen, dimension.by.plus(By(("activity",))), place_of)
    every = [Place(key, category) for key in order for category in categories]
    names = {key: named["key"] for key, named in shown.items()}
    answer: dict[str, Any] = {
        "filters": chosen.said,
        "by": params.by,
        "models": [names[key] for key in order],
        "categories": categories,
        "minSample": params.min_sample,
        "cells": [
            cells[place].answer(names[place.name], place.category, params.min_sample, shares.get(place))
            for place in every
        ],
        "coverage": _coverages(order, names, cells, params.min_sample),
        "notes": _notes(order, names, categories, cells),
        "moreModels": len(shown) - len(order),
        "unlogged": unlogged_of(rows, chosen.kinds),
    }
    if len(by) > 1:
        for cell, place in zip(answer["cells"], every, strict=True):
            cell["keys"] = shown[place.name]["keys"]
        for coverage, key in zip(answer["coverage"], order, strict=True):
            coverage["keys"] = shown[key]["keys"]
    if target is not None and params.what_if is not None:
        _add_what_if(
            answer, shown_model(view.prices, params.what_if), [cells[place] for place in every], whole.values()
        )
    return answer


def _target(view: View, name: str | None) -> Price | None:
    if name is None:
        return None
    price = view.prices.find(name)
    if price is None:
        near = view.prices.similar_names(name)
        raise Missing(f"{name[:80]!r} has no price", f"did you mean: {', '.join(near)}" if near else "")
    return price


def _narrowed(view: View, params: CompareParams, chosen: Chosen) -> Chosen:
    """Only the models that are to be compared, where they are named."""
    if params.models is None:
        return chosen
    wanted = naming.by_model(view, chosen.kinds, params.models)
    already = chosen.selection.kinds
    return chosen._replace(selection=chosen.selection._replace(kinds=wanted if already is None else wanted & already))


def _places(view: View, dimension: Dimension) -> Callable[[Sequence[Any], Kind], Place]:
    """Tells the cell of rows that are read by the dimension and by activity."""
    labels: dict[int, str] = dict(view.rows(f"SELECT id, name FROM names WHERE name IN ({_MARKS})", LABELS))

    def place_of(keys: Sequence[Any], kind: Kind) -> Place:
        return Place(dimension.label(keys[:-1], kind), labels.get(keys[-1], UNLABELLED))

    return place_of


def _shown(view: View, params: CompareParams, dimension: Dimension, ranked: Sequence[Any]) -> dict[Any, dict[str, Any]]:
    """The names of what is compared, in order; a model that was asked for by its own name also without turns."""
    shown: dict[Any, dict[str, Any]] = {}
    for key, named in zip(ranked, dimension.named(ranked), strict=True):
        keys = named.get("keys")
        text = named["key"] if keys is None else ", ".join(str(one or "(none)") for one in keys.values())
        shown[key] = {**named, "key": text}
    asked = params.models or []
    for name in asked.split(",") if isinstance(asked, str) else asked:
        model = shown_model(view.prices, name.strip())
        if params.by == "model" and model not in shown and view.prices.find(name.strip()) is not None:
            shown[model] = {"key": model}
    return shown


def _notes(
    order: Sequence[Any], names: Mapping[Any, Any], categories: Sequence[str], cells: Mapping[Place, Cell]
) -> list[dict[str, Any]]:
    """A note for each category in which only one of those compared has data."""
    notes = []
    for category in categories:
        having = [names[key] for key in order if cells[Place(key, category)].tally.turns]
        if len(having) == 1:
            note = f"of those compared, only {having[0] or '(none)'} has data for {category}"
            notes.append({"category": category, "model": having[0], "note": note})
    return notes


def _coverages(
    order: Sequence[Any], names: Mapping[Any, Any], cells: Mapping[Place, Cell], least: int
) -> list[dict[str, Any]]:
    own: defaultdict[Any, dict[str, Cell]] = defaultdict(dict)
    for place, cell in cells.items():
        if cell.tally.turns:
            own[place.name][place.category] = cell
    return [_coverage(names[key], own[key], least) for key in order]


def _coverage(name: Any, own: Mapping[str, Cell], least: int) -> dict[str, Any]:
    """How much there is to judge by; `own` has its cells by activity."""
    tallies = [cell.tally for cell in own.values()]
    return {
        "model": name,
        "turns": sum(tally.turns for tally in tallies),
        "pricedTurns": sum(tally.priced for tally in tallies),
        "harnessTurns": sum(tally.harness_turns for tally in tallies),
        "partialTurns": sum(tally.partial for tally in tallies),
        "openTurns": sum(tally.open for tally in tallies),
        "labelledTurns": sum(cell.tally.turns for category, cell in own.items() if category != UNLABELLED),
        "editPrompts": sum(tally.prompts for tally in tallies),
        "categories": len(own),
        "sufficientCategories": sum(tally.turns >= least for tally in tallies),
    }


def _add_what_if(answer: dict[str, Any], model: str, shown_cells: Sequence[Cell], cells: Collection[Cell]) -> None:
    """Set beside what the very same turns cost; of turns without a price there is nothing to set it beside."""
    for shown, cell in zip(answer["cells"], shown_cells, strict=True):
        turns, units = (
            (cell.tally.priced, cell.what_if) if cell.tally.priced else (cell.tally.turns, cell.what_if_unpriced)
        )
        shown["whatIfCostUsd"] = float(usd(units)) if turns else None
        shown["whatIfCostPerTurn"] = float(usd(units)) / turns if turns else None
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


def median(counts: Counter[int]) -> float | None:
    """The median of values given by how often each occurs; between two, the middle of them."""
    whole = counts.total()
    if not whole:
        return None
    low, high = (whole - 1) // 2, whole // 2
    found: list[int] = []
    passed = 0
    for value in sorted(counts):
        passed += counts[value]
        while len(found) < 2 and passed > (low, high)[len(found)]:
            found.append(value)
    return sum(found) / 2


_MARKS = ",".join("?" * len(LABELS))
