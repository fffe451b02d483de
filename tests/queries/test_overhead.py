"""Costs of prefixes are the sums of their causes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from burnd.attribution import saved_findings
from burnd.contract.reports import OverheadParams
from burnd.queries import waste
from burnd.queries.selection import choose
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Block, ToolCall
from tests import make
from tests.attribution.scenes import Scene, prompt, said
from tests.conftest import Opened
from tests.queries.asking import NOW, PRICES, ask_why
from tests.queries.wasteful import in_session


async def test_instruction_files_of_the_log_are_a_part_of_the_prefix(opened: Opened) -> None:
    """They take nothing from it, are listed with the newest size, and what comes later is a reminder."""
    pipeline = await opened()
    for n, size in enumerate((4_000, 8_000)):
        scene = Scene()
        file = Block(kind="instructions", bytes=size, name="/code/a/CLAUDE.md")
        scene.turn(20_000, 50, entered=(prompt(), file), made=(said(),))
        scene.turn(23_000, 50, entered=(prompt(), *([file] if n else [])), made=(said(),))
        turns = [
            msgspec.structs.replace(one, project="/code/a", ts=f"2026-11-1{n}{one.ts[10:]}")
            for one in in_session(scene, f"s{n}")
        ]
        await pipeline.commit(Batch(entries=[*turns]))
    await pipeline.index.transact(saved_findings.begin)
    answer = await _asked(pipeline, OverheadParams(project="/code/a"))
    (source,) = answer["sources"]
    assert source["prefix"]["smallest"] > 19_000
    assert source["instructions"] == [{"path": "/code/a/CLAUDE.md", "bytes": 8_000, "sessions": 2}]
    kinds = [{row["kind"] for row in (await ask_why(pipeline, f"s{n}"))["causes"]} for n in range(2)]
    assert ["reminder" in found for found in kinds] == [False, True]


async def test_prefixes_cost_what_their_causes_say(opened: Opened) -> None:
    """Over all sessions of a project; a token of every prefix costs its share; called servers are named."""
    pipeline = await opened()
    for n in range(3):
        scene = Scene()
        tool = ToolCall(id="c1", name="mcp__tickets__find")
        for turn in range(3):
            calls = (tool,) if turn == n == 1 else ()
            scene.turn(20_000 + 1_000 * n + 200 * turn, 50, entered=(prompt(),), made=(said(),), tool_calls=calls)
        turns = [msgspec.structs.replace(one, project="/code/a") for one in in_session(scene, f"s{n}")]
        await pipeline.commit(Batch(entries=[*turns]))
    params = OverheadParams(project="/code/a")
    await pipeline.index.transact(saved_findings.begin)
    answer = await _asked(pipeline, params)
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


async def _asked(pipeline: Pipeline, params: OverheadParams) -> dict[str, Any]:
    def ask(db: object) -> dict[str, object]:
        view = View(db, PRICES, NOW)  # type: ignore[arg-type]
        plan = waste.plan(view, choose(view, params), compared=False)
        told = waste.examine(view, pipeline.home.ledger, plan.scope, plan.families)
        return waste.overhead(view, plan.findings({family.root: found for family, found in told}))

    return msgspec.convert(await pipeline.index.ask(ask), dict)


async def test_a_new_kind_of_turn_may_land_between_search_and_answer(opened: Opened) -> None:
    """The answer adds up turns of a model that was not there when the sessions were looked through."""
    pipeline = await opened()
    scene = Scene()
    for turn in range(3):
        scene.turn(20_000 + 200 * turn, 50, entered=(prompt(),), made=(said(),))
    await pipeline.commit(Batch(entries=[*in_session(scene, "s1")]))
    await pipeline.index.transact(saved_findings.begin)

    def search(db: object) -> waste.WasteFindings:
        view = View(db, PRICES, NOW)  # type: ignore[arg-type]
        plan = waste.plan(view, choose(view, OverheadParams()), compared=False)
        told = waste.examine(view, pipeline.home.ledger, plan.scope, plan.families)
        return plan.findings({family.root: found for family, found in told})

    seen = await pipeline.index.ask(search)
    await pipeline.commit(Batch(entries=[make.turn("late", session_id="s2", model="model-x")]))
    answer = await pipeline.index.ask(lambda db: waste.overhead(View(db, PRICES, NOW), seen))
    assert (answer["totals"]["turns"], len(answer["sources"])) == (4, 1)
