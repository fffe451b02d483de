"""Limits: the current window of a plan with its pace, projection and what filled it, and earlier windows.

A window starts with the first request after the last one ended. Claude's windows start at the full hour before that;
the reset time in a reading of the account overrides the estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from burnd.attribution.cause_keys import NAMED_CAUSES, TOOL
from burnd.contract.reports import LimitsParams
from burnd.queries import dimensions, names
from burnd.queries.bills import group_of
from burnd.queries.money import CauseSum, Tally, TurnClasses, classes_of, tallied
from burnd.queries.periods import Stretch
from burnd.queries.selection import Selection
from burnd.queries.spending import Spending, budget_uses
from burnd.queries.sums import CauseReader, Reader
from burnd.queries.view import View
from burnd.records.times import HOUR_MS, to_iso

LENGTHS: dict[str, int] = {"5h": 5 * HOUR_MS, "7d": 7 * 24 * HOUR_MS}
SAME_RESET_MS = 120_000  # two readings of one window may differ by a rounded minute

_EARLIEST = -(1 << 62)

Basis = Literal["reported", "counted"]
NextTurn = Callable[[int], int | None]


class Window(NamedTuple):
    """`reported` if the provider gave the end."""

    begin: int
    end: int
    basis: Basis


def reported(resets: Iterable[int], length: int) -> list[Window]:
    """A window that was reported to end later is cut by the next one."""
    windows: list[Window] = []
    for end in sorted(resets):
        if windows and end - windows[-1].end <= SAME_RESET_MS:
            continue
        begin = max(end - length, windows[-1].end if windows else end - length)
        windows.append(Window(begin, end, "reported"))
    return windows


def windows(next_turn: NextTurn, reported: list[Window], length: int, since: int = _EARLIEST) -> Iterator[Window]:
    """Every window with a turn, in order; `next_turn(t)` is the first turn at or after t.

    No window continues past `since`, the end of a reported window.
    """
    ahead = list(reported)
    at = next_turn(since)
    free_from = since
    while at is not None:
        while ahead and ahead[0].end <= at:
            free_from = max(free_from, ahead.pop(0).end)
        window = _holding(at, ahead[0] if ahead else None, free_from, length)
        yield window
        free_from = window.end
        at = next_turn(window.end)


def _holding(at: int, coming: Window | None, free_from: int, length: int) -> Window:
    """The window of the turn at `at`, given the next reported one."""
    if coming is not None and coming.begin <= at:
        return coming
    begin = max(at - at % HOUR_MS, free_from)
    end = begin + length
    # Windows never overlap: an estimated one ends when a reported one starts.
    return Window(begin, min(end, coming.begin) if coming is not None else end, "counted")


class QuotaReading(NamedTuple):
    ts: int
    percent: float
    resets_at: int | None


class QuotaAccount:
    def __init__(self, view: View, source: str) -> None:
        self._view = view
        rows = view.rows("SELECT id FROM names WHERE name = ?", (source,))
        self._source: int | None = rows[0][0] if rows else None

    def windows(self, name: str) -> list[Window]:
        return self._windows(name, -(1 << 62))

    def newest_windows(self, name: str) -> list[Window]:
        """Those that may be current, the last ended one, and those that may have cut them."""
        now = self._view.now
        ((over,),) = self._view.rows(_LAST_OVER, (self._source, name, now))
        return self._windows(name, (now if over is None else over) - 2 * LENGTHS[name])

    def _windows(self, name: str, since: int) -> list[Window]:
        here = (self._source, name)
        rows = self._view.rows(_RESETS, (*here, since, *here))
        return reported([row[0] for row in rows], LENGTHS[name])

    def has_readings(self, name: str) -> bool:
        return bool(self._view.rows(f"SELECT 1 {_OF} LIMIT 1", (self._source, name)))

    def about(self, name: str, window: Window) -> list[QuotaReading]:
        """The readings with the window's reset, and those without a reset."""
        here = (self._source, name)
        rows = self._view.rows(_NAMED, (*here, window.end - SAME_RESET_MS, window.end + SAME_RESET_MS))
        rows += self._view.rows(_UNNAMED, (*here, window.begin, window.end))
        return [QuotaReading(ts, percent, resets_at) for ts, _, percent, resets_at in sorted(rows)]

    def peaks(self, name: str, windows: Sequence[Window]) -> list[QuotaReading | None]:
        """The highest reading of each window: use never falls within one, but an idle session shows an old figure."""
        bounds = msgspec.json.encode([(window.begin, window.end) for window in windows]).decode()
        peaks: list[QuotaReading | None] = [None] * len(windows)
        for number, ts, percent, resets_at in self._view.rows(_PEAKS, (self._source, name, bounds)):
            before = peaks[number]
            if before is None or (percent, -ts) > (before.percent, -before.ts):
                peaks[number] = QuotaReading(ts, percent, resets_at)
        return peaks


_OF = "FROM quotas WHERE source = ? AND window = ?"
_LAST_OVER = f"SELECT max(resets_at) {_OF} AND resets_at <= ?"
_NEXT = f"SELECT min(resets_at) {_OF} AND resets_at >"
# Every reset, found by stepping from one to the next.
_RESETS = f"""
WITH RECURSIVE ends(at) AS (
  SELECT ({_NEXT} ?) UNION ALL SELECT ({_NEXT} ends.at) FROM ends WHERE ends.at IS NOT NULL
) SELECT at FROM ends WHERE at IS NOT NULL
"""
_READ = f"SELECT ts, position, used_percent, resets_at {_OF} AND "
_NAMED = _READ + "resets_at BETWEEN ? AND ?"
_UNNAMED = _READ + "resets_at IS NULL AND ts >= ? AND ts < ?"
_HIGHEST = "SELECT position FROM quotas WHERE source = ?1 AND window = ?2 AND"
_FIRST_OF = "ORDER BY used_percent DESC, ts, position LIMIT 1"
_PEAKS = f"""
WITH peaks(number, position) AS (
  SELECT w.key, ({_HIGHEST} resets_at BETWEEN (w.value ->> 1) - {SAME_RESET_MS} AND (w.value ->> 1) + {SAME_RESET_MS}
                 {_FIRST_OF}) FROM json_each(?3) w
  UNION ALL
  SELECT w.key, ({_HIGHEST} resets_at IS NULL AND ts >= w.value ->> 0 AND ts < w.value ->> 1 {_FIRST_OF})
  FROM json_each(?3) w)
SELECT p.number, q.ts, q.used_percent, q.resets_at FROM peaks p JOIN quotas q ON q.position = p.position
"""


_FULL = 100.0  # percent
_LEAST_PERCENT = 5.0  # below, a rounded reading is too coarse to estimate the cost
_PERCENT_WINDOWS = 30
_MOST_EXAMINED = 400
_MOST_REACHED = 20
_MOST_FILLED = 3
_STEPS = 7 * 24  # of a window, in which the time is found when its cost reached an amount


_SHORTEST_PACE = 20  # the pace is taken over at least a twentieth of the window
_MOST_READINGS = 500


def limits(
    view: View,
    params: LimitsParams,
    budgets: Mapping[str, Decimal] | None = None,
    dollars: Mapping[str, float] | None = None,
    ledger: Path | None = None,
) -> dict[str, Any]:
    """`dollars` are the plan's limits by window, if they are set. With `filled`, `ledger` is needed."""
    names.by_source(classes_of(view), params.source)
    plan = _PlanWindows(view, params.source)
    amounts = dollars or {}
    uses = [use.answer() for use in budget_uses(view, budgets or {})]
    return {
        "source": params.source,
        "now": to_iso(view.now),
        "windows": {
            name: plan.answer(name, params.history, amounts.get(name), ledger if params.filled else None)
            for name in LENGTHS
        },
        "budgets": uses,
        "crossed": [budget["period"] for budget in uses if budget["crossed"]],
    }


def running_window(view: View, source: str, name: str) -> dict[str, Any] | None:
    return _PlanWindows(view, source).running(name)


def running_quota(view: View, source: str, name: str) -> dict[str, Any] | None:
    """The highest reading of the current window, without summing turns."""
    account = QuotaAccount(view, source)
    window = next((one for one in account.newest_windows(name) if one.begin <= view.now < one.end), None)
    peak = account.peaks(name, [window])[0] if window is not None else None
    return None if peak is None else _quota(peak)


class _PlanWindows:
    def __init__(self, view: View, source: str) -> None:
        self._view = view
        self._source = source
        self._account = QuotaAccount(view, source)
        self._spending = Spending(view, source)
        self._classes = ",".join(map(str, sorted(self._spending.classes)))
        self._next = _NEXT_TURN.format(classes=self._classes, begin="?")

    def answer(self, name: str, history: int, limit: float | None, ledger: Path | None) -> dict[str, Any]:
        """The current window and earlier ones, and with a ledger what filled those that reached the limit.

        A window reached it if the account's reading is 100%, or the cost is the plan's amount in dollars.
        """
        current = self._current(name)
        reported_windows = self._account.windows(name)
        is_measured = limit is not None or self._account.has_readings(name)
        over = self._over(name, max(history, _MOST_EXAMINED if is_measured else 0), reported_windows)
        every = [*over, *([current] if current is not None else [])]
        peaks = dict(zip(every, self._account.peaks(name, every), strict=True))
        shown = over[-history:][::-1] if history else []
        examined = every[-_MOST_EXAMINED - (current is not None) :] if is_measured else []
        full = {window for window in examined if (peak := peaks[window]) is not None and peak.percent >= _FULL}
        read = [
            (Stretch(window.begin, min(window.end, peak.ts + 1)), peak.percent)  # without what came after the reading
            for window in examined
            if (peak := peaks[window]) is not None and peak.percent >= _LEAST_PERCENT
        ][-_PERCENT_WINDOWS:]
        billed = [Stretch(one.begin, one.end) for one in (*shown, *(full if limit is None else examined))]
        stretches = [*dict.fromkeys([*billed, *(span for span, _ in read)])]
        tallies = dict(zip(stretches, self._spending.within_each(stretches), strict=True))
        answer: dict[str, Any] = {
            "current": self._running(name, current) if current is not None else None,
            "history": [_shape(one, tallies[Stretch(one.begin, one.end)], peaks[one]) for one in shown],
        }
        if not is_measured and ledger is None:
            return answer
        used = {window: tallies[Stretch(window.begin, window.end)] for window in (full if limit is None else examined)}
        reached = [
            window
            for window in reversed(examined)
            if window in full or (limit is not None and (used[window].cost_usd or 0.0) >= limit)
        ]
        cost = sum(tallies[span].cost_usd or 0.0 for span, _ in read)
        per_percent = cost / sum(percent for _, percent in read) if cost else None
        answer |= {
            "limitUsd": limit,
            "reached": [
                self._reached(window, used[window], peaks[window] if window in full else None, limit)
                for window in reached[:_MOST_REACHED]
            ],
            "reachedCount": len(reached),
            "windowCount": len(examined),
            "usdPerPercent": per_percent if per_percent is not None or limit is None else limit / 100,
        }
        if ledger is not None:
            filled = [*([current] if current is not None else []), *reached]
            classes, own = classes_of(self._view), self._spending.classes
            answer["filled"] = [
                {"from": to_iso(one.begin), "to": to_iso(one.end)}
                | filled_by(self._view, ledger, classes, own, Stretch(one.begin, one.end))
                for one in dict.fromkeys(filled[:_MOST_FILLED])
            ]
        return answer

    def _reached(self, window: Window, used: Tally, peak: QuotaReading | None, limit: float | None) -> dict[str, Any]:
        """`at` is the first full reading, else the quarter of an hour, or hour of a week, in which the cost reached the
        amount.
        """
        at = window.begin if peak is None else peak.ts
        if peak is None:
            step = max((window.end - window.begin) // _STEPS, HOUR_MS // 4)
            steps = [Stretch(begin, min(begin + step, window.end)) for begin in range(window.begin, window.end, step)]
            costs = accumulate(tally.cost_usd or 0.0 for tally in self._spending.within_each(steps))
            at = next((one.begin for one, cost in zip(steps, costs, strict=True) if cost >= (limit or 0.0)), at)
        return {
            "from": to_iso(window.begin),
            "to": to_iso(window.end),
            "at": to_iso(at),
            "by": "dollars" if peak is None else "account",
            "turns": used.turns,
            "costUsd": used.cost_usd,
        }

    def running(self, name: str) -> dict[str, Any] | None:
        """A reported window counts even without turns in it."""
        current = self._current(name)
        return self._running(name, current) if current is not None else None

    def _current(self, name: str) -> Window | None:
        now = self._view.now
        newest = self._account.newest_windows(name)
        current = next((window for window in newest if window.begin <= now < window.end), None)
        if current is None:
            ends = [window.end for window in newest if window.end <= now]
            if newest:
                laid = self._laid_out(name, newest, ends[-1] if ends else None)
            else:
                laid = self._counted(LENGTHS[name], self._after_pause(LENGTHS[name]))
            current = next((window for window in laid if window.begin <= now < window.end), None)
        return current

    def _over(self, name: str, most: int, reported_windows: list[Window]) -> list[Window]:
        """The newest ended windows with turns, laid out from the latest reported end that gives enough."""
        if not most:
            return []
        ends = [window.end for window in reported_windows if window.end <= self._view.now]
        back = most
        while back < len(ends):
            laid = self._laid_out(name, reported_windows, ends[-back - 1])
            if len(over := self._ended(laid)) >= most:
                return over[-most:]
            back *= 4
        return self._ended(self._laid_out(name, reported_windows))[-most:]

    def _ended(self, laid: list[Window]) -> list[Window]:
        return [window for window in laid if window.end <= self._view.now]

    def _laid_out(self, name: str, reported_windows: list[Window], since: int | None = None) -> list[Window]:
        """`since` is the end of a reported window."""
        length = LENGTHS[name]
        if not reported_windows:
            return self._counted(length)
        options = {} if since is None else {"since": since}
        return list(windows(self._first_turn, reported_windows, length, **options))

    def _after_pause(self, length: int) -> int:
        """The first turn after the last pause as long as a window, which begins a window; 0 if none is near.

        Stepping from the first turn of a year would take 20 ms of a guard's answer.
        """
        if length > LENGTHS["5h"]:
            return 0
        times = self._view.rows(_RECENT.format(classes=self._classes), (self._view.now - _PAUSE_WITHIN_MS,))
        return next((ts for (before,), (ts,) in reversed([*pairwise(times)]) if ts - before >= length), 0)

    def _counted(self, length: int, since: int = 0) -> list[Window]:
        """Every window if none is reported, in one statement that steps from each to the next."""
        rows = self._view.rows(_CHAIN.format(classes=self._classes, length=length, since=since))
        begins = [ts - ts % HOUR_MS for (ts,) in rows]
        return [Window(begin, begin + length, "counted") for begin in begins]

    def _first_turn(self, ts: int) -> int | None:
        rows = self._view.rows(self._next, (ts,))
        return int(rows[0][0]) if rows else None

    def _running(self, name: str, window: Window) -> dict[str, Any]:
        now = self._view.now
        used = self._spending.within(window.begin, window.end)
        peak = self._account.peaks(name, [window])[0]
        readings = self._account.about(name, window)[-_MOST_READINGS:]
        first = self._first_turn(window.begin) if used.turns else None
        hours = None if first is None else max(now - first, _shortest_pace(window)) / HOUR_MS
        hours_left = (window.end - now) / HOUR_MS
        return {
            **_shape(window, used, peak),
            "firstTurn": None if first is None else to_iso(first),
            "secondsLeft": (window.end - now) // 1000,
            "pace": None if hours is None else _per_hour(used, hours),
            "projected": None if hours is None else _projected(used, 1 + hours_left / hours),
            "quota": None if peak is None else _quota(peak) | _quota_pace(window, peak),
            "readings": [{"ts": to_iso(r.ts), "usedPercent": r.percent} for r in readings],
        }


def _shortest_pace(window: Window) -> int:
    return (window.end - window.begin) // _SHORTEST_PACE


def _shape(window: Window, used: Tally, peak: QuotaReading | None) -> dict[str, Any]:
    return {
        "from": to_iso(window.begin),
        "to": to_iso(window.end),
        "basis": window.basis,
        **used.answer(),
        "quota": None if peak is None else _quota(peak),
    }


def _per_hour(used: Tally, hours: float) -> dict[str, Any]:
    cost = used.cost_usd
    return {
        "turnsPerHour": used.turns / hours,
        "tokensPerHour": sum(used.tokens) / hours,
        "usdPerHour": None if cost is None else cost / hours,
    }


def _projected(used: Tally, growth: float) -> dict[str, Any]:
    cost = used.cost_usd
    return {
        "turns": round(used.turns * growth),
        "tokens": round(sum(used.tokens) * growth),
        "costUsd": None if cost is None else cost * growth,
    }


def _quota_pace(window: Window, peak: QuotaReading) -> dict[str, Any]:
    """The quota at the window's end at this pace, and when it runs out if earlier."""
    elapsed = max(peak.ts - window.begin, _shortest_pace(window))
    rate = peak.percent / elapsed
    at_end = peak.percent + rate * max(window.end - peak.ts, 0)
    full = peak.ts + (100 - peak.percent) / rate if rate > 0 and peak.percent < 100 else None
    return {
        "percentPerHour": rate * HOUR_MS,
        "projectedPercent": at_end,
        "fullAt": to_iso(int(full)) if full is not None and full < window.end else None,
    }


def _quota(reading: QuotaReading) -> dict[str, Any]:
    return {
        "usedPercent": reading.percent,
        "seenAt": to_iso(reading.ts),
        "resetsAt": None if reading.resets_at is None else to_iso(reading.resets_at),
    }


_NEXT_TURN = """
SELECT ts FROM turns INDEXED BY turns_by_time WHERE ts >= {begin} AND class IN ({classes}) AND quality <> 'empty'
ORDER BY ts LIMIT 1
"""
_RECENT = """
SELECT ts FROM turns INDEXED BY turns_by_time WHERE ts >= ? AND class IN ({classes}) AND quality <> 'empty' ORDER BY ts
"""
_PAUSE_WITHIN_MS = 48 * HOUR_MS
# A window begins at the full hour of its first turn.
_CHAIN = f"""
WITH RECURSIVE window(ts) AS (
  SELECT ({_NEXT_TURN.format(begin="{since}", classes="{classes}")})
  UNION ALL
  SELECT ({_NEXT_TURN.format(begin=f"window.ts / {HOUR_MS} * {HOUR_MS} + {{length}}", classes="{classes}")})
  FROM window WHERE window.ts IS NOT NULL
) SELECT ts FROM window WHERE ts IS NOT NULL
"""


_MOST: Final = 5


def filled_by(
    view: View, ledger: Path, classes: TurnClasses, chosen: frozenset[int], stretch: Stretch
) -> dict[str, Any]:
    """The most expensive projects, sessions and groups of causes of a period, each with its share of the cost."""
    selection = Selection(begin=stretch.begin, end=stretch.end, classes=chosen)
    reader = Reader(view, selection, classes)
    answer: dict[str, Any] = {}
    whole = 0
    for name, by in (("projects", "project"), ("sessions", "session")):
        dimension = dimensions.dimension(view, [by], selection)
        sums = tallied(reader.read(dimension.by), classes, dimension.label)
        whole = sum(tally.units for tally in sums.values())
        first = sorted(sums, key=lambda key: (-sums[key].units, repr(key)))[:_MOST]
        answer[name] = [
            {**facts, "costUsd": sums[key].cost_usd, "share": _share(sums[key].units, whole)}
            for key, facts in zip(first, dimension.describe(first), strict=True)
        ]
    answer["causes"] = _causes(view, CauseReader(view, ledger, selection, reader), classes, whole)
    return answer


def _causes(view: View, causes: CauseReader, classes: TurnClasses, whole: int) -> list[dict[str, Any]]:
    groups: defaultdict[str, CauseSum] = defaultdict(CauseSum)
    rows = [*causes.read(TOOL)]
    keys = {number: key for number, *key in view.keyed(_WINDOW_FILL_NAMED, sorted({(row.cause,) for row in rows}))}
    for row in rows:
        kind, tool, *_ = keys[row.cause]
        groups[group_of(kind, tool, None)].add(classes[row.turn_class], row.counts)
    first = sorted(groups, key=lambda key: (-groups[key].units, key))[:_MOST]
    return [
        {"key": key, "costUsd": groups[key].cost_usd, "share": _share(groups[key].units, whole)}
        for key in first
        if groups[key]
    ]


def _share(units: int, whole: int) -> float | None:
    return units / whole if whole else None


_WINDOW_FILL_NAMED: Final = NAMED_CAUSES + "WHERE c.id IN ({keys})"
