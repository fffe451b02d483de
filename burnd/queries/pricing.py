"""The method `pricing`: the price of a model by context size and its list, or the reason why it has none."""

from __future__ import annotations

from typing import Any

from burnd import protocol
from burnd.contract.reports import PricingParams
from burnd.pricing import SEARCH_UNITS, Price, PriceTable, Rates, usd, usd_per_million
from burnd.pricing.names import LOCAL_PROVIDERS, provider_id
from burnd.queries.view import Mistaken, View


def show(view: View, params: PricingParams) -> dict[str, Any]:
    """The price used for turns of this model; `priced` is false without one."""
    if not params.model.strip():
        raise Mistaken("a model's name must not be empty")
    prices = view.prices
    price = prices.find(params.model, params.provider)
    answer = {
        "model": params.model,
        "provider": params.provider,
        "priced": price is not None,
        "lookedIn": prices.searched_providers(params.model, params.provider),
    }
    return answer | (_unpriced(prices, params) if price is None else _priced(prices, price))


def _priced(prices: PriceTable, price: Price) -> dict[str, Any]:
    origin = prices.origin(price)
    return {
        "found": {
            "provider": price.provider,
            "model": price.model,
            "list": origin.listing,
            "asOf": origin.as_of,
            "retiredAfter": price.retired_after,
        },
        "tiers": _tiers(price, price.standard),
        "fast": _tiers(price, price.fast),
        "searchUsd": float(usd(SEARCH_UNITS)),
    }


def _tiers(price: Price, rates: tuple[Rates, ...]) -> list[dict[str, Any]]:
    """Dollars per million tokens; a tier applies above `over` tokens of context."""
    sizes = (0, *price.thresholds)
    return [
        {"over": over, **{name: float(usd_per_million(rate)) for name, rate in zip(_KINDS, of_tier, strict=True)}}
        for over, of_tier in zip(sizes, rates, strict=True)
    ]


def _unpriced(prices: PriceTable, params: PricingParams) -> dict[str, Any]:
    sellers = prices.sellers(params.model)
    return {"reason": _reason(params, sellers), "soldBy": sellers, "near": prices.similar_names(params.model)}


def _reason(params: PricingParams, sellers: list[str]) -> str:
    if params.provider is None:
        return "its maker does not sell it, and no provider is named" if sellers else "no list has a model of this name"
    if provider_id(params.provider, ()) in LOCAL_PROVIDERS:
        return "it ran on your own machine"
    return "neither its provider nor its maker lists it"


_KINDS = protocol.USAGE_FIELDS
