"""A snapshot of a pipeline's index for a query, as in the daemon."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from burnd.pricing import PriceTable
from burnd.queries.view import View
from burnd.recording.pipeline import Pipeline
from burnd.records.times import to_ms

T = TypeVar("T")
PRICES = PriceTable.load()


async def look(pipeline: Pipeline, question: Callable[[View], T], now: str, prices: PriceTable = PRICES) -> T:
    """Runs a query at that time, in a worker thread, in one snapshot, without the daemon's limit of five seconds."""
    return await pipeline.index.ask(lambda db: question(View(db, prices, to_ms(now))), within=60.0)
