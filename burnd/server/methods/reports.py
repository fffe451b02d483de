"""Questions to the index: mostly the parameters, and the function that answers them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from burnd.queries import compare, export, pricing, summary, wasting
from burnd.queries.filters import choose
from burnd.queries.quotes import Quotes
from burnd.queries.view import View
from burnd.queries.waste import WasteParams, answer
from burnd.queries.why import WhyParams, why
from burnd.server.method import AnyMethod, Caller, Method, Result, Telling, query
from burnd.server.service import Service

_PORTION_S: Final = 60.0  # one session may be very long


async def explain(service: Service, params: WhyParams) -> Result:
    """May read what was said, for the rows it shows."""
    ledger, recall = service.home.ledger, service.searcher.recall
    return await service.ask(lambda view: why(view, ledger, recall, params))


async def look_for_waste(service: Service, params: WasteParams, caller: Caller) -> Result:
    """Looks at what has changed since somebody last asked, portion by portion, and keeps what it finds."""
    params.check()
    index, ledger, recall = service.pipeline.index, service.home.ledger, service.searcher.recall
    await index.transact(wasting.begin)
    plan = await service.ask(lambda view: wasting.plan(view, choose(view, params)))
    found = [family.kept for family in plan.families if family.kept is not None]
    done, total = 0, sum(family.turns for family in plan.families if family.kept is None)
    for some in plan.portions():
        told = await service.ask(partial(_look, ledger, plan, some), within=_PORTION_S)
        await index.transact(partial(wasting.keep, told=told.families, sizes=told.sizes))
        found += [kept for _, kept in told.families]
        done += sum(family.turns for family in some)
        await caller.progress(done, total)
    decoded = [wasting.decoded(kept) for kept in found]
    return await service.ask(lambda view: answer(view, Quotes(view, recall), params, plan.chosen, decoded))


class _Told(NamedTuple):
    families: list[tuple[wasting.Family, bytes]]
    sizes: str


def _look(ledger: Path, plan: wasting.Plan, some: list[wasting.Family], view: View) -> _Told:
    return _Told(wasting.look(view, ledger, plan.chosen, some), wasting.sizes_of(view))


METHODS: dict[str, AnyMethod] = {
    "summary": query(summary.SummaryParams, summary.summary),
    "compare": query(compare.CompareParams, compare.compare),
    "export": query(export.ExportParams, export.export),
    "why": Method(WhyParams, explain),
    "waste": Telling(WasteParams, look_for_waste),
    "pricing.show": query(pricing.PricingParams, pricing.show),
}
