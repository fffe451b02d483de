"""Sums are exact with any prices, also with tiers that begin at new context sizes."""

from __future__ import annotations

import random
from operator import attrgetter

import msgspec

from burnd.pricing import PriceTable
from burnd.pricing.pricefile import UserLists
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Usage
from burnd.records.times import to_iso
from tests.conftest import Opened
from tests.dump import index_dump
from tests.folded import Folded
from tests.make import START_MS, turn
from tests.queries.asking import PRICES, ask_compare, ask_summary
from tests.queries.naive import Naive

OWN = PRICES.under(
    UserLists(
        own={
            "anthropic": {
                "claude-sonnet-4-5": {
                    "input": "3",
                    "output": "15",
                    "tiers": [{"over": 50_000, "input": "6", "output": "22.5"}, {"over": 123_456, "input": "7"}],
                }
            }
        },
        fetched={},
    )
)


async def filled(pipeline: Pipeline) -> None:
    rng = random.Random(3)
    sizes = [
        0,
        49_999,
        50_000,
        50_001,
        123_456,
        123_457,
        200_000,
        200_001,
        *(rng.randrange(250_000) for _ in range(40)),
    ]
    entries = [
        turn(
            f"m{n}",
            session_id=f"s{n % 3}",
            turn_index=n,
            ts=to_iso(START_MS + n * 47 * 60_000),
            model=rng.choice(("claude-sonnet-4-5", "gemini-2.5-pro")),
            usage=Usage(input=7, output=n, cache_read=max(0, size - 7)),
            project="/p",
            activity="coding",
        )
        for n, size in enumerate(sizes)
    ]
    await pipeline.commit(Batch(entries=list(entries)))


async def the_same(pipeline: Pipeline, prices: PriceTable) -> None:
    naive = Naive(Folded(pipeline.journal.read()), [], prices)
    for by in ("model", "day", "session", "activity"):
        for filters in ({}, {"session": "s1"}, {"activity": "coding", "since": START_MS + 1}):
            answer = await ask_summary(pipeline.index, prices, by=by, **filters)
            assert answer["totals"] == naive.summary(by, **filters)["totals"]


async def test_other_sizes_are_exact_before_and_after_sums_know_them(opened: Opened) -> None:
    """A user's price with its own tiers is exact at once, and after the sums were split."""
    pipeline = await opened()
    await filled(pipeline)
    await the_same(pipeline, PRICES)
    await the_same(pipeline, OWN)
    await pipeline.adopt_prices(OWN)
    await the_same(pipeline, OWN)
    await the_same(pipeline, PRICES)
    await pipeline.commit(Batch(entries=[turn("late", turn_index=99, usage=Usage(input=60_000, output=1))]))
    await the_same(pipeline, OWN)


async def test_refined_sums_equal_those_of_a_rebuilt_index(opened: Opened) -> None:
    """Following new prices by taking sums apart ends where building the whole index under them does."""
    pipeline = await opened()
    await filled(pipeline)
    coarse = await index_dump(pipeline.index)
    await pipeline.adopt_prices(OWN)
    refined = await index_dump(pipeline.index)
    assert refined["sums"] != coarse["sums"]
    await pipeline.rebuild_index()
    assert await index_dump(pipeline.index) == refined


async def test_the_same_prices_change_nothing(opened: Opened) -> None:
    """Adopting prices that need no other tiers rewrites nothing."""
    pipeline = await opened()
    await filled(pipeline)
    before = await pipeline.index.writer.run(attrgetter("total_changes"))
    await pipeline.adopt_prices(PRICES)
    assert await pipeline.index.writer.run(attrgetter("total_changes")) == before


async def test_what_if_is_exact_at_another_models_tiers(opened: Opened) -> None:
    """What-if prices each turn in the tier of its own context."""
    pipeline = await opened()
    await filled(pipeline)
    turns = Folded(pipeline.journal.read()).turns.values()
    other = Naive(Folded(), [], PRICES)
    expected = sum(other.units(msgspec.structs.replace(t, model="gemini-2.5-pro")) for t in turns)
    answer = await ask_compare(pipeline.index, whatIf="gemini-2.5-pro")
    assert answer["whatIf"]["costUsd"] == expected / 10**15
    assert answer["whatIf"]["model"] == "gemini-2.5-pro"
