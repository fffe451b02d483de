"""Answers reports without a daemon: a quick pass over all logs into an index in memory. Nothing is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import aiosqlite

from burnd.harness.quick_pass import QuickPass
from burnd.index import schema
from burnd.index.apply import Applier
from burnd.index.change import Change
from burnd.index.store import IndexStore
from burnd.ledger.journal import Logged
from burnd.pricing import PriceTable

_AT_ONCE = 5000


@asynccontextmanager
async def memory_index(quick_pass: QuickPass, prices: PriceTable) -> AsyncIterator[IndexStore]:
    """An index of what a quick pass found, for reports that need turns and unlogged usage only."""
    writer = await aiosqlite.connect(":memory:", isolation_level=None)
    try:
        await writer.executescript(schema.TABLES)
        store = IndexStore(Path(":memory:"), writer, [])
        store.prices = prices
        applier, position = Applier(store), count(1)
        batch = [(Logged(next(position), 0, entry), 0) for entry in quick_pass.facts()]
        for turn in quick_pass.turns():
            batch.append((Logged(next(position), 0, turn), 0))
            if len(batch) >= _AT_ONCE:
                await applier.apply(Change(logged=batch))
                batch = []
        await applier.apply(Change(logged=batch))
        yield store
    finally:
        await writer.close()
