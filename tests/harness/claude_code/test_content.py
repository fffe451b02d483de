"""Everything in a log is recorded as content, each block under its own number."""

from __future__ import annotations

import json
from typing import Any

from burnd.records.codec import decode_content, encode_content
from tests.harness.claude_code.transcript import Transcript, call, image, text, thinking
from tests.harness.collect import SESSION, read


def test_prompts_answers_thinking_calls_and_results_are_kept() -> None:
    t = Transcript()
    prompt = t.prompt("please")
    t.says("m1", thinking("hm"))
    t.says("m1", text("so"), call("c1", "Read", file_path="/a"))
    result = t.result("c1", "body", is_error=False)
    rows = read(t.lines)
    assert [(one.message_id, one.n, one.b, one.role, one.kind) for one in rows.content] == [
        (prompt, 0, 0, "user", "text"),
        ("m1", 0, 0, "assistant", "thinking"),
        ("m1", 1, 0, "assistant", "text"),
        ("m1", 1, 1, "assistant", "tool_use"),
        (result, 0, 0, "tool_result", "tool_result"),
    ]
    assert {(one.session_id, one.rail_id) for one in rows.content} == {(SESSION, "main")}
    use, answer = rows.content[3].tool_use, rows.content[4].tool_result
    assert use is not None
    assert (use.id, use.name, json.loads(bytes(use.input))) == ("c1", "Read", {"file_path": "/a"})
    assert answer is not None
    assert (answer.tool_use_id, bytes(answer.content), answer.is_error) == ("c1", b'"body"', False)
    assert [one.ts for one in rows.content] == [t.time(0), t.time(1), t.time(2), t.time(2), t.time(3)]


def test_every_record_can_be_written_and_read_again() -> None:
    t = Transcript()
    t.prompt([text("\u2028 ☃"), image()])
    t.calls("m1", call("c1", "Read", path="\U0001f600"))
    t.result("c1", [text("x"), image()])
    for one in read(t.lines).content:
        assert decode_content(encode_content(one)) == one or one.kind in ("tool_use", "tool_result")


def test_images_are_kept_as_bytes_beside_their_result() -> None:
    t = Transcript()
    t.prompt([text("look"), image("aGVsbG8=", "image/jpeg")])
    t.result("c1", [text("here"), image("aGVsbG8h")])
    rows = read(t.lines)
    files = [(one.b, one.role, one.file.mime, one.file.data) for one in rows.content if one.file is not None]
    assert files == [(1, "user", "image/jpeg", b"hello"), (1, "tool_result", "image/png", b"hello!")]
    answer = rows.content[2].tool_result
    assert answer is not None
    assert json.loads(bytes(answer.content)) == [
        {"type": "text", "text": "here"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png"}},
    ]


def test_what_is_no_base64_is_left_where_it_is() -> None:
    t = Transcript()
    t.prompt([image("abcde")])
    t.result("c1", [image("abcde")])
    rows = read(t.lines)
    assert [one.kind for one in rows.content] == ["tool_result"]


def document(title: str | None = None, **source: Any) -> dict[str, Any]:
    return {"type": "document", "title": title, "source": source}


def test_documents_of_words_are_kept_as_words() -> None:
    """As one text, as blocks or as search results; images among the blocks count as bytes."""
    plain = document("n.txt", type="text", media_type="text/plain", data="abcd efgh")
    blocks = document("parts", type="content", content=[text("one"), image(), text("two")])
    single = document(type="content", content="three")
    found = {"type": "search_result", "source": "https://a.example/x", "title": "", "content": [text("four")]}
    t = Transcript()
    t.prompt([plain, blocks, single, found, text("sum up")])
    t.says("m1")
    rows = read(t.lines)
    kept = [(one.text, one.file and (one.file.mime, one.file.name, one.file.data)) for one in rows.content[:-1]]
    assert kept == [
        ("abcd efgh", ("text/plain", "n.txt", None)),
        ("one\ntwo", ("text/plain", "parts", None)),
        (None, ("image/png", None, b"hello")),
        ("three", ("text/plain", None, None)),
        ("four", ("text/plain", "https://a.example/x", None)),
        ("sum up", None),
    ]
    sizes = [(block.kind, block.bytes) for block in rows.turn("m1").entered]
    assert sizes == [("file", 9), ("file", 7), ("image", 5), ("file", 5), ("file", 4), ("prompt", 6)]


def test_documents_of_words_stay_in_the_result_that_holds_them() -> None:
    blocks = [
        document(type="text", media_type="text/plain", data="abcd efgh"),
        document(type="content", content=[text("one"), image()]),
        {"type": "search_result", "source": "https://a.example/x", "title": "A", "content": [text("four")]},
    ]
    t = Transcript()
    t.calls("m1", call("c1", "Read", file_path="/a"))
    t.result("c1", blocks)
    t.says("m2")
    rows = read(t.lines)
    answer, taken = rows.content[1].tool_result, rows.content[2].file
    assert answer is not None
    del blocks[1]["source"]["content"][1]["source"]["data"]
    assert json.loads(bytes(answer.content)) == blocks
    assert taken is not None
    assert (taken.mime, taken.data) == ("image/png", b"hello")
    assert [(block.kind, block.bytes) for block in rows.turn("m2").entered] == [("result", 16), ("image", 5)]


def test_harness_text_is_separate_from_user_text() -> None:
    t = Transcript()
    t.prompt("hello")
    t.prompt("<bash-input>ls</bash-input>")
    t.prompt("cut off", isMeta=True)
    t.prompt("So far: ...", isCompactSummary=True)
    assert read(t.lines).texts() == [
        ("user", "text", "hello"),
        ("system", "text", "<bash-input>ls</bash-input>"),
        ("system", "text", "cut off"),
        ("system", "summary", "So far: ..."),
    ]


def test_files_and_system_prompts_are_kept_from_attachments() -> None:
    t = Transcript()
    t.attach("file", filename="/a.py", content={"type": "text", "file": {"content": "def f(): ..."}}, rendered="x")
    t.attach("prompt_snapshot", systemPrompt=["You are", "an agent"], tools=[{"name": "Read"}])
    t.attach("skill_listing", content="many skills", rendered="many skills")
    rows = read(t.lines)
    assert rows.texts() == [
        ("user", "file", "def f(): ..."),
        ("system", "text", "You are\n\nan agent"),
        ("system", "text", '[{"name":"Read"}]'),
    ]
    file = rows.content[0].file
    assert file is not None
    assert (file.mime, file.name) == ("text/plain", "/a.py")


def test_an_attached_image_or_pdf_is_kept_by_its_bytes() -> None:
    t = Transcript()
    picture = {"type": "image", "file": {"base64": "aGVsbG8=", "type": "image/jpeg", "originalSize": 5}}
    t.attach("file", filename="/a.jpg", content=picture)
    t.attach("file", filename="/b.pdf", content={"type": "pdf", "file": {"base64": "aGVsbG8h", "filePath": "/b.pdf"}})
    t.says("m1")
    rows = read(t.lines)
    files = [(one.text, one.file.mime, one.file.name, one.file.data) for one in rows.content if one.file is not None]
    assert files == [
        (None, "image/jpeg", "/a.jpg", b"hello"),
        (None, "application/pdf", "/b.pdf", b"hello!"),
    ]
    assert [(block.kind, block.bytes) for block in rows.turn("m1").entered] == [("image", 5), ("file", 6)]


def test_whatever_was_queued_is_kept_as_what_it_is() -> None:
    """A queued agent result, and text or images of the user queued meanwhile."""
    t = Transcript()
    note = "<task-notification>\n<task-id>A</task-id>\n<result>forty-two</result>\n</task-notification>"
    t.attach("queued_command", prompt=note, commandMode="task-notification", origin={"kind": "task"})
    t.attach("queued_command", prompt="and the tests", commandMode="prompt", origin={"kind": "human"})
    shown = t.attach("queued_command", prompt=[image()], commandMode="prompt", origin={"kind": "human"})
    t.says("m1")
    rows = read(t.lines)
    assert rows.texts()[:3] == [("system", "text", note), ("user", "text", "and the tests"), ("user", "file", None)]
    assert rows.content[2].file is not None
    assert rows.content[2].file.data == b"hello"
    assert rows.turn("m1").prompt_id == shown
    assert [block.kind for block in rows.turn("m1").entered] == ["reminder", "prompt", "image"]


def _everything() -> Transcript:
    t = Transcript()
    t.bare(type="ai-title", aiTitle="SECRET")
    t.prompt("SECRET fix")
    t.attach("prompt_snapshot", systemPrompt=["SECRET"])
    t.attach("queued_command", prompt="SECRET", origin={"kind": "human"})
    t.calls("m1", thinking("SECRET"), call("c1", "Bash", command="echo SECRET"))
    t.calls("m1", call("c2", "Task", prompt="SECRET", subagent_type="Plan"))
    t.result("c1", "SECRET")
    t.bare(type="last-prompt", lastPrompt="SECRET")
    t.bare(type="summary", summary="SECRET", leafUuid="u1")
    return t


def test_no_text_is_outside_of_content() -> None:
    """Rows and state may be stored where content must never be."""
    rows = read(_everything().lines)
    outside: dict[str, Any] = {**rows.comparable(), "whole state": rows.state}
    for name in ("content", "titles"):
        assert "SECRET" in str(outside.pop(name))
    assert "SECRET" not in str(outside)
    assert "secret" not in str(outside).lower()


def test_a_line_without_a_time_has_the_last_one_seen() -> None:
    t = Transcript()
    t.prompt("a", ts="2026-01-02T03:04:05.678Z")
    t.prompt("b", ts="yesterday")
    t.prompt("c", ts="2026-01-02T04:04:06+01:00")
    assert [one.ts for one in read(t.lines).content] == [
        "2026-01-02T03:04:05.678Z",
        "2026-01-02T03:04:05.678Z",
        "2026-01-02T03:04:06.000Z",
    ]


def test_a_message_that_was_written_twice_is_kept_once() -> None:
    """Old clients did so when they branched, under new uuids: the same blocks, line by line or on one line."""
    t = Transcript("2.1.90")
    t.prompt("go")
    blocks = (thinking("hm"), text("answer"), call("c1", "Bash", command="ls"))
    for block in blocks:
        t.says("m1", block, done=False, stop=None)
    once = read(t.lines)
    for block in blocks:
        t.says("m1", block, done=False, output=12)
    t.says("m1", *blocks, done=False)
    twice = read(t.lines, cuts=range(7))
    assert twice.content == once.content
    assert twice.turn("m1").made == once.turn("m1").made
    assert twice.turn("m1").tool_calls == once.turn("m1").tool_calls
    assert twice.turn("m1").usage.output == 12


def test_blocks_of_the_same_words_are_kept_where_the_client_numbers_them() -> None:
    t = Transcript()
    for n in range(2):
        t.says("m1", text("again"), apiBlockIndex=n)
    t.says("m2", text("same"), text("same"))
    rows = read(t.lines)
    assert [one.text for one in rows.content] == ["again", "again", "same", "same"]
    assert len(rows.turn("m1").made) == len(rows.turn("m2").made) == 2
