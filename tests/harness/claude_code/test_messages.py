"""The usage of a message comes from its best line, once; its quality states how certain it is."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from burnd.harness.claude_code.lines import LogPath
from burnd.records import ServerTools, Usage
from tests.harness.claude_code.transcript import Transcript, call, text, thinking
from tests.harness.collect import fold, line, read


def _usage(**given: Any) -> Usage:
    t = Transcript()
    t.says("m1", usage={"input_tokens": 0, "output_tokens": 0, **given})
    return read(t.lines).turn("m1").usage


def test_all_lines_of_a_message_are_one_turn() -> None:
    t = Transcript()
    for block in (thinking("hm"), text("a"), text("b")):
        t.says("m1", block, output=111)
    (turn,) = read(t.lines).turns
    assert turn.usage == Usage(input=3, output=111)


def test_the_whole_usage_of_the_line_with_the_most_output_counts() -> None:
    """Not the first line's, not the last line's, and no maximum field by field."""
    t = Transcript("2.1.90")
    t.says("m1", output=1, usage={"input_tokens": 900}, stop=None, done=False)
    t.says("m1", output=84, usage={"input_tokens": 5}, done=False)
    t.says("m1", output=2, usage={"input_tokens": 700}, stop=None, done=False)
    assert read(t.lines).turn("m1").usage == Usage(input=5, output=84)


def test_among_lines_of_equal_output_the_latest_counts_and_any_may_tell_why_it_stopped() -> None:
    t = Transcript("1.0.100")
    t.says("m1", stop="end_turn", usage={"input_tokens": 1}, done=False, ts="2026-01-01T00:00:01.000Z")
    t.says("m1", stop=None, usage={"input_tokens": 2}, done=False, ts="2026-01-01T00:00:03.000Z")
    t.says("m1", stop="tool_use", usage={"input_tokens": 3}, done=False, ts="2026-01-01T00:00:02.000Z")
    turn = read(t.lines).turn("m1")
    assert (turn.usage.input, turn.stop_reason) == (2, "tool_use")


def test_among_lines_of_one_time_and_equal_output_the_uuid_decides() -> None:
    t = Transcript()
    for n, uuid in enumerate(("b", "c", "a")):
        t.says("m1", usage={"input_tokens": n}, uuid=uuid, ts=Transcript.time(1))
    assert read(t.lines).turn("m1").usage.input == 1


@pytest.mark.parametrize("nothing", [{"bare_of_usage": True}, {"usage": {"input_tokens": None, "output_tokens": None}}])
def test_a_line_without_usage_takes_nothing_from_one_that_has_it(nothing: dict[str, Any]) -> None:
    """Some gateways log input on one line and the stop reason on another."""
    billed = {"input_tokens": 100, "cache_read_input_tokens": 5000}
    for order in (1, -1):
        t = Transcript("2.1.90")
        with_usage = partial(t.says, "m1", text("a"), output=0, stop=None, done=False, usage=billed)
        without = partial(t.says, "m1", text("b"), done=False, **nothing)
        for write in (with_usage, without)[::order]:
            write()
        turn = read(t.lines).turn("m1")
        assert (turn.usage, turn.stop_reason, turn.quality) == (Usage(input=100, cache_read=5000), "end_turn", "final")


def test_a_later_line_may_raise_the_bill_long_after_other_messages() -> None:
    """Lines of one message need not be neighbours."""
    t = Transcript()
    t.says("m1", output=1)
    for n in range(20):
        t.prompt(f"{n}")
        t.says(f"x{n}")
    t.says("m1", output=500)
    rows = read(t.lines, cuts=range(10, 30))
    assert rows.turn("m1").usage.output == 500
    assert rows.turn("m1").turn_index == 0
    assert len(rows.turns) == 21


def test_thinking_is_separate_from_output() -> None:
    assert _usage(output_tokens=100, output_tokens_details={"thinking_tokens": 30}) == Usage(output=70, reasoning=30)
    assert _usage(output_tokens=10, output_tokens_details={"thinking_tokens": 30}) == Usage(reasoning=10)


@pytest.mark.parametrize(
    ("given", "five", "hour"),
    [
        ({"cache_creation_input_tokens": 50}, 50, 0),
        ({"cache_creation_input_tokens": 50, "cache_creation": None}, 50, 0),
        (_split := {"cache_creation_input_tokens": 50, "cache_creation": {"ephemeral_1h_input_tokens": 20}}, 30, 20),
        ({**_split, "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}}, 30, 20),
        ({**_split, "cache_creation": {"ephemeral_5m_input_tokens": 90, "ephemeral_1h_input_tokens": 0}}, 50, 0),
        ({**_split, "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 90}}, 0, 50),
        ({"cache_creation": {"ephemeral_5m_input_tokens": 7, "ephemeral_1h_input_tokens": 8}}, 7, 8),
    ],
)
def test_the_total_of_cache_writes_is_trusted_and_the_rest_is_short_lived(
    given: dict[str, Any], five: int, hour: int
) -> None:
    assert _usage(**given) == Usage(cache_create_5m=five, cache_create_1h=hour)


@pytest.mark.parametrize("absurd", [-5, 2**63, 10**30, None, "twelve", [1], 1.5])
def test_an_impossible_count_is_ignored(absurd: Any) -> None:
    assert _usage(input_tokens=absurd, cache_read_input_tokens=4) == Usage(cache_read=4)


def test_a_line_with_nothing_but_a_time_a_model_and_its_usage_is_a_turn() -> None:
    """As other tools write them. Two files of one name are two logs, a copy of one is the same."""

    def bare(second: int) -> bytes:
        message = {"model": "claude-opus-5-5", "usage": {"input_tokens": 7, "output_tokens": 2}}
        return line(timestamp=Transcript.time(second), message=message)

    place = LogPath("chat", "chat")
    logs = [read([bare(1), bare(1)], place), read([bare(2)], place), read([bare(1)], place)]
    turns = fold(candidate for rows in logs for candidate in rows.candidates.values())
    assert [joined.turn.usage for joined in turns.values()] == [Usage(input=7, output=2)] * 3


def test_a_turn_of_searches_alone_is_not_empty() -> None:
    """They are billed by the request: such a turn costs something, and is in every list of what did."""
    t = Transcript()
    nothing = dict.fromkeys(
        ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), 0
    )
    t.says("m1", usage={**nothing, "server_tool_use": {"web_search_requests": 3}})
    t.says("m2", usage={**nothing, "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 1}})
    rows = read(t.lines)
    assert (rows.turn("m1").usage, rows.turn("m1").quality) == (Usage(), "final")
    assert rows.turn("m2").quality == "empty"


def test_speed_and_server_tools_are_kept_where_they_cost() -> None:
    t = Transcript()
    t.says("m1", usage={"speed": "fast", "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1}})
    t.says("m2", usage={"speed": "standard", "server_tool_use": {"web_search_requests": 0}})
    rows = read(t.lines)
    assert (rows.turn("m1").speed, rows.turn("m1").server_tools) == ("fast", ServerTools(search=2, fetch=1))
    assert (rows.turn("m2").speed, rows.turn("m2").server_tools) == (None, None)


def test_only_iterations_beside_the_sum_become_turns_of_their_own() -> None:
    """A response's own iterations are already in its sum; advice and compaction are not."""
    t = Transcript()
    t.prompt("fix the bug")
    t.says(
        "m1",
        output=20,
        usage={
            "iterations": [
                {"type": "message", "input_tokens": 1, "output_tokens": 10},
                {"type": "advisor_message", "model": "claude-sage", "input_tokens": 7, "output_tokens": 8},
                {"type": "fallback_message", "output_tokens": 10},
                {"type": "compaction", "input_tokens": 9, "output_tokens": 5},
            ]
        },
    )
    rows = read(t.lines)
    assert list(rows.candidates) == ["m1", "m1:iter:1", "m1:iter:3"]
    advice, compaction = rows.turn("m1:iter:1"), rows.turn("m1:iter:3")
    assert (advice.model, advice.usage) == ("claude-sage", Usage(input=7, output=8))
    assert (compaction.model, compaction.usage) == ("claude-opus-5-5", Usage(input=9, output=5))
    assert advice.parent == "m1"
    assert advice.activity == rows.turn("m1").activity == "debugging"
    assert (advice.entered, advice.made, advice.tool_calls) == ((), (), ())


@pytest.mark.parametrize(
    ("version", "stop", "done", "quality"),
    [
        ("2.1.325", "end_turn", True, "final"),
        ("2.1.325", "end_turn", False, "partial"),
        ("2.1.150", "end_turn", False, "partial"),
        ("2.1.325", None, False, "partial"),
        ("2.1.121", "end_turn", False, "final"),
        ("2.1.90", "end_turn", False, "final"),
        ("2.1.90", None, False, "partial"),
        ("1.0.100", "tool_use", False, "final"),
        ("not a version", "end_turn", False, "final"),
    ],
)
def test_quality_says_whether_the_response_had_ended(version: str, stop: str | None, done: bool, quality: str) -> None:
    """A stop reason alone proves nothing where a dead stream is logged with one."""
    t = Transcript(version)
    t.says("m1", stop=stop, done=done)
    assert read(t.lines).turn("m1").quality == quality


def test_a_message_is_final_when_any_of_its_lines_is() -> None:
    lines: list[dict[str, Any]] = [{"output": 1, "stop": None}, {"output": 9}]
    for order in (lines, lines[::-1]):
        t = Transcript("2.1.90")
        for one in order:
            t.says("m1", done=False, **one)
        assert read(t.lines).turn("m1").quality == "final"


def test_a_response_is_empty_where_its_usage_is_zero_and_partial_where_it_is_unknown() -> None:
    t = Transcript()
    t.says("m1", output=0, usage={"input_tokens": 0})
    t.add("assistant", message={"id": "m2", "model": "x", "content": []})
    assert [turn.quality for turn in read(t.lines).turns] == ["empty", "partial"]


def test_a_response_without_an_id_is_still_billed_once() -> None:
    t = Transcript()
    for _ in range(2):
        t.add("assistant", requestId="req_1", message={"model": "x", "content": "a", "usage": {"output_tokens": 5}})
    t.add("assistant", message={"model": "x", "content": "a", "usage": {"output_tokens": 5}})
    assert [(turn.message_id, turn.usage.output) for turn in read(t.lines).turns] == [("req_1", 5), ("u2", 5)]


def test_responses_without_any_id_are_distinguished_by_file() -> None:
    """Nothing but its place names such a line, and two files have lines at the same place."""
    said = line(type="assistant", message={"model": "x", "content": "a", "usage": {"output_tokens": 5}})
    places = [LogPath("S1", "S1"), LogPath("S2", "S2"), LogPath("agent-1", "S1", "1"), LogPath("agent-1", "S2", "1")]
    found = fold(candidate for place in (*places, *places) for candidate in read([said], place).candidates.values())
    assert [joined.turn.usage.output for joined in found.values()] == [5, 5, 5, 5]


def test_a_relay_that_calls_all_its_answers_the_same_is_billed_for_each() -> None:
    """A constant id is ignored; lines of one response, and its copies, still count once."""
    t = Transcript()
    for n, prompt in enumerate(("one", "two")):
        asked = t.prompt(prompt)
        t.says("relay", text("a"), output=10 + n, requestId=None)
        t.says("relay", text("b"), output=10 + n, requestId=None)
        t.says("relay", text("b"), output=10 + n, requestId=None, parent=asked)
    other = Transcript(session="5e551011-0000-4000-8000-000000000002", prefix="v")
    other.prompt("three")
    other.says("relay", output=12, requestId=None)
    kept = read(t.lines)
    assert [turn.usage.output for turn in kept.turns] == [10, 11]
    theirs = read(other.lines, LogPath(stem="5e552", session_id="5e552"))
    assert not {turn.message_id for turn in theirs.turns} & {turn.message_id for turn in kept.turns}
    copied = read(t.lines, LogPath(stem="5e553", session_id="5e553"))
    assert [turn.message_id for turn in copied.turns] == [turn.message_id for turn in kept.turns]


def test_files_that_are_all_called_the_same_are_sessions_of_their_folders() -> None:
    """Other tools write no ids at all, and a folder for each session; a client's log is named after its session."""
    bare = line(timestamp="2026-11-16T10:00:00Z", message={"model": "x", "usage": {"output_tokens": 5}})
    found = [read([bare], LogPath(stem=folder, word="chat")).turns for folder in ("one", "two")]
    assert [turn.session_id for (turn,) in found] == ["one", "two"]
    assert len({turn.message_id for (turn,) in found}) == 2
    t = Transcript()
    t.says("m1")
    named = line(type="ai-title", aiTitle="x", sessionId="5e55")
    for lines in (t.lines, [named, *t.lines]):
        assert read(lines, LogPath(stem="deep", word="low")).turn("m1").session_id == "low"


def test_where_lines_do_not_say_what_they_answer_an_id_is_taken_at_its_word() -> None:
    """Without request ids a short id is one response within its session, wherever its lines are, and never another
    session's."""
    t = Transcript()
    for word, output in (("shared", 10), ("other", 5), ("shared", 20)):
        t.says(word, output=output, requestId=None, parent=None)
    kept = read(t.lines)
    assert [turn.usage.output for turn in kept.turns] == [20, 5]
    elsewhere = Transcript(session="5e551011-0000-4000-8000-000000000002", prefix="v")
    elsewhere.says("shared", output=7, requestId=None, parent=None)
    theirs = read(elsewhere.lines, LogPath(stem="5e552", session_id="5e552"))
    assert not {turn.message_id for turn in theirs.turns} & {turn.message_id for turn in kept.turns}


def test_one_request_id_may_stand_for_two_messages() -> None:
    """An aborted stream and the request that took its place share it."""
    t = Transcript("2.1.90")
    t.says("m1", output=1, requestId="req", done=False, stop=None)
    t.says("m2", text("all"), text("at once"), output=84, requestId="req", done=False)
    assert [turn.usage.output for turn in read(t.lines).turns] == [1, 84]


def test_the_request_id_is_that_of_the_line_that_counts() -> None:
    t = Transcript()
    t.says("m1", text("a"), output=5, requestId=None)
    t.says("m1", text("b"), output=9, requestId="req_2")
    t.says("m2", output=9, requestId=None)
    assert [turn.request_id for turn in read(t.lines).turns] == ["req_2", None]


def test_what_others_repeat_is_never_counted() -> None:
    """Progress lines, agent results, notifications and running totals repeat usage that is counted elsewhere."""
    usage = {"input_tokens": 5000, "output_tokens": 5000}
    t = Transcript()
    t.says("m1")
    t.add("progress", data={"type": "agent_progress", "message": {"message": {"id": "a1", "usage": usage}}})
    t.result("c1", toolUseResult={"usage": usage, "totalTokens": 99})
    t.prompt("<task-notification><usage><subagent_tokens>9</subagent_tokens></usage></task-notification>")
    t.bare(type="cost-state", modelUsage={"m": {"inputTokens": 7}})
    assert [turn.usage for turn in read(t.lines).turns] == [Usage(input=3, output=10)]


def test_ids_that_are_made_up_end_differently() -> None:
    """Messages are looked up by the last characters of their ids, and times of whole seconds all end alike."""
    lines = []
    for n in range(50):
        message = {"role": "assistant", "model": "m", "content": [text(f"{n}")], "usage": {"output_tokens": n}}
        lines.append(line(type="assistant", timestamp=Transcript.time(n), message=message))
    found = read(lines).turns
    assert len({turn.message_id[-5:] for turn in found}) == len(found) == 50


def _searched(stated: int | None = None, count: Any = 2, tool: str = "WebSearch") -> Transcript:
    """A call whose result gives the number of searches of the client's own request."""
    t = Transcript()
    t.prompt("look it up")
    usage = {"server_tool_use": {"web_search_requests": stated}} if stated is not None else {}
    t.calls("m1", call("c1", tool, query="x"), usage=usage)
    t.result("c1", "found", toolUseResult={"query": "x", "results": [], "searchCount": count})
    t.says("m2")
    return t


def test_searches_that_a_result_states_are_its_calls() -> None:
    turn = read(_searched().lines).turn("m1")
    assert (turn.searches, turn.server_tools) == (2, None)
    assert [call.searches for call in turn.tool_calls] == [2]


def test_a_search_counts_once_where_usage_and_result_both_state_it() -> None:
    assert read(_searched(stated=2).lines).turn("m1").searches == 2
    assert read(_searched(stated=3).lines).turn("m1").searches == 3


def test_a_result_that_is_read_twice_counts_once() -> None:
    t = _searched()
    assert read([*t.lines, t.lines[2]]).turn("m1").searches == 2


@pytest.mark.parametrize(("count", "tool"), [(None, "WebSearch"), (-1, "WebSearch"), (4, "mcp__x__lookup")])
def test_what_is_no_count_of_searches_is_not_charged(count: Any, tool: str) -> None:
    assert read(_searched(count=count, tool=tool).lines).turn("m1").searches == 0


def test_searches_survive_a_log_that_dropped_them() -> None:
    """A later state of the same log, whose result does not state them any more, takes none back."""
    full, bare = read(_searched().lines), read(_searched(count=None).lines)
    for first, second in ((full, bare), (bare, full)):
        joined = fold([*first.candidates.values(), *second.candidates.values()])
        assert joined["m1"].turn.searches == 2


@pytest.mark.parametrize(
    ("usage", "tier", "geo"),
    [
        ({"service_tier": "batch", "inference_geo": "us"}, "batch", "us"),
        ({"service_tier": "priority", "inference_geo": "not_available"}, "priority", None),
        ({"service_tier": "standard"}, None, None),
        ({"service_tier": "x" * 1000, "inference_geo": "y" * 1000}, None, None),
    ],
)
def test_the_service_tier_and_the_place_of_a_request(usage: dict[str, Any], tier: str | None, geo: str | None) -> None:
    t = Transcript()
    t.says("m1", usage=usage)
    turn = read(t.lines).turn("m1")
    assert (turn.service_tier, turn.inference_geo) == (tier, geo)
