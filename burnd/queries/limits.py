"""A plan's windows: what the running one has used, where its pace leads, and the ones before it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from burnd.contract.reports import LimitsParams
from burnd.queries import naming
from burnd.queries.account import Account, Reading
from burnd.queries.budgets import standings
from burnd.queries.kinds import kinds_of
from burnd.queries.limit_windows import LENGTHS, Window, windows
from burnd.queries.periods import Stretch
from burnd.queries.spent import Spending
from burnd.queries.tally import Tally
from burnd.queries.view import View
from burnd.records.times import HOUR_MS, to_iso

_SHORTEST_PACE = 20  # a pace is taken over a twentieth of its window at least: a minute says nothing about hours
_MOST_READINGS = 500


def limits(view: View, params: LimitsParams, budgets: Mapping[str, Decimal] | None = None) -> dict[str, Any]:
    """Windows of five hours and of seven days, with what was recorded of the account beside what the ledger counted."""
    naming.by_source(kinds_of(view), params.source)
    plan = _Plan(view, params.source)
    found = [standing.answer() for standing in standings(view, budgets or {})]
    return {
        "source": params.source,
        "now": to_iso(view.now),
        "windows": {name: plan.shown(name, params.history) for name in LENGTHS},
        "budgets": found,
        "crossed": [budget["period"] for budget in found if budget["crossed"]],
    }


def running_window(view: View, source: str, name: str) -> dict[str, Any] | None:
    """The window of that length that runs now, where there is one."""
    return _Plan(view, source).running(name)


def running_quota(view: View, source: str, name: str) -> dict[str, Any] | None:
    """The most that the account said of the window that runs now; nothing has to be counted for it."""
    account = Account(view, source)
    window = next((one for one in account.newest_windows(name) if one.begin <= view.now < one.end), None)
    peak = account.peaks(name, [window])[0] if window is not None else None
    return None if peak is None else _quota(peak)


class _Plan:
    """One source's windows: what its turns tell of them, and what its provider said."""

    def __init__(self, view: View, source: str) -> None:
        self._view = view
        self._source = source
        self._account = Account(view, source)
        self._spending = Spending(view, source)
        self._kinds = ",".join(map(str, sorted(self._spending.kinds)))
        self._next = _NEXT_TURN.format(kinds=self._kinds, begin="?")

    def shown(self, name: str, history: int) -> dict[str, Any]:
        over = self._over(name, history)[::-1] if history else []
        spent = self._spending.within_each([Stretch(window.begin, window.end) for window in over])
        peaks = self._account.peaks(name, over)
        return {"current": self.running(name), "history": [*map(_shape, over, spent, peaks)]}

    def running(self, name: str) -> dict[str, Any] | None:
        """The account's own word counts, even where the ledger has no turn in its window."""
        now = self._view.now
        known = self._account.newest_windows(name)
        found = next((window for window in known if window.begin <= now < window.end), None)
        if found is None:
            ends = [window.end for window in known if window.end <= now]
            laid = self._laid_out(name, known, ends[-1] if ends else None)
            found = next((window for window in laid if window.begin <= now < window.end), None)
        return self._running(name, found) if found is not None else None

    def _over(self, name: str, most: int) -> list[Window]:
        """The newest of the windows that held a turn and are over, from as late a known one on as gives so many."""
        known = self._account.windows(name)
        ends = [window.end for window in known if window.end <= self._view.now]
        back = most
        while back < len(ends):
            laid = self._laid_out(name, known, ends[-back - 1])
            if len(over := self._ended(laid)) >= most:
                return over[-most:]
            back *= 4
        return self._ended(self._laid_out(name, known))[-most:]

    def _ended(self, laid: list[Window]) -> list[Window]:
        return [window for window in laid if window.end <= self._view.now]

    def _laid_out(self, name: str, known: list[Window], since: int | None = None) -> list[Window]:
        """Every window that holds a turn; `since` is the end of a known one."""
        length = LENGTHS[name]
        if not known:
            return self._counted(length)
        begun = {} if since is None else {"since": since}
        return list(windows(self._first_turn, known, length, **begun))

    def _counted(self, length: int) -> list[Window]:
        """Every window where nothing was reported, in one statement that jumps from each to the next."""
        rows = self._view.rows(_CHAIN.format(kinds=self._kinds, length=length))
        begins = [ts - ts % HOUR_MS for (ts,) in rows]
        return [Window(begin, begin + length, "counted") for begin in begins]

    def _first_turn(self, ts: int) -> int | None:
        """The time of the first turn at or after that time."""
        found = self._view.rows(self._next, (ts,))
        return int(found[0][0]) if found else None

    def _running(self, name: str, window: Window) -> dict[str, Any]:
        """The window that runs now, with its pace and where that leads."""
        now = self._view.now
        used = self._spending.within(window.begin, window.end)
        peak = self._account.peaks(name, [window])[0]
        readings = self._account.about(name, window)[-_MOST_READINGS:]
        first = self._first_turn(window.begin) if used.turns else None
        hours = None if first is None else max(now - first, _shortest_pace(window)) / HOUR_MS
        left = (window.end - now) / HOUR_MS
        return {
            **_shape(window, used, peak),
            "firstTurn": None if first is None else to_iso(first),
            "secondsLeft": (window.end - now) // 1000,
            "pace": None if hours is None else _per_hour(used, hours),
            "projected": None if hours is None else _projected(used, 1 + left / hours),
            "quota": None if peak is None else _quota(peak) | _quota_pace(window, peak),
            "readings": [{"ts": to_iso(r.ts), "usedPercent": r.percent} for r in readings],
        }


def _shortest_pace(window: Window) -> int:
    return (window.end - window.begin) // _SHORTEST_PACE


def _shape(window: Window, used: Tally, peak: Reading | None) -> dict[str, Any]:
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
    """What the window will have come to at its end if it goes on like this."""
    cost = used.cost_usd
    return {
        "turns": round(used.turns * growth),
        "tokens": round(sum(used.tokens) * growth),
        "costUsd": None if cost is None else cost * growth,
    }


def _quota_pace(window: Window, peak: Reading) -> dict[str, Any]:
    """Where the quota stands at the window's end, and when it runs out if that is before."""
    elapsed = max(peak.ts - window.begin, _shortest_pace(window))
    rate = peak.percent / elapsed
    at_end = peak.percent + rate * max(window.end - peak.ts, 0)
    full = peak.ts + (100 - peak.percent) / rate if rate > 0 and peak.percent < 100 else None
    return {
        "percentPerHour": rate * HOUR_MS,
        "projectedPercent": at_end,
        "fullAt": to_iso(int(full)) if full is not None and full < window.end else None,
    }


def _quota(reading: Reading) -> dict[str, Any]:
    return {
        "usedPercent": reading.percent,
        "seenAt": to_iso(reading.ts),
        "resetsAt": None if reading.resets_at is None else to_iso(reading.resets_at),
    }


_NEXT_TURN = """
SELECT ts FROM turns INDEXED BY turns_by_time WHERE ts >= {begin} AND class IN ({kinds}) AND quality <> 'empty'
ORDER BY ts LIMIT 1
"""
# A window begins at the full hour of its first turn.
_CHAIN = f"""
WITH RECURSIVE window(ts) AS (
  SELECT ({_NEXT_TURN.format(begin="0", kinds="{kinds}")})
  UNION ALL
  SELECT ({_NEXT_TURN.format(begin=f"window.ts / {HOUR_MS} * {HOUR_MS} + {{length}}", kinds="{kinds}")})
  FROM window WHERE window.ts IS NOT NULL
) SELECT ts FROM window WHERE ts IS NOT NULL
"""
