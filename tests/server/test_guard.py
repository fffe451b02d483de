"""The guard with a running daemon: denials, what the user allows, and choices that outlive a restart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from burnctl import guard_hook
from burnd.paths import Home
from tests.burnctl.invoke import run
from tests.server.logs import work
from tests.server.wire import running

EVENT = {"hook_event_name": "PreToolUse", "session_id": "s1", "tool_name": "Bash", "tool_input": {"command": "ls"}}


def hook(socket: Path, event: Any = EVENT) -> dict[str, Any] | None:
    """The decision of the hook as a harness runs it; None for a call that is allowed."""
    command = [sys.executable, "-IS", guard_hook.__file__, str(socket), "claude-code"]
    given = event if isinstance(event, str) else json.dumps(event)
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout) if done.stdout else None


def test_a_session_over_its_limit_is_denied_until_it_is_allowed(home: Home) -> None:
    """Denials give the agent the reason. `allow` and `off` outlive a restart."""
    work(home, output=10_000)  # $0.15
    with running(home) as daemon:
        with daemon.wire() as wire:
            wire.call("flush")
        socket = Path(daemon.socket)
        assert hook(socket) is None
        assert run(home, "config", "set", "guard.session_usd", "0.1").returncode == 0
        first = hook(socket) or {}
        reason = first["hookSpecificOutput"]["permissionDecisionReason"]
        assert reason.startswith("burnd guard: this session cost $0.15 at API prices (limit $0.10).")
        assert first["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert hook(socket) == first
        assert hook(socket, {**EVENT, "session_id": "s2"}) is None
        assert "s1 may continue" in run(home, "guard", "allow", "s1").stdout
        assert hook(socket) is None
        shown = run(home, "guard", "status").stdout
        assert "a session     $0.10" in shown
        assert "this session cost $0.15 at API prices (limit $0.10)" in shown
        daemon.terminate()
    with running(home) as daemon:
        socket = Path(daemon.socket)
        assert hook(socket) is None
        assert json.loads(run(home, "guard", "status", "--json").stdout)["allowed"] == [
            {"session": "s1", "until": None}
        ]


def test_off_allows_everything(home: Home) -> None:
    work(home, output=10_000)
    with running(home) as daemon:
        with daemon.wire() as wire:
            wire.call("flush")
        run(home, "config", "set", "guard.day_usd", "0.1")
        assert hook(Path(daemon.socket)) is not None
        assert "the guard is off" in run(home, "guard", "off").stdout
        assert hook(Path(daemon.socket)) is None
        assert run(home, "guard", "on").stdout == "the guard is on\n"
        assert hook(Path(daemon.socket)) is not None


def test_whatever_goes_wrong_the_call_is_allowed(home: Home, tmp_path: Path) -> None:
    """No daemon, a socket that never answers, odd events."""
    assert hook(tmp_path / "none.sock") is None
    for event in ("", "[]", "not json", "{}"):
        assert hook(tmp_path / "none.sock", event) is None
    run(home, "config", "set", "guard.day_usd", "0.1")
    with running(home) as daemon:
        for odd in ({"session_id": 7}, {"session_id": "\ud800"}, {"session_id": "x" * 100_000}):
            assert hook(Path(daemon.socket), {**EVENT, **odd}) is None
