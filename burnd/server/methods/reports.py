"""Questions to the index, one line each: the parameters, and the function that answers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from burnd.queries import compare, export, pricing, summary
from burnd.queries.view import Params, View
from burnd.server.method import AnyMethod, Method, Result, at_its_prices, query


def _of_money(params: type[Params], function: Callable[[View, Any], Result]) -> Method:
    return query(params, lambda view, given: at_its_prices(view, function(view, given)))


METHODS: dict[str, AnyMethod] = {
    "summary": _of_money(summary.SummaryParams, summary.summary),
    "compare": _of_money(compare.CompareParams, compare.compare),
    "export": _of_money(export.ExportParams, export.export),
    "pricing.show": _of_money(pricing.PricingParams, pricing.show),
}
