"""Causes of any session add up to its bill: `why` equals `summary`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.content.recall import Recall
from burnd.contract import validation
from burnd.paths import Home
from burnd.queries.view import Missing, Refusal
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import PromptChange, RequestFacts, ServerTools, Session, Subagent, Turn, Usage
from tests.attribution.scenes import Scene, call, prompt, result, said, worked_example
from tests.attribution.strategies import rails
from tests.capture.opencode_rig import OpenCodeRig
from tests.capture.rig import Rig
from tests.conftest import Opened
from tests.harness.collect import cases, client_versions
from tests.make import examples, text, tool_result, tool_use
from tests.queries import worlds
from tests.queries.asking import USAGE, adds_up, ask_summary, ask_why, moved_to
from tests.queries.corpora import CLAUDE_OPTIONS, Corpora, needs_claude_corpus, needs_opencode_corpus


def opened(row: dict[str, Any]) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """A row of a tree with its parts, and each rail below it within the limit."""
    agents = row.get("agents", [])
    if agents:
        yield [row["own"], *agents], row
    for agent in agents:
        if "causes" in agent:
            yield agent["causes"], agent
            for below in agent["causes"]:
                yield from opened(below)


async def checked(pipeline: Pipeline, session: str, **filters: Any) -> dict[str, Any]:
    """Every parameter gives parts that add up to the summary."""
    summary = await ask_summary(pipeline.index, session=session, **filters)
    everything = await ask_why(pipeline, session, limit=2000, tree=True, **filters)
    folded = await ask_why(pipeline, session, limit=3, **filters)
    one = await ask_why(pipeline, session, limit=1, tree=True, **filters)
    for answer in (everything, folded, one):
        assert answer["totals"] == summary["totals"]
        assert answer["unlogged"] == summary["unlogged"]
        assert answer["unpricedModels"] == summary["unpricedModels"]
        adds_up(answer["causes"], summary["totals"])
        adds_up(answer["groups"], summary["totals"])
        for group in answer["groups"]:
            adds_up(group["parts"], group)
        assert sum(part["costUsd"] or 0 for part in answer["parts"].values()) == pytest.approx(
            summary["totals"]["costUsd"] or 0
        )
    assert len(folded["causes"]) <= 4
    for row in (*everything["causes"], *one["causes"]):
        for parts, whole in opened(row):
            adds_up(parts, whole)
    return everything


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds.deeds, st.fixed_dictionaries({}, optional={"since": worlds.times, "until": worlds.times}))
async def test_why_is_the_summary_of_the_session(
    tmp_path_factory: pytest.TempPathFactory, history: list[Any], filters: dict[str, Any]
) -> None:
    """After any history, for every session, with all that it started, in any stretch of time."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    try:
        await worlds.live(pipeline, history)
        if filters.get("since", 0) >= filters.get("until", 2**60):
            filters = {}
        for (session,) in await pipeline.index.rows("SELECT DISTINCT s.session_id FROM sessions s, turns t"):
            try:
                await checked(pipeline, session, **filters)
            except Missing:  # a session of which there is only a name
                assert not await pipeline.index.rows(_TURNS_OF, (session,))
    finally:
        await opener.close()


_TURNS_OF = "SELECT 1 FROM turns t JOIN sessions s ON s.id = t.session WHERE s.session_id = ?"


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rails(10), rails(6), rails(6), st.sampled_from(("c1", "c2", None)))
async def test_random_rails_with_agents_add_up(
    tmp_path_factory: pytest.TempPathFactory, main: list[Any], agent: list[Any], child: list[Any], call_id: str | None
) -> None:
    """Compactions, rewinds, misses, switches, missing sizes: the session, its rails and every turn of it add up."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    by = Subagent(agent_id="a1", type="Explore", parent_tool_use_id=call_id)
    told = [
        *main,
        *(moved_to(entry, "a", rail_id="a1", subagent=by) for entry in agent),
        *(moved_to(entry, "k", session_id="kid", subagent=by) for entry in child),
        Session(session_id="kid", source="claude-code", parent_session_id="s1"),
    ]
    try:
        await pipeline.commit(Batch(entries=told))
        # What no provider could have billed was not recorded.
        recorded = {row[0] for row in await pipeline.index.rows("SELECT message_id FROM turns")}
        if recorded:
            await checked(pipeline, "s1")
        for turn in main:
            if isinstance(turn, Turn) and turn.message_id in recorded:
                answer = await ask_why(pipeline, "s1", turn=turn.turn_index, limit=4)
                adds_up(answer["causes"], answer["totals"])
                assert [answer["totals"]["usage"][name] for name in USAGE] == list(msgspec.structs.astuple(turn.usage))
                assert sum(row["tokens"] for row in answer["causes"]) == turn.usage.context
    finally:
        await opener.close()


async def test_the_worked_example(opened: Opened) -> None:
    """8,000 tokens that entered at $3 and rode 20 turns at $0.30 a million cost exactly that."""
    pipeline = await opened()
    scene = worked_example()
    await pipeline.commit(Batch(entries=[*scene.entries]))
    answer = await checked(pipeline, "s1")
    (row,) = [row for row in answer["causes"] if row["kind"] == "call"]
    result_usd = Decimal(8_000 * 3 + 20 * 8_000 * 3 // 10) / 10**6
    arguments_usd = Decimal(60 * 15 + 60 * 3 + 20 * 60 * 3 // 10) / 10**6
    assert row["costUsd"] == float(result_usd + arguments_usd)
    assert (row["label"], row["entered"], row["rides"], row["reentries"]) == ("Read /p/a.py", 8_060, 20, 0)
    assert row["turnIndex"] == 0


async def test_agents_are_what_their_calls_cost(opened: Opened) -> None:
    """A call that started an agent or child session includes its cost; one without a call is marked."""
    pipeline = await opened()
    scene = Scene()
    task = call("Task", "Explore", "c1")
    scene.turn(10_000, 50, entered=(prompt(),), made=(said("call", 40, "c1"),), tool_calls=(task,))
    scene.turn(10_400, entered=(result(300),), made=(said(),))
    agent, lost = Scene(rail_id="a1"), Scene(rail_id="a2")
    by = Subagent(agent_id="a1", type="Explore", parent_tool_use_id="c1")
    agent.turn(9_000, 10, entered=(prompt(),), made=(said(),), subagent=by)
    lost.turn(8_000, 10, entered=(prompt(),), made=(said(),), subagent=Subagent(agent_id="a2"))
    await pipeline.commit(Batch(entries=[*scene.entries, *agent.entries, *lost.entries]))
    answer = await checked(pipeline, "s1")
    assert answer["agents"] == 2
    (row,) = [row for row in answer["causes"] if row["kind"] == "call"]
    assert [(a["railId"], a["type"], a["turns"]) for a in row["agents"]] == [("a1", "Explore", 1)]
    assert {below["kind"] for below in row["agents"][0]["causes"]} == {"prefix", "prompt", "answer"}
    (row,) = [row for row in answer["causes"] if row["kind"] == "subagent"]
    assert row["label"] == "subagent a2"
    closed = await ask_why(pipeline, "s1")
    assert all("causes" not in agent for row in closed["causes"] for agent in row.get("agents", []))


async def test_an_agent_may_be_named_by_the_beginning_of_its_id(opened: Opened) -> None:
    """As reports print it; an ambiguous prefix is an error."""
    pipeline = await opened()
    rails = [Scene(rail_id=name) for name in ("main", "aa11", "ab22")]
    for rail in rails:
        rail.turn(9_000, 10, entered=(prompt(),), made=(said(),))
    await pipeline.commit(Batch(entries=[entry for rail in rails for entry in rail.entries]))
    answer = await ask_why(pipeline, "s1", turn=0, rail="aa")
    assert {row["railId"] for row in answer["causes"]} == {"aa11"}
    with pytest.raises(Missing, match="several subagents") as refused:
        await ask_why(pipeline, "s1", turn=0, rail="a")
    assert "aa11" in str(refused.value.hint)
    with pytest.raises(Missing, match="no subagent ''"):
        await ask_why(pipeline, "s1", turn=0, rail="")


@pytest.mark.parametrize("beside", [{"tree": True}, {"since": "1h"}, {"until": "today"}])
async def test_one_turn_is_explained_by_itself(opened: Opened, beside: dict[str, Any]) -> None:
    """Parameters that make no sense with a turn are refused."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*worked_example().entries]))
    with pytest.raises(Refusal, match="cannot be combined"):
        await ask_why(pipeline, "s1", turn=2, **beside)


async def test_programs_get_every_cause_of_a_long_session(opened: Opened) -> None:
    """Without a limit, each of the 500 costliest causes has a row."""
    pipeline = await opened()
    scene = Scene()
    for n in range(150):
        scene.turn(10_000 + 100 * n, 20, entered=(prompt(),), made=(said(),))
    await pipeline.commit(Batch(entries=[*scene.entries]))
    causes = (await ask_why(pipeline, "s1"))["causes"]
    assert {row["turnIndex"] for row in causes if row["kind"] == "answer"} == set(range(150))
    assert "smaller" not in {row["kind"] for row in causes}


async def test_one_turn_says_what_stood_in_its_context(opened: Opened) -> None:
    """In order, with the cost of each; an unknown turn is an error that lists the turns."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*worked_example().entries]))
    answer = await ask_why(pipeline, "s", turn=2)
    assert [row["label"] for row in answer["causes"]] == [
        "system prompt, tools and memory files",
        "prompt of turn 0",
        "Read /p/a.py",
        "answer of turn 1",
        "prompt of turn 2",
        "answer of turn 2",
    ]
    (request,) = answer["requests"]
    assert request["context"] == sum(row["tokens"] for row in answer["causes"])
    assert request["miss"] is None
    with pytest.raises(Missing, match="no request 99"):
        await ask_why(pipeline, "s1", turn=99)
    with pytest.raises(Missing, match="no subagent 'x'"):
        await ask_why(pipeline, "s1", turn=1, rail="x")
    with pytest.raises(Missing, match="no session"):
        await ask_why(pipeline, "other")
    with pytest.raises(validation.BadParams, match="limit"):
        await ask_why(pipeline, "s1", limit=0)


async def test_a_turn_is_all_that_bears_its_number(opened: Opened) -> None:
    """Requests billed beside a response are included, each with its context: turns add up to their session."""
    pipeline = await opened()
    scene = Scene()
    first = scene.turn(6_000, 200, entered=(prompt(),), made=(said(),), server_tools=ServerTools(search=2))
    scene.turn(40_000, 3_000, turn_index=0, message_id=f"{first.message_id}:iter:1", model="unknown-model")
    scene.turn(6_400, 50, parent=first.message_id, turn_index=1, entered=(prompt(),), made=(said(),))
    await pipeline.commit(Batch(entries=[*scene.entries]))
    whole = await ask_why(pipeline, "s1")
    assert whole["parts"]["search"] == {"tokens": 0, "searches": 2, "costUsd": pytest.approx(0.02)}
    assert sum(part["tokens"] for part in whole["parts"].values()) == sum(whole["totals"]["usage"].values())
    turns = [await ask_why(pipeline, "s1", turn=n) for n in (0, 1)]
    adds_up([turn["totals"] for turn in turns], whole["totals"])
    assert [request["context"] for request in turns[0]["requests"]] == [6_000, 40_000]
    assert turns[0]["unpricedModels"] == ["unknown-model"]
    assert turns[0]["turn"]["turns"] == 2
    for answer in (turns[0], await ask_why(pipeline, "s1", turn=0, limit=2)):
        adds_up(answer["causes"], answer["totals"])
        adds_up(answer["requests"], answer["totals"])
    for n, request in enumerate(turns[0]["requests"]):
        assert sum(row["tokens"] for row in turns[0]["causes"] if row["request"] == n) == request["context"]


async def test_words_are_quoted_where_they_are_kept(opened: Opened) -> None:
    """The start of prompts and answers, and commands; without content the same causes without quotes."""
    pipeline = await opened()
    scene = Scene()
    command = call("Bash", "npm test", "c1", is_error=True)
    scene.turn(10_000, 50, entered=(prompt(),), made=(said("call", 40, "c1"),), tool_calls=(command,))
    scene.turn(10_400, 30, entered=(result(300),), made=(said(),))
    kept = [
        text("u1", "Fix   the flaky\ntest, please", role="user"),
        tool_use("main-0", {"command": "npm test -- checkout"}, n=1),
        tool_result("u2", "boom", n=2),
        text("main-1", "It read the clock twice.", n=3),
    ]
    await pipeline.commit(Batch(entries=[*scene.entries], content=kept))
    recall = Recall(pipeline.home.content)
    answer = await ask_why(pipeline, "s1", recall=recall)
    quotes = {row["kind"]: row.get("quote") for row in answer["causes"]}
    assert quotes["prompt"] == "Fix the flaky test, please"
    assert quotes["call"] == "npm test -- checkout"
    assert quotes["answer"] == "It read the clock twice."
    assert [row["isError"] for row in answer["causes"] if row["kind"] == "call"] == [True]
    assert answer["title"] == (await ask_why(pipeline, "s1", recall=recall, turn=0))["title"] == quotes["prompt"]
    bare = await ask_why(pipeline, "s1")
    assert bare["title"] is None
    assert bare["causes"] == [{k: v for k, v in row.items() if k != "quote"} for row in answer["causes"]]
    recall.close()


@pytest.mark.parametrize("mode", ["hash-only", "off"])
async def test_without_content_all_is_the_same(tmp_path: Path, mode: str) -> None:
    """Sizes are in the ledger: the causes are those of a home that keeps everything, without the words."""
    answers = {}
    for kept in ("full", mode):
        opener = Opened(Home(tmp_path / kept))
        pipeline = await opener(kept)
        said_so = [text("u1", "please", role="user"), text("main-0", "yes", n=1)]
        entries = worked_example().entries
        await pipeline.commit(Batch(entries=[*entries], content=said_so))
        recall = Recall(pipeline.home.content)
        answers[kept] = (await ask_why(pipeline, "s1", recall=recall))["causes"]
        recall.close()
        await opener.close()
    assert any("quote" in row for row in answers["full"])
    assert answers[mode] == [{k: v for k, v in row.items() if k != "quote"} for row in answers["full"]]


async def test_the_order_of_arrival_does_not_matter(tmp_path: Path) -> None:
    """Turn by turn, last first or all at once: the same causes."""
    scene = worked_example()
    answers = []
    for n, batches in enumerate(([scene.entries], [[e] for e in scene.entries], [[e] for e in scene.entries[::-1]])):
        opener = Opened(Home(tmp_path / str(n)))
        pipeline = await opener()
        for batch in batches:
            await pipeline.commit(Batch(entries=[*batch]))
        answers.append(await ask_why(pipeline, "s1"))
        await opener.close()
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("client", cases(client_versions()), ids=lambda path: path.name)
async def test_real_logs(client: Path, tmp_path: Path) -> None:
    """Every session of every real log: what it went to is what it cost."""
    for home, projects in enumerate(sorted(client.glob("*/projects"))):
        rig = Rig(tmp_path / str(home), projects)
        await rig.open()
        await rig.read(*rig.files(), pieces_at_once=8)
        await every_session(rig.pipeline)
        await rig.flush()
        assert await every_session(rig.pipeline) > 0
        await rig.close()


@needs_claude_corpus
async def test_a_corpus_of_claude_logs(tmp_path: Path, corpora: Corpora) -> None:
    """Forks, subagents, compactions, torn and growing lines, in a tree of a few megabytes."""
    sessions = 0
    for n, options in enumerate(CLAUDE_OPTIONS):
        tree, _ = corpora.claude(options)
        rig = Rig(tmp_path / f"home{n}", tree / "projects")
        await rig.open()
        await rig.read(*rig.files(), pieces_at_once=8)
        sessions += await every_session(rig.pipeline)
        await rig.close()
    assert sessions > 3


@needs_opencode_corpus
@pytest.mark.slow
async def test_a_corpus_of_an_opencode_database(tmp_path: Path, corpora: Corpora) -> None:
    """Child sessions are below the calls that started them."""
    corpora.opencode(tmp_path / "data" / "opencode.db")
    rig = OpenCodeRig(tmp_path / "home", tmp_path / "data")
    await rig.open()
    await rig.settle()
    assert await every_session(rig.pipeline) > 3
    await rig.close()


async def every_session(pipeline: Pipeline) -> int:
    sessions = await pipeline.index.rows(
        "SELECT DISTINCT s.session_id FROM turns t JOIN sessions s ON s.id = t.session"
    )
    for (session,) in sessions:
        await checked(pipeline, session)
    return len(sessions)


async def test_proved_misses_outlive_index_and_logs(opened: Opened) -> None:
    """Their evidence is in the ledger: an index that is built again gives the same answer."""
    facts: dict[str, Any] = {"params": "p1", "effort": "high", "breakpoints": 3}
    scene = Scene()
    first = RequestFacts(shape="s1", messages=2, **facts)
    scene.turn(0, usage=Usage(cache_create_5m=20_000), entered=(prompt(),), made=(said(),), request=first)
    changed = RequestFacts(shape="s2", messages=4, same=2, before=2, **facts)
    change = PromptChange(kind="mcp", name="github")
    usage = Usage(cache_create_5m=20_150)
    scene.turn(0, usage=usage, entered=(prompt(168),), request=changed, prompt_changes=(change,))
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*scene.entries]))
    answer = await ask_why(pipeline, "s1")
    (miss,) = answer["misses"]
    assert (miss["reason"], miss["proof"], miss["count"]) == ("prefix", "proved", 1)
    assert miss["changes"] == [{"kind": "mcp", "name": "github"}]
    assert miss["usage"]["cacheCreate5m"] == 20_000
    assert miss["costUsd"] == pytest.approx(20_000 * 3.75 / 1e6)
    assert miss["requests"] == [{"sessionId": "s1", "railId": "main", "turnIndex": 1}]
    assert answer["cacheTtl"]["written"] == ["5m"]
    assert answer["cacheTtl"]["if1hUsd"] == pytest.approx(40_150 * 6 / 1e6)
    one = await ask_why(pipeline, "s1", turn=1)
    assert one["requests"][0]["miss"]["proof"] == "proved"
    await opened.close()
    shutil.rmtree(opened.home.index)
    assert await ask_why(await opened(), "s1") == answer
