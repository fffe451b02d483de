"""Questions to the index, one line each: the parameters, and the function that answers them."""

from __future__ import annotations

from burnd.queries import compare, export, pricing, summary
from burnd.queries.why import WhyParams, why
from burnd.server.method import AnyMethod, Method, Result, query
from burnd.server.service import Service


async def explain(service: Service, params: WhyParams) -> Result:
    """May read what was said, for the rows it shows."""
    ledger, recall = service.home.ledger, service.searcher.recall
    return await service.ask(lambda view: why(view, ledger, recall, params))


METHODS: dict[str, AnyMethod] = {
    "summary": query(summary.SummaryParams, summary.summary),
    "compare": query(compare.CompareParams, compare.compare),
    "export": query(export.ExportParams, export.export),
    "why": Method(WhyParams, explain),
    "pricing.show": query(pricing.PricingParams, pricing.show),
}
