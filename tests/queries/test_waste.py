"""Findings are the same from the cache or from a new search, and belong to selected turns only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.attribution import saved_findings
from burnd.content.recall import Recall
from burnd.contract.reports import WasteParams
from burnd.contract.validation import BadParams, checked
from burnd.index.change import Change, FileChange, OpenTurn
from burnd.paths import Home
from burnd.queries import waste
from burnd.queries.quotes import Quotes
from burnd.queries.selection import choose
from burnd.queries.view import View
from burnd.queries.waste import answer
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Session, Subagent, ToolUse, Usage
from tests import make
from tests.attribution.scenes import Scene, call, prompt, result, said
from tests.attribution.strategies import rails
from tests.conftest import Opened
from tests.make import at, examples, text, tool_result, tool_use
from tests.queries.asking import NOW, PRICES, ask_flow, ask_summary, ask_why, moved_to
from tests.queries.wasteful import in_session, wasteful_session


class Looked:
    """Queries like the method, and counts the turns that were read."""

    def __init__(self, pipeline: Pipeline, recall: Recall | None = None) -> None:
        self._index, self._ledger, self._recall = pipeline.index, pipeline.home.ledger, recall
        self.turns = 0

    async def __call__(self, **params: Any) -> dict[str, Any]:
        asked = checked(WasteParams, params)
        await self._index.transact(saved_findings.begin)
        plan = await self._index.ask(lambda db: waste.plan(_view(db), choose(_view(db), asked), compared=True))
        looked_at: dict[int, bytes] = {}
        for some in plan.portions():
            looked_at |= {family.root: kept for family, kept in await self.look(plan, some)}
            self.turns += sum(family.turns for family in some)
        seen = plan.findings(looked_at)
        return await self._index.ask(lambda db: answer(_view(db), Quotes(_view(db), self._recall), asked, seen))

    async def look(
        self, plan: waste.WastePlan, some: list[saved_findings.Family]
    ) -> list[tuple[saved_findings.Family, bytes]]:
        told = await self._index.ask(lambda db: waste.examine(_view(db), self._ledger, plan.scope, some))
        await self._index.transact(lambda db: saved_findings.save(db, saved_findings.sizes_of(PRICES), told))
        return told


def _view(db: Any) -> View:
    return View(db, PRICES, NOW)


def kinds(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in found["findings"]}


async def test_waste_is_found_and_kept(opened: Opened) -> None:
    """The second request uses saved findings; a changed session is searched again."""
    pipeline = await opened()
    scene = wasteful_session()
    await pipeline.commit(Batch(entries=[*scene.entries, *in_session(wasteful_session(), "s2")]))
    looked = Looked(pipeline)
    first = await looked()
    found = kinds(first)
    assert {"reread", "retry-loop", "rode-far"} <= found.keys()
    assert found["reread"]["evidence"]["turns"] == [1, 2]
    assert found["reread"]["sessionCount"] == 2
    assert found["retry-loop"]["times"] == 8
    assert found["reread"]["costUsd"] > 0
    assert looked.turns == 42
    assert await looked() == first
    assert looked.turns == 42
    late = msgspec.structs.replace(scene.turns[3], rev=2, tool_calls=(call("Bash", "npm test", "b0", args_hash="x"),))
    await pipeline.commit(Batch(entries=[late]))
    again = kinds(await looked())
    assert looked.turns == 63
    assert again["retry-loop"]["times"] == 7


@pytest.mark.parametrize("project", ["/code/a", "/build/a"])
async def test_generated_files_are_listed_by_folder(opened: Opened, project: str) -> None:
    """Several large generated files read in a row: the finding names their folder. A project that is in such a folder
    as a whole has none."""
    scene, context, before = Scene(), 20_000, ""
    inside = [*(f"node_modules/x/{n}.js" for n in range(4)), "src/build.py", "src/app.py"]
    files = [f"{project}/{file}" for file in inside]
    for n, file in enumerate(files):
        entered = (result(12_000, before),) if before else (prompt(),)
        calls = (call("Read", file, f"r{n}", args_hash=f"a{n}", result_hash=f"h{n}"),)
        scene.turn(context, 60, entered=entered, made=(said("call", 100, f"r{n}"),), tool_calls=calls, project=project)
        context, before = context + 3_060, f"r{n}"
    scene.turn(context, 60, entered=(result(12_000, before),), made=(said(),), project=project)
    for _ in range(30):
        context += 160
        scene.turn(context, 60, entered=(prompt(),), made=(said(),), project=project)
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*scene.entries]))
    found = [one for one in (await Looked(pipeline)())["findings"] if one["kind"] == "rode-far"]
    told = {one["evidence"]["target"]: (one["times"], one["evidence"]["turns"]) for one in found}
    assert told.keys() == {"node_modules", "src/build.py", "src/app.py"}
    assert told["node_modules"] == (4, [0, 1, 2, 3])
    assert len({one["advice"] for one in found}) == 2


async def test_sessions_have_ids_that_can_be_typed(opened: Opened) -> None:
    """Two sessions with the same first eight characters are named with as many as tell them apart."""
    names, pipeline = ["c0de0000-11", "c0de0000-12"], await opened()
    await pipeline.commit(Batch(entries=[entry for name in names for entry in in_session(wasteful_session(), name)]))
    for finding in (await Looked(pipeline)())["findings"]:
        assert finding["evidence"]["shortId"] == finding["evidence"]["sessionId"]
    for name in names:
        assert (await ask_why(pipeline, name))["shortId"] == name
        assert (await ask_flow(pipeline, name))["shortId"] == name
    rows = (await ask_summary(pipeline.index, by="session"))["rows"]
    assert {row["shortId"] for row in rows} == set(names)


async def test_a_change_while_looking_is_not_forgotten(opened: Opened) -> None:
    """Findings of an outdated state are not saved."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*wasteful_session().entries]))
    looked = Looked(pipeline)
    await pipeline.index.transact(saved_findings.begin)
    plan = await pipeline.index.ask(lambda db: waste.plan(_view(db), choose(_view(db), WasteParams()), compared=True))
    scene = wasteful_session()
    scene.turn(90_000, 60, entered=(prompt(),), made=(said(),))
    await pipeline.commit(Batch(entries=[scene.turns[-1]]))
    await looked.look(plan, plan.families)
    await looked()
    assert looked.turns == 22


@pytest.mark.parametrize("params", [{}, {"source": "claude-code"}, {"session": "s1"}])
async def test_a_new_kind_of_turn_may_land_while_looking(opened: Opened, params: dict[str, str]) -> None:
    """Plan, queries and answer each use the current index, with models that are new since."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*in_session(wasteful_session(), "s1")]))
    looked = Looked(pipeline)

    async def land(n: int) -> None:
        late = make.turn(f"late{n}", session_id=f"late{n}", model=f"model-{n}", ts=at(10_000 + n))
        await pipeline.commit(Batch(entries=[late, msgspec.structs.replace(late, message_id=f"l{n}", session_id="s1")]))

    look = looked.look

    async def look_late(plan: waste.WastePlan, some: list[saved_findings.Family]) -> Any:
        await land(0)
        told = await look(plan, some)
        await land(1)
        return told

    looked.look = look_late  # type: ignore[method-assign]
    found = await looked(**params)
    assert "reread" in kinds(found)
    assert found["totals"]["turns"] >= 21


async def test_turns_that_still_grow_count(opened: Opened) -> None:
    """An open turn is a change like any other."""
    pipeline = await opened()
    scene = wasteful_session()
    await pipeline.commit(Batch(entries=[*scene.entries]))
    looked = Looked(pipeline)
    await looked()
    grown = msgspec.structs.replace(scene.turns[-1], message_id="new", turn_index=99)
    change = Change(open=[OpenTurn(grown, "claude-code", "/log")], files=[FileChange("claude-code", "/log", b"c")])
    await pipeline._stores.apply(change)
    assert (await looked())["totals"]["turns"] == 22
    assert looked.turns == 21 + 22


async def test_a_turn_that_changes_hands_changes_both(opened: Opened) -> None:
    """The session that loses a turn is looked at again, and so is the one that it turns out to be of."""
    pipeline = await opened()
    scene = wasteful_session()
    await pipeline.commit(Batch(entries=[*scene.entries, *in_session(wasteful_session(), "s2")]))
    looked = Looked(pipeline)
    before = await looked()
    moved = msgspec.structs.replace(scene.turns[-1], session_id="s2", rev=2)
    await pipeline.commit(Batch(entries=[moved]))
    after = await looked()
    assert looked.turns == 42 + 20 + 22
    assert after["totals"] == before["totals"]


async def test_filters_leave_only_what_is_meant(opened: Opened) -> None:
    """Of a session cut by a filter only the selected turns count."""
    pipeline = await opened()
    scene = wasteful_session()
    await pipeline.commit(Batch(entries=[*scene.entries]))
    looked = Looked(pipeline)
    whole, cut_off = kinds(await looked()), kinds(await looked(since=scene.turns[10].ts))
    assert 0 < cut_off["reread"]["costUsd"] < whole["reread"]["costUsd"]
    assert kinds(await looked()) == whole
    assert not (await looked(until=scene.turns[1].ts))["findings"]
    assert kinds(await looked(minCost=whole["reread"]["costUsd"] + 1e-9)).keys() < whole.keys()
    with pytest.raises(BadParams):
        await looked(limit=0)
    with pytest.raises(BadParams):
        await looked(minCost=-1)


async def test_what_came_in_before_is_found_while_it_rides(opened: Opened) -> None:
    """A large result of yesterday that today's turns still carry is today's waste; that it came in is not."""
    pipeline = await opened()
    scene = Scene()
    ran = call("Bash", "npm test", "b1", args_hash="x")
    scene.turn(20_000, 60, entered=(prompt(),), made=(said("call", 100, "b1"),), tool_calls=(ran,))
    context, before = 36_060, result(64_000, "b1")
    for _ in range(16):
        scene.turn(context, 60, entered=(before,), made=(said(),))
        context, before = context + 160, prompt()
    await pipeline.commit(Batch(entries=[*scene.entries]))
    looked = Looked(pipeline)
    assert {"oversized", "rode-far"} <= kinds(await looked()).keys()
    later = kinds(await looked(since=scene.turns[3].ts))
    assert "oversized" not in later
    assert not (await looked(until=scene.turns[1].ts))["findings"]
    assert (later["rode-far"]["evidence"]["entered"], later["rode-far"]["evidence"]["rides"]) == (16_060, 14)


async def test_what_comes_later_is_not_known(opened: Opened) -> None:
    """Later turns are unknown: a loop cut at its second failure is none, one of four failures counts three at the
    third."""
    pipeline = await opened()
    scene = wasteful_session()
    await pipeline.commit(Batch(entries=[*scene.entries]))
    looked = Looked(pipeline)
    assert "retry-loop" not in kinds(await looked(until=scene.turns[5].ts))
    found = kinds(await looked(until=scene.turns[6].ts))["retry-loop"]
    assert (found["times"], found["evidence"]["turns"]) == (3, [3, 4, 5])


async def test_children_are_looked_at_with_those_that_started_them(opened: Opened) -> None:
    """A child session that failed is waste of the call that started it, wherever either of them changed."""
    pipeline = await opened()
    scene, child = Scene(), Scene()
    task = call("task", "explore", "c1", is_error=True)
    scene.turn(10_000, 50, entered=(prompt(),), made=(said("call", 40, "c1"),), tool_calls=(task,))
    by = Subagent(agent_id="kid", type="explore", parent_tool_use_id="c1")
    child.turn(9_000, 10, entered=(prompt(),), made=(said(),), subagent=by)
    parent = Session(session_id="kid", source="claude-code", parent_session_id="s1")
    await pipeline.commit(Batch(entries=[*scene.entries, *in_session(child, "kid")]))
    looked = Looked(pipeline)
    assert "delegation" not in kinds(await looked())
    await pipeline.commit(Batch(entries=[parent]))
    found = kinds(await looked())["delegation"]
    assert (found["sessions"], found["evidence"]["reason"]) == (["kid"], "failed")
    assert looked.turns == 4
    child.turn(9_500, 10, entered=(prompt(),), made=(said(),), subagent=by)
    await pipeline.commit(Batch(entries=in_session(child, "kid")[-1:]))
    assert kinds(await looked())["delegation"]["evidence"]["count"] == 2


async def test_a_child_session_has_its_own_waste_only(opened: Opened) -> None:
    """Waste of the parent session and of siblings is excluded."""
    pipeline = await opened()
    parents = [Session(session_id=name, source="claude-code", parent_session_id="s1") for name in ("kid", "other")]
    children = [*in_session(wasteful_session(), "kid"), *in_session(wasteful_session(), "other")]
    await pipeline.commit(Batch(entries=[*wasteful_session().entries, *children, *parents]))
    looked = Looked(pipeline)
    whole, of_kid = await looked(session="s1"), await looked(session="kid")
    assert kinds(whole)["reread"]["sessionCount"] == 3
    for kind, found in kinds(of_kid).items():
        assert (found["sessions"], kind) == (["kid"], kind)
        assert found["costUsd"] <= of_kid["totals"]["costUsd"]
    assert kinds(of_kid)["reread"]["costUsd"] == pytest.approx(kinds(whole)["reread"]["costUsd"] / 3)


def five_beginnings() -> Iterator[tuple[list[Any], list[Any]]]:
    """Sessions of one project, the fourth of which began with more than the others; and the same of no project."""
    for n in range(5):
        scene = Scene()
        for turn in range(2):
            scene.turn(20_000 + 30_000 * (n == 3) + turn * 200, 50, entered=(prompt(),), made=(said(),))
        ours = [msgspec.structs.replace(one, project="/code/a") for one in in_session(scene, f"s{n}")]
        yield ours, in_session(scene, f"beside{n}")


async def test_a_bloated_prefix_is_compared_within_the_project(opened: Opened) -> None:
    """One session of five began with twice as much as the others."""
    pipeline = await opened()
    for turns, _ in five_beginnings():
        await pipeline.commit(Batch(entries=[*turns]))
    answer = await Looked(pipeline)()
    found = kinds(answer)["prefix-bloat"]
    assert (found["sessions"], found["evidence"]["target"], found["project"]) == (["s3"], "/code/a", "/code/a")
    assert answer["avoidable"]["costUsd"] >= found["costUsd"]
    assert found["evidence"]["usual"] < found["evidence"]["entered"]


async def test_what_a_project_usually_begins_with_does_not_depend_on_filters(opened: Opened) -> None:
    """A session alone, or a part of it, has the same finding as among all. First prefixes of sessions used for
    comparison are saved as well."""
    pipeline = await opened()
    for turns, beside in five_beginnings():
        await pipeline.commit(Batch(entries=[*turns, *beside]))
    alone = Looked(pipeline)
    told = await alone(session="s3")
    assert (told["families"], told["totals"]["turns"], alone.turns) == (1, 2, 10)
    found = kinds(told)["prefix-bloat"]
    assert found == kinds(await Looked(pipeline)())["prefix-bloat"]
    assert "prefix-bloat" not in kinds(await alone(session="s1"))
    later = kinds(await alone(since=at(20), session="s3"))["prefix-bloat"]
    assert (later["evidence"]["usual"], later["evidence"]["entered"]) == (
        found["evidence"]["usual"],
        found["evidence"]["entered"],
    )
    assert 0 < later["tokens"] < found["tokens"]
    assert alone.turns == 12


async def test_a_lot_tells_of_all_that_it_costs(opened: Opened) -> None:
    """Large results of the same command in one session are one finding, which names the turns and calls of all."""
    pipeline = await opened()
    scene, context = Scene(), 20_000
    before: tuple[Any, ...] = (prompt(),)
    for n, tokens in enumerate((8_000, 16_000)):
        ran = call("Bash", "npm test", f"b{n}", args_hash=f"{n}")
        scene.turn(context, 60, entered=before, made=(said("call", 100, f"b{n}"),), tool_calls=(ran,))
        context += 60 + tokens
        before = (result(4 * tokens, f"b{n}"),)
    for _ in range(14):
        scene.turn(context, 60, entered=before, made=(said(),))
        context += 160
        before = (prompt(),)
    await pipeline.commit(Batch(entries=[*scene.entries]))
    found = kinds(await Looked(pipeline)())["rode-far"]
    evidence = found["evidence"]
    assert (found["times"], evidence["turns"], evidence["calls"]) == (2, [0, 1], ["b0", "b1"])
    assert (evidence["count"], evidence["entered"]) == (2, 16_060)


async def test_severity_goes_by_dollars_and_projects_are_not_mixed_up(opened: Opened) -> None:
    """No finding is more severe than a costlier one, and one over several projects belongs to none of them."""
    pipeline = await opened()
    for n in range(2):
        scene = Scene()
        scene.turn(0, usage=Usage(cache_create_5m=20_000))
        scene.turn(20_000, read=0, pause=600, model=("claude-opus-4-1", "claude-haiku-4-5")[n])
        turns = [msgspec.structs.replace(one, project=f"/code/{n}") for one in in_session(scene, f"s{n}")]
        await pipeline.commit(Batch(entries=[*turns, *in_session(wasteful_session(), f"w{n}")]))
    told = await Looked(pipeline)()
    ranks = [("high", "medium", "low").index(one["severity"]) for one in told["findings"]]
    assert ranks == sorted(ranks)
    miss = kinds(told)["cache-miss"]
    assert (miss["sessionCount"], miss["project"], miss["projectCount"]) == (2, None, 2)
    cheap = await Looked(pipeline)(minCost=1000)
    assert (cheap["findings"], cheap["cheaperFindings"]) == ([], len(told["findings"]))


@pytest.mark.parametrize("message", ["u2", "main-3"])
@pytest.mark.parametrize(
    "said",
    [
        "Exit code 1\nall is well so far\nTypeError: x is not a function\n",
        "<tool_use_error>TypeError: x is not a function</tool_use_error>",
    ],
)
async def test_the_error_is_quoted_where_it_is_kept(opened: Opened, message: str, said: str) -> None:
    """The first line that looks like an error, in a later message (Claude Code) or in that of the call (opencode).
    Without content the finding has no quote."""
    pipeline = await opened()
    scene = wasteful_session()
    use = ToolUse(id="b0", name="Bash", input=msgspec.Raw(b'{"command": "npm test -- checkout"}'))
    kept = [text("u1", "go on", role="user"), tool_use("main-3", n=1, tool_use=use)]
    result_of = tool_result(message, said, n=2)
    assert result_of.tool_result is not None
    failed = msgspec.structs.replace(result_of.tool_result, tool_use_id="b0")
    kept.append(msgspec.structs.replace(result_of, tool_result=failed))
    await pipeline.commit(Batch(entries=[*scene.entries], content=kept))
    recall = Recall(pipeline.home.content)
    found = kinds(await Looked(pipeline, recall)())["retry-loop"]
    assert found["evidence"].pop("error") == "TypeError: x is not a function"
    assert found["evidence"].pop("quote") == "npm test -- checkout"
    assert kinds(await Looked(pipeline)())["retry-loop"] == found
    recall.close()


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(rails(8), min_size=1, max_size=3), st.integers(0, 7))
async def test_what_is_kept_is_what_would_be_found(
    tmp_path_factory: pytest.TempPathFactory, sessions: list[list[Any]], cut: int
) -> None:
    """After any growth between requests the answer equals that of a fresh index, and no finding costs more than the
    total."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    try:
        told = [[moved_to(e, f"{n}-", session_id=f"s{n}") for e in entries] for n, entries in enumerate(sessions)]
        looked = Looked(pipeline)
        for entries in told:
            await pipeline.commit(Batch(entries=[*entries[:cut]]))
        await looked()
        for entries in told:
            await pipeline.commit(Batch(entries=[*entries[cut:]]))
        after = await looked()
        await pipeline.index.transact(lambda db: db.execute("DELETE FROM findings"))
        assert after == await looked()
        whole = (await ask_summary(pipeline.index))["totals"]
        assert after["totals"] == whole
        for finding in after["findings"]:
            assert finding["tokens"] <= sum(whole["usage"].values())
            assert (finding["costUsd"] or 0) <= (whole["costUsd"] or 0) * (1 + 1e-9)
    finally:
        await opener.close()
