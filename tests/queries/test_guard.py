"""Limits of the guard: a session counts with its family, failures count only in a row."""

from __future__ import annotations

from typing import Any

from burnd.queries.guard import NextCall, Use, line_of, uses
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Session, Subagent, ToolCall, Usage
from burnd.records.times import to_iso
from tests.conftest import Opened
from tests.make import START_MS, turn
from tests.queries.looking import look

MINUTE_MS = 60_000
LIMITS = {"session_usd": 1.0, "session_tokens": 1000, "session_subagents": 2, "failing_calls": 3, "day_usd": 5.0}
WINDOW = {"window_usd": 1.0, "window_tokens": 1000}


def spends(name: str, minute: int = 0, *, output: int = 10_000, **changes: Any) -> Any:
    """A turn that costs $0.15."""
    return turn(name, ts=to_iso(START_MS + minute * MINUTE_MS), usage=Usage(output=output), **changes)


def calls(name: str, minute: int, tool: str, *, failed: bool | None, target: str = "npm test") -> Any:
    one = ToolCall(id=f"call-{name}", name=tool, target=target, is_error=failed)
    return spends(name, minute, tool_calls=(one,))


async def used(
    pipeline: Pipeline,
    session: str | None,
    call: NextCall | None = None,
    *,
    source: str = "claude-code",
    limits: dict[str, float] = LIMITS,
) -> dict[str, Any]:
    def ask(view: Any) -> list[Use]:
        return uses(view, limits, source, session, call)

    now = to_iso(START_MS + 30 * MINUTE_MS)
    return {use.key: use.used for use in await look(pipeline, ask, now)}


async def test_a_session_counts_with_all_that_it_and_its_parent_started(opened: Opened) -> None:
    """A child session is stopped when its family is over the limit; other sessions count for the day alone."""
    pipeline = await opened()
    child = Session(session_id="child", source="opencode", parent_session_id="s1")
    agent = Subagent(is_sidechain=True, agent_id="a1", type="Explore")
    turns = [
        spends("m1"),
        spends("m2", session_id="child", source="opencode"),
        spends("m3", rail_id="a1", subagent=agent),
        spends("m4", session_id="other"),
    ]
    await pipeline.commit(Batch(entries=[child, *turns]))
    for session in ("s1", "child"):
        found = await used(pipeline, session)
        assert found["session_usd"] == 0.45
        assert found["session_tokens"] == 30_000
        assert found["session_subagents"] == 2
    assert (await used(pipeline, "other"))["session_usd"] == 0.15
    assert (await used(pipeline, None)) == {"day_usd": 0.6}
    assert await look(pipeline, lambda view: line_of(view, "child"), to_iso(START_MS)) == ["child", "s1"]
    # The window is that of a harness, and so is what it used.
    assert await used(pipeline, None, limits=WINDOW) == {"window_usd": 0.45, "window_tokens": 30_000}
    assert await used(pipeline, None, source="opencode", limits=WINDOW) == {"window_usd": 0.15, "window_tokens": 10_000}
    assert await used(pipeline, None, source="codex", limits=WINDOW) == {"window_usd": 0, "window_tokens": 0}


async def test_an_unknown_session_has_used_nothing(opened: Opened) -> None:
    pipeline = await opened()
    found = await used(pipeline, "unknown")
    assert found == {"session_usd": 0, "session_tokens": 0, "session_subagents": 0, "failing_calls": 0, "day_usd": 0}


async def test_only_equal_failures_in_a_row_count(opened: Opened) -> None:
    """A success, another target or another tool ends the run; the call that is about to run is skipped."""
    pipeline = await opened()
    await pipeline.commit(
        Batch(
            entries=[
                calls("m1", 1, "Bash", failed=True, target="make"),
                calls("m2", 2, "Bash", failed=True),
                calls("m3", 3, "Bash", failed=True),
                calls("m4", 4, "Bash", failed=None),
            ]
        )
    )
    assert (await used(pipeline, "s1"))["failing_calls"] == 2
    for equal in (NextCall("Bash"), NextCall("Bash", "cd x && npm test --watch"), NextCall("shell", "npm test")):
        assert (await used(pipeline, "s1", equal))["failing_calls"] == 2
    for other in (NextCall("Bash", "ls"), NextCall("Read"), NextCall("Read", "npm test")):
        assert (await used(pipeline, "s1", other))["failing_calls"] == 0
    await pipeline.commit(Batch(entries=[calls("m5", 5, "Bash", failed=False)]))
    assert (await used(pipeline, "s1"))["failing_calls"] == 0


def test_sentences_name_the_limit() -> None:
    assert Use("session_usd", 5, 5.2).sentence() == "this session cost $5.20 at API prices (limit $5.00)"
    assert Use("day_tokens", 1e6, 1_200_000).sentence() == "today used 1,200,000 tokens (limit 1,000,000)"
    assert Use("session_subagents", 3, 4).sentence() == "this session started 4 subagents (limit 3)"
    assert Use("failing_calls", 3, 3).sentence() == "the same call failed 3 times in a row (limit 3)"
    assert Use("failing_calls", 3, 3, "Bash npm test").sentence() == "Bash npm test failed 3 times in a row (limit 3)"
    assert Use("window_usd", 9, 9).is_reached
    assert not Use("window_usd", 9, None).is_reached
