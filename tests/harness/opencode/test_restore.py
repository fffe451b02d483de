"""Restored sessions of opencode: the rows that it would import are read as the ones that were recorded."""

from __future__ import annotations

import json
import sqlite3
from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from burnd.harness.opencode.messages import calls_of, content_of, message_of, title_of
from burnd.harness.opencode.restore import find_logs, restore
from burnd.harness.opencode.rows import MessageRow, PartRow, SessionRow, decode_message
from burnd.harness.restore import NO_CONTEXT
from burnd.records import Content
from burnd.records.foreign_json import Rejected
from tests.harness.recordings import recording

SESSION = "ses_e110f5578ffe1H2L1iFmWPWWPL"
CREATED = 1_795_010_113_830
LONG = "a long line of output " * 40


def row(name: str, info: dict[str, Any], *parts: dict[str, Any]) -> MessageRow:
    created = info["time"]["created"]
    rows = tuple(PartRow(f"prt_{name}{n}", created, json.dumps(part).encode()) for n, part in enumerate(parts))
    return MessageRow(f"msg_{name}", created, created, json.dumps(info).encode(), rows)


def stored_rows() -> list[MessageRow]:
    """A prompt with an image, a step with reasoning and a call, an answer."""
    model = {"providerID": "anthropic", "modelID": "claude-sonnet-4-5"}
    user = {"role": "user", "time": {"created": CREATED}, "agent": "build", "model": model, "summary": {"diffs": []}}
    tokens = {"input": 10, "output": 20, "reasoning": 0, "cache": {"read": 5, "write": 6}, "total": 41}
    step = {"role": "assistant", "parentID": "msg_a", "agent": "build", "mode": "build", "cost": 0.5, "tokens": tokens}
    step |= {"modelID": "claude-sonnet-4-5", "providerID": "anthropic", "path": {"cwd": "/home/dev/app", "root": "/"}}
    image = {"type": "file", "mime": "image/png", "filename": "x.png"}
    image["url"] = f"data:image/png;base64,{b64encode(b'pixels' * 40).decode()}"
    times = {"start": CREATED + 2, "end": CREATED + 3}
    state = {"status": "completed", "input": {"command": "cat " + "x" * 300}, "output": LONG, "title": "cat"}
    state |= {"metadata": {"output": LONG, "exit": 0, "preview": "p" * 40_000}, "time": times}
    sealed = {"type": "reasoning", "text": "hm", "time": times, "metadata": {"anthropic": {"signature": "s" * 300}}}
    return [
        row("a", user, {"type": "text", "text": "fix it"}, image),
        row(
            "b",
            {**step, "time": {"created": CREATED + 1, "completed": CREATED + 4}, "finish": "tool-calls"},
            {"type": "step-start"},
            sealed,
            {"type": "tool", "tool": "bash", "callID": "toolu_1", "state": state},
            {"type": "step-finish", "reason": "tool-calls", "tokens": tokens, "cost": 0.5},
        ),
        row(
            "c",
            {**step, "time": {"created": CREATED + 5, "completed": CREATED + 6}, "finish": "stop"},
            {"type": "text", "text": "done", "time": times},
        ),
    ]


def read(rows: list[MessageRow], *, reasoning: bool = True) -> tuple[list[Any], list[Content]]:
    """The facts and the content of messages."""
    facts, content = [], []
    for one in rows:
        decoded = decode_message(one)
        assert not isinstance(decoded, Rejected)
        calls = calls_of(decoded)
        facts.append(message_of(one, decoded, calls))
        content += content_of(SESSION, one, decoded, calls, reasoning=reasoning)
    return facts, content


def reordered(value: Any) -> Any:
    """The same with all keys in another order, as opencode's import writes them."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(one) for one in value] if isinstance(value, list) else value


def imported(text: str) -> list[MessageRow]:
    """The rows that an import of the file would write."""
    rows = []
    for message in json.loads(text)["messages"]:
        info = message["info"]
        assert all(part["messageID"] == info["id"] for part in message["parts"])
        own = {"id", "sessionID", "messageID"}
        parts = tuple(
            PartRow(part["id"], 0, json.dumps(reordered({key: part[key] for key in part if key not in own})).encode())
            for part in message["parts"]
        )
        data = json.dumps(reordered({key: info[key] for key in info if key not in own})).encode()
        rows.append(MessageRow(info["id"], info["time"]["created"], 0, data, parts))
    return rows


def title() -> Content:
    title = title_of(SessionRow(SESSION, CREATED, title="The bug"))
    assert title is not None
    return title


def test_imported_rows_read_like_the_original() -> None:
    """The same facts, content and reasoning, so that nothing of them is recorded again."""
    facts, content = read(stored_rows())
    files, missing, load = restore(recording([], [*content, title()], sessionId=SESSION, source="opencode"))
    assert load == ("import",)
    assert not missing
    assert json.loads(files[0].text)["info"]["title"] == "The bug"
    again, copied = read(imported(files[0].text))
    assert again == facts
    assert [msgspec.json.encode(one) for one in copied] == [msgspec.json.encode(one) for one in content]


def test_a_text_is_stored_once() -> None:
    """The context of a record has a number in its place, and no preview of 40,000 characters."""
    _, content = read(stored_rows())
    context = "".join(str(one.context) for one in content)
    assert LONG not in context
    assert "xxxx" not in context
    assert "pppp" not in context


def test_reasoning_that_is_not_wanted_is_in_no_context() -> None:
    _, content = read(stored_rows(), reasoning=False)
    assert "signature" not in "".join(str(one.context) for one in content)


def test_older_recordings_are_restored_from_their_content() -> None:
    _, content = read(stored_rows())
    files, missing, _ = restore(recording([], [replace(one, context=None) for one in content], sessionId=SESSION))
    assert missing[NO_CONTEXT] == len(content)
    _, copied = read(imported(files[0].text))
    assert [one.text for one in copied if one.kind == "text"] == ["fix it", "done"]


def test_sessions_are_found_in_databases(tmp_path: Path) -> None:
    """Nothing is known without a database that can be read."""
    path = tmp_path / "opencode.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE session(id TEXT)")
        db.execute("INSERT INTO session VALUES(?)", (SESSION,))
    db.close()
    assert find_logs([str(path)]) == {SESSION: str(path)}
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM session")
    db.close()
    assert find_logs([str(path)]) == {}
    path.write_text("not a database")
    assert find_logs([str(path)]) is None
    assert find_logs([str(tmp_path / "none.db")]) is None
    assert find_logs([]) is None
