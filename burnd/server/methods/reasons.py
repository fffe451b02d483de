"""Why money was spent, over the socket: causes, waste, what sessions began with, and how one went."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from burnd.attribution import saved_findings
from burnd.attribution.saved_findings import Family, sizes_of
from burnd.contract.reports import (
    ByToolParams,
    Filters,
    FlowParams,
    HotspotsParams,
    OverheadParams,
    WasteParams,
    WhyParams,
)
from burnd.errors import StorageError
from burnd.queries import overhead, waste, waste_search
from burnd.queries.flow import flow
from burnd.queries.hotspots import hotspots
from burnd.queries.quotes import Quotes
from burnd.queries.selection import choose
from burnd.queries.view import View
from burnd.queries.why import why
from burnd.server.method import AnyMethod, Caller, LongMethod, Method, Result, at_its_prices
from burnd.server.service import Service

_PORTION_S: Final = 60.0  # one session may be very long
_SETTLED_S: Final = 2.0


async def explain(service: Service, params: WhyParams) -> Result:
    """May read what was said, for the rows it shows."""
    ledger, recall = service.home.ledger, service.search_indexer.recall
    return await service.ask(lambda view: at_its_prices(view, why(view, ledger, recall, params)))


async def show_hotspots(service: Service, params: HotspotsParams) -> Result:
    """Waits a moment for new turns to be explained; the answer has a row for those that are not by then.

    May read content, to quote the prompts of its rows.
    """
    await service.explainer.settled(_SETTLED_S)
    ledger, recall = service.home.ledger, service.search_indexer.recall
    return await service.ask(
        lambda view: at_its_prices(view, hotspots(view, ledger, params, Quotes(view, recall))), project=params.project
    )


async def show_by_tool(service: Service, params: ByToolParams) -> Result:
    return await show_hotspots(service, HotspotsParams(by="tool", **vars(params)))


async def look_for_waste(service: Service, params: WasteParams, caller: Caller) -> Result:
    seen = await _seen(service, params, caller, compared=True)
    recall = service.search_indexer.recall
    return await service.ask(lambda view: at_its_prices(view, waste.answer(view, Quotes(view, recall), params, seen)))


async def weigh_prefixes(service: Service, params: OverheadParams, caller: Caller) -> Result:
    seen = await _seen(service, params, caller, compared=False)
    return await service.ask(lambda view: at_its_prices(view, overhead.answer(view, seen)))


async def draw(service: Service, params: FlowParams) -> Result:
    ledger = service.home.ledger
    return await service.ask(lambda view: at_its_prices(view, flow(view, ledger, params)))


async def _seen(service: Service, filters: Filters, caller: Caller, *, compared: bool) -> waste_search.Seen:
    """Looks at what has changed since somebody last asked. An index that is made anew meanwhile is looked at again."""
    while True:
        generation = service.pipeline.generation
        await _write(service, generation, saved_findings.begin)
        plan = await service.ask(
            lambda view: waste_search.plan(view, choose(view, filters), compared=compared), project=filters.project
        )
        looked_at = await _looked_at(service, generation, plan, caller)
        if service.pipeline.generation == generation:
            return plan.seen(looked_at)


async def _looked_at(service: Service, generation: int, plan: waste_search.Plan, caller: Caller) -> dict[int, bytes]:
    """Portion by portion, and keeps what it finds: by the roots of families."""
    ledger = service.home.ledger
    looked_at: dict[int, bytes] = {}
    done, total = 0, sum(family.turns for family in plan.every if family.kept is None)
    for some in plan.portions():
        if service.pipeline.generation != generation:
            break  # rows are other sessions' now
        told = await service.ask(partial(_look, ledger, plan, some), within=_PORTION_S)
        await _write(service, generation, partial(saved_findings.keep, families=told.families, sizes=told.sizes))
        looked_at |= {family.root: found for family, found in told.families}
        done += sum(family.turns for family in some)
        await caller.progress(done, total)
    return looked_at


async def _write(service: Service, generation: int, work: Callable[[sqlite3.Connection], None]) -> None:
    """What cannot be kept now, while the index is made anew or the disk is full, is looked for again next time."""
    if service.pipeline.status.rebuilding is None:
        with contextlib.suppress(StorageError):
            await service.pipeline.derive(generation, work)


class _Told(NamedTuple):
    families: list[tuple[Family, bytes]]
    sizes: str


def _look(ledger: Path, plan: waste_search.Plan, some: list[Family], view: View) -> _Told:
    return _Told(waste_search.look(view, ledger, plan.chosen, some), sizes_of(view.prices))


METHODS: tuple[AnyMethod, ...] = (
    Method(WhyParams, explain),
    Method(HotspotsParams, show_hotspots),
    Method(ByToolParams, show_by_tool),
    LongMethod(WasteParams, look_for_waste),
    LongMethod(OverheadParams, weigh_prefixes),
    Method(FlowParams, draw),
)
