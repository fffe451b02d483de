"""Which model does what kind of work best: cost, one-shot rate, cache and retries by model and activity."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from burnd.classify.activity import LABELS
from burnd.contract.reports import COMPARED, UNLABELLED, CompareParams
from burnd.pricing import SEARCH_UNITS, Price, cost, rates_over, usd
from burnd.queries import dimensions, naming
from burnd.queries.dimensions import Dimension
from burnd.queries.filters import Chosen, choose
from burnd.queries.kinds import Kind, Kinds, shown_model
from burnd.queries.quality import rate, wilson
from burnd.queries.quota_share import quota_shares
from burnd.queries.reading import Reader
from burnd.queries.scanning import By, Parts, Row
from burnd.queries.spent import unlogged_in
from burnd.queries.tally import Tally
from burnd.queries.view import Missing, View

MOST_COMPARED = 100  # more than anybody can look at side by side
_ARITHMETIC = "the same tokens at that model's prices: arithmetic, not a prediction of what it would have used"


class Place(NamedTuple):
    """A cell: what is compared, and the activity."""

    name: Any
    category: str


class Cell:
    """What falls to one cell."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.retries: Counter[int] = Counter()  # prompts with edits by how many retries they took
        self.what_if = self.what_if_unpriced = 0

    def add(self, kind: Kind, tier: int | None, counts: Row, target: Price | None) -> None:
        """Takes in turns of one kind; with a target also what they would cost as that."""
        self.tally.add(kind, tier, counts)
        if target is not None:
            rates = rates_over(target, kind.tier if tier is None else tier, kind.terms)
            units = cost(counts[1:7], rates) + counts[7] * SEARCH_UNITS if rates else 0
            if kind.own_rates is None:
                self.what_if_unpriced += units
            else:
                self.what_if += units

    def answer(self, place: Place, least: int, share: float | None) -> dict[str, Any]:
        tally, prompts, one_shot = self.tally, self.retries.total(), self.retries[0]
        return {
            "model": place.name,
            "category": place.category,
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
            "medianRetries": median(self.retries),
            "quotaShare": share,
            "noData": tally.turns == 0,
            "insufficientSample": 0 < tally.turns < least,
            "insufficientPrompts": 0 < prompts < least,
        }


def compare(view: View, params: CompareParams) -> dict[str, Any]:
    """The answer of the method `compare`."""
    dimensions.check(params.by, COMPARED)
    target = _target(view, params.what_if)
    chosen = _narrowed(view, params, choose(view, params, dimensions.tag_keys(params.by)))
    beyond = unlogged_in(view, chosen)
    dimension = dimensions.dimension(view, params.by, chosen.selection)
    sizes = target.thresholds if target else ()
    reader = Reader(view, chosen.selection, chosen.kinds, sizes)
    by, place_of = _by_activity(view, dimension)
    groups = chosen.selection.groups
    narrowed = dimension.narrowed if groups is not None and len(groups.labels) > MOST_COMPARED else None
    rows = _logged(reader.read(by if narrowed is None else dimension.by), chosen.kinds)
    whole = _by_name(rows, chosen, dimension, target)
    every_name = _names(view, params, whole)
    names = every_name[:MOST_COMPARED]
    if narrowed is not None:  # only of what is shown activities matter
        chosen = chosen._replace(selection=narrowed(chosen.selection, frozenset(names)))
        reader = Reader(view, chosen.selection, chosen.kinds, sizes)
        rows = _logged(reader.read(by), chosen.kinds)
    kept = _Kept(frozenset(names), dimension, place_of, chosen.kinds)
    cells = _cells(kept.those(rows), kept.those(reader.read_prompts(by)), target)
    present = {place.category for place in cells}
    categories = [label for label in (*LABELS, UNLABELLED) if label in present]
    shares = _shares(view, chosen, dimension)
    every = [Place(name, category) for name in names for category in categories]
    answer: dict[str, Any] = {
        "filters": chosen.said,
        "by": params.by,
        "models": names,
        "categories": categories,
        "minSample": params.min_sample,
        "cells": [cells[place].answer(place, params.min_sample, shares.get(place)) for place in every],
        "coverage": _coverages(names, cells, params.min_sample),
        "notes": _notes(names, categories, cells),
        "moreModels": len(every_name) - len(names),
        "unlogged": beyond,
    }
    if target is not None and params.what_if is not None:
        shown = [cells[place] for place in every]
        _add_what_if(answer, shown_model(view.prices, params.what_if), shown, whole.values())
    return answer


def _target(view: View, name: str | None) -> Price | None:
    if name is None:
        return None
    price = view.prices.find(name)
    if price is None:
        near = view.prices.near(name)
        raise Missing(f"{name[:80]!r} has no price", f"did you mean: {', '.join(near)}" if near else "")
    return price


def _narrowed(view: View, params: CompareParams, chosen: Chosen) -> Chosen:
    """Only the models that are to be compared, where they are named."""
    if params.models is None:
        return chosen
    wanted = naming.by_model(view, chosen.kinds, params.models)
    already = chosen.selection.kinds
    return chosen._replace(selection=chosen.selection._replace(kinds=wanted if already is None else wanted & already))


def _logged(rows: Iterable[Parts], kinds: Kinds) -> list[Parts]:
    return [row for row in rows if not kinds[row[1]].is_unlogged]


class _Kept(NamedTuple):
    """Which rows are of what is compared: they may be few of very many."""

    names: frozenset[Any]
    dimension: Dimension
    place_of: Callable[[Sequence[Any], Kind], Place]
    kinds: Kinds

    def those(self, rows: Iterable[Parts]) -> Iterator[tuple[Place, Kind, Any, Row]]:
        """Each with its cell, its kind, what stands beside that, and counts."""
        label, names = self.dimension.label, self.names
        for keys, number, beside, counts in rows:
            kind = self.kinds[number]
            if label(keys, kind) in names:
                yield self.place_of(keys, kind), kind, beside, counts


def _by_name(rows: Iterable[Parts], chosen: Chosen, dimension: Dimension, target: Price | None) -> dict[Any, Cell]:
    """What falls to all cells of a name."""
    whole: defaultdict[Any, Cell] = defaultdict(Cell)
    for keys, number, tier, counts in rows:
        kind = chosen.kinds[number]
        whole[dimension.label(keys, kind)].add(kind, tier, counts, target)
    return whole


def _cells(
    turns: Iterable[tuple[Place, Kind, Any, Row]], prompts: Iterable[tuple[Place, Kind, Any, Row]], target: Price | None
) -> defaultdict[Place, Cell]:
    cells: defaultdict[Place, Cell] = defaultdict(Cell)
    for place, kind, tier, counts in turns:
        cells[place].add(kind, tier, counts, target)
    for place, _, retries, (count,) in prompts:
        cells[place].retries[retries] += count
    return cells


def _by_activity(view: View, dimension: Dimension) -> tuple[By, Callable[[Sequence[Any], Kind], Place]]:
    """The dimension by activity, and which cell such a row belongs to."""
    labels: dict[int, str] = dict(view.rows(f"SELECT id, name FROM names WHERE name IN ({_MARKS})", LABELS))

    def place_of(keys: Sequence[Any], kind: Kind) -> Place:
        return Place(dimension.label(keys[:-1], kind), labels.get(keys[-1], UNLABELLED))

    return By((*dimension.by.keys, "activity")), place_of


def _shares(view: View, chosen: Chosen, dimension: Dimension) -> dict[Hashable, float]:
    by, place_of = _by_activity(view, dimension)
    return quota_shares(view, chosen, by, place_of)


def _names(view: View, params: CompareParams, whole: Mapping[Any, Cell]) -> list[Any]:
    """What is compared, the dearest first; a model that was asked for by its own name is there even without turns."""
    names = sorted(whole, key=lambda name: (-whole[name].tally.units, -whole[name].tally.turns, str(name)))
    asked = params.models or []
    for name in asked.split(",") if isinstance(asked, str) else asked:
        shown = shown_model(view.prices, name.strip())
        if params.by == "model" and shown not in names and view.prices.find(name.strip()) is not None:
            names.append(shown)
    return names


def _notes(names: Sequence[Any], categories: Sequence[str], cells: Mapping[Place, Cell]) -> list[dict[str, Any]]:
    """A note for each category in which only one of those compared has data."""
    notes = []
    for category in categories:
        having = [name for name in names if cells[Place(name, category)].tally.turns]
        if len(having) == 1:
            note = f"of those compared, only {having[0] or '(none)'} has data for {category}"
            notes.append({"category": category, "model": having[0], "note": note})
    return notes


def _coverages(names: Sequence[Any], cells: Mapping[Place, Cell], least: int) -> list[dict[str, Any]]:
    own: defaultdict[Any, dict[str, Cell]] = defaultdict(dict)
    for place, cell in cells.items():
        if cell.tally.turns:
            own[place.name][place.category] = cell
    return [_coverage(name, own[name], least) for name in names]


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
        "editPrompts": sum(cell.retries.total() for cell in own.values()),
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
