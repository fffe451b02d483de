"""How much of a plan's quota falls to what: what windows filled up on a day is shared out by that day's cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from datetime import UTC
from typing import Any

from burnd.index.rollup import SHIFT_MS
from burnd.queries.filters import Chosen
from burnd.queries.kinds import Kind
from burnd.queries.limit_windows import SAME_RESET_MS
from burnd.queries.reading import Reader
from burnd.queries.scanning import By
from burnd.queries.selection import Selection
from burnd.queries.tally import Tally
from burnd.queries.view import View
from burnd.records.times import DAY_MS

MOST_DAYS = 62
Rises = dict[tuple[str, int], float]


def quota_shares(
    view: View, chosen: Chosen, by: By, label: Callable[[tuple[Any, ...], Kind], Hashable]
) -> dict[Hashable, float]:
    """The share of the quota that was used up, by label, over the newest days that have readings; empty without any."""
    rises = _rises(view, chosen.selection)
    if not rises:
        return {}
    days = {day for _, day in rises}
    span = chosen.selection._replace(
        begin=max(chosen.selection.begin or min(days) * DAY_MS - SHIFT_MS, min(days) * DAY_MS - SHIFT_MS),
        end=min(chosen.selection.end or 1 << 62, (max(days) + 1) * DAY_MS - SHIFT_MS),
        zone=UTC,
    )
    everything = Selection(begin=span.begin, end=span.end)
    whole = _costs(view, chosen, everything, By(("time",), "day"), lambda keys, kind: (kind.source, keys[0]))
    timed = By((*by.keys, "time"), "day")
    parts = _costs(view, chosen, span, timed, lambda keys, kind: (label(keys[:-1], kind), kind.source, keys[-1]))
    used: defaultdict[Hashable, float] = defaultdict(float)
    for (name, source, day), units in parts.items():
        if units and (source, day) in rises:
            used[name] += rises[source, day] * (units / whole[source, day])
    total = sum(rises.values())
    return {name: points / total for name, points in used.items()}


def _rises(view: View, selection: Selection) -> Rises:
    """By how many points the five-hour windows of each source filled up on each day, as readings tell."""
    rows = view.rows(_READINGS, (selection.begin or -(1 << 62), selection.end or 1 << 62))
    by_day: defaultdict[tuple[str, int], float] = defaultdict(float)
    for source, readings in _by_source(rows).items():
        for day, points in _steps(readings):
            by_day[source, day] += points
    newest = sorted({day for _, day in by_day})[-MOST_DAYS:]
    return {key: points for key, points in by_day.items() if key[1] in newest and points > 0}


def _by_source(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[tuple[int, float, int | None]]]:
    grouped: defaultdict[str, list[tuple[int, float, int | None]]] = defaultdict(list)
    for source, ts, used, resets in rows:
        grouped[source].append((ts, used, resets))
    return grouped


def _steps(readings: list[tuple[int, float, int | None]]) -> Iterable[tuple[int, float]]:
    """(day, points) of every reading above the one before it in the same window."""
    before, window = 0.0, None
    for ts, used, resets in readings:
        is_same = abs(resets - window) <= SAME_RESET_MS if resets is not None and window is not None else used >= before
        if not is_same:
            before = 0.0
        if used > before:
            yield (ts + SHIFT_MS) // DAY_MS, used - before
        before, window = max(before, used), resets
    return


def _costs(
    view: View, chosen: Chosen, selection: Selection, by: By, label: Callable[[Any, Kind], Hashable]
) -> dict[Any, int]:
    tallies: defaultdict[Hashable, Tally] = defaultdict(Tally)
    width = len(by.keys)
    for row in Reader(view, selection, chosen.kinds).read(by):
        kind = chosen.kinds[row[width]]
        if not kind.is_unlogged:
            tallies[label(row[:width], kind)].add(kind, row[width + 1], row[width + 2 :])
    return {name: tally.units for name, tally in tallies.items()}


_READINGS = """
SELECT n.name, q.ts, q.used_percent, q.resets_at FROM quotas q JOIN names n ON n.id = q.source
WHERE q.window = '5h' AND q.ts >= ? AND q.ts < ? ORDER BY q.ts, q.position
"""
