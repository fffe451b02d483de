"""Questions to the index, one line each: the parameters, and the function that answers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from burnd.contract import Params
from burnd.contract.reports import CompareParams, ExportParams, PricingParams, SummaryParams
from burnd.queries import compare, export, pricing, summary
from burnd.queries.view import View
from burnd.server.method import AnyMethod, Method, Result, at_its_prices, query


def _of_money(params: type[Params], function: Callable[[View, Any], Result]) -> Method:
    return query(params, lambda view, given: at_its_prices(view, function(view, given)))


METHODS: tuple[AnyMethod, ...] = (
    _of_money(SummaryParams, summary.summary),
    _of_money(CompareParams, compare.compare),
    _of_money(ExportParams, export.export),
    _of_money(PricingParams, pricing.show),
)
