"""The few numbers of a status line, in one quick answer: a session, today, the running window, crossed budgets."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from burnd.contract.reports import StatuslineParams
from burnd.queries.budgets import period_of, standings
from burnd.queries.limits import running_quota, running_window
from burnd.queries.spent import Spending
from burnd.queries.tally import Tally
from burnd.queries.view import View


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
