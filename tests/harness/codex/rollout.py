"""Writes Codex rollouts like its releases, line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from burnd.records.times import to_iso

BORN_MS = 1_794_823_200_000  # 2026-11-16T10:00:00Z


def uuid7(ms: int, number: int) -> str:
    """An id as Codex makes them: it begins with the time."""
    digits = f"{ms:012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-{number:012x}"


def thread(number: int, after_s: int = 0) -> str:
    return uuid7(BORN_MS + after_s * 1000, number)


def thinking(seal: str, summary: str = "") -> dict[str, Any]:
    told = [{"type": "summary_text", "text": summary}] if summary else []
    return {"type": "reasoning", "summary": told, "content": None, "encrypted_content": seal}


def says(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call(call_id: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": json.dumps(given), "call_id": call_id}


def patch(call_id: str, *files: str) -> dict[str, Any]:
    body = "".join(f"*** Update File: {file}\n@@\n-a\n+b\n" for file in files)
    text = f"*** Begin Patch\n{body}*** End Patch\n"
    return {"type": "custom_tool_call", "status": "completed", "call_id": call_id, "name": "apply_patch", "input": text}


class Rollout:
    """One log. `totals` are those of the thread: input, cached, output, reasoning."""

    def __init__(self, number: int = 1, *, after_s: int = 0, **meta: Any) -> None:
        self.thread = thread(number, after_s)
        self.clock = BORN_MS + after_s * 1000
        self.lines: list[bytes] = []
        self.totals = [0, 0, 0, 0]
        self.last = [0, 0, 0, 0]
        self._tasks = 0
        self.meta(self.thread, **meta)

    @property
    def name(self) -> str:
        day = to_iso(BORN_MS)
        return f"rollout-{day[:19].replace(':', '-')}-{self.thread}.jsonl"

    @property
    def data(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)

    def add(self, kind: str, payload: dict[str, Any]) -> None:
        self.clock += 100
        line = {"timestamp": to_iso(self.clock), "type": kind, "payload": payload}
        self.lines.append(json.dumps(line, ensure_ascii=False).encode())

    def event(self, kind: str, **facts: Any) -> None:
        self.add("event_msg", {"type": kind, **facts})

    def item(self, *items: dict[str, Any]) -> None:
        for one in items:
            self.add("response_item", one)

    def meta(self, thread_id: str, **facts: Any) -> None:
        known = {
            "id": thread_id,
            "timestamp": to_iso(self.clock),
            "cwd": "/home/dev/app",
            "cli_version": "0.145.0",
            "source": "cli",
            "git": {"branch": "main", "repository_url": "git@github.com:acme/widgets.git"},
        }
        self.add("session_meta", known | facts)

    def task(self, model: str | None = "gpt-5.1-codex") -> str:
        """Begins a task with its settings."""
        self._tasks += 1
        task = uuid7(self.clock, int(self.thread[-6:], 16) * 100 + self._tasks)
        self.event("task_started", turn_id=task)
        if model is not None:
            self.context(model, turn_id=task)
        return task

    def context(self, model: str, **facts: Any) -> None:
        self.add("turn_context", {"cwd": "/home/dev/app", "model": model, **facts})

    def prompt(self, text: str) -> None:
        self.given(text)
        self.event("user_message", message=text)

    def given(self, text: str, role: str = "user") -> None:
        self.item({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]})

    def answer(self, call_id: str, output: Any) -> None:
        self.item({"type": "function_call_output", "call_id": call_id, "output": output})

    def meter(self, *used: int, limits: dict[str, Any] | None = None) -> None:
        """Token counts of a response: input, cached, output, reasoning. Without figures the last line is repeated."""
        if used:
            self.last = [*used]
            self.totals = [before + more for before, more in zip(self.totals, used, strict=True)]
        info = {"total_token_usage": tokens(self.totals), "last_token_usage": tokens(self.last)}
        self.event("token_count", info=info, rate_limits=limits)


def tokens(counts: list[int]) -> dict[str, int]:
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
    return dict(zip(names, counts, strict=True)) | {"total_tokens": counts[0] + counts[2]}


CASES = Path(__file__).parent / "cases"
