"""Usage that a harness reports beyond its log: a separate line, never negative, never in the totals."""

from __future__ import annotations

from typing import Any

import pytest

from burnd.index.unlogged import excess
from burnd.pricing import Tokens
from burnd.recording.candidate import Batch
from burnd.records import Compaction, Copy, Overhead, Request, ServerTools, Session, ToolCall, Usage
from tests.conftest import Opened
from tests.make import at, turn
from tests.queries.asking import ask_summary

MODEL = "claude-sonnet-4-5"


def says(
    session_id: str = "s1",
    model: str = MODEL,
    seconds: float = 0,
    searches: int = 0,
    since: str | None = None,
    **usage: int,
) -> Overhead:
    return Overhead(
        source="claude-code",
        session_id=session_id,
        ts=at(seconds),
        models={model: Usage(**usage)},
        since=since,
        searches={model: searches} if searches else {},
    )


def own(message_id: str, **facts: Any) -> Any:
    return turn(message_id, **{"usage": Usage(input=100, output=10), "project": "/p"} | facts)


async def unlogged(opened: Opened, *entries: Any, **params: Any) -> Any:
    pipeline = opened.pipeline or await opened()
    await pipeline.commit(Batch(entries=list(entries)))
    answer = await ask_summary(pipeline.index, **params)
    return answer["unlogged"]


async def test_what_no_turn_accounts_for_has_its_own_line(opened: Opened) -> None:
    """Titles and compactions are in no log, but the harness counted them: they are shown, beside the totals."""
    found = await unlogged(opened, own("m1"), says(input=600, output=20))
    assert (found["usage"]["input"], found["usage"]["output"]) == (500, 10)
    assert found["models"] == [MODEL]
    assert found["costUsd"] == pytest.approx(500 * 3e-6 + 10 * 15e-6)
    assert opened.pipeline is not None
    totals = (await ask_summary(opened.pipeline.index))["totals"]
    assert (totals["turns"], totals["usage"]["input"]) == (1, 100)


async def test_turns_that_come_later_take_it_back(opened: Opened) -> None:
    """Late lines are not an overhead, and a harness total below the log is ignored."""
    assert (await unlogged(opened, says(input=300)))["usage"]["input"] == 300
    assert (await unlogged(opened, own("m1")))["usage"]["input"] == 200
    assert await unlogged(opened, own("m2", turn_index=1), own("m3", turn_index=2), own("m4", turn_index=3)) is None


async def test_a_fork_has_its_past_from_elsewhere(opened: Opened) -> None:
    """A forked session's total includes what it copied: that was paid for in the session it was copied from."""
    copy = Copy(source="claude-code", session_id="fork", rail_id="main", message_id="m1", turn_index=0, ts=at(0))
    entries = [own("m1"), copy, own("m2", session_id="fork", turn_index=1), says("fork", input=250)]
    assert (await unlogged(opened, *entries))["usage"]["input"] == 50
    # The original turns out to have used more: so did what the fork holds of it.
    assert await unlogged(opened, own("m1", usage=Usage(input=170, output=10))) is None


async def test_searches_that_the_log_does_not_state_cost_their_fee(opened: Opened) -> None:
    """A running total counts all searches: those that a result or a usage states are no overhead."""
    call = ToolCall(id="c1", name="WebSearch", is_error=False, searches=2)
    entries = [own("m1", tool_calls=(call,)), says(input=100, output=10, searches=3)]
    assert (await unlogged(opened, *entries))["costUsd"] == pytest.approx(0.01)
    assert await unlogged(opened, own("m2", turn_index=1, server_tools=ServerTools(search=1))) is None


async def test_a_total_that_began_again_is_added_to_the_one_before(opened: Opened) -> None:
    """After a kill the client counts from nothing; within one count the largest total holds."""
    before = [says(seconds=1, since=at(0), input=300), says(seconds=2, since=at(0), input=400)]
    after = [says(seconds=9, since=at(8), input=50)]
    assert (await unlogged(opened, own("m1"), *before))["usage"]["input"] == 300
    assert (await unlogged(opened, *after))["usage"]["input"] == 350


async def test_subagents_and_long_contexts_are_accounted_for(opened: Opened) -> None:
    """A session's total covers its subagents, and `[1m]` is the same model."""
    entries = [own("m1"), own("m2", rail_id="a1", turn_index=0), says(model=MODEL + "[1m]", input=200, output=20)]
    assert await unlogged(opened, *entries) is None


@pytest.mark.parametrize(
    ("filters", "is_there"),
    [
        ({"model": MODEL}, True),
        ({"model": "gpt-5"}, False),
        ({"source": "claude-code"}, True),
        ({"source": "opencode"}, False),
        ({"project": "/p"}, True),
        ({"project": "/elsewhere"}, False),
        ({"session": "s1"}, True),
        ({"session": "s2"}, False),
        ({"tags": {"k": "v"}}, False),
        ({"activity": "coding"}, False),
        ({"since": at(900), "until": at(1000)}, True),
        ({"since": at(999.999)}, False),
        ({"by": "day", "tz": "+05:45"}, True),
        ({"by": "session"}, True),
    ],
)
async def test_filters_hold_for_it_as_well(opened: Opened, filters: dict[str, Any], is_there: bool) -> None:
    """It counts at its time and place, and for no activity, branch or tag."""
    entries = [own("m1"), own("m2", session_id="s2", model="gpt-5", source="opencode"), says(seconds=999, input=900)]
    found = await unlogged(opened, *entries, Session(session_id="s1", source="claude-code", project="/p"), **filters)
    assert (found is not None) == is_there


def request(request_id: str = "r1", tokens: int = 5000, **facts: Any) -> Request:
    where = {"source": "claude-code", "session_id": "s1", "rail_id": "main", "ts": at(5), "model": MODEL}
    return Request(id=request_id, usage=Usage(cache_read=tokens), **where | facts)


def compaction(seconds: float, tokens: int | None = 9000, **facts: Any) -> Compaction:
    where = {"source": "claude-code", "session_id": "s1", "rail_id": "main", "id": f"k{seconds}", "ts": at(seconds)}
    return Compaction(before_tokens=tokens, **where | facts)


async def test_requests_without_a_response_are_counted_with_the_least_they_used(opened: Opened) -> None:
    """Beside what the harness states, since that leaves them out; one that is withdrawn counts no more, for good."""
    found = await unlogged(opened, own("m1"), says(input=600, output=20), request(), request("r2", tokens=0))
    assert (found["requests"], found["usage"]["cacheRead"], found["usage"]["input"]) == (2, 5000, 500)
    assert found["costUsd"] == pytest.approx(500 * 3e-6 + 10 * 15e-6 + 5000 * 0.3e-6)
    assert (await unlogged(opened, until=at(5)))["requests"] == 0
    assert (await unlogged(opened, since=at(4), by="session"))["requests"] == 2
    found = await unlogged(opened, request(withdrawn=True), request())
    assert (found["requests"], found["usage"]["cacheRead"]) == (1, 0)


async def test_a_compaction_counts_where_no_figure_of_the_harness_holds_it(opened: Opened) -> None:
    """It is in a figure that was stated after it and is more than the log, and in some releases in an agent's log."""
    found = await unlogged(opened, own("m1"), compaction(10), compaction(20, tokens=None), compaction(11, copied=True))
    assert (found["requests"], found["usage"]["cacheRead"], found["models"]) == (2, 9000, [MODEL])
    found = await unlogged(opened, says(seconds=15, input=100, output=11))
    assert (found["requests"], found["usage"]["cacheRead"], found["usage"]["output"]) == (1, 0, 1)
    assert (await unlogged(opened, own("m2", rail_id="acompact-1", ts=at(19), usage=Usage())))["requests"] == 0
    codex = compaction(30, source="codex", session_id="s2")
    assert (await unlogged(opened, codex))["requests"] == 0


def test_parts_that_a_harness_does_not_tell_apart_are_compared_in_sum() -> None:
    """Output with reasoning in it, and writes without a split, give no overhead where their sums agree."""
    used = Tokens(output=60, reasoning=40, cache_create_5m=10, cache_create_1h=90)
    assert not any(excess(Tokens(output=100, cache_create_5m=100), used))
    assert excess(Tokens(output=130, reasoning=45, cache_create_5m=30, cache_create_1h=95), used) == Tokens(
        output=70, reasoning=5, cache_create_5m=20, cache_create_1h=5
    )
    assert not any(excess(Tokens(), used))
