"""Restored transcripts: what is read from them is what was recorded, and what burnd wrote itself is not read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from burnd.harness.claude_code.restore import find_logs, restore
from burnd.harness.restore import LOST, NO_CALL, NO_CONTEXT, THINKING, NewFile
from burnd.records import BlobRef, Content
from tests.harness.claude_code.transcript import Transcript, call, image, text, thinking
from tests.harness.collect import SESSION, Collected, cases, client_versions, read, read_file, transcripts
from tests.harness.recordings import recording, unmarked


def conversation() -> Transcript:
    """Attachments, parallel calls, an image, a queued prompt, a compaction, an abandoned branch and titles."""
    t = Transcript()
    t.prompt([text("fix the bug"), image()])
    t.attach("skill_listing", content="- a skill", rendered="a skill")
    t.attach("prompt_snapshot", systemPrompt=["be good"], tools=[])
    t.calls("msg_a1", thinking("hm"))
    first = t.calls("msg_a1", call("c1", "Bash", command="pytest"))
    second = t.calls("msg_a1", call("c2", "Read", file_path="/x"))
    t.result("c1", [text("Exit code 1"), image("AAAA")], parent=first, is_error=True, toolUseResult={"stdout": "no"})
    t.result("c2", "a file", parent=second)
    t.attach("queued_command", prompt="and add one", origin={"kind": "human"})
    answer = t.says("msg_a2", text("done"))
    t.prompt("a wrong turn")
    t.says("msg_a3", text("an abandoned answer"))
    t.prompt("the right turn", parent=answer)
    t.says("msg_a4", text("yes"))
    t.add("system", None, subtype="compact_boundary", logicalParentUuid=t.last, compactMetadata={"preTokens": 5})
    t.prompt("the summary", isCompactSummary=True, isVisibleInTranscriptOnly=True)
    t.prompt("a caveat", isMeta=True)
    t.says("msg_x", text("API Error: 529"), model="<synthetic>", isApiErrorMessage=True)
    t.prompt("go on")
    t.says("msg_a5", text("as you wish"))
    t.bare(type="custom-title", customTitle="The bug", sessionId=SESSION)
    return t


def restored(rows: Collected) -> tuple[NewFile, dict[str, int]]:
    files, missing, _ = restore(recording(rows.turns, rows.content, sessionId=SESSION))
    return files[0], dict(missing)


def shown(content: list[Content]) -> list[Any]:
    """Content without thinking and without what only `restore` uses."""
    plain = [replace(one, n=0, line=None, parent=None, context=None) for one in content if one.kind != "thinking"]
    return [json.loads(msgspec.json.encode(one)) for one in plain if one.text not in ("be good", "[]")]


def test_a_restored_transcript_reads_like_the_original() -> None:
    """The same messages, usage, content and tree; thinking is left out, and stated as missing."""
    before = read(conversation().lines)
    file, missing = restored(before)
    assert file.path == f"projects/-home-dev-app/{SESSION}.jsonl"
    after = read(unmarked(file.text))
    assert shown(after.content) == shown(before.content)
    assert missing == {THINKING: 1}
    facts = {turn.message_id: (turn.usage, turn.model, turn.parent, turn.turn_index) for turn in before.turns}
    assert {turn.message_id: (turn.usage, turn.model, turn.parent, turn.turn_index) for turn in after.turns} == facts
    assert after.compactions == before.compactions
    for name in ("u3", "u2"):  # thinking, and the system prompt: those below it follow the line above it
        assert name not in file.text


def test_a_restored_line_is_remembered_and_not_output() -> None:
    """Lines after it continue the conversation, in any number of reads."""
    before = read(conversation().lines)
    file, _ = restored(before)
    t = Transcript()
    t.begin(100)
    t.last = conversation().last
    t.prompt("and now?")
    t.says("msg_a6", text("more"))
    lines = [*(line.encode() for line in file.text.splitlines()), *t.lines]
    whole = read(conversation().lines + t.lines)
    for cuts in ((), range(len(lines))):
        after = read(lines, cuts=cuts)
        assert [turn.message_id for turn in after.turns] == ["msg_a6"]
        assert [one.text for one in after.content] == ["and now?", "more"]
        assert not after.compactions
        assert not after.events
        assert after.turn("msg_a6").parent == "msg_a5"
        assert after.candidates["msg_a6"].entered == whole.candidates["msg_a6"].entered


def test_what_is_not_stored_is_stated() -> None:
    """Lost texts leave a note, results without calls are left out, older recordings lack the context."""
    rows = read(conversation().lines)
    lost = BlobRef(blob="0" * 64, bytes=9, lost="missing")
    content = [replace(one, line=None, parent=None, context=None) for one in rows.content]
    content = [replace(one, text=lost) if one.text == "done" else one for one in content]
    content = [one for one in content if one.tool_use is None]
    files, missing, _ = restore(recording(rows.turns, content, sessionId=SESSION))
    assert missing[LOST] == 1
    assert missing[NO_CALL] == 2
    assert missing[NO_CONTEXT] > 0
    assert missing[THINKING] == 1
    after = read(unmarked(files[0].text))
    assert [one.text for one in after.content if one.role == "user"][:2] == ["fix the bug", None]
    assert not [one for one in after.content if one.tool_result is not None]


def test_agents_get_files_of_their_own() -> None:
    rows = read(Transcript(isSidechain=True).lines)
    t = Transcript(agentId="a12", isSidechain=True)
    t.prompt("look around")
    t.says("msg_b1", text("nothing here"))
    rows = read(t.lines)
    content = [replace(one, rail_id="a12") for one in rows.content]
    turns = [replace(turn, rail_id="a12") for turn in rows.turns]
    main = Transcript()
    main.prompt("hello")
    content += read(main.lines).content
    files, _, _ = restore(recording(turns, content, sessionId=SESSION))
    below = f"projects/-home-dev-app/{SESSION}"
    assert [file.path for file in files] == [f"{below}.jsonl", f"{below}/subagents/agent-a12.jsonl"]
    assert '"isSidechain":true' in files[1].text
    assert '"agentId":"a12"' in files[1].text


def test_logs_are_found_by_session(tmp_path: Path) -> None:
    """Also those in a folder of the session's name; nothing is known without a folder."""
    for name in (f"-p/{SESSION}.jsonl", f"-p/{SESSION}/subagents/agent-a1.jsonl", "-p/other-session/chat.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    logs = find_logs([str(tmp_path), str(tmp_path / "none")])
    assert logs is not None
    assert logs[SESSION] == str(tmp_path / "-p" / f"{SESSION}.jsonl")
    assert "other-session" in logs
    assert find_logs([str(tmp_path / "none")]) is None


@pytest.mark.parametrize("version", cases(client_versions()), ids=lambda path: path.name)
def test_transcripts_of_real_clients_read_like_the_original(version: Path) -> None:
    """Every message and text comes back, for every release."""
    for path in transcripts(version):
        before = read_file(path)
        if not before.turns or "agent-" in path.name:
            continue
        session = before.turns[0].session_id
        files, _, _ = restore(recording(before.turns, before.content, sessionId=session, project="/w"))
        after = read([line for file in files for line in unmarked(file.text) if file.path.endswith(".jsonl")])
        texts = {(one.role, one.text) for one in before.content if one.kind == "text" and one.role != "system"}
        assert {(one.role, one.text) for one in after.content if one.kind == "text"} >= texts
        said = {one.message_id for one in before.content if one.kind != "thinking"}
        usage = {turn.message_id: turn.usage for turn in before.turns if turn.message_id in said}
        assert {turn.message_id: turn.usage for turn in after.turns} == usage
