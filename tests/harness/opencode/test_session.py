"""The walk through a session: prompts, what enters each step, turn numbers, and how steps end."""

from __future__ import annotations

from typing import Any

from burnd.harness.opencode.rows import SessionRow
from burnd.harness.opencode.session import Step, session_record
from burnd.records import Basis, Compaction
from tests.harness.opencode.data import BORN_MS, reasoning, text, tokens, tool
from tests.harness.opencode.reading import ROW, step, user, user_message, walk_all

SYNTHETIC = {"type": "text", "text": "Continue", "synthetic": True}


def sizes(blocks: Any) -> list[tuple[str, int]]:
    return [(block.kind, block.bytes) for block in blocks]


def test_results_and_prompts_since_the_last_step_enter_the_next() -> None:
    """The prompt, then the results of its calls, then what was asked meanwhile."""
    steps = walk_all(
        user("u1", text("please")),
        step("a1", "u1", text("ok"), tool("c1", "read", {"filePath": "/x"}, "12345")),
        user("u2", text("and this"), SYNTHETIC),
        step("a2", "u2", reasoning("hm"), text("done")),
    )
    assert [(one.turn.turn_index, one.turn.parent) for one in steps] == [(0, None), (1, "a1")]
    assert sizes(steps[0].turn.entered) == [("prompt", 6)]
    assert sizes(steps[1].turn.entered) == [("result", 5), ("prompt", 8), ("reminder", 8)]
    assert sizes(steps[1].turn.made) == [("thinking", 2), ("text", 4)]


def test_prompts_of_people_differ_from_rows_that_opencode_writes() -> None:
    """A text, a file or a mention by a person makes a prompt; synthetic and ignored parts do not."""
    assert user_message(text("hi")).is_human
    assert user_message(SYNTHETIC, {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}).is_human
    assert user_message({"type": "agent", "name": "explore"}).is_human
    for parts in ([SYNTHETIC], [{"type": "compaction", "auto": True}], [{"type": "subtask", "prompt": "x"}], []):
        assert not user_message(*parts).is_human
    assert not user_message({"type": "text", "text": "x", "ignored": True}).is_human
    assert user_message({"type": "text", "text": "x", "ignored": True}).blocks == ()


def test_a_step_works_on_the_prompt_its_row_answers() -> None:
    """Steps after a text of opencode still belong to the user's prompt; a queued prompt is separate."""
    steps = walk_all(
        user("u1", text("fix the bug")),
        step("a1", "u1"),
        user("u2", SYNTHETIC),
        step("a2", "u2"),
        user("u3", text("and add a test")),
        step("a3", "u1"),
        step("a4", "u3"),
        step("a5", "gone"),
    )
    assert [one.turn.prompt_id for one in steps] == ["u1", "u1", "u1", "u3", "u3"]
    assert [one.turn.prompt_words for one in steps[2:4]] == [("debugging",), ("feature",)]


def test_a_prompt_that_an_overflow_repeats_is_the_same_prompt() -> None:
    """After a compaction opencode may ask the last question again under a new id, without a mark."""
    ask, again = text("a long story"), user("u3", {"type": "compaction", "auto": True, "overflow": True})
    summary = step("a2", "u3", text("## Goal"), summary=True)
    steps = walk_all(user("u1", ask), step("a1", "u1"), again, summary, user("u4", ask), step("a3", "u4"))
    assert [one.turn.prompt_id for one in steps] == ["u1", "u1", "u1"]
    typed = walk_all(user("u1", ask), step("a1", "u1"), user("u4", ask), step("a3", "u4"))
    assert [one.turn.prompt_id for one in typed] == ["u1", "u4"]


def test_retries_are_walked_through_all_steps_of_a_prompt() -> None:
    """Edit, run, edit in three steps is one retry of the prompt, and none of any step."""
    edit, run = tool("c", "edit", {"filePath": "/x"}), tool("d", "bash", {"command": "pytest"}, metadata={"exit": 1})
    steps = walk_all(
        user("u1", text("do")), step("a1", "u1", edit), step("a2", "u1", run), step("a3", "u1", edit), step("a4", "u1")
    )
    assert [(one.turn.retries, one.turn.prompt_retries, one.turn.has_edits) for one in steps] == [
        (0, 0, True),
        (0, 0, False),
        (0, 1, True),
        (0, 1, False),
    ]
    assert [one.turn.activity for one in steps] == ["coding", "testing", "coding", "conversation"]


def test_a_compaction_replaces_what_enters_the_next_step() -> None:
    """Recorded when its summary is written; only the summary and the prompt enter the step after it."""
    steps = walk_all(
        user("u1", text("go")),
        step("a1", "u1", tool("c", "bash", {}, "x" * 99), tokens=tokens(input=900, output=50)),
        user("u2", {"type": "compaction", "auto": False}),
        step("a2", "u2", text("## Goal"), summary=True, at=10),
        user("u3", text("on")),
        step("a3", "u3"),
    )
    (compaction,) = steps[1].entries
    assert isinstance(compaction, Compaction)
    assert (compaction.id, compaction.trigger, compaction.before_tokens) == ("u2", "manual", 950)
    assert steps[1].turn.ts < compaction.ts
    assert sizes(steps[2].turn.entered) == [("summary", 7), ("prompt", 2)]


def test_a_failed_compaction_is_ignored() -> None:
    failed = {"name": "APIError", "data": {"statusCode": 500}}
    steps = walk_all(
        user("u2", {"type": "compaction", "auto": True}), step("a2", "u2", summary=True, error=failed, finish=None)
    )
    assert [type(entry).__name__ for entry in steps[0].entries] == ["Event"]


def one(**changes: Any) -> Step:
    (found,) = walk_all(step("a", "u", **changes))
    return found


def test_how_a_step_ended() -> None:
    """Final with usage, partial where it is unknown: never ended, aborted, cut off; empty without any answer."""
    nothing = tokens(total=False)
    aborted = {"name": "MessageAbortedError", "data": {}}
    failed = {"name": "APIError", "data": {"statusCode": 500}}
    assert (one().turn.quality, one().turn.stop_reason) == ("final", "stop")
    assert one(finish="length").turn.stop_reason == "length"
    (ended,) = walk_all(step("a", "u", {"type": "text", "text": ""}, tokens=nothing, finish=None, error=aborted))
    assert (ended.turn.quality, ended.turn.stop_reason) == ("partial", "MessageAbortedError")
    assert one(tokens=nothing, error=aborted, finish=None).turn.quality == "empty"
    assert one(tokens=nothing, finish=None).turn.quality == "empty"
    assert one(tokens=nothing, finish=None, error=failed).turn.quality == "empty"
    cut = walk_all(step("a", "u", {"type": "text", "text": "half"}, tokens=nothing, finish=None, error=failed))
    assert cut[0].turn.quality == "partial"
    assert one(time={"created": 5}, tokens=nothing).turn.quality == "partial"
    assert one(time={"created": 5}).turn.quality == "partial"


def test_errors_are_events_with_their_status_and_nothing_of_their_words() -> None:
    secret = {"message": "secret", "responseBody": "secret", "responseHeaders": {"x": "secret"}}
    found = {
        "APIError": ("api_error", 429),
        "ProviderAuthError": ("api_error", 429),
        "MessageAbortedError": ("interrupt", 429),
        "ContentFilterError": ("refusal", 429),
        "ContextOverflowError": ("api_error", 429),
    }
    for name, expected in found.items():
        (event,) = one(error={"name": name, "data": secret | {"statusCode": 429}}).entries
        assert (event.name, event.status) == expected  # type: ignore[union-attr]
        assert "secret" not in str(event)


def test_attempts_that_old_releases_wrote_down_are_retries() -> None:
    part = {"type": "retry", "attempt": 1, "time": {"created": BORN_MS + 3}, "error": {"data": {"statusCode": 529}}}
    (found,) = walk_all(step("a", "u", part))
    (event,) = found.entries
    assert (event.name, event.status, event.id) == ("retry", 529, "a-p0")  # type: ignore[union-attr]


def test_what_is_older_than_its_session_was_copied_into_it() -> None:
    """It has the rank of a copy, and its events are recorded with the original only."""
    session = ROW._replace(created=BORN_MS + 50)
    failed = {"name": "APIError", "data": {}}
    old, new = walk_all(step("a1", "u", at=10, error=failed), step("a2", "u", at=60, error=failed), session=session)
    assert old.turn.basis == Basis(rank=4, ts="2026-11-15T22:00:00.050Z")
    assert new.turn.basis is None
    assert (len(old.entries), len(new.entries)) == (0, 1)


def test_a_child_session_is_an_agent_of_its_parent() -> None:
    """In it the parent's agent asks: its text is the prompt, marked or not."""
    row = SessionRow("ses_kid", BORN_MS, parent="ses_one", agent="explore", directory="/p")
    (found,) = walk_all(user("u", text("inspect it")), step("a", "u"), session=row)
    assert found.turn.subagent is not None
    assert (found.turn.subagent.agent_id, found.turn.subagent.type, found.turn.agent) == ("ses_kid", "explore", None)
    assert (found.turn.prompt_id, found.turn.prompt_words) == ("u", ("review",))


def test_a_turn_has_the_agent_of_its_message() -> None:
    """A person may change the agent in the middle of a session; early releases call it the mode."""
    steps = walk_all(
        user("u1", text("think first")),
        step("a1", "u1", agent="plan", mode="plan"),
        user("u2", text("now do it")),
        step("a2", "u2"),
        step("a3", "u2", agent=None, mode="docs"),
    )
    assert [(one.turn.agent, one.turn.subagent) for one in steps] == [("plan", None), ("build", None), ("docs", None)]


def test_what_the_ledger_keeps_of_a_session() -> None:
    """No title: that is content. An old release's row has no agent, its messages do. No claim has it yet."""
    row = SessionRow("ses_kid", BORN_MS, parent="ses_one", directory="/p", title="secret", version="1.2.27")
    record = session_record(row, "build")
    assert (record.parent_session_id, record.project, record.project_key) == ("ses_one", "/p", None)
    assert (record.agent, record.created_by, record.title) == ("build", None, None)
