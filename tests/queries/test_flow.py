"""A session's picture includes all of its turns: lanes and steps add up to its cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from burnd.contract.validation import BadParams
from burnd.paths import Home
from burnd.queries.flow import _cuts
from burnd.queries.view import Missing
from burnd.recording.candidate import Batch
from burnd.records import Subagent, Usage
from tests.attribution.scenes import Scene, prompt, said
from tests.attribution.strategies import rails
from tests.conftest import Opened
from tests.make import examples
from tests.queries.asking import adds_up, ask_flow, ask_summary, moved_to
from tests.queries.wasteful import wasteful_session


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rails(10), rails(6))
async def test_lanes_and_steps_add_up(
    tmp_path_factory: pytest.TempPathFactory, main: list[Any], agent: list[Any]
) -> None:
    """To the token, in as few steps as one likes."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    by = Subagent(agent_id="a1", type="Explore", parent_tool_use_id="c1")
    try:
        told = [*main, *(moved_to(entry, "a", rail_id="a1", subagent=by) for entry in agent)]
        await pipeline.commit(Batch(entries=told))
        if not await pipeline.index.rows("SELECT 1 FROM turns"):
            return
        whole = (await ask_summary(pipeline.index))["totals"]
        for limit in (2, 200):
            answer = await ask_flow(pipeline, "s1", limit=limit)
            adds_up([answer["totals"]], whole)
            adds_up(answer["lanes"], whole)
            assert sum(len(lane["steps"]) for lane in answer["lanes"]) <= limit + len(answer["lanes"])
            for lane in answer["lanes"]:
                assert sum(step["turns"] for step in lane["steps"]) == lane["turns"]
                adds_up(lane["steps"], lane)
                assert all((step["parts"] is None) == (step["costUsd"] is None) for step in lane["steps"])
                parts = sum(sum((step["parts"] or {}).values()) for step in lane["steps"])
                assert parts == pytest.approx(lane["costUsd"] or 0)
    finally:
        await opener.close()


async def test_turns_without_usage_do_not_count(opened: Opened) -> None:
    """A picture has as many turns as the summary; steps list their turn numbers."""
    pipeline = await opened()
    scene = wasteful_session()
    scene.turn(0, usage=Usage(), quality="empty")
    await pipeline.commit(Batch(entries=[*scene.entries]))
    answer = await ask_flow(pipeline, "s1", limit=1)
    whole = (await ask_summary(pipeline.index))["totals"]
    assert answer["totals"]["turns"] == answer["lanes"][0]["turns"] == whole["turns"] == 21
    (step,) = answer["lanes"][0]["steps"]
    assert (step["turnIndex"], step["lastTurnIndex"], step["turns"]) == (0, 21, 21)


async def test_calls_are_listed_with_their_turns(opened: Opened) -> None:
    """Calls with count and failures; invalid parameters are refused."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*wasteful_session().entries]))
    (lane,) = (await ask_flow(pipeline, "s1"))["lanes"]
    assert [step["turnIndex"] for step in lane["steps"]] == list(range(21))
    assert lane["steps"][0]["calls"] == [{"tool": "Read", "target": "/code/a/app.py", "times": 1, "isError": False}]
    assert lane["steps"][3]["calls"][0]["isError"]
    assert lane["steps"][0]["asked"]
    (lane,) = (await ask_flow(pipeline, "s1", limit=1))["lanes"]
    assert {(call["tool"], call["times"]) for call in lane["steps"][0]["calls"]} == {("Read", 3), ("Bash", 4)}
    with pytest.raises(Missing):
        await ask_flow(pipeline, "nobody")
    with pytest.raises(BadParams):
        await ask_flow(pipeline, "s1", limit=0)


async def test_what_was_billed_beside_a_turn_and_where_one_went_back(opened: Opened) -> None:
    """A request beside a response is separate; a turn that continues from an earlier one refers to it."""
    pipeline = await opened()
    scene = Scene()
    first = scene.turn(6_000, 200, entered=(prompt(),), made=(said(),))
    beside = scene.turn(40_000, 3_000, turn_index=0, message_id=f"{first.message_id}:iter:1", model="unknown-model")
    scene.turn(6_400, 50, parent=first.message_id, turn_index=1, entered=(prompt(),), made=(said(),))
    scene.turn(6_600, 50, turn_index=2, entered=(prompt(),), made=(said(),))
    scene.turn(6_500, 50, parent=first.message_id, turn_index=3, entered=(prompt(),), made=(said(),))
    await pipeline.commit(Batch(entries=[*scene.entries]))
    (lane,) = (await ask_flow(pipeline, "s1"))["lanes"]
    told = [(step["turnIndex"], step["beside"], step["goesOnFrom"]) for step in lane["steps"]]
    assert told == [(0, False, None), (0, True, None), (1, False, None), (2, False, None), (3, False, 0)]
    assert (lane["steps"][1]["context"], lane["steps"][1]["parts"]) == (beside.usage.context, None)
    (step,) = (await ask_flow(pipeline, "s1", limit=1))["lanes"][0]["steps"]
    assert (step["beside"], step["goesOnFrom"]) == (False, 0)


async def test_a_step_begins_where_the_context_did(opened: Opened) -> None:
    """Turns of two contexts are separate steps if the limit on steps allows it."""
    pipeline = await opened()
    scene = Scene()
    for n in range(60):
        if n == 23:
            scene.compaction()
        scene.turn(20_000 + 100 * (n % 23), 50, read=0, entered=(prompt(),), made=(said(),))
    await pipeline.commit(Batch(entries=[*scene.entries]))
    (lane,) = (await ask_flow(pipeline, "s1", limit=6))["lanes"]
    assert [(step["turnIndex"], step["began"]) for step in lane["steps"]] == [
        (0, False), (10, False), (23, True), (30, False), (40, False), (50, False)
    ]  # fmt: skip
    assert [step["turns"] for step in lane["steps"]] == [10, 13, 7, 10, 10, 10]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("begins", [[], [1], [5], [59], [3, 4, 5, 6], list(range(1, 60))])
def test_steps_are_as_many_as_there_may_be(size: int, begins: list[int]) -> None:
    """Within the limit on steps, in order, from the first turn on, however often the context restarted."""
    cuts = _cuts(60, size, begins)
    assert cuts[0] == 0
    assert cuts == sorted(set(cuts))
    assert len(cuts) <= -(-60 // size)
    assert size > 1 or cuts == list(range(60))
