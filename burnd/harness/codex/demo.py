"""Writes a demo session as Codex does: a rollout of items, with a token count after each response."""

from __future__ import annotations

import json
import os
import random
import uuid
from datetime import UTC, datetime
from typing import Any

from burnd.harness.demo import Ask, DemoCall, Log, Say, Story, tokens

VERSION = "0.145.0"
_PREFIX = 9_600


def write(folder: str, story: Story, cwd: str, clock: float) -> str:
    rollout = _Rollout(story, cwd, clock)
    rollout.play()
    start = datetime.fromtimestamp(clock, UTC)
    day = os.path.join(folder, "sessions", f"{start:%Y/%m/%d}")
    os.makedirs(day, exist_ok=True)
    _append(os.path.join(day, f"rollout-{start:%Y-%m-%dT%H-%M-%S}-{rollout.id}.jsonl"), rollout.lines)
    name = {"id": rollout.id, "thread_name": story.title, "updated_at": rollout.lines[-1]["timestamp"]}
    _append(os.path.join(folder, "session_index.jsonl"), [name])
    return rollout.id


class _Rollout(Log):
    def __init__(self, story: Story, cwd: str, clock: float) -> None:
        super().__init__(clock, _PREFIX)
        self._rng = random.Random(story.title)  # noqa: S311 - ids that are the same every time
        self._story, self._cwd = story, cwd
        self._sum: dict[str, int] = {}
        self.id = self._new_id()
        self.lines: list[dict[str, Any]] = []

    def play(self) -> None:
        git = {"branch": self._story.branch}
        meta = {"id": self.id, "timestamp": self._now(), "cwd": self._cwd, "cli_version": VERSION, "source": "cli"}
        self._line("session_meta", {**meta, "git": git})
        for act in self._story.acts:
            self.act(act)

    def ask(self, act: Ask) -> None:
        task = self._new_id()
        self._line("event_msg", {"type": "task_started", "turn_id": task})
        self._line("turn_context", {"turn_id": task, "cwd": self._cwd, "model": self._story.model})
        self._item("message", role="user", content=[{"type": "input_text", "text": act.words}])
        self._line("event_msg", {"type": "user_message", "message": act.words})
        self.clock += 1

    def say(self, act: Say) -> None:
        usage = self.respond(act, 70)
        if act.thinking:
            self._item("reasoning", summary=[{"type": "summary_text", "text": act.thinking}], encrypted_content="c2Vh")
        if act.words:
            self._item("message", role="assistant", content=[{"type": "output_text", "text": act.words}])
        calls = [(call, f"call_{self._rng.getrandbits(96):024x}") for call in act.calls]
        for call, call_id in calls:
            self._call(call, call_id)
        for call, call_id in calls:
            self.clock += self._rng.uniform(0.2, 4)
            self._answer(call, call_id)
        self._count_tokens(usage, tokens(act.thinking))

    def _call(self, call: DemoCall, call_id: str) -> None:
        """Codex reads files with a shell and changes them with patches."""
        if call.tool in ("Edit", "Write"):
            self._item("custom_tool_call", name="apply_patch", call_id=call_id, input=_patch(call.arguments))
            return
        command = call.arguments.get("command") or f"sed -n '1,400p' {call.arguments['file_path']}"
        self._item("function_call", name="exec_command", call_id=call_id, arguments=json.dumps({"cmd": command}))

    def _answer(self, call: DemoCall, call_id: str) -> None:
        if call.tool in ("Edit", "Write"):
            self._item("custom_tool_call_output", call_id=call_id, output=call.output)
            return
        head = f"Wall time: 0.4 seconds\nProcess exited with code {int(call.failed)}\nOutput:\n"
        self._item("function_call_output", call_id=call_id, output=head + call.output)

    def _count_tokens(self, usage: dict[str, int], thought: int) -> None:
        last = {
            "input_tokens": usage["input"] + usage["read"] + usage["write"],
            "cached_input_tokens": usage["read"],
            "output_tokens": usage["output"],
            "reasoning_output_tokens": thought,
            "total_tokens": sum(usage.values()),
        }
        self._sum = {name: self._sum.get(name, 0) + count for name, count in last.items()}
        info = {"total_token_usage": self._sum, "last_token_usage": last}
        self._line("event_msg", {"type": "token_count", "info": info, "rate_limits": None})

    def _item(self, kind: str, **facts: Any) -> None:
        self._line("response_item", {"type": kind, **facts})

    def _line(self, kind: str, payload: dict[str, Any]) -> None:
        self.clock += 0.001
        self.lines.append({"timestamp": self._now(), "type": kind, "payload": payload})

    def _now(self) -> str:
        return datetime.fromtimestamp(self.clock, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _new_id(self) -> str:
        """A UUID of version 7, as Codex names threads and tasks."""
        self.clock += 0.001
        rest = 7 << 76 | self._rng.getrandbits(12) << 64 | 2 << 62 | self._rng.getrandbits(62)
        return str(uuid.UUID(int=int(self.clock * 1000) << 80 | rest))


def _patch(arguments: dict[str, str]) -> str:
    if "content" in arguments:
        body = [f"*** Add File: {arguments['file_path']}", *_marked("+", arguments["content"])]
    else:
        changed = [*_marked("-", arguments["old_string"]), *_marked("+", arguments["new_string"])]
        body = [f"*** Update File: {arguments['file_path']}", "@@", *changed]
    return "\n".join(["*** Begin Patch", *body, "*** End Patch"])


def _marked(sign: str, text: str) -> list[str]:
    return [sign + line for line in text.splitlines()]


def _append(path: str, lines: list[dict[str, Any]]) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
