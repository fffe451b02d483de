"""Calls and results in content blocks, read from a transcript: targets, hashes, outcomes, the agents they start."""

from __future__ import annotations

import json
from typing import Any

import pytest

from burnd.records import ToolCall
from tests.harness.claude_code.transcript import Transcript, call, image, text
from tests.harness.collect import Collected, read


def _call(name: str, **arguments: Any) -> ToolCall:
    t = Transcript()
    t.calls("m1", call("c1", name, **arguments))
    return read(t.lines).turn("m1").tool_calls[0]


@pytest.mark.parametrize(
    ("name", "arguments", "target"),
    [
        ("Read", {"file_path": "/a.py", "limit": 3}, "/a.py"),
        ("Edit", {"file_path": "/a.py"}, "/a.py"),
        ("Write", {"file_path": "/a.py", "content": "x"}, "/a.py"),
        ("MultiEdit", {"file_path": "/a.py"}, "/a.py"),
        ("NotebookEdit", {"notebook_path": "/a.ipynb"}, "/a.ipynb"),
        ("Bash", {"command": "cd x && TOKEN=secret npm run build -- --key=secret"}, "npm build"),
        ("Bash", {"command": 7}, None),
        ("WebFetch", {"url": "https://user:secret@example.org:8080/path?q=secret"}, "example.org"),
        ("WebFetch", {"url": "example.org/path"}, "example.org"),
        ("WebFetch", {"url": "http://[broken"}, None),
        ("WebFetch", {"url": f"https://example.org/{'a' * 5000}"}, "example.org"),
        ("WebFetch", {"url": f"https://user:{'secret' * 5000}@example.org/"}, None),
        ("WebSearch", {"query": "secret"}, None),
        ("Task", {"subagent_type": "Explore", "prompt": "secret"}, "Explore"),
        ("Agent", {"prompt": "secret"}, None),
        ("Skill", {"skill": "pdf"}, "pdf"),
        ("Skill", {"command": "pdf secret"}, "pdf"),
        ("Grep", {"pattern": "secret", "path": "/src"}, "/src"),
        ("Glob", {"pattern": "secret"}, None),
        ("mcp__github__search", {"path": "secret", "file_path": "secret"}, None),
        ("TodoWrite", {"todos": ["secret"]}, None),
        ("Unheard", {"file_path": "secret"}, None),
        ("Read", {"file_path": ["secret"]}, None),
    ],
)
def test_a_target_names_what_was_worked_on_and_nothing_else(
    name: str, arguments: dict[str, Any], target: str | None
) -> None:
    assert _call(name, **arguments).target == target


def test_some_clients_call_a_skill_by_its_name() -> None:
    t = Transcript()
    t.calls("m1", {"type": "tool_use", "id": "c1", "name": "Skill", "input": {"name": "pdf"}})
    assert read(t.lines).turn("m1").tool_calls[0].target == "pdf"


def test_equal_arguments_have_equal_hashes_whatever_their_order() -> None:
    one, same = _call("Read", file_path="/a", limit=2), _call("Read", limit=2, file_path="/a")
    other = _call("Read", file_path="/a", limit=3)
    assert one.args_hash == same.args_hash
    assert one.args_hash != other.args_hash
    assert one.args_hash is not None
    assert len(one.args_hash) == 16


def _answered(name: str, content: Any, *, is_error: bool | None = None) -> ToolCall:
    t = Transcript()
    t.calls("m1", call("c1", name, command="x"))
    t.result("c1", content, is_error=is_error)
    return read(t.lines).turn("m1").tool_calls[0]


@pytest.mark.parametrize(
    ("name", "content", "is_error", "failed"),
    [
        ("Bash", "fine", None, False),
        ("Bash", "fine", False, False),
        ("Bash", "Exit code 3\ncat: no such file", True, True),
        ("Bash", "Exit code 3\ncat: no such file", None, True),
        ("Bash", "Error: Exit code 1", None, True),
        ("Bash", "Exit code 0", None, False),
        ("Bash", [text("Exit code 2")], None, True),
        ("Read", "Exit code 3", None, False),
        ("Edit", "<tool_use_error>x</tool_use_error>", True, True),
    ],
)
def test_a_call_failed_when_the_harness_or_the_exit_code_says_so(
    name: str, content: Any, is_error: bool | None, failed: bool
) -> None:
    assert _answered(name, content, is_error=is_error).is_error is failed


@pytest.mark.parametrize(
    ("content", "is_error", "refused"),
    [
        ("The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was", True, True),
        ([text("The user doesn't want to take this action right now. STOP what you are doing")], True, True),
        ("[Request interrupted by user for tool use]", True, True),
        ("Permission to use Bash with command rm has been denied.", True, False),
        ("Exit code 1\nThe user doesn't want to proceed with this tool use", True, False),
        ("The user doesn't want to proceed with this tool use", None, False),
    ],
)
def test_refusals_are_distinguished_from_failures(content: Any, is_error: bool | None, refused: bool) -> None:
    """Only a refusal marked by the harness: not one by a rule, nor a result with the same text."""
    assert _answered("Bash", content, is_error=is_error).is_refused is refused


def test_an_unanswered_call_has_no_outcome() -> None:
    t = Transcript()
    t.calls("m1", call("c1", "Bash", command="ls"))
    candidate = read(t.lines).candidates["m1"]
    assert (candidate.calls[0].is_error, candidate.calls[0].result_hash, candidate.answered) == (None, None, False)


def test_equal_results_have_equal_hashes_as_text_or_blocks() -> None:
    whole, blocks = _answered("Read", "abc"), _answered("Read", [text("a"), text("bc")])
    assert whole.result_hash == blocks.result_hash
    assert whole.result_hash != _answered("Read", "abd").result_hash
    assert _answered("Read", [image("aGVsbG8=")]).result_hash != _answered("Read", [image("aGVsbG8h")]).result_hash


def test_a_late_error_changes_the_label() -> None:
    """A result that arrives after other turns still finds its call."""
    t = Transcript()
    t.calls("m1", call("c1", "Edit", file_path="/a.py"))
    for n in range(30):
        t.says(f"x{n}")
    t.result("c1", "no", is_error=True, parent="u0")
    early, late = read(t.lines[:-1]), read(t.lines, cuts=[20])
    assert early.turn("m1").activity == "coding"
    assert late.turn("m1").activity == "debugging"


def test_a_result_names_the_line_it_answers() -> None:
    t = Transcript()
    source = t.calls("m1", call("c1", "Read"))
    for n in range(30):
        t.says(f"x{n}")
    t.result("c1", "yes", sourceToolAssistantUUID=source)
    assert read(t.lines).turn("m1").tool_calls[0].is_error is False


def test_files_touched_are_named_once() -> None:
    t = Transcript()
    t.calls("m1", call("c1", "Read", file_path="/a"), call("c2", "Edit", file_path="/a"))
    t.calls("m1", call("c3", "Write", file_path="/b"), call("c4", "Grep", path="/src"))
    assert read(t.lines).turn("m1").files_touched == ("/a", "/b")


def _deep_input(value: str) -> Collected:
    t = Transcript()
    t.calls("m1", call("c1", "Read", file_path="@@"))
    return read([line.replace(b'"@@"', value.encode()) for line in t.lines])


def test_a_huge_integer_among_the_arguments_is_kept_as_text() -> None:
    digits = "9" * 5000
    use = _deep_input(digits).content[0].tool_use
    assert use is not None
    assert json.loads(bytes(use.input)) == {"file_path": digits}


def test_a_huge_integer_in_a_result_is_kept_as_text() -> None:
    t = Transcript()
    t.result("c1", [{"type": "odd", "n": "@@"}])
    rows = read([line.replace(b'"@@"', b"9" * 5000) for line in t.lines])
    answer = rows.content[0].tool_result
    assert answer is not None
    assert json.loads(bytes(answer.content)) == [{"type": "odd", "n": "9" * 5000}]


@pytest.mark.parametrize("value", ["[" * 300 + "]" * 300, "1e999"])
def test_arguments_that_cannot_be_opened_are_kept_as_text(value: str) -> None:
    rows = _deep_input(value)
    (made,) = rows.turn("m1").tool_calls
    assert made.target is None
    assert made.args_hash is not None
    use = rows.content[0].tool_use
    assert use is not None
    assert bytes(use.input).startswith(b'"{')


def test_what_ran_at_the_provider_is_a_call_that_needs_no_answer() -> None:
    t = Transcript()
    t.says("m1", {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}})
    t.says("m1", {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "x"}]})
    candidate = read(t.lines).candidates["m1"]
    assert [(one.name, one.is_error) for one in candidate.calls] == [("web_search", False)]
    assert [block.kind for block in candidate.made] == ["call", "result"]
    assert candidate.answered


def test_a_saved_output_is_named_without_its_folder() -> None:
    t = Transcript()
    t.calls("m1", call("c1", "Bash", command="seq 9"))
    uuid = t.result("c1", "1 2 3", toolUseResult={"stdout": "1 2 3", "persistedOutputPath": "/x/../tool-results/b.txt"})
    t.result("c1", "1", toolUseResult={"persistedOutputPath": "/x/.."})
    t.result("c1", "1", toolUseResult={"persistedOutputPath": "C:\\x\\c.txt"})
    saved = read(t.lines).saved
    assert [one.name for one in saved] == ["b.txt", "c.txt"]
    assert (saved[0].message_id, saved[0].call_id) == (uuid, "c1")


def test_an_agent_is_tied_to_its_call_by_the_result_and_the_notification() -> None:
    t = Transcript()
    t.calls("m1", call("c1", "Agent", subagent_type="Plan", prompt="x"), call("c2", "Bash", command="sleep 9"))
    t.result("c1", toolUseResult={"status": "async_launched", "agentId": "a17"})
    for task, caller in (("a17", "c1"), ("shell9", "c2"), ("a18", "unknown")):
        t.prompt(f"<task-notification>\n<task-id>{task}</task-id>\n<tool-use-id>{caller}</tool-use-id>\n")
    assert [(one.agent_id, one.tool_use_id, one.type, one.evidence) for one in read(t.lines).agents] == [
        ("a17", "c1", "Plan", "result"),
        ("a17", "c1", "Plan", "notification"),
        ("a18", "unknown", None, "notification"),
    ]


def test_an_agent_is_tied_to_its_call_by_the_words_of_the_result_where_nothing_else_says_it() -> None:
    """By the last line that names one, since an answer may quote such a line; only a call that delegates starts one."""
    hint = "agentId: a17 (use SendMessage with to: 'a17' to go on with this agent)\n<usage>total_tokens: 5</usage>"
    t = Transcript()
    t.calls("m1", call("c1", "Agent", subagent_type="Plan", prompt="x"), call("c2", "Bash", command="cat log"))
    t.result("c1", [text("it says\nagentId: quoted"), text(hint)])
    t.result("c2", hint)
    t.calls("m2", call("c3", "Task", subagent_type="Explore", prompt="y"), call("c4", "Task", prompt="z"))
    t.result("c3", "done\nagentId: a18", toolUseResult={"status": "completed", "agentId": "a19"})
    t.result("c4", "I was told no agentId: at all", toolUseResult="Error: x")
    assert [(one.agent_id, one.tool_use_id, one.type, one.evidence) for one in read(t.lines).agents] == [
        ("a17", "c1", "Plan", "notification"),
        ("a19", "c3", "Explore", "result"),
    ]


@pytest.mark.parametrize("outcome", ["Error: x", ["a", 1], 3, 1.5, True, None, {"agentId": 7}])
def test_an_outcome_of_any_shape_is_borne(outcome: Any) -> None:
    t = Transcript()
    t.calls("m1", call("c1", "Bash", command="ls"))
    t.result("c1", "x", toolUseResult=outcome)
    rows = read(t.lines)
    assert rows.turn("m1").tool_calls[0].is_error is False
    assert rows.agents == []


@pytest.mark.parametrize("failed", [False, True])
def test_a_call_that_the_provider_made_at_an_mcp_server_is_a_call(failed: bool) -> None:
    """Named as a client's own call of that server would be, and answered within the response."""
    t = Transcript()
    asked = {"type": "mcp_tool_use", "id": "t1", "name": "echo", "server_name": "files", "input": {"path": "x"}}
    t.says(
        "m1", asked, {"type": "mcp_tool_result", "tool_use_id": "t1", "is_error": failed, "content": [text("hello")]}
    )
    rows = read(t.lines)
    (made,) = rows.turn("m1").tool_calls
    assert (made.id, made.name, made.is_error) == ("t1", "mcp__files__echo", failed)
    assert [(block.kind, block.call_id) for block in rows.turn("m1").made] == [("call", "t1"), ("result", "t1")]
    assert [one.kind for one in rows.content] == ["tool_use", "tool_result"]
    assert rows.content[0].tool_use is not None
    assert rows.content[0].tool_use.name == "mcp__files__echo"
