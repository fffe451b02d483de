"""Why money was spent, over the socket: causes, waste, what sessions began with, and how one went."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from burnd.causes import kept_waste
from burnd.causes.kept_waste import Family, sizes_of
from burnd.errors import StorageError
from burnd.queries import overhead, waste, waste_search
from burnd.queries.filters import Chosen, Filters, choose
from burnd.queries.flow import FlowParams, flow
from burnd.queries.hotspots import ByToolParams, HotspotsParams, hotspots
from burnd.queries.overhead import OverheadParams
from burnd.queries.quotes import Quotes
from burnd.queries.view import View
from burnd.queries.waste import WasteParams
from burnd.queries.why import WhyParams, why
from burnd.server.method import AnyMethod, Caller, LongMethod, Method, Result, at_its_prices
from burnd.server.service import Service

_PORTION_S: Final = 60.0  # one session may be very long
_SETTLED_S: Final = 2.0


async def explain(service: Service, params: WhyParams) -> Result:
    """May read what was said, for the rows it shows."""
    ledger, recall = service.home.ledger, service.search_indexer.recall
    return await service.ask(lambda view: at_its_prices(view, why(view, ledger, recall, params)))


async def show_hotspots(service: Service, params: HotspotsParams) -> Result:
    """Waits a moment for what has just landed to be counted; what is not by then is a row of the answer."""
    await service.explainer.settled(_SETTLED_S)
    ledger = service.home.ledger
    return await service.ask(lambda view: at_its_prices(view, hotspots(view, ledger, params)), project=params.project)


async def show_by_tool(service: Service, params: ByToolParams) -> Result:
    return await show_hotspots(service, params.by_tool())


async def look_for_waste(service: Service, params: WasteParams, caller: Caller) -> Result:
    params.check()
    found = await _found(service, params, caller)
    recall = service.search_indexer.recall
    return await service.ask(lambda view: at_its_prices(view, waste.answer(view, Quotes(view, recall), params, *found)))


async def weigh_prefixes(service: Service, params: OverheadParams, caller: Caller) -> Result:
    found = await _found(service, params, caller)
    return await service.ask(lambda view: at_its_prices(view, overhead.answer(view, *found)))


async def draw(service: Service, params: FlowParams) -> Result:
    ledger = service.home.ledger
    return await service.ask(lambda view: at_its_prices(view, flow(view, ledger, params)))


async def _found(service: Service, filters: Filters, caller: Caller) -> tuple[Chosen, list[waste_search.Found]]:
    """Looks at what has changed since somebody last asked. An index that is made anew meanwhile is looked at again."""
    while True:
        generation = service.pipeline.generation
        found = await _found_in(service, generation, filters, caller)
        if service.pipeline.generation == generation:
            return found


async def _found_in(
    service: Service, generation: int, filters: Filters, caller: Caller
) -> tuple[Chosen, list[waste_search.Found]]:
    """Portion by portion, and keeps what it finds."""
    ledger = service.home.ledger
    await _write(service, generation, kept_waste.begin)
    plan = await service.ask(lambda view: waste_search.plan(view, choose(view, filters)), project=filters.project)
    found = [family.kept for family in plan.families if family.kept is not None]
    done, total = 0, sum(family.turns for family in plan.families if family.kept is None)
    for some in plan.portions():
        if service.pipeline.generation != generation:
            break  # rows are other sessions' now
        told = await service.ask(partial(_look, ledger, plan, some), within=_PORTION_S)
        await _write(service, generation, partial(kept_waste.keep, told=told.families, sizes=told.sizes))
        found += [kept for _, kept in told.families]
        done += sum(family.turns for family in some)
        await caller.progress(done, total)
    return plan.chosen, [waste_search.decoded(kept) for kept in found]


async def _write(service: Service, generation: int, work: Callable[[sqlite3.Connection], None]) -> None:
    """What cannot be kept now, while the index is made anew or the disk is full, is looked for again next time."""
    if service.pipeline.pulse.rebuilding is None:
        with contextlib.suppress(StorageError):
            await service.pipeline.derive(generation, work)


class _Told(NamedTuple):
    families: list[tuple[Family, bytes]]
    sizes: str


def _look(ledger: Path, plan: waste_search.Plan, some: list[Family], view: View) -> _Told:
    return _Told(waste_search.look(view, ledger, plan.chosen, some), sizes_of(view.prices))


METHODS: dict[str, AnyMethod] = {
    "why": Method(WhyParams, explain),
    "hotspots": Method(HotspotsParams, show_hotspots),
    "by_tool": Method(ByToolParams, show_by_tool),
    "waste": LongMethod(WasteParams, look_for_waste),
    "overhead": LongMethod(OverheadParams, weigh_prefixes),
    "flow": Method(FlowParams, draw),
}
