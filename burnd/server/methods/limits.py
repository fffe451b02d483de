"""A plan's windows and budgets: what was used, what its provider said, and the few numbers of a status line."""

from __future__ import annotations

from typing import cast

from burnd.contract.reports import MOST_READINGS, LimitsParams, QuotaParams, StatuslineParams
from burnd.queries.limits import limits
from burnd.queries.statusline import statusline
from burnd.queries.view import Refusal
from burnd.records import Quota
from burnd.records.session import Window
from burnd.records.times import canonical, to_iso
from burnd.server.method import AnyMethod, Method, Result, at_its_prices
from burnd.server.service import Service


async def show_limits(service: Service, params: LimitsParams) -> Result:
    budgets = service.settings.budgets
    return await service.ask(lambda view: at_its_prices(view, limits(view, params, budgets)))


async def show_statusline(service: Service, params: StatuslineParams) -> Result:
    budgets = service.settings.budgets
    return await service.ask(lambda view: statusline(view, params, budgets))


async def quota(service: Service, params: QuotaParams) -> Result:
    """Taken when it returns, and recorded in a moment: only what raises what is known of a window is kept."""
    if len(params.readings) > MOST_READINGS:
        raise Refusal(f"at most {MOST_READINGS} readings at once")
    ts = to_iso(service.now()) if params.ts is None else _time(params.ts, "ts")
    readings = [
        Quota(
            ts=ts,
            source=params.source,
            window=cast("Window", reading.window),
            used_percent=reading.used_percent,
            resets_at=None if reading.resets_at is None else _time(reading.resets_at, "resetsAt"),
        )
        for reading in params.readings
    ]
    service.quotas.enqueue(readings)
    return {"taken": len(readings)}


def _time(text: str, name: str) -> str:
    try:
        return canonical(text)
    except ValueError:
        raise Refusal(f"{name} is not an ISO time", "for example 2026-11-16T09:30:00Z") from None


METHODS: tuple[AnyMethod, ...] = (
    Method(LimitsParams, show_limits),
    Method(StatuslineParams, show_statusline),
    Method(QuotaParams, quota),
)
