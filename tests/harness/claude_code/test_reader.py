"""Claude Code's reader: titles, running totals, events, and lines that are not read."""

from __future__ import annotations

import pytest

from burnd.harness.claude_code.reader import ClaudeReader
from burnd.records import Usage
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.harness.collect import PATH, line, read, with_offsets


def test_each_source_of_a_title_keeps_its_own_last_word() -> None:
    """So that the best of them can be chosen: custom, then ai, then summary. The last prompt is no title."""
    t = Transcript()
    t.bare(type="ai-title", aiTitle="Fixing")
    t.bare(type="custom-title", customTitle="Mine")
    t.bare(type="last-prompt", lastPrompt="go on", leafUuid="u9")
    t.bare(type="custom-title", customTitle="Mine")
    t.bare(type="custom-title", customTitle="Mine too")
    rows = read(t.lines, cuts=range(5))
    assert [(one.message_id, one.kind, one.text) for one in rows.content] == [
        ("title:ai", "title", "Fixing"),
        ("title:custom", "title", "Mine"),
        ("title:custom", "title", "Mine too"),
    ]


def test_a_blank_title_is_ignored() -> None:
    """It takes no better one's place, and blanks around a title are not part of it."""
    t = Transcript()
    t.bare(type="ai-title", aiTitle=" Fixing\n")
    t.bare(type="custom-title", customTitle="  ")
    assert [one.text for one in read(t.lines).content] == ["Fixing"]


def test_a_summary_belongs_to_the_session_of_its_leaf() -> None:
    t = Transcript("1.0.100")
    t.bare(type="summary", summary="Old talk", leafUuid="elsewhere")
    (found,) = read(t.lines).titles
    assert (found.leaf_uuid, found.content.message_id, found.content.kind) == ("elsewhere", "title:summary", "summary")
    assert found.content.text == "Old talk"


def test_two_sessions_may_have_summaries_of_the_same_words() -> None:
    t = Transcript("1.0.100")
    for leaf in ("one", "one", "other"):
        t.bare(type="summary", summary="Invalid API key", leafUuid=leaf)
    assert [title.leaf_uuid for title in read(t.lines).titles] == ["one", "other"]


def test_running_totals_are_stated_by_model() -> None:
    t = Transcript()
    t.says("m1")
    stated = {
        "inputTokens": 71,
        "outputTokens": 171,
        "thinkingTokens": 70,
        "cacheReadInputTokens": 7100,
        "cacheCreationInputTokens": 710,
        "cacheCreationEphemeral5mInputTokens": 700,
        "cacheCreationEphemeral1hInputTokens": 10,
        "costUSD": 1.5,
    }
    t.bare(type="cost-state", modelUsage={"opus": stated, "odd": None})
    (overhead,) = read(t.lines).overheads
    assert overhead.models == {
        "opus": Usage(input=71, output=101, reasoning=70, cache_read=7100, cache_create_5m=700, cache_create_1h=10)
    }
    assert overhead.ts == t.time(0)


LIMITS = [
    ("Claude AI usage limit reached|1763136000", ("5h", "2025-11-14T16:00:00.000Z")),
    ("5-hour limit reached ∙ resets 3pm", ("5h", None)),
    ("5-hour limit resets 3pm ∙ contact an admin to keep working", ("5h", None)),
    ("Weekly limit reached · resets Oct 9 at 5pm · /upgrade to Max 20x", ("7d", None)),
    ("You've hit your session limit · resets 8pm (UTC)", ("5h", None)),
    ("You've hit your weekly limit · resets Mon 12:00am", ("7d", None)),
    ("Opus weekly limit reached · resets Oct 9", None),
    ("You've hit your monthly spend limit", None),
    ("Claude AI usage limit reached|never", None),
    ("API Error: 529", None),
]


@pytest.mark.parametrize(("words", "limit"), LIMITS)
def test_a_limit_that_is_reached_is_a_reading(words: str, limit: tuple[str, str | None] | None) -> None:
    """The client writes it instead of a response; the same text from a model is not a reading."""
    t = Transcript()
    t.says("uuid-1", text(words), model="<synthetic>", isApiErrorMessage=True)
    t.says("uuid-2", text(words))
    expected = [] if limit is None else [(t.time(0), *limit, 100.0)]
    assert [(one.ts, one.window, one.resets_at, one.used_percent) for one in read(t.lines).quotas] == expected


def test_what_the_client_says_in_the_models_place_is_an_event() -> None:
    """And its words are kept as what they are: neither the model's nor the user's."""
    t = Transcript()
    t.says("uuid-1", model="<synthetic>", isApiErrorMessage=True, apiErrorStatus=529)
    t.says("uuid-2", text("No response requested."), model="<synthetic>")
    rows = read(t.lines)
    assert [(one.name, one.status, one.id) for one in rows.events] == [
        ("api_error", 529, "u0"),
        ("no_response", None, "u1"),
    ]
    assert rows.turns == []
    assert [(one.role, one.message_id, one.text) for one in rows.content] == [
        ("system", "u0", "ok"),
        ("system", "u1", "No response requested."),
    ]


def test_retries_and_interrupts_are_events() -> None:
    t = Transcript()
    t.add("system", subtype="api_error", error={"status": 529, "message": "busy"}, retryAttempt=1)
    t.add("system", subtype="api_error", error="odd")
    t.says("m1", stop=None, done=False, isAbortedMidStream=True)
    t.prompt([text("[Request interrupted by user]")])
    t.prompt("[Request interrupted by user for tool use]", interruptedMessageId="m0")
    assert [(one.name, one.status, one.message_id) for one in read(t.lines).events] == [
        ("retry", 529, None),
        ("retry", None, None),
        ("interrupt", None, "m1"),
        ("interrupt", None, "m0"),
    ]


def test_a_refusal_counts_and_is_noted_once() -> None:
    t = Transcript()
    t.says("m1", text("I can"), stop="refusal")
    t.says("m1", text("not"), stop="refusal")
    t.says("x", model="<synthetic>", isApiErrorMessage=True, refusedMessageId="m1")
    t.says("y", model="<synthetic>", isApiErrorMessage=True, refusedMessageId="m0")
    rows = read(t.lines)
    assert [(one.name, one.id, one.message_id) for one in rows.events] == [
        ("refusal", "m1", "m1"),
        ("refusal", "m0", "m0"),
    ]
    assert rows.turn("m1").stop_reason == "refusal"
    assert rows.turn("m1").usage.output == 10


def test_the_file_that_made_the_request_is_known_in_either_order() -> None:
    t = Transcript()
    t.bare(type="api-request", id="r1")
    t.says("m1", requestRef="r1")
    t.says("m2", requestRef="r2")
    t.bare(type="api-request", id="r2")
    t.says("m3", requestRef="r3")
    assert {name: candidate.rank for name, candidate in read(t.lines).candidates.items()} == {"m1": 0, "m2": 0, "m3": 8}


def test_each_piece_of_evidence_has_its_bit() -> None:
    t = Transcript()
    t.bare(type="api-request", id="r1")
    t.says("own", requestRef="r1")
    t.says("forked", requestRef="r1", forkedFrom={"sessionId": "other", "messageUuid": "u0"})
    t.says("nameless-1", requestRef="r1", requestId=None)
    t.says("side", requestRef="r1", isSidechain=True, parent=None)
    rows = read(t.lines)
    assert {name: candidate.rank for name, candidate in rows.candidates.items()} == {
        "own": 0,
        "forked": 4,
        "nameless-1": 1,
        "side": 2,
    }


def test_evidence_for_a_message_adds_up_over_its_lines() -> None:
    """Evidence from any line can refute, in any order."""
    for first, second in ((None, "req_1"), ("req_1", None)):
        t = Transcript()
        t.says("m1", requestId=first)
        t.says("m1", requestId=second)
        assert read(t.lines).candidates["m1"].rank == 8


def test_a_branch_whose_lines_were_written_again_without_the_mark_is_still_a_copy() -> None:
    """As a client of 2026 did, with the same uuids and without the line above."""
    t = Transcript()
    t.says("m1", forkedFrom={"sessionId": "other", "messageUuid": "u0"})
    t.lines.append(t.lines[0].replace(b'"forkedFrom"', b'"wasForkedFrom"'))
    rows = read(t.lines)
    assert (rows.candidates["m1"].rank, len(rows.turn("m1").made)) == (12, 1)


def test_a_message_is_as_old_as_its_oldest_line() -> None:
    t = Transcript()
    t.says("m1", ts="2026-11-16T00:00:09.000Z")
    t.says("m1", ts="2026-11-16T00:00:04.000Z")
    assert read(t.lines).turn("m1").ts == "2026-11-16T00:00:04.000Z"


def test_a_file_younger_than_its_message_holds_a_copy() -> None:
    t = Transcript()
    t.bare(type="queue-operation", operation="enqueue", timestamp="2026-11-17T00:00:00.000Z")
    t.says("old", ts="2026-11-16T00:00:00.000Z")
    t.says("new", ts="2026-11-18T00:00:00.000Z")
    rows = read(t.lines)
    assert {name: candidate.late_born for name, candidate in rows.candidates.items()} == {"old": True, "new": False}


def test_lines_of_no_interest_are_counted_by_type() -> None:
    t = Transcript()
    t.bare(type="api-request-shape", big="x" * 5000)
    t.bare(type="file-history-snapshot", messageId="u0")
    t.bare(sessionId="s", type="mode")
    t.add("progress", data={})
    assert read(t.lines).counts["skipped"] == {
        "api-request-shape": 1,
        "file-history-snapshot": 1,
        "mode": 1,
        "progress": 1,
    }


def test_lines_of_a_future_release_are_counted_and_do_not_break_the_chain() -> None:
    """Unknown types and subtypes are counted by name, unknown fields ignored, the order of keys is free."""
    t = Transcript("9.9.9", future={"deep": [1, {}]})
    prompt = t.prompt("go")
    t.add("hologram", beam=[1, 2])
    t.add("system", subtype="weather")
    t.attach("scent", content="roses", rendered="roses")
    t.says("m1", {"type": "dance", "steps": 4}, text("ok"), usage={"dreams": {"rem": 1}})
    t.bare(kind="no type at all")
    rows = read([line(**dict(reversed(list(_loads(one).items())))) for one in t.lines])
    assert rows.counts["unknown"] == {"hologram": 1, "system/weather": 1, "attachment/scent": 1, "(none)": 1}
    assert [rows.links[f"u{n}"].parent for n in range(1, 4)] == ["u0", "u1", "u2"]
    turn = rows.turn("m1")
    assert (turn.prompt_id, turn.usage.output, [block.kind for block in turn.entered]) == (
        prompt,
        10,
        ["prompt", "reminder"],
    )


def _loads(data: bytes) -> dict[str, object]:
    import json

    value: dict[str, object] = json.loads(data)
    return value


def test_bad_lines_are_counted_by_reason_and_the_rest_is_read() -> None:
    t = Transcript()
    t.says("m1", text("a"))
    rows = read([b"\xef\xbb\xbf" + t.lines[0], b'{"parentUuid":"x","isSi', b"", b"[]", b"\0\0", t.lines[0][:-1]])
    assert rows.counts["repaired"] == {"bom": 1}
    assert rows.counts["rejected"] == {"not-json": 2, "not-an-object": 1}
    assert rows.lines == 6
    assert list(rows.candidates) == ["m1"]


def test_names_from_outside_cannot_fill_the_counts() -> None:
    rows = read([line(type=f"t{n}" + "x" * 500, uuid=f"{n}") for n in range(300)])
    assert len(rows.counts["unknown"]) <= 101
    assert sum(rows.counts["unknown"].values()) == 300
    assert max(map(len, rows.counts["unknown"])) <= 60


def test_what_was_taken_does_not_change_any_more() -> None:
    """A reading is a snapshot: later lines go into the next one."""
    t = Transcript()
    t.says("m1", output=1)
    t.says("m1", output=99)
    reader = ClaudeReader(PATH)
    reader.feed(t.lines[0], 0)
    first = reader.take()
    reader.feed(t.lines[1], 500)
    second = reader.take()
    assert [one.usage.output for one in first.candidates + second.candidates] == [1, 99]
    assert [one.settled for one in first.candidates + second.candidates] == [False, False]
    reader.flush()
    assert [one.settled for one in reader.take().candidates] == [True]
    assert reader.take().candidates == []


def test_only_what_has_its_answers_may_be_settled_early() -> None:
    """The newest message of each rail is open until it is settled; a call without a result keeps it so."""
    t = Transcript()
    t.calls("m1", call("c1", "Bash", command="sleep 9"))
    t.prompt("dig", parent=None, isSidechain=True)
    t.says("s1", isSidechain=True)
    t.result("c1", parent="u0")
    reader = ClaudeReader(PATH)
    for one, offset in list(with_offsets(t.lines))[:3]:
        reader.feed(one, offset)
    assert {candidate.message_id for candidate in reader.open_candidates()} == {"m1", "s1"}
    reader.flush(answered_only=True)
    assert [candidate.message_id for candidate in reader.open_candidates()] == ["m1"]
    reader.feed(t.lines[3], 5000)
    reader.flush(answered_only=True)
    assert reader.open_candidates() == []


def test_a_running_total_has_its_cost_its_searches_and_when_it_began() -> None:
    t = Transcript()
    t.says("m1")
    usage = {"inputTokens": 3, "outputTokens": 10, "webSearchRequests": 2, "costUSD": 0.25}
    odd = {"inputTokens": 1, "costUSD": -1, "webSearchRequests": -1}
    t.bare(type="cost-state", startTime=1794788041357, modelUsage={"a": usage, "b": odd, "c": None})
    t.bare(type="cost-state", startTime=1e300, modelUsage={"a": usage})
    first, second = read(t.lines).overheads
    assert (first.costs, first.searches, first.since) == ({"a": 0.25}, {"a": 2}, "2026-11-16T00:14:01.357Z")
    assert second.since is None
