"""What sessions began with is what the prefix causes say."""

from __future__ import annotations

import msgspec
import pytest

from burnd.causes import kept_waste
from burnd.queries import overhead, waste_search
from burnd.queries.filters import choose
from burnd.queries.overhead import OverheadParams
from burnd.queries.view import View
from burnd.recording.batch import Batch
from burnd.records import ToolCall
from tests.attribution.scenes import Scene, prompt, said
from tests.conftest import Opened
from tests.queries.asking import NOW, PRICES
from tests.queries.test_waste import elsewhere
from tests.queries.test_why import ask_why


async def test_prefixes_cost_what_their_causes_say(opened: Opened) -> None:
    """Over all sessions of a project; a token of every prefix costs its part; the servers that were called are told."""
    pipeline = await opened()
    for n in range(3):
        scene = Scene()
        tool = ToolCall(id="c1", name="mcp__tickets__find")
        for turn in range(3):
            calls = (tool,) if turn == n == 1 else ()
            scene.turn(20_000 + 1_000 * n + 200 * turn, 50, entered=(prompt(),), made=(said(),), tool_calls=calls)
        turns = [msgspec.structs.replace(one, project="/code/a") for one in elsewhere(scene, f"s{n}")]
        await pipeline.commit(Batch(entries=[*turns]))
    params = OverheadParams(project="/code/a")
    await pipeline.index.transact(kept_waste.begin)

    def ask(db: object) -> dict[str, object]:
        view = View(db, PRICES, NOW)  # type: ignore[arg-type]
        plan = waste_search.plan(view, choose(view, params), compared=False)
        told = waste_search.look(view, pipeline.home.ledger, plan.chosen, plan.families)
        return overhead.answer(view, plan.seen({family.root: found for family, found in told}))

    answer = msgspec.convert(await pipeline.index.ask(ask), dict)
    (source,) = answer["sources"]
    assert (source["source"], source["sessions"], source["rides"]) == ("claude-code", 3, 9)
    costs = {}
    for n in range(3):
        causes = (await ask_why(pipeline, f"s{n}"))["causes"]
        (costs[n],) = [row["costUsd"] for row in causes if row["kind"] == "prefix"]
    assert source["costUsd"] == pytest.approx(sum(costs.values()))
    sizes = source["prefix"]
    assert sizes["largest"] - sizes["smallest"] == 2_000
    per_token = sum(cost / (sizes["smallest"] + 1_000 * n) for n, cost in costs.items())
    assert source["usdPerToken"] == pytest.approx(per_token)
    assert answer["servers"] == [{"server": "tickets", "calls": 1}]
