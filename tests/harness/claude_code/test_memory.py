"""Claude Code's memory of the conversation: the parent, the prompt and the new context of each turn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from burnd.harness.claude_code.lines import AgentMeta, LogPath
from burnd.records import Block, Subagent, Turn
from tests.harness.claude_code.transcript import Transcript, call, image, text
from tests.harness.collect import SESSION, read


def _entered(turn: Turn) -> list[tuple[str, int]]:
    return [(block.kind, block.bytes) for block in turn.entered]


def test_a_prompt_enters_the_first_turn_and_a_result_the_next() -> None:
    t = Transcript()
    t.prompt("häh")
    t.calls("m1", call("c1", "Read", file_path="/a"))
    t.result("c1", "four")
    t.says("m2")
    rows = read(t.lines)
    assert rows.turn("m1").entered == (Block(kind="prompt", bytes=4),)
    assert rows.turn("m2").entered == (Block(kind="result", bytes=4, call_id="c1"),)
    assert [turn.parent for turn in rows.turns] == [None, "m1"]
    assert [turn.turn_index for turn in rows.turns] == [0, 1]


def test_results_of_parallel_calls_enter_together() -> None:
    """Each result hangs below the line of its own call, so the chain contains only one of them."""
    t = Transcript()
    t.prompt("go")
    first = t.calls("m1", call("c1", "Read"))
    second = t.calls("m1", call("c2", "Read"))
    t.result("c1", "1", parent=first)
    t.result("c2", "22", parent=second)
    t.says("m2")
    assert _entered(read(t.lines).turn("m2")) == [("result", 1), ("result", 2)]


def test_a_result_between_two_lines_of_its_message_enters_the_next_one() -> None:
    t = Transcript()
    t.prompt("go")
    t.calls("m1", call("c1", "Task"))
    t.result("c1", "1")
    t.calls("m1", call("c2", "Task"))
    t.result("c2", "22")
    t.says("m2")
    rows = read(t.lines)
    assert _entered(rows.turn("m2")) == [("result", 1), ("result", 2)]
    assert rows.turn("m2").parent == "m1"


def test_two_processes_at_work_in_one_file_each_get_their_own_results() -> None:
    """Their messages take turns on the rail, so that results lie several messages back."""
    t = Transcript()
    t.prompt("base")
    base = t.says("m0")
    for name in "ab":
        t.prompt(f"go {name}", parent=base)
        first = t.calls(f"{name}1", call(f"{name}-c1", "Read"))
        t.calls(f"{name}1", call(f"{name}-c2", "Read"))
        t.result(f"{name}-c1", name, parent=first)
        t.result(f"{name}-c2", name * 2, parent=f"{t.last[:1]}{int(t.last[1:]) - 1}" if t.last else None)
    t.says("a2", parent="u6")
    t.says("b2", parent="u11")
    rows = read(t.lines)
    for name in "ab":
        turn = rows.turn(f"{name}2")
        assert turn.parent == f"{name}1"
        assert [(block.bytes, block.call_id) for block in turn.entered] == [(1, f"{name}-c1"), (2, f"{name}-c2")]


def test_an_abandoned_branch_enters_nothing() -> None:
    """After a rewind the prompt that was taken back is not in the context."""
    t = Transcript()
    t.prompt("go")
    t.calls("m1", call("c1", "Read"))
    result = t.result("c1", "1")
    t.prompt("wrong")
    t.says("m2")
    t.prompt("right!", parent=result)
    t.says("m3")
    rows = read(t.lines)
    assert _entered(rows.turn("m3")) == [("result", 1), ("prompt", 6)]
    assert rows.turn("m3").parent == "m1"
    assert rows.turn("m2").turn_index == 1
    assert rows.turn("m3").turn_index == 2


def test_a_rewind_to_a_line_long_gone_from_the_state_is_followed() -> None:
    t = Transcript()
    old = t.prompt("fix the crash")
    for n in range(60):
        t.says(f"m{n}")
        t.prompt("more")
    t.says("again", parent=old)
    rows = read(t.lines, cuts=range(0, 120, 7))
    assert _entered(rows.turn("again")) == [("prompt", 13)]
    assert rows.turn("again").prompt_id == old
    assert rows.turn("again").prompt_words == ("debugging",)
    assert rows.turn("again").parent is None


def test_two_answers_to_one_prompt_were_both_given_it() -> None:
    t = Transcript()
    prompt = t.prompt("go")
    t.says("m1")
    t.says("m2", parent=prompt)
    assert _entered(read(t.lines).turn("m2")) == [("prompt", 2)]


def test_a_missing_parent_is_taken_to_follow_the_rails_last_line() -> None:
    t = Transcript()
    prompt = t.prompt("go")
    t.says("m1", parent="stripped")
    t.prompt("on", parent="stripped too")
    t.prompt("and on", parent="stripped too")
    t.says("m2")
    rows = read(t.lines)
    assert (rows.turn("m1").prompt_id, _entered(rows.turn("m1"))) == (prompt, [("prompt", 2)])
    assert rows.turn("m2").parent == "m1"
    assert _entered(rows.turn("m2")) == [("prompt", 6)]


def test_a_circle_of_parents_ends() -> None:
    t = Transcript()
    t.prompt("a", parent="u1")
    t.prompt("b", parent="u0")
    t.prompt("c", parent="u2")
    t.says("m1")
    assert len(read(t.lines).turns) == 1


def test_attachments_enter_with_what_they_hang_below() -> None:
    """Text rendered by the client counts by its size, on the chain or off it."""
    t = Transcript()
    prompt = t.prompt("go")
    t.attach("skill_listing", rendered="12345")
    t.attach("date", parent=prompt, rendered="12")
    t.attach("hook_success", content="not shown", hookEvent="Stop")
    t.attach("prompt_snapshot", systemPrompt=["You are"], tools=[])
    t.says("m1", parent=prompt)
    assert _entered(read(t.lines).turn("m1")) == [("prompt", 2), ("reminder", 5), ("reminder", 2)]


def test_attachments_of_releases_that_do_not_tell_what_they_rendered_are_weighed_by_their_text() -> None:
    t = Transcript("2.0.60")
    t.prompt("go")
    t.attach("file", filename="/a.txt", content={"type": "text", "file": {"content": "123456"}})
    t.attach("hook_success", content="context", hookEvent="UserPromptSubmit")
    t.says("m1")
    assert _entered(read(t.lines).turn("m1")) == [("prompt", 2), ("file", 6), ("reminder", 7)]


def test_a_skills_text_belongs_to_the_call_that_launched_it() -> None:
    """The line names the call; a notification that another line repeats is still its own call's."""
    t = Transcript()
    t.prompt("greet them")
    t.calls("m1", call("c1", "Skill", skill="greeter"))
    t.result("c1", "Launching skill: greeter")
    t.prompt([text("# Greeter, and all it says"), image("aGVsbG8=")], isMeta=True, sourceToolUseID="c1")
    t.says("m2")
    assert [(block.kind, block.bytes, block.call_id) for block in read(t.lines).turn("m2").entered] == [
        ("result", 24, "c1"),
        ("reminder", 26, "c1"),
        ("image", 5, "c1"),
    ]


def test_instruction_files_enter_as_such_each_with_its_path() -> None:
    """With or without rendered text on the line; a file without text is ignored."""
    files = [{"path": "/w/CLAUDE.md", "type": "Project", "content": "be brief"}, {"path": "/w/none.md", "content": ""}]
    for rendered in (None, "The files say: be brief"):
        t = Transcript()
        t.prompt("go")
        t.attach("instructions", rendered=rendered, files=files)
        t.says("m1")
        rows = read(t.lines)
        assert rows.turn("m1").entered == (
            Block(kind="prompt", bytes=2),
            Block(kind="instructions", bytes=8, name="/w/CLAUDE.md"),
        )
        assert rows.counts["unknown"] == {}


def test_hook_output_that_reached_the_model_is_sized_and_kept() -> None:
    """By what was rendered, or in older releases by what the hook wrote; what the model never saw is neither."""
    t = Transcript()
    t.prompt("go")
    t.attach("hook_blocking_error", rendered="<hook>formatted</hook>", blockingError={"blockingError": "formatted"})
    t.attach("hook_success", content="", hookEvent="PreToolUse", stderr="pre")
    t.says("m1")
    old = Transcript("2.0.60")
    old.prompt("go")
    old.attach("hook_blocking_error", blockingError={"blockingError": "formatted"}, hookEvent="PostToolUse")
    old.attach("hook_additional_context", content=["context", "more"], hookEvent="PostToolUse")
    old.attach("hook_success", content="not shown", hookEvent="Stop")
    old.says("m1")
    for transcript, shown in ((t, ["<hook>formatted</hook>"]), (old, ["formatted", "context\nmore"])):
        rows = read(transcript.lines)
        sizes = [("prompt", 2), *(("reminder", len(one)) for one in shown)]
        assert _entered(rows.turn("m1")) == sizes
        assert [said for role, _, said in rows.texts() if role == "system"] == shown


def test_a_call_names_the_agents_of_a_workflow_run_and_of_a_team() -> None:
    t = Transcript()
    t.prompt("go")
    t.calls("m1", call("c1", "Workflow", script="x"), call("c2", "Agent", subagent_type="reviewer"))
    t.result("c1", "launched", toolUseResult={"status": "async_launched", "runId": "wf_1"})
    spawned = {"status": "teammate_spawned", "teammate_id": "rev@core", "agent_id": "rev@core", "name": "rev"}
    t.result("c2", "spawned", toolUseResult=spawned)
    links = [(link.agent_id, link.evidence, link.tool_use_id, link.type) for link in read(t.lines).agents]
    assert links == [("wf_1", "result", "c1", None), ("rev@core", "result", "c2", "reviewer")]


def test_images_enter_by_the_size_of_their_bytes() -> None:
    t = Transcript()
    t.prompt([text("look"), image("aGVsbG8=")])
    t.calls("m1", call("c1", "Read"))
    t.result("c1", [text("ab"), image("aGVsbG8h")])
    t.says("m2")
    rows = read(t.lines)
    assert _entered(rows.turn("m1")) == [("prompt", 4), ("image", 5)]
    assert rows.turn("m2").entered == (
        Block(kind="result", bytes=2, call_id="c1"),
        Block(kind="image", bytes=6, call_id="c1"),
    )


def test_a_compaction_begins_a_new_row_under_the_same_prompt() -> None:
    t = Transcript()
    prompt = t.prompt("refactor it")
    last = t.says("m1")
    boundary = t.add(
        "system",
        None,
        subtype="compact_boundary",
        logicalParentUuid=last,
        compactMetadata={"trigger": "auto", "preTokens": 900, "postTokens": 20},
    )
    t.prompt("So far: ...", isCompactSummary=True)
    t.says("m2")
    rows = read(t.lines)
    turn = rows.turn("m2")
    assert (turn.parent, turn.prompt_id, _entered(turn)) == (None, prompt, [("summary", 11)])
    (compaction,) = rows.compactions
    assert (compaction.id, compaction.trigger) == (boundary, "auto")
    assert (compaction.before_tokens, compaction.after_tokens) == (900, 20)


def test_what_a_turn_made_is_weighed_block_by_block() -> None:
    t = Transcript()
    t.says("m1", {"type": "thinking", "thinking": "hmm", "signature": "x" * 40})
    t.says("m1", {"type": "thinking", "thinking": "", "signature": "x" * 40})
    t.says("m1", {"type": "redacted_thinking", "data": "x" * 30})
    t.says("m1", text("grün"))
    t.calls("m1", call("c1", "Read", file_path="/a"))
    assert read(t.lines).turn("m1").made == (
        Block(kind="thinking", bytes=3),
        Block(kind="thinking", bytes=40),
        Block(kind="thinking", bytes=30),
        Block(kind="text", bytes=5),
        Block(kind="call", bytes=len('{"file_path":"/a"}'), call_id="c1"),
    )


def test_a_line_written_twice_is_read_once() -> None:
    """A client once wrote every line of a branch twice."""
    t = Transcript()
    t.prompt("go")
    t.calls("m1", call("c1", "Edit", file_path="/a"))
    t.result("c1")
    t.says("m2")
    once, twice = read(t.lines), read([*t.lines, *t.lines])
    assert [(turn.message_id, turn.made, turn.tool_calls) for turn in twice.turns] == [
        (turn.message_id, turn.made, turn.tool_calls) for turn in once.turns
    ]
    assert {one.key for one in once.content} == {one.key for one in twice.content}


def test_prompts_and_results_that_old_clients_wrote_twice_count_once() -> None:
    """With another uuid but the same time or call; the answer may hang below either."""
    for answers_second in (False, True):
        t = Transcript()
        first = t.prompt("go on", ts=t.time(5))
        t.prompt("go on", parent=None, ts=t.time(5))
        asked = t.calls("m1", call("c1", "Read"), parent=t.last if answers_second else first)
        first = t.result("c1", "four")
        t.result("c1", "four", parent=asked)
        t.says("m2", parent=t.last if answers_second else first)
        t.prompt("go on")
        t.says("m3")
        rows = read(t.lines)
        assert [_entered(turn) for turn in rows.turns] == [[("prompt", 5)], [("result", 4)], [("prompt", 5)]]
        assert [one.kind for one in rows.content if one.role != "assistant"] == ["text", "tool_result", "text"]
        assert len({turn.prompt_id for turn in rows.turns}) == 2


def test_another_result_of_a_call_is_not_the_same_again() -> None:
    t = Transcript()
    t.prompt("go")
    t.calls("m1", call("c1", "Read"))
    t.result("c1", "four")
    t.result("c1", "fifth")
    t.says("m2")
    assert _entered(read(t.lines).turn("m2")) == [("result", 4), ("result", 5)]


@pytest.mark.parametrize("missing", [("parentUuid",), ("uuid", "parentUuid")])
@pytest.mark.parametrize("rail", ["main", "a17"])
def test_lines_that_do_not_say_what_they_follow_follow_one_another(missing: tuple[str, ...], rail: str) -> None:
    """As tools write them that know less of the form than Claude Code itself; however the reading is cut."""
    place = LogPath("agent-a17", SESSION, "a17", None) if rail != "main" else LogPath(SESSION, SESSION)
    t = Transcript(isSidechain=rail != "main")
    t.prompt("fix the crash")
    t.calls("m1", call("c1", "Edit", file_path="/a.py", old_string="a", new_string="b"))
    t.result("c1", "four")
    t.calls("m2", call("c2", "Bash", command="pytest"))
    t.result("c2", "fifth", is_error=True)
    t.calls("m3", call("c3", "Edit", file_path="/a.py", old_string="b", new_string="c"))
    t.result("c3", "6")
    t.prompt("thanks", isMeta=rail != "main")
    t.says("m4")
    lines = [_without(line, *missing) for line in t.lines]
    told, guessed = read(t.lines, place), read(lines, place)
    assert [_placed(turn) for turn in guessed.turns] == [_placed(turn) for turn in told.turns]
    assert guessed.turn("m3").activity == "debugging"
    assert guessed.turn("m3").prompt_retries == 1
    assert len({turn.prompt_id for turn in guessed.turns}) == (1 if rail != "main" else 2)
    for cut in range(1, len(lines)):
        assert read(lines, place, cuts=[cut]).comparable() == guessed.comparable()


def test_prompts_without_ids_of_a_session_and_of_its_agents_are_not_taken_for_one() -> None:
    """Both are at the same position in their files."""
    t = Transcript()
    t.prompt("go")
    t.says("m1")
    lines = [_without(line, "uuid", "parentUuid") for line in t.lines]
    agents = read(lines, LogPath("agent-a17", SESSION, "a17", None))
    assert read(lines, LogPath(SESSION, SESSION)).turn("m1").prompt_id != agents.turn("m1").prompt_id


def _without(line: bytes, *keys: str) -> bytes:
    return json.dumps({key: value for key, value in json.loads(line).items() if key not in keys}).encode()


def _placed(turn: Turn) -> tuple[Any, ...]:
    """Position of a turn, ignoring the id of its prompt."""
    return turn.parent, turn.entered, turn.prompt_words, turn.activity, turn.prompt_retries, turn.tool_calls


def test_an_agents_file_is_a_rail_of_its_parents_session() -> None:
    place = LogPath("agent-a17", SESSION, "a17", AgentMeta("Explore", "t1"))
    t = Transcript(agentId="a17", isSidechain=True)
    prompt = t.prompt("find errors")
    t.calls("m1", call("c1", "Grep", pattern="secret"))
    t.result("c1", "1")
    t.prompt("by the way", isMeta=True)
    t.prompt("more words")
    t.says("m2")
    rows = read(t.lines, place)
    assert {(turn.session_id, turn.rail_id, turn.prompt_id) for turn in rows.turns} == {(SESSION, "a17", prompt)}
    assert rows.turn("m1").subagent == Subagent(agent_id="a17", type="Explore", parent_tool_use_id="t1")
    (link,) = rows.agents
    assert (link.evidence, link.agent_id, link.tool_use_id, link.type) == ("meta", "a17", "t1", "Explore")


def test_an_agents_type_may_stand_in_its_lines() -> None:
    t = Transcript(isSidechain=True)
    t.says("m1", attributionAgent="Plan")
    turn = read(t.lines, LogPath("agent-a17", SESSION, "a17")).turn("m1")
    assert turn.subagent == Subagent(agent_id="a17", type="Plan")


def test_an_agents_file_beside_its_session_takes_it_from_the_lines() -> None:
    t = Transcript(session="../../x")
    t.says("m1")
    turn = read(t.lines, LogPath("agent-12345678", None, "12345678")).turn("m1")
    assert (turn.session_id, turn.rail_id) == ("../../x", "12345678")


@pytest.mark.parametrize(
    "first",
    [
        {"type": "last-prompt", "lastPrompt": "x"},
        {"type": "cost-state", "modelUsage": {"m": {"inputTokens": 7}}},
        {"type": "api-request", "id": "r1"},
    ],
)
def test_an_agents_file_may_name_its_session_beside_the_conversation_first(first: dict[str, Any]) -> None:
    """A title or a running total that opens the file belongs to the session it names, as all that follows."""
    t = Transcript(session="S")
    t.bare(**first, sessionId="S")
    t.says("m1")
    rows = read(t.lines, LogPath("agent-12345678", None, "12345678"))
    told = [rows.turn("m1").session_id, *(c.session_id for c in rows.content), *(o.session_id for o in rows.overheads)]
    assert set(told) == {"S"}


def test_an_unknown_line_does_not_name_the_session_of_an_agents_file() -> None:
    """Such a line may come first, and be of an unknown type."""
    t = Transcript(session="S")
    t.lines = [b'{"kind":1,"type":"file-history-snapshot","messageId":"x"}', b'{"type":"to-come"}']
    t.says("m1")
    assert read(t.lines, LogPath("agent-12345678", None, "12345678")).turn("m1").session_id == "S"


def test_sidechains_in_the_main_file_are_rails_named_by_their_root() -> None:
    """Two agents at work, line by line in turn: each is tied to the call that handed out its very text."""
    t = Transcript("1.0.100")
    t.prompt("go")
    t.calls("m1", call("t1", "Task", prompt="look", subagent_type="Explore"))
    t.calls("m1", call("t2", "Task", prompt="plan", subagent_type="Plan"))
    plan = t.prompt("plan", parent=None, isSidechain=True)
    look = t.prompt("look", parent=None, isSidechain=True)
    t.says("p1", parent=plan, isSidechain=True)
    t.calls("l1", call("c1", "Read"), parent=look, isSidechain=True)
    t.result("c1", "12", isSidechain=True)
    t.says("l2", isSidechain=True)
    t.result("t1", "seen", parent="u1")
    t.says("m2")
    rows = read(t.lines)
    assert {turn.message_id: (turn.rail_id, turn.turn_index) for turn in rows.turns} == {
        "m1": ("main", 0),
        "p1": (plan, 0),
        "l1": (look, 0),
        "l2": (look, 1),
        "m2": ("main", 1),
    }
    assert rows.turn("l2").subagent == Subagent(agent_id=look, type="Explore", parent_tool_use_id="t1")
    assert rows.turn("p1").subagent == Subagent(agent_id=plan, type="Plan", parent_tool_use_id="t2")
    assert rows.turn("l2").parent == "l1"
    assert rows.turn("l1").prompt_id == look
    assert rows.turn("m2").parent == "m1"
    assert _entered(rows.turn("m2")) == [("result", 4)]


def test_a_sidechain_without_a_task_has_no_call() -> None:
    t = Transcript("1.0.100")
    t.prompt("Warmup", parent=None, isSidechain=True)
    t.says("w1", isSidechain=True)
    rows = read(t.lines)
    assert rows.turn("w1").subagent == Subagent(agent_id="u0")
    assert rows.agents == []


def test_a_sidechain_that_was_quiet_for_long_goes_on_where_it_was() -> None:
    t = Transcript("1.0.100")
    root = t.prompt("dig", parent=None, isSidechain=True)
    t.says("d1", isSidechain=True)
    for n in range(50):
        t.prompt(f"{n}", parent=None, isSidechain=True)
        t.says(f"m{n}", isSidechain=True)
    t.prompt("more", parent="u1", isSidechain=True)
    t.says("d2", isSidechain=True)
    whole, cut = read(t.lines), read(t.lines, cuts=range(0, 110, 9))
    assert (whole.turn("d2").rail_id, whole.turn("d2").turn_index) == (root, 1)
    assert all(candidate.settled for candidate in whole.candidates.values())
    assert cut.comparable() == whole.comparable()


def test_a_turn_settles_when_the_next_one_begins_on_its_rail() -> None:
    t = Transcript()
    t.says("m1")
    t.prompt("go", parent=None, isSidechain=True)
    t.says("s1", isSidechain=True)
    reader_rows = read(t.lines)
    assert all(candidate.settled for candidate in reader_rows.candidates.values())


def test_the_project_is_where_the_session_began() -> None:
    t = Transcript()
    t.prompt("go")
    t.says("m1", cwd="/home/dev/app/sub", gitBranch="HEAD")
    t.says("m2", cwd="/elsewhere", gitBranch="feature")
    rows = read(t.lines)
    assert [(turn.project, turn.git_branch) for turn in rows.turns] == [
        ("/home/dev/app", None),
        ("/home/dev/app", "feature"),
    ]
    assert rows.state is not None
    assert (rows.state.project, rows.state.session_id, rows.state.birth) == ("/home/dev/app", SESSION, t.time(0))


def test_a_line_that_names_no_folder_says_nothing_of_the_project() -> None:
    t = Transcript()
    t.prompt("go", cwd="")
    t.says("m1")
    assert read(t.lines).turn("m1").project == "/home/dev/app"
