"""Writes a demo session as Claude Code does: a line for each block, subagents in their own files."""

from __future__ import annotations

import json
import os
import random
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from burnd.harness.claude_code.product import project_name
from burnd.harness.demo import Act, Agent, Ask, Compact, DemoCall, Log, Meter, Say, Story

VERSION = "2.1.325"
_PREFIX, _AGENT_PREFIX = 18_400, 9_100
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def write(folder: str, story: Story, cwd: str, clock: float) -> str:
    log = begin(folder, story, cwd, clock)
    log.play(story.acts, story.title)
    return log.session_id


def begin(folder: str, story: Story, cwd: str, clock: float) -> Transcript:
    below = os.path.join(folder, "projects", project_name(cwd))
    log = Transcript(below, cwd, story.branch, story.model, clock, story.title)
    log.meter = Meter(_PREFIX + story.more_prefix)
    return log


class Transcript(Log):
    def __init__(self, folder: str, cwd: str, branch: str, model: str, clock: float, seed: str) -> None:
        super().__init__(clock, _PREFIX)
        self._rng = random.Random(seed)  # noqa: S311 - ids that are the same every time
        self.session_id = str(self._uuid())
        self._folder, self._cwd, self._branch, self._model = folder, cwd, branch, model
        self._path = os.path.join(folder, f"{self.session_id}.jsonl")
        self._agent: str | None = None
        self._above: str | None = None
        os.makedirs(folder, exist_ok=True)

    def play(self, acts: Iterable[Act], title: str = "") -> None:
        for act in acts:
            self.act(act)
        if title:
            self._write({"type": "ai-title", "aiTitle": title, "sessionId": self.session_id})

    def ask(self, act: Ask) -> None:
        self._line("user", {"role": "user", "content": act.words}, promptSource="typed", turnOrigin="human")
        self.clock += 2

    def say(self, act: Say) -> None:
        usage = self.respond(act, 60)
        message_id = "msg_01" + "".join(self._rng.choices(_LETTERS, k=22))
        request = "req_011" + "".join(self._rng.choices(_LETTERS, k=20))
        calls = [(call, "toolu_01" + "".join(self._rng.choices(_LETTERS, k=22))) for call in act.calls]
        blocks: list[dict[str, Any]] = []
        if act.thinking:
            blocks.append({"type": "thinking", "thinking": act.thinking, "signature": "c2ln" * 30})
        if act.words:
            blocks.append({"type": "text", "text": act.words})
        blocks += [
            {"type": "tool_use", "id": call_id, "name": call.tool, "input": call.arguments} for call, call_id in calls
        ]
        for block in blocks:
            stop = "tool_use" if calls else "end_turn"
            message: dict[str, Any] = {
                "id": message_id,
                "type": "message",
                "role": "assistant",
                "model": self._model,
                "content": [block],
            }
            message |= {"stop_reason": stop, "stop_sequence": None, "stop_details": None, "usage": _usage(usage)}
            self._line("assistant", message, requestId=request)
        asker = self._above
        for call, call_id in calls:
            self._answer(call, call_id, asker)

    def _answer(self, call: DemoCall, call_id: str, asker: str | None) -> None:
        self.clock += self._rng.uniform(0.3, 6)
        more: dict[str, Any] = {"sourceToolAssistantUUID": asker}
        if call.agent is not None:
            more["toolUseResult"] = {"status": "completed", "agentId": self._delegate(call.agent, call_id)}
        elif call.failed:
            more["toolUseResult"] = "Error: Exit code 1\n" + call.output
        text = ("Exit code 1\n" if call.failed else "") + call.output
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        if call.failed:
            result["is_error"] = True
        self._line("user", {"role": "user", "content": [result]}, **more)

    def _delegate(self, agent: Agent, call_id: str) -> str:
        """Writes a sub-agent's transcript before its result comes back."""
        agent_id = "a" + "".join(self._rng.choices("0123456789abcdef", k=16))
        folder = os.path.join(self._folder, self.session_id, "subagents")
        os.makedirs(folder, exist_ok=True)
        own = Transcript(folder, self._cwd, self._branch, self._model, self.clock, agent_id)
        own.session_id, own._agent = self.session_id, agent_id
        own._path, own.meter = os.path.join(folder, f"agent-{agent_id}.jsonl"), Meter(_AGENT_PREFIX)
        meta = {"agentType": agent.kind, "description": agent.task[:40], "toolUseId": call_id, "spawnDepth": 1}
        with open(os.path.join(folder, f"agent-{agent_id}.meta.json"), "w", encoding="utf-8") as file:
            json.dump(meta, file)
        own.play([Ask(agent.task), *agent.acts])
        self.clock = own.clock
        return agent_id

    def compact(self, act: Compact) -> None:
        before = self.meter.context
        self.meter.compact(act.summary)
        above, self._above = self._above, None
        self._line(
            "system",
            None,
            subtype="compact_boundary",
            content="Conversation compacted",
            logicalParentUuid=above,
            compactMetadata={"trigger": "auto", "preTokens": before, "postTokens": self.meter.context},
        )
        summary = {"role": "user", "content": act.summary}
        self._line("user", summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def _line(self, kind: str, message: dict[str, Any] | None, **more: Any) -> None:
        name = str(self._uuid())
        line: dict[str, Any] = {
            "parentUuid": self._above,
            "isSidechain": self._agent is not None,
            "userType": "external",
            "cwd": self._cwd,
            "sessionId": self.session_id,
            "version": VERSION,
            "gitBranch": self._branch,
            "type": kind,
            "uuid": name,
            "timestamp": datetime.fromtimestamp(self.clock, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
        }
        if self._agent is not None:
            line["agentId"] = self._agent
        if message is not None:
            line["message"] = message
        self._write(line | {key: value for key, value in more.items() if value is not None})
        self._above = name

    def _write(self, line: dict[str, Any]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")

    def _uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._rng.getrandbits(128), version=4)


def _usage(usage: dict[str, int]) -> dict[str, Any]:
    return {
        "input_tokens": usage["input"],
        "cache_creation_input_tokens": usage["write"],
        "cache_read_input_tokens": usage["read"],
        "cache_creation": {"ephemeral_5m_input_tokens": usage["write"], "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage["output"],
        "service_tier": "standard",
    }
