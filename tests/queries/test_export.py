"""Exports turns one by one: all of them once, in order, with stamps and costs, in any pages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.contract.reports import ExportParams
from burnd.paths import Home
from burnd.pricing import PriceTable
from burnd.queries.export import export
from burnd.queries.view import Refusal
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import ServerTools, Session, Subagent, Usage
from burnd.records.codec import Entry
from tests.conftest import Opened
from tests.folded import Folded
from tests.make import at, examples, stamp, turn
from tests.queries.looking import look

NOW = at(100_000)


async def page(pipeline: Pipeline, **params: Any) -> dict[str, Any]:
    return await look(pipeline, lambda view: export(view, ExportParams(**params)), NOW)


async def everything(pipeline: Pipeline, limit: int = 1000, **filters: Any) -> list[dict[str, Any]]:
    """All pages, one after another."""
    turns: list[dict[str, Any]] = []
    after = None
    while True:
        answer = await page(pipeline, limit=limit, after=after, **filters)
        turns += answer["turns"]
        if (after := answer["next"]) is None:
            return turns


async def test_a_turn_with_its_stamps_and_its_cost(opened: Opened) -> None:
    """All columns of a turn, its tags, and its cost at API prices, unrounded."""
    pipeline = await opened()
    made = turn(
        provider="anthropic",
        project="/p",
        project_key="github.com/a/p",
        git_branch="main",
        parent="m0",
        activity="coding",
        stop_reason="end_turn",
        has_edits=True,
        retries=1,
        prompt_id="p1",
        prompt_retries=2,
        server_tools=ServerTools(search=2, fetch=1),
        subagent=Subagent(agent_id="a1", type="Explore", parent_tool_use_id="c9"),
        usage=Usage(input=10, output=20, cache_read=300, cache_create_5m=40, cache_create_1h=5),
    )
    await pipeline.commit(Batch(entries=[made, stamp(1, persona="senior"), stamp(2, message="m1", step="review")]))
    (shown,) = await everything(pipeline)
    assert shown == {
        "ts": at(0),
        "source": "claude-code",
        "sessionId": "s1",
        "railId": "main",
        "messageId": "m1",
        "turnIndex": 0,
        "parent": "m0",
        "model": "claude-sonnet-4-5",
        "provider": "anthropic",
        "project": "/p",
        "projectKey": "github.com/a/p",
        "gitBranch": "main",
        "usage": {
            "input": 10,
            "output": 20,
            "reasoning": 0,
            "cacheRead": 300,
            "cacheCreate5m": 40,
            "cacheCreate1h": 5,
        },
        "costUsd": 0.0206,
        "isHarnessCost": False,
        "speed": None,
        "searches": 2,
        "fetches": 1,
        "quality": "final",
        "open": False,
        "activity": "coding",
        "stopReason": "end_turn",
        "hasEdits": True,
        "retries": 1,
        "promptId": "p1",
        "promptRetries": 2,
        "agentId": "a1",
        "agentType": "Explore",
        "parentToolUseId": "c9",
        "agent": None,
        "tags": {"persona": "senior", "step": "review"},
    }


async def test_a_named_agent_is_a_field(opened: Opened) -> None:
    """Not of a subagent: that has a type."""
    pipeline = await opened()
    explorer = Subagent(agent_id="a1", type="Explore")
    await pipeline.commit(Batch(entries=[turn("m1", agent="build"), turn("m2"), turn("m3", subagent=explorer)]))
    agents = {shown["messageId"]: shown["agent"] for shown in await everything(pipeline)}
    assert agents == {"m1": "build", "m2": None, "m3": None}


async def test_what_has_no_price_has_no_cost(opened: Opened) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("m1", model="nobody-knows"), turn("m2", model="glm-4.7-flash")]))
    costs = {shown["messageId"]: shown["costUsd"] for shown in await everything(pipeline)}
    assert costs == {"m1": None, "m2": 0.0}


async def test_tier_and_speed_count(opened: Opened) -> None:
    """A turn is priced by its own context and speed, as everywhere."""
    pipeline = await opened()
    large = turn("m1", model="gemini-2.5-pro", usage=Usage(input=200_001))
    fast = turn("m2", usage=Usage(input=1000), speed="fast")
    await pipeline.commit(Batch(entries=[large, fast]))
    costs = {shown["messageId"]: shown["costUsd"] for shown in await everything(pipeline)}
    assert costs == {"m1": 0.5000025, "m2": 0.006}


async def test_turns_that_used_nothing_are_left_out(opened: Opened) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("m1", quality="empty"), turn("m2", quality="partial")]))
    assert [shown["messageId"] for shown in await everything(pipeline)] == ["m2"]


@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=25), st.integers(1, 7))
async def test_pages_hold_every_turn_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, str]], limit: int
) -> None:
    """Turns with equal times and tiny pages; the order differs from the ledger's."""
    opener = Opened(Home(tmp_path_factory.mktemp("pages") / "home"))
    turns = [turn(f"m{n}", ts=at(second), session_id=s, turn_index=n) for n, (second, s) in enumerate(made)]
    try:
        pipeline = await opener()
        await pipeline.commit(Batch(entries=list(turns)))
        found = await everything(pipeline, limit)
    finally:
        await opener.close()
    order = sorted(turns, key=lambda t: (t.ts, t.session_id, t.rail_id, t.turn_index))
    assert [shown["messageId"] for shown in found] == [t.message_id for t in order]


async def test_tags_are_folded_as_everywhere(opened: Opened) -> None:
    """A session's stamps cover its children, ranges are half open, and the last word counts."""
    pipeline = await opened()
    entries: list[Entry] = [
        Session(session_id="child", source="claude-code", parent_session_id="s1"),
        *(turn(f"m{n}", ts=at(n), turn_index=n) for n in range(4)),
        turn("c1", session_id="child", ts=at(9)),
        stamp(1, persona="junior", workflowId="wf"),
        stamp(2, persona="senior", within=(1, 3)),
        stamp(3, session="child", persona="own"),
    ]
    await pipeline.commit(Batch(entries=entries))
    found = {shown["messageId"]: shown["tags"] for shown in await everything(pipeline)}
    folded = Folded(pipeline.journal.read())
    assert found == {t.message_id: folded.tags(t) for t in folded.turns.values()}
    assert found["c1"] == {"persona": "own", "workflowId": "wf"}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"since": at(2)}, ["m2", "m3", "c1"]),
        ({"until": at(2)}, ["m0", "m1"]),
        ({"since": at(1), "until": at(3)}, ["m1", "m2"]),
        ({"session": "s1"}, ["m0", "m1", "m2", "m3", "c1"]),
        ({"session": "child"}, ["c1"]),
        ({"source": "opencode"}, ["c1"]),
        ({"model": "claude-opus-5"}, ["m3"]),
        ({"project": "/p"}, ["m0"]),
        ({"branch": "dev"}, ["m1"]),
        ({"activity": "testing"}, ["m2"]),
        ({"tags": {"persona": "senior"}}, ["m1", "m2"]),
        ({"tags": {"step": "review"}}, ["m0"]),
        ({"workflow": "wf"}, ["m0", "m1", "m2", "m3", "c1"]),
        ({"workflow": "wf", "since": at(3)}, ["m3", "c1"]),
        ({"agent": "a1"}, ["m3"]),
    ],
)
async def test_filters(opened: Opened, filters: dict[str, Any], expected: list[str]) -> None:
    """The filters of every report, page by page."""
    pipeline = await opened()
    entries: list[Entry] = [
        Session(session_id="child", source="opencode", parent_session_id="s1"),
        turn("m0", ts=at(0), project="/p"),
        turn("m1", ts=at(1), turn_index=1, git_branch="dev"),
        turn("m2", ts=at(2), turn_index=2, activity="testing"),
        turn("m3", ts=at(3), turn_index=3, model="claude-opus-5", subagent=Subagent(agent_id="a1")),
        turn("c1", ts=at(9), session_id="child", source="opencode"),
        stamp(1, workflowId="wf"),
        stamp(2, persona="senior", within=(1, 3)),
        stamp(3, message="m0", step="review"),
    ]
    await pipeline.commit(Batch(entries=entries))
    for limit in (1, 2, 1000):
        assert [shown["messageId"] for shown in await everything(pipeline, limit, **filters)] == expected


async def test_open_turns_are_marked(opened: Opened) -> None:
    from burnd.index.change import Change, FileChange, OpenTurn

    pipeline = await opened()
    await pipeline.commit(Batch(files=[FileChange("claude-code", "/f", b"c")]))
    await pipeline._stores.apply(Change(open=[OpenTurn(turn("m1"), "claude-code", "/f")]))
    (shown,) = await everything(pipeline)
    assert shown["open"] is True


async def test_a_bad_filter_is_refused(opened: Opened) -> None:
    pipeline = await opened()
    for wrong in ({"since": "the day before"}, {"after": "somewhere"}, {"after": "[1]"}):
        with pytest.raises(Refusal):
            await page(pipeline, **wrong)


async def test_whole_days(opened: Opened) -> None:
    """For files that hold a day each, the time grows to whole days of UTC."""
    pipeline = await opened()
    hours = (-30, -20, -4, 4, 20, 30)  # from 20:26 UTC on
    await pipeline.commit(Batch(entries=[turn(f"m{hour}", ts=at(hour * 3600)) for hour in hours]))
    asked: dict[str, Any] = {"since": at(-10 * 3600), "until": at(10 * 3600)}
    assert [shown["messageId"] for shown in await everything(pipeline, **asked)] == ["m-4", "m4"]
    found = [shown["messageId"] for shown in await everything(pipeline, whole_days=True, **asked)]
    assert found == ["m-20", "m-4", "m4", "m20"]


async def test_costs_add_up_to_the_cent(opened: Opened) -> None:
    """The sum over an export is the sum over the turns themselves."""
    from decimal import Decimal

    from burnd.pricing import Tokens, turn_cost, usd

    pipeline = await opened()
    turns = [turn(f"m{n}", turn_index=n, usage=Usage(input=n * 7, output=n * 13, cache_read=n)) for n in range(300)]
    await pipeline.commit(Batch(entries=list(turns)))
    price = PriceTable.load().find("claude-sonnet-4-5")
    assert price is not None
    truth = sum((turn_cost(price, Tokens(n * 7, n * 13, 0, n)) for n in range(300)), 0)
    found = sum(Decimal(repr(shown["costUsd"])) for shown in await everything(pipeline, 37))
    assert found == usd(truth)
