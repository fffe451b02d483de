"""Restored rollouts: what is read from them is what was recorded, and what burnd wrote itself is not read again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from burnd.harness.codex.reader import CodexReader, whole_contexts
from burnd.harness.codex.restore import find_logs, restore
from burnd.harness.codex.rollout import RolloutName, load_state
from burnd.harness.restore import NO_CONTEXT, THINKING, Restored
from burnd.recording.candidate import Candidate, turn_of
from burnd.records import Content
from tests.harness.codex.rollout import Rollout, call, patch, says, thinking
from tests.harness.recordings import recording, unmarked

LONG = "a long line of output " * 40


class Collected:
    """All that came out of a rollout."""

    def __init__(self, lines: Iterable[bytes], thread: str, *, in_pieces: bool = False) -> None:
        self.candidates: dict[str, Candidate] = {}
        self.content: list[Content] = []
        self.compactions = 0
        reader, offset = CodexReader(RolloutName(thread)), 0
        for line in lines:
            reader.feed(line, offset)
            offset += len(line) + 1
            if in_pieces:
                reader = CodexReader(RolloutName(thread), load_state(self._take(reader)))
        reader.flush()
        self._take(reader)
        data = b"\n".join(lines)
        self.content = list(whole_contexts(self.content, lambda offset, size: data[offset : offset + size]))

    def _take(self, reader: CodexReader) -> bytes:
        reading = reader.take()
        self.candidates |= {one.message_id: one for one in reading.candidates}
        self.content += reading.content
        self.compactions += len(reading.compactions)
        return reading.state

    def restored(self, thread: str) -> Restored:
        turns = [turn_of(candidate) for candidate in self.candidates.values()]
        return restore(recording(turns, self.content, sessionId=thread, createdAt="2026-11-16T10:00:00.000Z"))


def story() -> Rollout:
    """Prompts, calls with long arguments and results, an image, a compaction, a second task."""
    rollout = Rollout(base_instructions={"text": "You are Codex. " * 40})
    rollout.task()
    rollout.given("<environment_context><cwd>/home/dev/app</cwd></environment_context>")
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "QUJD" * 100}
    rollout.item({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix it"}, image]})
    rollout.item(thinking("sealed", "hm"), call("c1", "exec_command", cmd="pytest"))
    rollout.answer("c1", LONG)
    rollout.meter(100, 10, 20, 5)
    rollout.item(patch("c2", *(f"src/module_{n}.py" for n in range(20))))
    rollout.item({"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"})
    rollout.item(says("done"))
    rollout.meter(200, 90, 30, 0)
    rollout.event("task_complete")
    rollout.add("compacted", {"message": "the summary", "replacement_history": [{"type": "message", "role": "user"}]})
    rollout.task()
    rollout.prompt("and now?")
    rollout.item(says("more"))
    rollout.meter(300, 100, 40, 0)
    rollout.event("task_complete")
    return rollout


def shown(content: list[Content]) -> list[Any]:
    """Content without thinking, without ids that come from offsets and without what only `restore` uses."""
    plain = [replace(one, n=0, message_id="", context=None) for one in content if one.kind != "thinking"]
    return [json.loads(msgspec.json.encode(one)) for one in plain]


def test_a_restored_rollout_reads_like_the_original() -> None:
    """The same responses with the same usage, calls and content; reasoning is left out, and stated as missing."""
    rollout = story()
    before = Collected(rollout.lines, rollout.thread)
    files, missing, load = before.restored(rollout.thread)
    assert not load
    assert missing == {THINKING: 1}
    assert files[0].path.endswith(f"-{rollout.thread}.jsonl")
    after = Collected(unmarked(files[0].text), rollout.thread)
    assert shown(after.content) == shown(before.content)
    assert after.compactions == before.compactions == 1
    usage = {name: (one.usage, one.model, one.calls, one.turn_index) for name, one in before.candidates.items()}
    assert {name: (one.usage, one.model, one.calls, one.turn_index) for name, one in after.candidates.items()} == usage


def test_a_long_text_is_stored_once() -> None:
    """The context of a record has a number in its place."""
    rollout = story()
    context = "".join(str(one.context) for one in Collected(rollout.lines, rollout.thread).content)
    for text in (LONG, "You are Codex. You", "module_19", "QUJDQUJD"):
        assert text not in context


def test_a_restored_line_is_remembered_and_not_output() -> None:
    """The next response has its own usage, number and parent, in however many readings."""
    rollout = story()
    before = Collected(rollout.lines, rollout.thread)
    text = before.restored(rollout.thread).files[0].text
    follow, so_far = story(), len(rollout.lines)
    follow.task()
    follow.prompt("thanks")
    follow.item(says("welcome"))
    follow.meter(400, 50, 60, 0)
    lines = [*(line.encode() for line in text.splitlines()), *follow.lines[so_far:]]
    whole = Collected(follow.lines, rollout.thread)
    for in_pieces in (False, True):
        after = Collected(lines, rollout.thread, in_pieces=in_pieces)
        ((name, candidate),) = after.candidates.items()
        assert (candidate.usage, candidate.turn_index) == (whole.candidates[name].usage, 3)
        assert candidate.parent == whole.candidates[name].parent
        assert [one.text for one in after.content] == ["thanks", "welcome"]


def test_older_recordings_are_restored_from_their_content() -> None:
    """Without the lines that were not stored then, which is stated."""
    rollout = story()
    before = Collected(rollout.lines, rollout.thread)
    before.content = [replace(one, context=None) for one in before.content]
    files, missing, _ = before.restored(rollout.thread)
    assert missing[NO_CONTEXT] > 0
    after = Collected(unmarked(files[0].text), rollout.thread)
    texts = [one.text for one in before.content if one.kind == "text"]
    assert [one.text for one in after.content if one.kind == "text"] == texts
    assert output_of(after) == output_of(before)


def output_of(rows: Collected) -> int:
    return sum(one.usage.output for one in rows.candidates.values())


def test_archived_rollouts_are_not_gone(tmp_path: Path) -> None:
    thread = story().thread
    path = tmp_path / "archived_sessions" / f"rollout-2026-11-16T10-00-00-{thread}.jsonl.zst"
    path.parent.mkdir()
    path.write_bytes(b"")
    logs = find_logs([str(tmp_path / "sessions"), str(path.parent)])
    assert logs is not None
    assert logs[thread] == str(path)
