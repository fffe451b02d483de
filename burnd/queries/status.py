"""The state of the daemon's data, and the few numbers of a status line."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from burnd.contract.reports import StatuslineParams
from burnd.queries.limits import running_quota, running_window
from burnd.queries.spending import Spending, period_of, standings
from burnd.queries.tally import Tally
from burnd.queries.view import View

SKIPPED_SHOWN = 20


class Skipped(NamedTuple):
    """A line of the ledger that could not be used, by the bytes it takes."""

    position: int
    length: int
    reason: str
    kind: str


class Counts(NamedTuple):
    """How much there is of everything."""

    turns: int = 0  # in the ledger
    open_turns: int = 0
    sessions: int = 0
    stamps: int = 0
    sidecars: int = 0
    sidecar_bytes: int = 0
    uncounted: int = 0  # rails whose causes wait to be counted
    skipped_lines: int = 0
    skipped: tuple[Skipped, ...] = ()


def count(view: View) -> Counts:
    """Quick, however large the index is: every count walks an index of few bytes a row, or a short table."""
    open_turns, unlogged = _one(view, _OPEN)
    (shown,) = _one(view, "SELECT count(*) FROM turns")
    sessions, sidecars, sidecar_bytes = _one(view, _SESSIONS)
    (stamps,) = _one(view, "SELECT count(*) FROM stamps")
    (uncounted,) = _one(view, "SELECT count(*) FROM changed")
    (skipped_lines,) = _one(view, "SELECT count(*) FROM skipped")
    first = view.rows("SELECT position, length, reason, kind FROM skipped ORDER BY position LIMIT ?", (SKIPPED_SHOWN,))
    return Counts(
        turns=shown - unlogged,
        open_turns=open_turns,
        sessions=sessions,
        stamps=stamps,
        sidecars=sidecars,
        sidecar_bytes=sidecar_bytes,
        uncounted=uncounted,
        skipped_lines=skipped_lines,
        skipped=tuple(Skipped(*row) for row in first),
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
    """What a line under a prompt has room for."""
    today = period_of("daily", view.now)
    spending = Spending(view)
    own = None if params.session is None else spending.of_session(params.session)
    window = running_window(view, params.source, "5h")
    return {
        "session": None if own is None or not own.turns else {"turns": own.turns, **_spent(own)},
        "today": _spent(spending.within(today.begin, today.end)),
        "window": None if window is None else {key: window[key] for key in _SHOWN},
        "weekQuota": running_quota(view, params.source, "7d"),
        "crossed": [found.period.name for found in standings(view, budgets or {}) if found.crossed],
    }


def _spent(tally: Tally) -> dict[str, Any]:
    return {"costUsd": tally.cost_usd, "unpricedTurns": tally.unpriced}


_SHOWN = ("from", "to", "basis", "turns", "unpricedTurns", "costUsd", "secondsLeft", "quota")
