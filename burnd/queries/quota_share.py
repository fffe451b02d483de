"""How much of a plan's quota falls to what: what windows filled up in a time is shared out by what turns cost in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from burnd.index.grains import SHIFT_MS
from burnd.queries.kinds import Kind
from burnd.queries.limit_windows import SAME_RESET_MS
from burnd.queries.selection import Chosen, Selection
from burnd.queries.sums import By, Reader
from burnd.queries.tally import tallied
from burnd.queries.view import View
from burnd.records.times import DAY_MS

MOST_DAYS = 31


class Peak(NamedTuple):
    """The most that was told of a window before the time that counts (0) or in it (1)."""

    resets_at: int | None
    part: int
    ts: int
    percent: float


def quota_shares(
    view: View, chosen: Chosen, by: By, label: Callable[[tuple[Any, ...], Kind], Hashable]
) -> dict[Hashable, float]:
    """The share of the quota that was used up, by label, over the newest days that have readings; empty without any."""
    time = _time_with_readings(view, chosen.selection)
    filled = _filled(view, *time) if time is not None else {}
    if time is None or not filled:
        return {}
    begin, end = time
    whole = _costs(view, chosen, Selection(begin=begin, end=end), By(), lambda _, kind: kind.source)
    span = chosen.selection._replace(begin=begin, end=end)
    parts = _costs(view, chosen, span, by, lambda keys, kind: (label(keys, kind), kind.source))
    used: defaultdict[Hashable, float] = defaultdict(float)
    for (name, source), units in parts.items():
        if units and source in filled:
            used[name] += filled[source] * (units / whole[source])
    total = sum(filled.values())
    return {name: points / total for name, points in used.items()}


def _time_with_readings(view: View, selection: Selection) -> tuple[int, int] | None:
    """What is selected of the newest days that have any."""
    begin, end = selection.begin or -(1 << 62), selection.end or 1 << 62
    days = [row[0] for row in view.rows(_DAYS, (begin, end, begin))]
    if not days:
        return None
    first, last = min(days) * DAY_MS - SHIFT_MS, (max(days) + 1) * DAY_MS - SHIFT_MS
    return max(begin, first), min(end, last)


def _filled(view: View, begin: int, end: int) -> dict[str, float]:
    """By how many points the five-hour windows of each source filled up in that time."""
    peaks: defaultdict[str, list[Peak]] = defaultdict(list)
    # From a day before on: so windows that had begun are known with what they had used until then.
    for source, *peak in view.rows(_PEAKS, (begin, begin - DAY_MS, end)):
        peaks[source].append(Peak(*peak))
    points = {source: _points(own) for source, own in peaks.items()}
    return {source: filled for source, filled in points.items() if filled > 0}


def _points(peaks: Iterable[Peak]) -> float:
    """What the peaks in the time that counts rise above those before them in the same window.

    Windows are told apart by their resets, to two minutes; of readings that name none, one that falls begins another.
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


def _costs(
    view: View, chosen: Chosen, selection: Selection, by: By, label: Callable[[Any, Kind], Hashable]
) -> dict[Any, int]:
    tallies = tallied(Reader(view, selection, chosen.kinds).read(by), chosen.kinds, label)
    return {name: tally.units for name, tally in tallies.items()}


# The newest days with readings, stepping from one to the one before.
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
