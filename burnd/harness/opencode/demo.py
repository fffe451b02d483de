"""Writes a demo session into a database as opencode does: a session, messages, parts."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from typing import Any

from burnd.harness.demo import Ask, DemoCall, Log, Say, Story, tokens

VERSION = "1.18.33"
_PREFIX = 11_200
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TOOLS = {"Read": "read", "Edit": "edit", "Write": "write", "Bash": "bash", "Grep": "grep"}
_SCHEMA = """
CREATE TABLE IF NOT EXISTS session(id TEXT PRIMARY KEY, project_id TEXT NOT NULL, parent_id TEXT, slug TEXT NOT NULL,
  directory TEXT NOT NULL, title TEXT NOT NULL, version TEXT NOT NULL, agent TEXT, time_created INTEGER NOT NULL,
  time_updated INTEGER NOT NULL, time_archived INTEGER);
CREATE TABLE IF NOT EXISTS message(id TEXT PRIMARY KEY, session_id TEXT NOT NULL, time_created INTEGER NOT NULL,
  time_updated INTEGER NOT NULL, data TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS part(id TEXT PRIMARY KEY, message_id TEXT NOT NULL, session_id TEXT NOT NULL,
  time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL);
"""


def write(folder: str, story: Story, cwd: str, clock: float) -> str:
    path = os.path.join(folder, "opencode", "opencode.db")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    db = sqlite3.connect(path)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.executescript(_SCHEMA)
        with db:
            return _DemoSession(db, story, cwd, clock).play()
    finally:
        db.close()


class _DemoSession(Log):
    def __init__(self, db: sqlite3.Connection, story: Story, cwd: str, clock: float) -> None:
        super().__init__(clock, _PREFIX)
        self._rng = random.Random(story.title)  # noqa: S311 - ids that are the same every time
        self._db, self._story, self._cwd = db, story, cwd
        self._id = self._new("ses")
        self._asked = ""

    def play(self) -> str:
        start = self._ms()
        for act in self._story.acts:
            self.act(act)
        self._db.execute(
            "INSERT INTO session VALUES(?,?,?,?,?,?,?,?,?,?,?)",
            (self._id, "global", None, "demo", self._cwd, self._story.title, VERSION, "build", start, self._ms(), None),
        )
        return self._id

    def ask(self, act: Ask) -> None:
        model = {"providerID": self._provider, "modelID": self._story.model}
        data = {"role": "user", "time": {"created": self._ms()}, "agent": "build", "model": model}
        self._asked = self._message(data)
        self._part(self._asked, {"type": "text", "text": act.words})
        self.clock += 1

    def say(self, act: Say) -> None:
        start = self._ms()
        usage = self.respond(act, 70)
        thought = tokens(act.thinking)
        counts = {
            "total": sum(usage.values()),
            "input": usage["input"] + usage["write"],
            "output": usage["output"] - thought,
            "reasoning": thought,
            "cache": {"read": usage["read"], "write": 0},
        }
        finish = "tool-calls" if act.calls else "stop"
        data = {
            "role": "assistant",
            "parentID": self._asked,
            "mode": "build",
            "agent": "build",
            "path": {"cwd": self._cwd, "root": self._cwd},
            "modelID": self._story.model,
            "providerID": self._provider,
            "cost": 0,
            "tokens": counts,
            "finish": finish,
            "time": {"created": start, "completed": self._ms() + 60},
        }
        message = self._message(data, start)
        self._part(message, {"type": "step-start"})
        if act.thinking:
            self._part(
                message, {"type": "reasoning", "text": act.thinking, "time": {"start": start, "end": start + 900}}
            )
        if act.words:
            self._part(message, {"type": "text", "text": act.words})
        for call in act.calls:
            self._part(message, self._tool(call))
        self._part(message, {"type": "step-finish", "reason": finish, "cost": 0, "tokens": counts})

    def _tool(self, call: DemoCall) -> dict[str, Any]:
        arguments = {("filePath" if key == "file_path" else key): value for key, value in call.arguments.items()}
        start = self._ms()
        self.clock += self._rng.uniform(0.2, 4)
        extra = {"exit": 1 if call.failed else 0, "output": call.output[:200]} if call.tool == "Bash" else {}
        state = {
            "status": "completed",
            "input": arguments,
            "output": call.output,
            "title": call.tool,
            "metadata": extra,
        }
        state["time"] = {"start": start, "end": self._ms()}
        return {"type": "tool", "tool": _TOOLS[call.tool], "callID": self._new("call"), "state": state}

    @property
    def _provider(self) -> str:
        return "anthropic" if self._story.model.startswith("claude") else "openai"

    def _message(self, data: dict[str, Any], created: int | None = None) -> str:
        name, created = self._new("msg"), created or self._ms()
        self._db.execute(
            "INSERT INTO message VALUES(?,?,?,?,?)", (name, self._id, created, self._ms() + 60, json.dumps(data))
        )
        return name

    def _part(self, message: str, data: dict[str, Any]) -> None:
        row = (self._new("prt"), message, self._id, self._ms(), self._ms(), json.dumps(data))
        self._db.execute("INSERT INTO part VALUES(?,?,?,?,?,?)", row)

    def _ms(self) -> int:
        return int(self.clock * 1000)

    def _new(self, prefix: str) -> str:
        self.clock += 0.001
        return f"{prefix}_{int(self.clock * 4096000) & 0xFFFFFFFFFFFF:012x}" + "".join(
            self._rng.choices(_LETTERS, k=14)
        )
