"""Cost at API prices: price lists, lookup of model names, exact arithmetic."""

from __future__ import annotations

from burnd.pricing.cost import (
    SEARCH_UNITS,
    UNITS_PER_USD,
    Price,
    Rates,
    Tokens,
    cost,
    rates_over,
    search_units,
    terms_text,
    turn_cost,
    usd,
    usd_per_million,
)
from burnd.pricing.pricefile import PriceFileError
from burnd.pricing.table import PriceTable

__all__ = [
    "PriceTable",
    "Price",
    "Rates",
    "Tokens",
    "cost",
    "rates_over",
    "search_units",
    "terms_text",
    "turn_cost",
    "usd",
    "usd_per_million",
    "SEARCH_UNITS",
    "UNITS_PER_USD",
    "PriceFileError",
]
