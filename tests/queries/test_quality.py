"""Quality of work: one-shot prompts by their first edit, sessions by their last turn."""

from __future__ import annotations

from typing import Any

import pytest

from burnd.queries.summary import OUTCOMES, outcome, wilson
from burnd.recording.candidate import Batch
from burnd.records import Event, Session, Subagent, ToolCall
from tests.conftest import Opened
from tests.make import at, turn
from tests.queries.asking import NOW, ask_summary, by_key

LATER = NOW + 86_400_000


def edit(message_id: str, prompt: str | None, retries: int | None, **facts: Any) -> Any:
    return turn(
        message_id,
        **{"prompt_id": prompt, "prompt_retries": retries, "has_edits": True, "retries": 0, "activity": "coding"}
        | facts,
    )


async def quality(opened: Opened, *entries: Any, **params: Any) -> dict[str, Any]:
    pipeline = opened.pipeline or await opened()
    await pipeline.commit(Batch(entries=list(entries)))
    return await ask_summary(pipeline.index, now=LATER, quality=True, **params)


async def test_a_prompt_is_one_shot_when_no_edit_had_to_be_made_again(opened: Opened) -> None:
    """Each prompt that edited counts once, however many turns it took; its retries are those of its last edit."""
    entries = [
        edit("m1", "p1", 0),
        edit("m2", "p1", 0, turn_index=1, ts=at(1)),
        edit("m3", "p2", 0, turn_index=2, ts=at(2)),
        edit("m4", "p2", 2, turn_index=3, ts=at(3)),
        turn("m5", prompt_id="p3", prompt_retries=0, has_edits=False, turn_index=4, ts=at(4)),
        edit("m6", None, 0, turn_index=5, ts=at(5)),
    ]
    judged = (await quality(opened, *entries))["quality"]
    assert (judged["editPrompts"], judged["oneShotPrompts"], judged["oneShotPromptRate"]) == (2, 1, 0.5)
    assert (judged["editTurns"], judged["oneShotTurns"], judged["oneShotRate"]) == (5, 5, 1.0)
    assert judged["oneShotInterval"] == pytest.approx([0.0945, 0.9055], abs=1e-4)


async def test_a_prompt_counts_where_its_first_edit_was_made(opened: Opened) -> None:
    """A prompt that began as a feature and ended in debugging is one prompt, of the model and work it began with."""
    entries = [
        edit("m1", "p1", 0, activity="feature", ts=at(1)),
        edit("m2", "p1", 1, activity="debugging", model="gpt-5", turn_index=1, ts=at(2)),
    ]
    answer = await quality(opened, *entries, by="activity")
    rows = by_key(answer)
    assert (rows["feature"]["quality"]["editPrompts"], rows["feature"]["quality"]["oneShotPrompts"]) == (1, 0)
    assert rows["debugging"]["quality"]["editPrompts"] == 0
    assert rows["debugging"]["quality"]["oneShotPromptRate"] is None
    assert rows["debugging"]["quality"]["oneShotRate"] == 1.0


async def test_a_revision_takes_a_judgement_back(opened: Opened) -> None:
    """A turn that is revised to have made no edit, or that changes hands, takes its prompt along."""
    assert (await quality(opened, edit("m1", "p1", 1)))["quality"]["editPrompts"] == 1
    moved = await quality(opened, edit("m1", "p1", 0, session_id="other"))
    assert (moved["quality"]["editPrompts"], moved["quality"]["oneShotPrompts"]) == (1, 1)
    gone = await quality(opened, turn("m1", session_id="other", prompt_id="p1"))
    assert gone["quality"]["editPrompts"] == 0


RULES = [
    # stop reason, event after it, quality, still going on, and how that is judged
    ("end_turn", None, "final", False, "completed"),
    ("stop", None, "final", False, "completed"),
    ("stop_sequence", None, "final", True, "completed"),
    ("tool_use", None, "final", False, "abandoned"),
    ("tool-calls", None, "final", False, "abandoned"),
    ("tool_use", None, "final", True, "unknown"),
    ("end_turn", "interrupt", "final", False, "abandoned"),
    ("tool_use", "interrupt", "final", True, "abandoned"),
    ("end_turn", "no_response", "final", False, "abandoned"),
    ("end_turn", "api_error", "final", False, "errored"),
    ("tool_use", "api_error", "partial", True, "errored"),
    ("refusal", "refusal", "final", False, "errored"),
    ("refusal", None, "final", False, "errored"),
    ("content-filter", None, "final", False, "errored"),
    (None, None, "empty", False, "errored"),
    (None, None, "empty", True, "unknown"),
    (None, None, "final", False, "unknown"),
    ("end_turn", None, "partial", False, "unknown"),
    ("max_tokens", None, "final", False, "unknown"),
    ("something new", None, "final", False, "unknown"),
]


@pytest.mark.parametrize(("stop", "event", "told", "goes_on", "expected"), RULES)
def test_the_rules_of_outcomes(stop: str | None, event: str | None, told: str, goes_on: bool, expected: str) -> None:
    """docs/reports.md has these rules."""
    assert outcome(stop, event, quality=told, may_go_on=goes_on) == expected
    assert expected in OUTCOMES


def happens(name: str, seconds: float, session_id: str = "s1", rail: str = "main") -> Event:
    return Event(
        source="claude-code", session_id=session_id, rail_id=rail, id=f"{name}{seconds}", ts=at(seconds), name=name
    )


async def test_a_session_is_judged_by_its_end(opened: Opened) -> None:
    """The last turn of the main rail and what followed it decide; subagents, retries and earlier trouble do not."""
    sub = Subagent(agent_id="a1")
    entries = [
        turn("m1", stop_reason="tool_use"),
        happens("api_error", 1),
        turn("m2", turn_index=1, ts=at(2), stop_reason="end_turn"),
        happens("retry", 3),
        turn("m3", rail_id="a1", subagent=sub, ts=at(9), stop_reason="tool_use"),
        happens("interrupt", 10, rail="a1"),
    ]
    sessions = (await quality(opened, *entries))["quality"]["sessions"]
    assert sessions == {"completed": 1, "abandoned": 0, "errored": 0, "unknown": 0}
    sessions = (await quality(opened, happens("interrupt", 4)))["quality"]["sessions"]
    assert sessions == {"completed": 0, "abandoned": 1, "errored": 0, "unknown": 0}
    assert opened.pipeline is not None
    await opened.pipeline.rebuild_index()
    assert (await quality(opened))["quality"]["sessions"] == sessions


async def test_a_session_counts_where_its_last_turn_does(opened: Opened) -> None:
    """Rows and filters see a session by its last turn; a child session is a part of its parent's work."""
    call = (ToolCall(id="c", name="Read"),)
    entries = [
        turn("m1", stop_reason="tool_use", tool_calls=call),
        turn("m2", turn_index=1, ts=at(5), model="gpt-5", source="opencode", stop_reason="stop"),
        turn("k1", session_id="kid", stop_reason="tool_use"),
        Session(session_id="kid", source="claude-code", parent_session_id="s1"),
    ]
    answer = await quality(opened, *entries, by="model")
    assert answer["quality"]["sessions"]["completed"] == 1
    assert sum(answer["quality"]["sessions"].values()) == 1
    rows = by_key(answer)
    assert rows["gpt-5"]["quality"]["sessions"]["completed"] == 1
    assert sum(rows["claude-sonnet-4-5"]["quality"]["sessions"].values()) == 0
    narrowed = await quality(opened, until=at(5))
    assert sum(narrowed["quality"]["sessions"].values()) == 0


async def test_a_session_that_may_go_on_is_not_judged(opened: Opened) -> None:
    """Calls made a minute ago may still get results."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("m1", stop_reason="tool_use", ts=at(3600))]))
    soon = await ask_summary(pipeline.index, now=NOW + 60_000, quality=True)
    assert soon["quality"]["sessions"]["unknown"] == 1
    late = await ask_summary(pipeline.index, now=NOW + 3_600_000, quality=True)
    assert late["quality"]["sessions"]["abandoned"] == 1


def test_intervals_are_wilsons() -> None:
    """Values worked out by hand from Wilson's formula; no data has no interval, and none leaves 0 to 1."""
    assert wilson(0, 0) is None
    assert wilson(8, 10) == pytest.approx([0.4902, 0.9433], abs=1e-4)
    assert wilson(0, 5) == pytest.approx([0.0, 0.4345], abs=1e-4)
    assert wilson(5, 5) == pytest.approx([0.5655, 1.0], abs=1e-4)
    assert wilson(50, 100) == pytest.approx([0.4038, 0.5962], abs=1e-4)
