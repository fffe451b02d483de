"""Recordings as the daemon hands them to `restore`, from the turns and content that a reader made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from burnd.harness.restore import MARK, Recording
from burnd.records import Content, Turn


def recording(turns: Iterable[Turn], content: Iterable[Content], **session: Any) -> Recording:
    facts = {"sessionId": "s1", "source": "claude-code", "project": "/home/dev/app", "content": "yes", **session}
    return Recording(facts, [_turn(turn) for turn in turns], [json.loads(msgspec.json.encode(one)) for one in content])


def _turn(turn: Turn) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(msgspec.json.encode(turn))
    agent = facts.get("subagent") or {}
    return {
        **facts,
        "version": facts.get("harnessVersion"),
        "branch": facts.get("gitBranch"),
        "agentType": agent.get("type"),
        "parentToolUseId": agent.get("parentToolUseId"),
    }


def unmarked(text: str) -> list[bytes]:
    """The lines of a restored log as if its harness had written them."""
    lines = [json.loads(line) for line in text.splitlines()]
    assert all(line.items() >= MARK.items() for line in lines)
    return [json.dumps({name: line[name] for name in line if name not in MARK}).encode() for line in lines]
