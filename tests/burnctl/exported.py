"""Turns as the socket exports them, and `burnctl export` against a burnd that has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from burnd.paths import Home
from tests.burnctl.fake_daemon import FakeConnection, fake_daemon
from tests.burnctl.invoke import run

MACHINE = "5e1f0c7a92d84b36"


def turn(n: int, **more: Any) -> dict[str, Any]:
    day = 10 + n // 3
    facts = {
        "ts": f"2026-11-{day}T0{n % 3}:00:00.{n:03d}Z",
        "source": "claude-code",
        "sessionId": "s1",
        "railId": "main",
        "messageId": f"m{n}",
        "turnIndex": n,
        "parent": None,
        "model": "claude-sonnet-4-5",
        "provider": None,
        "project": "/home/dev/a, b",
        "projectKey": "github.com/dev/ab",
        "gitBranch": "main",
        "usage": {"input": n, "output": 2, "reasoning": 0, "cacheRead": 4, "cacheCreate5m": 5, "cacheCreate1h": 6},
        "costUsd": 0.0000231 * (n + 1),
        "speed": None,
        "searches": 0,
        "fetches": 0,
        "quality": "final",
        "open": False,
        "activity": "coding",
        "stopReason": "end_turn",
        "hasEdits": True,
        "retries": 0,
        "promptId": "p",
        "promptRetries": None,
        "agentId": None,
        "agentType": None,
        "parentToolUseId": None,
        "agent": None,
        "tags": {"persona": 'sen"ior', "工作": "流"},
    }
    return facts | more


TURNS = [*(turn(n) for n in range(6)), turn(6, costUsd=None, tags={}, open=True)]


Answer = Callable[[dict[str, Any], FakeConnection], dict[str, Any]]


def page(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The only page of an export."""
    return {"machine": MACHINE, "since": None, "until": None, "turns": list(turns), "next": None, **more}


def pages(size: int = 2, turns: Sequence[dict[str, Any]] = TURNS) -> Answer:
    """The turns, so many at a time."""

    def answer(params: dict[str, Any], _talk: FakeConnection) -> dict[str, Any]:
        begin = int(params.get("after", 0))
        end = begin + min(size, params["limit"])
        return {**page(*turns[begin:end]), "next": str(end) if end < len(turns) else None}

    return answer


def export(home: Home, *flags: str, **answers: Any) -> Any:
    """Runs `burnctl export` against a burnd that answers with these pages."""
    with fake_daemon(home.root / "burnd.sock", export=answers.get("export", pages())) as server:
        done = run(home, "export", "--machine", "box", *flags)
        done.asked = [params for _, params in server.asked]  # type: ignore[attr-defined]
    return done
