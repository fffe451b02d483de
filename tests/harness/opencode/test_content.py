"""What is kept of a message: everything that was said, and nothing that a row repeats."""

from __future__ import annotations

from typing import Any

import msgspec

from burnd.harness.opencode.content import saved_outputs, title_of, whole_output
from burnd.harness.opencode.rows import SessionRow, opened
from burnd.records.foreign_json import Rejected
from burnd.records.times import to_iso
from tests.harness.opencode.data import BORN_MS, reasoning, text, tool
from tests.harness.opencode.reading import content, row


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
    """What a person wrote is theirs; texts that opencode put beside it are the system's; pictures keep their bytes."""
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
    found = opened(row("m", {"role": "assistant"}, tool("c", "bash", {}, "cut", metadata={"outputPath": "/x/tool_1"})))
    assert not isinstance(found, Rejected)
    records = content(tool("c", "bash", {}, "cut", metadata={"outputPath": "/x/tool_1"}))
    (saved,) = saved_outputs(records, found)
    whole = whole_output(saved, "all of it")
    assert saved.name == "/x/tool_1"
    assert (whole.n, whole.b > 1) == (0, True)
    assert msgspec.json.decode(whole.tool_result.content) == "all of it"  # type: ignore[union-attr]


def test_texts_may_hold_anything() -> None:
    """A NUL, a lone surrogate, a separator of lines: kept as far as UTF-8 can hold it."""
    message = row("m", {"role": "assistant"}, text("Grüße \u0000end\u2028"))
    odd = message._replace(parts=(message.parts[0]._replace(data=b'{"type":"text","text":"x\\ud800y"}'),))
    for one, words in ((message, "Grüße \u0000end\u2028"), (odd, "x\ufffdy")):
        found = opened(one)
        assert not isinstance(found, Rejected)
        assert found.parts[0].data.text == words


def test_the_title_opencode_begins_with_is_none() -> None:
    """It names a moment; a person's own title may begin with the same words."""
    for title in ("New session - 2026-11-16T00:04:57.947Z", "Child session - 2026-11-16T00:04:57.947Z", "", None):
        assert title_of(SessionRow("s", BORN_MS, title=title)) is None
    for title in ("Parser bug", "New session - planning the move"):
        found = title_of(SessionRow("s", BORN_MS, title=title))
        assert found is not None
        assert (found.kind, found.text, found.message_id) == ("title", title, "title:opencode")
