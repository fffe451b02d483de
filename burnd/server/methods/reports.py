"""Questions to the index, one line each: the parameters, and the function that answers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from burnd.queries import compare, export, pricing, summary
from burnd.queries.view import Params, View
from burnd.server.method import AnyMethod, Method, Result, query


def _of_money(params: type[Params], function: Callable[[View, Any], Result]) -> Method:
    """A question whose answer says so when the prices are not those of the user's own file."""

    def answer(view: View, given: Any) -> Result:
        problem = view.prices.problem
        return {**function(view, given), **({"pricesProblem": problem} if problem else {})}

    return query(params, answer)


METHODS: dict[str, AnyMethod] = {
    "summary": _of_money(summary.SummaryParams, summary.summary),
    "compare": _of_money(compare.CompareParams, compare.compare),
    "export": _of_money(export.ExportParams, export.export),
    "pricing.show": _of_money(pricing.PricingParams, pricing.show),
}
