"""The content and the tool calls of a message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from burnd.harness.opencode.messages import call_of, saved_outputs, title_of, whole_output
from burnd.harness.opencode.rows import SessionRow
from burnd.records.times import to_iso
from tests.harness.opencode.data import BORN_MS, reasoning, text, tool
from tests.harness.opencode.reading import content, decoded, response, row


def shown(records: list[Any]) -> list[tuple[Any, ...]]:
    return [(r.n, r.b, r.role, r.kind, r.text) for r in records]


def test_an_answer_block_by_block() -> None:
    """Thinking, text, the call and its result; steps and snapshots say nothing."""
    call = tool("c", "bash", {"command": "ls"}, "a.py", time={"start": BORN_MS, "end": BORN_MS + 900})
    records = content({"type": "step-start"}, reasoning("hm"), text("so"), call, {"type": "step-finish"})
    assert shown(records) == [
        (1, 0, "assistant", "thinking", "hm"),
        (2, 0, "assistant", "text", "so"),
        (3, 0, "assistant", "tool_use", None),
        (3, 1, "tool_result", "tool_result", None),
    ]
    assert bytes(records[2].tool_use.input) == b'{"command": "ls"}'  # type: ignore[union-attr]
    assert bytes(records[3].tool_result.content) == b'"a.py"'  # type: ignore[union-attr]
    assert [record.ts for record in records[2:]] == [to_iso(BORN_MS + 1), to_iso(BORN_MS + 900)]


def test_thinking_stays_out_where_it_is_not_wanted() -> None:
    assert shown(content(reasoning("hm"), text("so"), reasoning=False)) == [(1, 0, "assistant", "text", "so")]


def test_a_failed_call_keeps_its_error_and_a_running_one_has_no_result() -> None:
    _, failed = content(tool("c1", "read", {}, None, status="error", error="not found"))
    assert failed.tool_result is not None
    assert failed.tool_result.is_error is True
    assert msgspec.json.decode(failed.tool_result.content) == "not found"
    assert [record.kind for record in content(tool("c2", "read", {}, None))] == ["tool_use"]


def test_a_prompt_with_what_opencode_added_to_it() -> None:
    """The user's text is separate from texts added by opencode; images keep their byte counts."""
    records = content(
        {"type": "text", "text": "Called the Read tool", "synthetic": True},
        {"type": "file", "mime": "image/png", "filename": "x.png", "url": "data:image/png;base64,AQID"},
        {"type": "file", "mime": "text/plain", "filename": "a.md", "url": "file:///p/a.md"},
        {"type": "text", "text": "look at it"},
        {"type": "agent", "name": "explore"},
        role="user",
    )
    assert [(r.role, r.kind) for r in records] == [
        ("system", "text"),
        ("user", "file"),
        ("user", "file"),
        ("user", "text"),
    ]
    assert (records[1].file.data, records[2].file.data) == (b"\x01\x02\x03", None)  # type: ignore[union-attr]


def test_commands_compactions_and_patches() -> None:
    """A command's prompt is kept, a compaction's answer is a summary, a patch is the files it changed."""
    assert shown(content({"type": "subtask", "prompt": "do it", "agent": "x"}, role="user")) == [
        (0, 0, "user", "text", "do it")
    ]
    assert shown(content(text("## Goal"), summary=True)) == [(0, 0, "assistant", "summary", "## Goal")]
    patch = content({"type": "patch", "hash": "abc", "files": ["/p/a", "/p/b"]})
    assert shown(patch) == [(0, 0, "assistant", "file", "/p/a\n/p/b")]


def test_attachments_of_a_result_come_after_it() -> None:
    picture = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AQID"}
    records = content(tool("c", "read", {}, "Image read", attachments=[picture]))
    assert [(record.b, record.kind) for record in records] == [(0, "tool_use"), (1, "tool_result"), (2, "file")]


def test_a_result_that_was_cut_names_the_file_with_the_whole() -> None:
    found = decoded(row("m", {"role": "assistant"}, tool("c", "bash", {}, "cut", metadata={"outputPath": "/x/tool_1"})))
    records = content(tool("c", "bash", {}, "cut", metadata={"outputPath": "/x/tool_1"}))
    ((path, record),) = saved_outputs(records, found)
    whole = whole_output(record, "all of it")
    assert path == "/x/tool_1"
    assert (whole.n, whole.b > 1) == (0, True)
    assert msgspec.json.decode(whole.tool_result.content) == "all of it"  # type: ignore[union-attr]


def test_texts_may_hold_anything() -> None:
    """A NUL, a lone surrogate, a separator of lines: kept as far as UTF-8 can hold it."""
    message = row("m", {"role": "assistant"}, text("Grüße \u0000end\u2028"))
    odd = message._replace(parts=(message.parts[0]._replace(data=b'{"type":"text","text":"x\\ud800y"}'),))
    for one, words in ((message, "Grüße \u0000end\u2028"), (odd, "x\ufffdy")):
        assert decoded(one).parts[0].data.text == words


def test_the_default_title_is_left_out() -> None:
    """It names a moment; a person's own title may begin with the same words."""
    for title in ("New session - 2026-11-16T00:04:57.947Z", "Child session - 2026-11-16T00:04:57.947Z", "", None):
        assert title_of(SessionRow("s", BORN_MS, title=title)) is None
    for title in ("Parser bug", "New session - planning the move"):
        found = title_of(SessionRow("s", BORN_MS, title=title))
        assert found is not None
        assert (found.kind, found.text, found.message_id) == ("title", title, "title:opencode")


def called(name: str, given: dict[str, Any], output: str | None = "ok", **state: Any) -> Any:
    found = decoded(row("a", {"role": "assistant"}, tool("c", name, given, output, **state)))
    return call_of(found.parts[0].data, "c")


@pytest.mark.parametrize(
    ("name", "given", "target"),
    [
        ("read", {"filePath": "/a/b.py"}, "/a/b.py"),
        ("edit", {"filePath": "/a/b.py", "oldString": "secret"}, "/a/b.py"),
        ("write", {"filePath": "/a/b.py", "content": "secret"}, "/a/b.py"),
        ("grep", {"pattern": "secret", "path": "/a"}, "/a"),
        ("glob", {"pattern": "secret"}, None),
        ("list", {"path": "/a"}, "/a"),
        ("bash", {"command": "cd x && npm run test -- secret"}, "npm test"),
        ("webfetch", {"url": "https://user:secret@example.org/secret?q"}, "example.org"),
        ("websearch", {"query": "secret"}, None),
        ("task", {"subagent_type": "explore", "prompt": "secret"}, "explore"),
        ("skill", {"name": "pdf"}, "pdf"),
        ("todowrite", {"todos": ["secret"]}, None),
        ("invalid", {"tool": "no_such_tool", "error": "secret"}, "no_such_tool"),
        ("apply_patch", {"patchText": "*** Begin Patch\n*** Update File: a.py\n@@\n-secret\n"}, "a.py"),
        ("apply_patch", {"patchText": "*** Add File: a.py\n*** Delete File: b.py\n"}, None),
        ("weather_forecast", {"city": "secret"}, None),
    ],
)
def test_targets_name_what_was_worked_on_and_never_hold_content(
    name: str, given: dict[str, Any], target: str | None
) -> None:
    call = called(name, given).call
    assert call.target == target
    assert "secret" not in str(call)


def test_a_patch_touches_every_file_it_names() -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n*** Add File: docs/b.md\n+x\n*** End Patch"
    assert called("apply_patch", {"patchText": patch}).files == ("a.py", "docs/b.md")


@pytest.mark.parametrize(
    ("name", "state", "failed"),
    [
        ("bash", {"metadata": {"exit": 0}}, False),
        ("bash", {"metadata": {"exit": 3}}, True),
        ("bash", {"metadata": {"exit": None}}, False),
        ("bash", {"status": "error", "error": "The user rejected permission"}, True),
        ("read", {"status": "error", "error": "File not found"}, True),
        ("read", {"metadata": {"exit": 3}}, False),
        ("invalid", {}, True),
        ("read", {"status": "running", "output": None}, None),
        ("read", {"status": "pending", "output": None}, None),
    ],
)
def test_how_a_call_ended(name: str, state: dict[str, Any], failed: bool | None) -> None:
    """A failed command is `completed` as well: its exit code decides. A running one has not ended."""
    call = called(name, {"command": "x"}, **state).call
    assert call.is_error is failed
    assert (call.result_hash is None) == (failed is None)


def test_a_refused_call_differs_from_a_failed_one() -> None:
    said = "The user rejected permission to use this specific tool call."
    rule = "The user has specified a rule which prevents you from using this specific tool call."
    refused = [called("bash", {"command": "x"}, status="error", error=error).call for error in (said, rule)]
    assert [(call.is_error, call.is_refused) for call in refused] == [(True, True), (True, False)]


def test_results_have_the_size_of_their_attachments() -> None:
    """Text by UTF-8 size, files by the decoded size of their base64."""
    picture = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAAAAA="}
    found = called("read", {"filePath": "x.png"}, "größe", attachments=[picture])
    assert [(block.kind, block.bytes, block.call_id) for block in found.results] == [
        ("result", 7, "c"),
        ("image", 5, "c"),
    ]


def test_equal_arguments_have_equal_hashes_whatever_their_order() -> None:
    one, two = called("read", {"a": 1, "b": 2}), called("read", {"b": 2, "a": 1})
    assert one.call.args_hash == two.call.args_hash
    assert one.call.args_hash != called("read", {"a": 1, "b": 3}).call.args_hash


def test_a_task_names_the_session_it_started() -> None:
    """The link is there while the call still runs; other tools' metadata links nothing."""
    found = response(
        tool("c1", "task", {"subagent_type": "x"}, None, metadata={"sessionId": "ses_kid"}),
        tool("c2", "bash", {}, metadata={"sessionId": "ses_other"}),
        tool("c3", "task", {}, None),
    )
    assert found.children == (("c1", "ses_kid"),)


def test_files_are_those_of_calls_and_of_patches() -> None:
    patch = {"type": "patch", "hash": "h", "files": ["/p/b.py", "/p/a.py"]}
    found = response(tool("c", "edit", {"filePath": "/p/a.py"}), patch, text("done"))
    assert found.files == ("/p/a.py", "/p/b.py")
    assert [block.kind for block in found.output] == ["call", "text"]


def test_calls_with_the_same_id_are_two_calls() -> None:
    """The later one goes by its part's id: its arguments, its answer and its failure are its own."""
    first = tool("edit:0", "edit", {"filePath": "/a"}, "fine")
    second = tool("edit:0", "edit", {"filePath": "/b"}, "fine too")
    found = response(text("so"), first, second, tool("", "list", {}, "x"), tool("", "list", {}, "y"))
    assert [(call.id, call.target) for call in found.calls] == [
        ("edit:0", "/a"),
        ("a-p2", "/b"),
        ("", None),
        ("", None),
    ]
    assert [block.call_id for block in found.output] == [None, "edit:0", "a-p2", "", ""]
    assert [block.call_id for block in found.results] == ["edit:0", "a-p2", "", ""]


def test_a_call_that_made_a_pull_request() -> None:
    address = "https://github.com/acme/shop/pull/12"
    made = called("bash", {"command": "git push && gh pr create"}, status="completed", output=f"done\n{address}\n")
    assert made.pull_request == address
    seen = called("bash", {"command": "gh pr view"}, status="completed", output=address)
    assert seen.pull_request is None
