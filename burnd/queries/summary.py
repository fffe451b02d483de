"""How much was spent, on what: totals, and rows by model, day, project, session, tag or whatever else is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from itertools import groupby
from typing import Any, NamedTuple

from burnd.contract.reports import SummaryParams
from burnd.index.sums import MEASURES
from burnd.queries import agents, dimensions
from burnd.queries.dimensions import Dimension
from burnd.queries.quality import Outcomes, in_all, outcomes, quality
from burnd.queries.selection import Chosen, choose
from burnd.queries.spent import unlogged_answer
from burnd.queries.sums import Parts, Reader
from burnd.queries.tally import Tally
from burnd.queries.view import Mistaken, View
from burnd.records.times import to_iso

_FEW = 2000
_EMPTIES = MEASURES.index("empties")


class Added(NamedTuple):
    """What rows of the index come to. Of very many keys `by_key` may have only those that may be shown."""

    total: Tally
    unlogged: Tally
    by_key: dict[Hashable, Tally]
    unpriced: list[str]
    by_harness: list[str]  # models whose cost is the harness's figure
    unlogged_models: list[str]
    keys: int  # that there are


def summary(view: View, params: SummaryParams) -> dict[str, Any]:
    """The answer of the method `summary`."""
    by = dimensions.split(params.by)
    if params.tree and params.by != "agent":
        raise Mistaken("only agents form a tree", "use by agent with tree")
    chosen = choose(view, params, dimensions.tag_keys(by))
    dimension = dimensions.dimension(view, by, chosen.selection)
    reader = Reader(view, chosen.selection, chosen.kinds)
    added = add_up(reader.read(dimension.by), chosen, dimension)
    branches = agents.tree(added.by_key, agents.parents(view, chosen, reader)) if params.tree else []
    if params.tree:
        added = added._replace(by_key={branch.key: branch.own for branch in branches}, keys=len(branches))
    order = [branch.key for branch in branches[: params.limit]] or _ordered(added, dimension, params.limit)
    ended = outcomes(view, reader, chosen, dimension) if params.quality else None
    answer: dict[str, Any] = {
        "filters": chosen.said,
        "totals": added.total.answer(),
        "unpricedModels": added.unpriced,
        "harnessModels": added.by_harness,
        "unlogged": unlogged(added),
        "by": params.by,
        "rows": _rows(added, dimension, ended, order),
        "moreRows": added.keys - len(order),
        "newest": _newest(view),
    }
    if ended is not None:
        answer["quality"] = quality(added.total, in_all(ended.values()))
    if params.tree:
        answer["rows"] = [row | branch.answer() for row, branch in zip(answer["rows"], branches, strict=False)]
    if params.series:
        answer["series"] = _series(view, reader, chosen)
    return answer


def add_up(rows: Iterable[Parts], chosen: Chosen, dimension: Dimension) -> Added:
    """Sums by the dimension's labels. What no turn accounts for is kept apart from what turns say."""
    by_key: defaultdict[Hashable, Tally] = defaultdict(Tally)
    beyond = Tally()
    unpriced: set[str] = set()
    by_harness: set[str] = set()
    unlogged_models: set[str] = set()
    kinds, label = chosen.kinds, dimension.label
    for keys, number, tier, counts in rows:
        kind = kinds[number]
        if kind.is_unlogged:
            beyond.add(kind, tier, counts)
            unlogged_models.add(kind.model)
            continue
        by_key[label(keys, kind)].add(kind, tier, counts)
        if kind.price is None and counts[0] > counts[_EMPTIES]:
            (by_harness if kind.is_stated else unpriced).add(kind.model)
    # What was revised away may leave a row with nothing in it.
    kept = {key: tally for key, tally in by_key.items() if not tally.is_nothing}
    total = Tally.over(kept.values())
    return Added(total, beyond, kept, sorted(unpriced), sorted(by_harness), sorted(unlogged_models), len(kept))


def _ordered(added: Added, dimension: Dimension, limit: int) -> list[Any]:
    """Which rows are shown: the newest in the order of time, else those that cost most."""
    ranks: dict[Any, Any] = {key: _by_cost(tally) for key, tally in added.by_key.items()}
    if dimension.is_time:
        ranks = {key: (dimension.time_of(key), rank) for key, rank in ranks.items()}
    shown: list[Any] = []
    for _, equals in groupby(sorted(ranks, key=ranks.__getitem__), key=ranks.__getitem__):
        if len(shown) >= limit and not dimension.is_time:
            break
        shown += _by_name(list(equals), dimension)
    return shown[-limit:] if dimension.is_time else shown[:limit]


def _by_name(keys: list[Any], dimension: Dimension) -> list[Any]:
    """What weighs the same, by its names: numbers go by what was read first. Very many stay as they are."""
    if not 1 < len(keys) <= _FEW:
        return keys
    names = {key: (named["key"] is None, str(named)) for key, named in zip(keys, dimension.named(keys), strict=True)}
    return sorted(keys, key=names.__getitem__)


def _rows(
    added: Added, dimension: Dimension, ended: dict[Hashable, Outcomes] | None, keys: list[Any]
) -> list[dict[str, Any]]:
    whole = added.total.units
    rows = []
    for key, named in zip(keys, dimension.named(keys), strict=True):
        tally = added.by_key[key]
        share = tally.units / whole if whole and tally.has_price else None
        row = {**named, **tally.answer(), "share": share}
        if ended is not None:
            row["quality"] = quality(tally, ended.get(key))
        rows.append(row)
    return rows


def _by_cost(tally: Tally) -> tuple[int, int, int]:
    return -tally.units, -tally.turns, -tally.empty


def unlogged(added: Added) -> dict[str, Any] | None:
    """Unlogged usage of the rows in the summary."""
    return unlogged_answer(added.unlogged, added.unlogged_models)


def _series(view: View, reader: Reader, chosen: Chosen) -> list[dict[str, Any]]:
    """Turns and cost by day, for small charts."""
    days = dimensions.dimension(view, ["day"], chosen.selection)
    by_day: dict[Any, Tally] = add_up(reader.read(days.by), chosen, days).by_key
    order = sorted(by_day)
    return [
        {**named, "turns": by_day[key].turns, "costUsd": by_day[key].cost_usd}
        for key, named in zip(order, days.named(order), strict=True)
    ]


def _newest(view: View) -> str | None:
    """When the newest turn of all was, whatever the filters."""
    found = view.rows("SELECT max(ts) FROM turns")
    return to_iso(found[0][0]) if found[0][0] is not None else None
