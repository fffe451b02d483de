"""Counts of the daemon's data for `status`, and the figures of a status line."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from burnd.contract.reports import StatuslineParams
from burnd.queries.limits import running_quota, running_window
from burnd.queries.money import Tally
from burnd.queries.spending import Spending, budget_uses, period_of
from burnd.queries.view import View

SKIPPED_SHOWN = 20


class SkippedLine(NamedTuple):
    """A line of the ledger that could not be read."""

    position: int
    length: int
    reason: str
    kind: str


class Counts(NamedTuple):
    turns: int = 0  # in the ledger
    open_turns: int = 0
    sessions: int = 0
    stamps: int = 0
    sidecars: int = 0
    sidecar_bytes: int = 0
    uncounted: int = 0  # rails to be attributed
    skipped_lines: int = 0
    skipped: tuple[SkippedLine, ...] = ()


def count(view: View) -> Counts:
    """Fast for any size: each count scans a small index or a short table."""
    open_turns, unlogged = _one(view, _OPEN)
    (turns,) = _one(view, "SELECT count(*) FROM turns")
    sessions, sidecars, sidecar_bytes = _one(view, _SESSIONS)
    (stamps,) = _one(view, "SELECT count(*) FROM stamps")
    (uncounted,) = _one(view, "SELECT count(*) FROM changed")
    (skipped_lines,) = _one(view, "SELECT count(*) FROM skipped")
    first = view.rows("SELECT position, length, reason, kind FROM skipped ORDER BY position LIMIT ?", (SKIPPED_SHOWN,))
    return Counts(
        turns=turns - unlogged,
        open_turns=open_turns,
        sessions=sessions,
        stamps=stamps,
        sidecars=sidecars,
        sidecar_bytes=sidecar_bytes,
        uncounted=uncounted,
        skipped_lines=skipped_lines,
        skipped=tuple(SkippedLine(*row) for row in first),
    )


def _one(view: View, sql: str) -> tuple[Any, ...]:
    (row,) = view.rows(sql)
    return row


_OPEN = """
SELECT count(*), coalesce(sum(t.rev = 0), 0) FROM open_turns o JOIN turns t ON t.id = o.turn
"""
_SESSIONS = """
SELECT count(*), coalesce(sum(content_bytes > 0), 0), coalesce(sum(content_bytes), 0) FROM sessions
"""


def statusline(view: View, params: StatuslineParams, budgets: Mapping[str, Decimal] | None = None) -> dict[str, Any]:
    today = period_of("daily", view.now)
    spending = Spending(view)
    own = None if params.session is None else spending.of_session(params.session)
    window = running_window(view, params.source, "5h")
    return {
        "session": None if own is None or not own.turns else {"turns": own.turns, **_cost(own)},
        "today": _cost(spending.within(today.begin, today.end)),
        "window": None if window is None else {key: window[key] for key in _WINDOW_FIELDS},
        "weekQuota": running_quota(view, params.source, "7d"),
        "crossed": [one.period.name for one in budget_uses(view, budgets or {}) if one.crossed],
    }


def _cost(tally: Tally) -> dict[str, Any]:
    return {"costUsd": tally.cost_usd, "unpricedTurns": tally.unpriced}


_WINDOW_FIELDS = ("from", "to", "basis", "turns", "unpricedTurns", "costUsd", "secondsLeft", "quota")
