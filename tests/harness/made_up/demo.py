"""Writes a session of the demo as the made-up product does."""

from __future__ import annotations

import json
import os
import uuid
from datetime import UTC, datetime
from typing import Any

from burnd.harness.demo import Ask, Log, Say, Story

_PREFIX = 5_000
_TOOLS = {"Read": "get_file", "Edit": "put_file", "Write": "put_file", "Bash": "do_shell"}


def write(folder: str, story: Story, cwd: str, clock: float) -> str:
    """Adds a whole session below `folder`; returns its id."""
    session = _Session(story, cwd, clock)
    for act in story.acts:
        session.act(act)
    os.makedirs(os.path.join(folder, "sessions"), exist_ok=True)
    with open(os.path.join(folder, "sessions", f"{session.id}.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in session.lines)
    return session.id


class _Session(Log):
    def __init__(self, story: Story, cwd: str, clock: float) -> None:
        super().__init__(clock, _PREFIX)
        self.id = str(uuid.uuid5(uuid.NAMESPACE_OID, story.title))
        self._model = story.model
        self.lines: list[dict[str, Any]] = []
        self._add("session", id=self.id, folder=cwd)

    def ask(self, act: Ask) -> None:
        self._add("prompt", text=act.words)

    def say(self, act: Say) -> None:
        usage = self.respond(act, 60)
        answer = f"{self.id}-{len(self.lines)}"
        names = [f"{answer}-{n}" for n, _ in enumerate(act.calls)]
        calls = [
            {
                "id": name,
                "tool": _TOOLS[call.tool],
                "arguments": {"path": call.arguments.get("file_path")} | call.arguments,
            }
            for name, call in zip(names, act.calls, strict=True)
        ]
        counts = {
            "input": usage["input"],
            "cached": usage["read"],
            "written": usage["write"],
            "output": usage["output"],
        }
        self._add("answer", id=answer, model=self._model, text=act.words, usage=counts, calls=calls)
        for name, call in zip(names, act.calls, strict=True):
            self._add("result", id=name, text=call.output, failed=call.failed)

    def _add(self, kind: str, **facts: Any) -> None:
        self.clock += 0.5
        time = datetime.fromtimestamp(self.clock, UTC).isoformat()
        self.lines.append({"type": kind, "time": time, **facts})
