"""Releases of a harness after which requests cost more, or missed the cache more often.

A release is compared with the one before it, for each model alone: other models have other prices. Both need enough
requests and sessions, since one long session would decide the figures otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from burnd.attribution.cause_keys import MISS
from burnd.pricing import UNITS_PER_USD
from burnd.queries.cause_sums import CauseReader
from burnd.queries.selection import Scope
from burnd.queries.sums import By, Reader
from burnd.queries.view import View

_LEAST_REQUESTS: Final = 200
_LEAST_SESSIONS: Final = 5
_COST_GROWTH: Final = 1.25
_MISS_GROWTH: Final = 1.5
_MISS_POINTS: Final = 0.02
_MISSES: Final = -2  # in the counts of causes


class ReleaseKey(NamedTuple):
    """A harness, a model and a release."""

    source: str
    model: str
    version: int


class ReleaseUse:
    """Requests of a release: their number, cost, sessions and cache misses."""

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
    """Releases after which requests cost a quarter more, or missed the cache half as often again and in 2 of 100 more;
    the most expensive first.
    """
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
    reader = Reader(view, scope.selection, scope.kinds)
    for (session, version), number, tier, counts in reader.read(By(("session", "version"))):
        kind = scope.kinds[number]
        if version and not kind.is_unlogged and not kind.is_open:
            use = uses[ReleaseKey(kind.source, kind.model, version)]
            use.requests += counts[0]
            use.units += kind.units(tier, counts) or 0
            use.sessions.add(session)
    if not any(use.is_enough for use in uses.values()):
        return {}
    for row in CauseReader(view, ledger, scope.selection, reader).read(MISS, By(("version",))):
        kind = scope.kinds[row.kind]
        key = ReleaseKey(kind.source, kind.model, row.keys[0])
        if key in uses:
            uses[key].misses += row.counts[_MISSES]
    return uses


def _order(version: str) -> tuple[int, ...] | None:
    """The numbers of a release; None if it has other parts."""
    numbers = version.split("-", 1)[0].split(".")
    return tuple(map(int, numbers)) if all(number.isdecimal() for number in numbers) else None


_NAMES = "SELECT id, name FROM names WHERE id IN ({keys})"
