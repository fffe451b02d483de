"""Rows of a push, for tests: of turns, sessions and causes, as the engine makes them from the feed."""

from __future__ import annotations

from typing import Any

from burnctl.push.schema import SCHEMA_VERSION, row_of, tombstone

Row = dict[str, Any]

USAGE = {"input": 1, "output": 2, "reasoning": 0, "cacheRead": 5, "cacheCreate5m": 0, "cacheCreate1h": 0}


def common(machine: str, seq: int, **more: Any) -> Row:
    return {
        "machine_id": machine,
        "machine": f"box-{machine}",
        "user": f"user-{machine}",
        "seq": seq,
        "deleted": False,
        "schema": SCHEMA_VERSION,
        "price_date": "2026-11-01",
        **more,
    }


def turn(machine: str, message: str, seq: int, **answer: Any) -> Row:
    facts: dict[str, Any] = {
        "ts": "2026-11-10T00:00:00.123Z",
        "source": "claude-code",
        "sessionId": "s1",
        "railId": "main",
        "messageId": message,
        "turnIndex": 0,
        "model": "claude-sonnet-4-5-20250929",
        "modelName": "claude-sonnet-4-5",
        "provider": None,
        "providerName": "anthropic",
        "usage": USAGE,
        "costUsd": 0.000001234567,
        "isHarnessCost": False,
        "quality": "final",
        "open": False,
        "searches": 0,
        "fetches": 0,
        "tags": {},
        **answer,
    }
    return row_of("turns", facts, common(machine, seq))


def gone(machine: str, message: str, seq: int) -> Row:
    key = {"source": "claude-code", "messageId": message}
    return tombstone("turns", key, common(machine, seq))


def session(machine: str, session_id: str, seq: int, **answer: Any) -> Row:
    facts = {"source": "claude-code", "sessionId": session_id, "causesSeq": 0, "findingsSeq": 0, **answer}
    return row_of("sessions", facts, common(machine, seq))


def cause(machine: str, session_id: str, n: int, seq: int, **answer: Any) -> Row:
    facts: dict[str, Any] = {
        "source": "claude-code",
        "sessionId": session_id,
        "n": n,
        "day": "2026-11-10",
        "kind": "call",
        "tool": "Bash",
        "target": "ls",
        "model": "claude-sonnet-4-5-20250929",
        "modelName": "claude-sonnet-4-5",
        "usage": USAGE,
        "searches": 0,
        "entered": 1,
        "calls": 1,
        "errors": 0,
        "costUsd": 0.000001234567,
        **answer,
    }
    return row_of("causes", facts, common(machine, seq))
