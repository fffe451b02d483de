"""The live view: what a row of a running session has, how rows are sorted, and that everything fits."""

from __future__ import annotations

from typing import Any, cast

import pytest

from burnctl.client import Client
from burnctl.commands.top import View, draw, ordered, window_of
from burnctl.render.screen import Screen
from burnctl.render.text import width_of
from tests.burnctl.demo_home import DemoHome

NOW = 1_795_000_000.0


def at(seconds_ago: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(NOW - seconds_ago, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def turn(session: str, seconds_ago: float, cost: float, **more: Any) -> dict[str, Any]:
    usage = {"input": 10, "output": 50, "reasoning": 0, "cacheRead": 150_000, "cacheCreate5m": 0, "cacheCreate1h": 0}
    return {"sessionId": session, "messageId": f"{session}-{seconds_ago}", "railId": "main", "ts": at(seconds_ago),
            "model": "claude-opus-4-5", "usage": usage, "costUsd": cost, "open": False, "stopReason": "tool_use",
            "project": f"/code/{session}", **more}  # fmt: skip


class Daemon:
    """Answers what the view asks, from a list of requests."""

    def __init__(self, *turns: dict[str, Any]) -> None:
        self.turns = list(turns)

    def statusline(self) -> dict[str, Any]:
        window = {"costUsd": 8.2, "secondsLeft": 7_800, "quota": {"usedPercent": 42}}
        return {"version": 1, "today": {"costUsd": 12.4}, "window": window, "weekQuota": None, "crossed": ["daily"]}

    def sessions_list(self, **_: Any) -> dict[str, Any]:
        ids = dict.fromkeys(one["sessionId"] for one in self.turns)
        return {"sessions": [
            {"sessionId": one, "shortId": one, "title": None, "project": f"/code/{one}", "source": "claude-code",
             "updatedAt": at(500), "costUsd": 5.0, "turns": 3} for one in ids]}  # fmt: skip

    def export(self, **_: Any) -> dict[str, Any]:
        return {"turns": self.turns}

    def flow(self, _session: str, **_: Any) -> dict[str, Any]:
        calls = [{"tool": "Read", "target": "a.py", "times": 1, "isError": False}]
        return {"lanes": [{"steps": [{"calls": calls, "model": "claude-opus-4-5", "context": 9_000}]}]}


def view(*turns: dict[str, Any]) -> View:
    made = View(cast("Client", Daemon(*turns)))
    made.refresh(NOW)
    return made


def test_a_running_session_has_its_rate_and_state() -> None:
    """The rate is an average of five minutes; an agent that ended its answer waits for a prompt."""
    found = view(
        turn("a", 400, 9.0), turn("a", 200, 1.0), turn("a", 20, 0.5), turn("b", 30, 0.1, stopReason="end_turn")
    )
    first, second = found.sessions
    assert first["costPerMinute"] == pytest.approx(1.5 / 5)
    assert (first["context"], first["window"], first["lastTool"]) == (150_010, 200_000, "Read")
    assert (first["state"], second["state"]) == ("working", "waiting")
    assert [one["sessionId"] for one in ordered(found.sessions, "cost/min")] == ["a", "b"]


def test_the_stream_moves_the_view() -> None:
    found = view(turn("a", 20, 0.5))
    event = {"turn": turn("a", 1, 0.2, toolCalls=[{"name": "Edit"}]), "costUsd": 0.2, "open": True}
    found.add(event)
    found.add(event | {"open": False})
    assert [one["costUsd"] for one in found.turns] == [0.5, 0.2]
    found.refresh(NOW)
    assert found.sessions[0]["lastTool"] == "Edit"


def test_windows_of_models() -> None:
    assert window_of("claude-sonnet-4-5", 150_000) == 200_000
    assert window_of("claude-sonnet-4-5", 350_000) == 1_000_000
    assert window_of("someone/else", 10) is None


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (160, 50), (60, 5)])
def test_it_fits_every_terminal(width: int, height: int) -> None:
    """To the line and to the column, with many sessions or none."""
    many = [turn(f"session-{n}", 10 * n + 1, 0.1) for n in range(30)]
    for turns in (many, []):
        found = view(*turns)
        lines = draw(found, Screen(width), NOW, selected="session-3", height=height)
        assert len(lines) == height
        assert all(width_of(line) <= width for line in lines)
        assert "q quit" in lines[-1]
    shown = "\n".join(draw(view(*many), Screen(100), NOW, selected="session-0", height=40))
    for words in ("today $12.40", "5-hour window $8.20, 2 h 10 min left", "42% used", "▸ session-0", "75%", "working"):
        assert words in shown


def test_a_pipe_gets_one_snapshot(demo: DemoHome) -> None:
    done = demo.run("top")
    assert done.returncode == 0
    assert done.stdout.startswith("today $")
    assert "\x1b" not in done.stdout
    answer = demo.json("top")
    assert answer.keys() >= {"today", "window", "sessions", "turns"}
    assert demo.run("live").stdout.splitlines()[1:] == done.stdout.splitlines()[1:]
