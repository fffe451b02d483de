"""Divides the cost of a plan's window by project, by session and by group of causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from burnd.attribution.cause_keys import NAMED_CAUSES, TOOL
from burnd.queries import dimensions
from burnd.queries.cause_names import group_of
from burnd.queries.cause_sums import CauseReader, CauseSum
from burnd.queries.periods import Stretch
from burnd.queries.selection import Selection
from burnd.queries.sums import Reader
from burnd.queries.tally import Kinds, tallied
from burnd.queries.view import View

_MOST: Final = 5


def filled_by(view: View, ledger: Path, kinds: Kinds, chosen: Iterable[int], stretch: Stretch) -> dict[str, Any]:
    """The most expensive projects, sessions and groups of causes of a period, each with its share of the cost."""
    selection = Selection(begin=stretch.begin, end=stretch.end, kinds=frozenset(chosen))
    reader = Reader(view, selection, kinds)
    answer: dict[str, Any] = {}
    whole = 0
    for name, by in (("projects", "project"), ("sessions", "session")):
        dimension = dimensions.dimension(view, [by], selection)
        sums = tallied(reader.read(dimension.by), kinds, dimension.label)
        whole = sum(tally.units for tally in sums.values())
        first = sorted(sums, key=lambda key: (-sums[key].units, repr(key)))[:_MOST]
        answer[name] = [
            {**facts, "costUsd": sums[key].cost_usd, "share": _share(sums[key].units, whole)}
            for key, facts in zip(first, dimension.describe(first), strict=True)
        ]
    answer["causes"] = _causes(view, CauseReader(view, ledger, selection, reader), kinds, whole)
    return answer


def _causes(view: View, causes: CauseReader, kinds: Kinds, whole: int) -> list[dict[str, Any]]:
    """Groups of causes as `why` has them."""
    groups: defaultdict[str, CauseSum] = defaultdict(CauseSum)
    rows = [*causes.read(TOOL)]
    keys = {number: key for number, *key in view.keyed(_NAMED, sorted({(row.cause,) for row in rows}))}
    for row in rows:
        kind, tool, *_ = keys[row.cause]
        groups[group_of(kind, tool, None)].add(kinds[row.kind], row.counts)
    first = sorted(groups, key=lambda key: (-groups[key].units, key))[:_MOST]
    return [
        {"key": key, "costUsd": groups[key].cost_usd, "share": _share(groups[key].units, whole)}
        for key in first
        if groups[key]
    ]


def _share(units: int, whole: int) -> float | None:
    return units / whole if whole else None


_NAMED: Final = NAMED_CAUSES + "WHERE c.id IN ({keys})"
