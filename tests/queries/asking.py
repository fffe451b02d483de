"""Asks an index what its methods would be asked."""

from __future__ import annotations

from typing import Any

import msgspec

from burnd.index.store import IndexStore
from burnd.pricing import PriceTable
from burnd.queries.summary import SummaryParams, summary
from burnd.queries.view import View
from tests.make import START_MS

PRICES = PriceTable.load()
NOW = START_MS + 3_600_000


async def ask_summary(index: IndexStore, prices: PriceTable = PRICES, **params: Any) -> dict[str, Any]:
    """The answer as a client gets it, with parameters as a client sends them."""
    asked = msgspec.convert(params, SummaryParams)
    return await index.ask(lambda db: summary(View(db, prices, NOW), asked))
