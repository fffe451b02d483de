"""A plan's windows and budgets: what was used, what its provider said, and the few numbers of a status line."""

from __future__ import annotations

from burnd.harness.registry import USUAL
from burnd.queries.limits import LimitsParams, limits
from burnd.queries.statusline import StatuslineParams, statusline
from burnd.queries.view import Params, Refusal
from burnd.records import Quota
from burnd.records.session import Window
from burnd.records.times import canonical, to_iso
from burnd.server.method import AnyMethod, Method, Result, at_its_prices
from burnd.server.service import Service

_MOST_READINGS = 100


async def show_limits(service: Service, params: LimitsParams) -> Result:
    budgets = service.settings.budgets
    return await service.ask(lambda view: at_its_prices(view, limits(view, params, budgets)))


async def show_statusline(service: Service, params: StatuslineParams) -> Result:
    budgets = service.settings.budgets
    return await service.ask(lambda view: statusline(view, params, budgets))


class ReadingParams(Params, frozen=True):
    """How much of a window is used, in percent, and when it resets."""

    window: Window
    used_percent: float
    resets_at: str | None = None


class QuotaParams(Params, frozen=True):
    """Readings of an account's windows, as its provider gave them at `ts`; now, unless it is said."""

    readings: list[ReadingParams]
    source: str = USUAL
    ts: str | None = None


async def quota(service: Service, params: QuotaParams) -> Result:
    """Taken when it returns, and recorded in a moment: only what raises what is known of a window is kept."""
    if len(params.readings) > _MOST_READINGS:
        raise Refusal(f"at most {_MOST_READINGS} readings at once")
    ts = to_iso(service.now()) if params.ts is None else _time(params.ts, "ts")
    readings = [
        Quota(
            ts=ts,
            source=params.source,
            window=reading.window,
            used_percent=reading.used_percent,
            resets_at=None if reading.resets_at is None else _time(reading.resets_at, "resetsAt"),
        )
        for reading in params.readings
    ]
    service.quotas.hand_over(readings)
    return {"taken": len(readings)}


def _time(text: str, name: str) -> str:
    try:
        return canonical(text)
    except ValueError:
        raise Refusal(f"{name} is not an ISO time", "for example 2026-11-16T09:30:00Z") from None


METHODS: dict[str, AnyMethod] = {
    "limits": Method(LimitsParams, show_limits),
    "statusline": Method(StatuslineParams, show_statusline),
    "quota": Method(QuotaParams, quota),
}
