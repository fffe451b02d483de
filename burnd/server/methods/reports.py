"""Questions to the index, one line each: the parameters, and the function that answers them."""

from __future__ import annotations

from burnd.queries import compare, export, pricing, summary
from burnd.server.method import AnyMethod, query

METHODS: dict[str, AnyMethod] = {
    "summary": query(summary.SummaryParams, summary.summary),
    "compare": query(compare.CompareParams, compare.compare),
    "export": query(export.ExportParams, export.export),
    "pricing.show": query(pricing.PricingParams, pricing.show),
}
