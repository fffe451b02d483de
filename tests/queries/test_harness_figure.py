"""Where no list has a price, a turn costs what its harness recorded, in every report."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from burnd.attribution.explainer import Explainer
from burnd.contract.reports import ExportParams
from burnd.pricing import PriceTable
from burnd.pricing.pricefile import read_user_lists
from burnd.queries.export import export
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.records import Copy, Overhead, Usage
from burnd.records.times import DAY_MS, to_ms
from burnd.server.method import at_its_prices
from tests.conftest import Opened
from tests.dump import index_dump
from tests.make import at, turn
from tests.queries.asking import NOW, PRICES, ask_compare, ask_flow, ask_hotspots, ask_summary

UNLISTED, LISTED = "claude-haiku-5-5", "claude-sonnet-4-5"


def own(message_id: str, seconds: float, tokens: int = 100, **facts: Any) -> Any:
    facts = {"usage": Usage(input=tokens), "model": UNLISTED, "ts": at(seconds), "turn_index": int(seconds)} | facts
    return turn(message_id, **facts)


def state(seconds: float, cost: float, tokens: int, session_id: str = "s1", **facts: Any) -> Overhead:
    given: dict[str, Any] = {
        "models": {UNLISTED: Usage(input=tokens)},
        "costs": {UNLISTED: cost},
        "since": at(0),
    } | facts
    return Overhead(source="claude-code", session_id=session_id, ts=at(seconds), **given)


async def costs(opened: Opened, *entries: Any) -> dict[str, Any]:
    """By session, what was paid for after these entries."""
    pipeline = opened.pipeline or await opened()
    for entry in entries:
        await pipeline.commit(Batch(entries=[entry]))
    answer = await ask_summary(pipeline.index, by="session")
    return {row["key"]: row["costUsd"] for row in answer["rows"]}


async def by_turn(opened: Opened) -> dict[str, float]:
    assert opened.pipeline is not None
    answer = await opened.pipeline.index.ask(lambda db: export(View(db, PRICES, NOW), ExportParams()))
    return {one["messageId"]: one["costUsd"] for one in answer["turns"]}


async def test_what_a_total_grew_by_is_the_cost_of_the_turns_between(opened: Opened) -> None:
    """By tokens, those of subagents included; turns after the last total have no price yet."""
    entries = [own("m1", 1), own("m2", 2, 300, rail_id="a1"), state(3, 0.4, 400), own("m3", 4), own("m4", 6)]
    assert (await costs(opened, *entries, state(5, 0.7, 500)))["s1"] == pytest.approx(0.7)
    found = await by_turn(opened)
    assert found == {"m1": pytest.approx(0.1), "m2": pytest.approx(0.3), "m3": pytest.approx(0.3), "m4": None}
    assert opened.pipeline is not None
    totals = (await ask_summary(opened.pipeline.index))["totals"]
    assert (totals["unpricedTurns"], totals["harnessTurns"]) == (1, 3)
    assert totals["harnessCostUsd"] == pytest.approx(0.7)


async def test_nothing_is_given_to_turns_that_a_list_prices(opened: Opened) -> None:
    models = {UNLISTED: Usage(input=100), LISTED: Usage(input=100)}
    told = state(5, 0, 0, models=models, costs={UNLISTED: 0.5, LISTED: 9.0})
    await costs(opened, own("m1", 1), own("m2", 2, model=LISTED), told)
    assert await by_turn(opened) == {"m1": pytest.approx(0.5), "m2": pytest.approx(100 * 3e-6)}


async def test_a_total_that_begins_again_covers_what_came_after(opened: Opened) -> None:
    """After a kill the client counts from nothing: earlier turns that no total had stay without a price."""
    entries = [own("m1", 1), state(2, 0.4, 100), own("killed", 3), own("m3", 6), state(8, 0.1, 100, since=at(5))]
    await costs(opened, *entries)
    assert await by_turn(opened) == {"m1": pytest.approx(0.4), "killed": None, "m3": pytest.approx(0.1)}


async def test_a_total_without_a_start_time_began_again_when_it_is_less(opened: Opened) -> None:
    entries = [own("m1", 1), state(2, 0.4, 300, since=None), own("m3", 6), state(8, 0.1, 100, since=None)]
    await costs(opened, *entries)
    assert await by_turn(opened) == {"m1": pytest.approx(0.4 / 3), "m3": pytest.approx(0.1)}


@pytest.mark.parametrize("parent_first", [True, False])
async def test_a_fork_begins_with_its_parents_cost(opened: Opened, parent_first: bool) -> None:
    copy = Copy(source="claude-code", session_id="fork", rail_id="main", message_id="m1", turn_index=1, ts=at(1))
    forked = [copy, own("f1", 4, session_id="fork"), state(5, 0.6, 200, "fork")]
    parent = [state(2, 0.4, 100), own("m2", 6), state(7, 0.9, 200)]
    entries = [*parent, *forked] if parent_first else [*forked, *reversed(parent)]
    assert await costs(opened, own("m1", 1), *entries) == {"s1": pytest.approx(0.9), "fork": pytest.approx(0.2)}


async def test_what_was_not_logged_has_its_share(opened: Opened) -> None:
    """A title or a compaction is in the total and in no turn: turns and overhead come to what was stated."""
    await costs(opened, own("m1", 1), state(3, 1.0, 400))
    assert opened.pipeline is not None
    answer = await ask_summary(opened.pipeline.index)
    assert answer["totals"]["costUsd"] == pytest.approx(0.25)
    assert answer["unlogged"]["costUsd"] == pytest.approx(0.75)


async def test_an_interrupted_turn_that_the_total_leaves_out_adds_nothing(opened: Opened) -> None:
    assert (await costs(opened, own("m1", 1), own("cut", 2), state(3, 0.4, 100)))["s1"] == pytest.approx(0.4)


async def test_the_same_total_stated_twice_counts_once(opened: Opened) -> None:
    assert (await costs(opened, own("m1", 1), state(3, 0.4, 100), state(3, 0.4, 100), state(4, 0.4, 100)))[
        "s1"
    ] == pytest.approx(0.4)


async def test_a_row_states_its_own_cost(opened: Opened) -> None:
    """opencode rows: each turn has the cost of its row where no list has a price."""
    facts: dict[str, Any] = {"source": "opencode", "provider": "house"}
    entries = [
        own("m1", 1, stated_usd=0.03, model="house-1", **facts),
        own("m2", 2, stated_usd=0.0123456789, model="house-1", **facts),
        own("m3", 3, model="house-1", **facts),
        own("m4", 4, stated_usd=9.0, model=LISTED, source="opencode", provider="anthropic"),
    ]
    await costs(opened, *entries)
    listed = pytest.approx(100 * 3e-6)
    assert await by_turn(opened) == {"m1": 0.03, "m2": pytest.approx(0.0123456789), "m3": None, "m4": listed}


async def test_causes_add_up_to_it(opened: Opened) -> None:
    await costs(opened, own("m1", 1), own("m2", 2, 777), state(3, 0.4, 877), own("m3", 4, 31, stated_usd=0.017))
    assert opened.pipeline is not None
    await Explainer(opened.pipeline).catch_up()
    answer = await ask_hotspots(opened.pipeline, by="tool")
    assert answer["totals"]["costUsd"] == pytest.approx(0.417)
    assert sum(row["costUsd"] or 0 for row in answer["rows"]) == pytest.approx(0.417, rel=1e-12)
    session = str((await opened.pipeline.index.rows("SELECT session_id FROM sessions"))[0][0])
    picture = await ask_flow(opened.pipeline, session)
    assert picture["harnessModels"] == answer["harnessModels"] != []
    assert picture["unpricedModels"] == []


def listing(**models: float) -> PriceTable:
    entries = ",".join(f'"{name}": {{"cost": {{"input": {usd}, "output": {usd}}}}}' for name, usd in models.items())
    return PriceTable.load().under(read_user_lists(f'{{"anthropic": {{"models": {{{entries}}}}}}}', "models.dev.json"))


async def test_a_price_that_comes_later_wins_and_the_figure_returns_without_it(opened: Opened) -> None:
    """And the index is then as one that is made from the same ledger with the same prices."""
    await costs(opened, own("m1", 1), state(3, 0.4, 100), own("m2", 4, stated_usd=0.017))
    pipeline = opened.pipeline
    assert pipeline is not None
    priced = listing(**{UNLISTED: 1.0})
    assert (await ask_summary(pipeline.index, priced))["totals"]["costUsd"] == pytest.approx(200e-6)
    for prices, expected in ((priced, 200e-6), (PriceTable.load(), 0.417)):
        await pipeline.adopt_prices(prices)
        totals = (await ask_summary(pipeline.index, prices))["totals"]
        assert totals["costUsd"] == pytest.approx(expected)
        adopted = await index_dump(pipeline.index)
        await pipeline.rebuild_index()
        assert await index_dump(pipeline.index) == adopted


@pytest.mark.parametrize(
    ("answer", "days", "is_stale"),
    [
        ({"unpricedModels": ["x"]}, 61, True),
        ({"unpricedModels": [], "harnessModels": ["x"]}, 61, True),
        ({"unpricedModels": ["x"]}, 60, False),
        ({"unpricedModels": [], "harnessModels": []}, 400, False),
        ({}, 400, False),
    ],
)
def test_an_old_list_is_named_where_it_lacks_a_model_in_use(answer: dict[str, Any], days: int, is_stale: bool) -> None:
    view = View(sqlite3.connect(":memory:"), PRICES, to_ms(PRICES.newest) + days * DAY_MS)
    assert at_its_prices(view, answer).get("stalePrices") == (PRICES.as_of if is_stale else None)


def test_a_fetched_list_is_the_newest() -> None:
    fetched = '{"anthropic": {"models": {"a": {"cost": {"input": 1, "output": 1}, "fetched": "2026-11-01"}}}}'
    assert PRICES.under(read_user_lists(fetched, "models.dev.json")).newest == "2026-11-01"


async def test_what_another_model_would_cost_is_set_beside_the_figure(opened: Opened) -> None:
    """Turns priced by the harness are comparable; those without any price are listed apart."""
    await costs(opened, own("m1", 1), state(3, 0.4, 100), own("m2", 4))
    assert opened.pipeline is not None
    found = (await ask_compare(opened.pipeline.index, whatIf=LISTED))["whatIf"]
    assert (found["actualUsd"], found["unpricedTurns"]) == (pytest.approx(0.4), 1)
    assert (found["costUsd"], found["unpricedCostUsd"]) == (pytest.approx(300e-6), pytest.approx(300e-6))
