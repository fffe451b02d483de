"""Calls of opencode's tools: what they worked on, how they ended, what came back, and whom they started."""

from __future__ import annotations

from typing import Any

import pytest

from burnd.harness.opencode.rows import opened
from burnd.harness.opencode.tools import call_of
from tests.harness.opencode.data import text, tool
from tests.harness.opencode.reading import answered, row


def called(name: str, given: dict[str, Any], output: str | None = "ok", **state: Any) -> Any:
    found = opened(row("a", {"role": "assistant"}, tool("c", name, given, output, **state)))
    return call_of(found.parts[0].data, "c")  # type: ignore[union-attr]


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
    """A command that failed is `completed` all the same: its exit code tells. What runs has not ended."""
    call = called(name, {"command": "x"}, **state).call
    assert call.is_error is failed
    assert (call.result_hash is None) == (failed is None)


def test_what_a_person_refused_is_told_from_what_failed() -> None:
    said = "The user rejected permission to use this specific tool call."
    rule = "The user has specified a rule which prevents you from using this specific tool call."
    refused = [called("bash", {"command": "x"}, status="error", error=error).call for error in (said, rule)]
    assert [(call.is_error, call.is_refused) for call in refused] == [(True, True), (True, False)]


def test_what_comes_back_is_weighed_with_its_attachments() -> None:
    """Text by its UTF-8, files by the bytes that their base64 stands for."""
    picture = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAAAAA="}
    found = called("read", {"filePath": "x.png"}, "größe", attachments=[picture])
    assert [(block.kind, block.bytes, block.call_id) for block in found.came_back] == [
        ("result", 7, "c"),
        ("image", 5, "c"),
    ]


def test_equal_arguments_have_equal_hashes_whatever_their_order() -> None:
    one, two = called("read", {"a": 1, "b": 2}), called("read", {"b": 2, "a": 1})
    assert one.call.args_hash == two.call.args_hash
    assert one.call.args_hash != called("read", {"a": 1, "b": 3}).call.args_hash


def test_a_task_names_the_session_it_started() -> None:
    """The link is there while the call still runs; other tools' metadata links nothing."""
    found = answered(
        tool("c1", "task", {"subagent_type": "x"}, None, metadata={"sessionId": "ses_kid"}),
        tool("c2", "bash", {}, metadata={"sessionId": "ses_other"}),
        tool("c3", "task", {}, None),
    )
    assert found.children == (("c1", "ses_kid"),)


def test_files_are_those_of_calls_and_those_found_changed() -> None:
    patch = {"type": "patch", "hash": "h", "files": ["/p/b.py", "/p/a.py"]}
    found = answered(tool("c", "edit", {"filePath": "/p/a.py"}), patch, text("done"))
    assert found.files == ("/p/a.py", "/p/b.py")
    assert [block.kind for block in found.made] == ["call", "text"]


def test_two_calls_that_a_model_gave_one_id_are_two() -> None:
    """The later one goes by its part's id: its arguments, its answer and its failure are its own."""
    first = tool("edit:0", "edit", {"filePath": "/a"}, "fine")
    second = tool("edit:0", "edit", {"filePath": "/b"}, "fine too")
    found = answered(text("so"), first, second, tool("", "list", {}, "x"), tool("", "list", {}, "y"))
    assert [(call.id, call.target) for call in found.calls] == [
        ("edit:0", "/a"),
        ("a-p2", "/b"),
        ("", None),
        ("", None),
    ]
    assert [block.call_id for block in found.made] == [None, "edit:0", "a-p2", "", ""]
    assert [block.call_id for block in found.came_back] == ["edit:0", "a-p2", "", ""]
