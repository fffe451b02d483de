"""Methods of reports: sums, causes, waste, the flow of a session, limits and the status line."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from burnd.attribution import saved_findings
from burnd.attribution.saved_findings import Family, sizes_of
from burnd.contract import Params
from burnd.contract.reports import (
    MOST_READINGS,
    ByToolParams,
    ChangesParams,
    CompareParams,
    ExportParams,
    Filters,
    FlowParams,
    HotspotsParams,
    LimitsParams,
    OverheadParams,
    PricingParams,
    QuotaParams,
    StatuslineParams,
    SummaryParams,
    WasteParams,
    WhyParams,
)
from burnd.errors import StorageError
from burnd.queries import changes, compare, export, spending, summary, waste
from burnd.queries.compare import release_changes
from burnd.queries.flow import flow
from burnd.queries.hotspots import hotspots
from burnd.queries.limits import limits
from burnd.queries.quotes import Quotes, name_sessions
from burnd.queries.selection import choose
from burnd.queries.status import statusline
from burnd.queries.view import Refusal, View
from burnd.queries.why import why
from burnd.records import Quota
from burnd.records.session import Window
from burnd.records.times import canonical, to_iso
from burnd.server.method import AnyMethod, Caller, LongMethod, Method, Result, at_its_prices, query
from burnd.server.service import Service

_PORTION_S: Final = 60.0  # a session may be very long
_SETTLED_S: Final = 2.0
_MOST_NAMED: Final = 200  # rows


async def summarize(service: Service, params: SummaryParams) -> Result:
    """May read content, to name sessions by their first prompt."""
    recall = service.search_indexer.recall

    def answer(view: View) -> Result:
        result = summary.summary(view, params)
        if "session" in params.by.split(","):
            name_sessions(view, recall, result["rows"][:_MOST_NAMED])
        return at_its_prices(view, result)

    return await service.ask(answer, project=params.project, totals=params.is_of_totals)


async def explain(service: Service, params: WhyParams) -> Result:
    """May read content, to quote it."""
    ledger, recall = service.home.ledger, service.search_indexer.recall
    return await service.ask(lambda view: at_its_prices(view, why(view, ledger, recall, params)))


async def show_hotspots(service: Service, params: HotspotsParams) -> Result:
    """Waits briefly for the attribution of new turns. May read content, to quote prompts."""
    await service.explainer.settled(_SETTLED_S)
    ledger, recall = service.home.ledger, service.search_indexer.recall
    return await service.ask(
        lambda view: at_its_prices(view, hotspots(view, ledger, params, Quotes(view, recall))), project=params.project
    )


async def show_by_tool(service: Service, params: ByToolParams) -> Result:
    return await show_hotspots(service, HotspotsParams(by="tool", **vars(params)))


async def search_waste(service: Service, params: WasteParams, caller: Caller) -> Result:
    search = await _searched(service, params, caller, compared=True)
    recall, ledger = service.search_indexer.recall, service.home.ledger
    is_wanted = params.kind in (None, "release")
    if is_wanted:
        await service.explainer.settled(_SETTLED_S)

    def answer(view: View) -> Result:
        releases = release_changes(view, ledger, search.scope.in_view(view)) if is_wanted else []
        return at_its_prices(view, waste.answer(view, Quotes(view, recall), params, search) | {"releases": releases})

    return await service.ask(answer)


async def show_overhead(service: Service, params: OverheadParams, caller: Caller) -> Result:
    search = await _searched(service, params, caller, compared=False)
    return await service.ask(lambda view: at_its_prices(view, waste.overhead(view, search)))


async def show_flow(service: Service, params: FlowParams) -> Result:
    ledger, recall = service.home.ledger, service.search_indexer.recall

    def answer(view: View) -> Result:
        drawn = flow(view, ledger, params)
        name_sessions(view, recall, [drawn])
        return at_its_prices(view, drawn)

    return await service.ask(answer)


async def _searched(service: Service, filters: Filters, caller: Caller, *, compared: bool) -> waste.WasteFindings:
    """Searches sessions that changed since the last call. Starts again if the index is rebuilt meanwhile."""
    while True:
        generation = service.pipeline.generation
        await _write(service, generation, saved_findings.begin)
        plan = await service.ask(
            lambda view: waste.plan(view, choose(view, filters), compared=compared), project=filters.project
        )
        findings = await _findings(service, generation, plan, caller)
        if service.pipeline.generation == generation:
            return plan.findings(findings)


async def _findings(service: Service, generation: int, plan: waste.WastePlan, caller: Caller) -> dict[int, bytes]:
    """Findings by the root of each family."""
    ledger = service.home.ledger
    findings: dict[int, bytes] = {}
    done, total = 0, sum(family.turns for family in plan.every if family.saved is None)
    for some in plan.portions():
        if service.pipeline.generation != generation:
            break  # rows may be other sessions now

        def search(view: View, some: list[Family] = some) -> tuple[list[tuple[Family, bytes]], str]:
            return waste.examine(view, ledger, plan.scope, some), sizes_of(view.prices)

        families, sizes = await service.ask(search, within=_PORTION_S)
        await _write(service, generation, partial(saved_findings.save, families=families, sizes=sizes))
        findings |= {family.root: data for family, data in families}
        done += sum(family.turns for family in some)
        await caller.progress(done, total)
    return findings


async def _write(service: Service, generation: int, work: Callable[[sqlite3.Connection], None]) -> None:
    """No-op while the index is rebuilt or the disk is full."""
    if service.pipeline.status.rebuilding is None:
        with contextlib.suppress(StorageError):
            await service.pipeline.write_derived(generation, work)


async def export_turns(service: Service, params: ExportParams) -> Result:
    page = await service.ask(lambda view: at_its_prices(view, export.export(view, params)), project=params.project)
    return {"machine": await service.machine(), **page}


async def show_changes(service: Service, params: ChangesParams) -> Result:
    journal, ledger = service.pipeline.journal, service.home.ledger
    page = await service.ask(lambda view: changes.changes(view, ledger, params, journal.has_anchor), within=_PORTION_S)
    return {"machine": await service.machine(), **page}


async def show_limits(service: Service, params: LimitsParams) -> Result:
    """With `filled` may read content, to name sessions by their first prompt."""
    settings, ledger, recall = service.settings, service.home.ledger, service.search_indexer.recall
    if params.filled:
        await service.explainer.settled(_SETTLED_S)

    def answer(view: View) -> Result:
        result = limits(view, params, settings.budgets, settings.plan_dollars, ledger)
        for window in result["windows"].values():
            for filled in window.get("filled", ()):
                name_sessions(view, recall, filled["sessions"])
        return at_its_prices(view, result)

    return await service.ask(answer, totals=params.is_of_totals)


async def show_statusline(service: Service, params: StatuslineParams) -> Result:
    budgets = service.settings.budgets
    return await service.ask(lambda view: statusline(view, params, budgets), totals=True, urgent=True)


async def add_quota(service: Service, params: QuotaParams) -> Result:
    """Records only readings that raise the use of their window, soon after it returns."""
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


def _of_money(params: type[Params], function: Callable[[View, Any], Result]) -> Method:
    return query(params, lambda view, given: at_its_prices(view, function(view, given)))


METHODS: tuple[AnyMethod, ...] = (
    Method(SummaryParams, summarize),
    _of_money(CompareParams, compare.compare),
    Method(ExportParams, export_turns),
    Method(ChangesParams, show_changes),
    _of_money(PricingParams, spending.price_of_model),
    Method(WhyParams, explain),
    Method(HotspotsParams, show_hotspots),
    Method(ByToolParams, show_by_tool),
    LongMethod(WasteParams, search_waste),
    LongMethod(OverheadParams, show_overhead),
    Method(FlowParams, show_flow),
    Method(LimitsParams, show_limits),
    Method(StatuslineParams, show_statusline),
    Method(QuotaParams, add_quota),
)
