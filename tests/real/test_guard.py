"""The guard with the real Claude Code: a session is stopped at its limit, and goes on once it is allowed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.real.scripted_api import Request, Step, call, scripted_api, text

pytestmark = pytest.mark.real
CLAUDE = "claude"  # from npm, as `make test-real` installs it
CALLS = 6  # more than fit the limit


def until_denied(request: Request) -> Step:
    """Calls a tool until a result is a denial, or for `CALLS` times."""
    results = json.dumps([message for message in request["messages"] if message["role"] == "user"])
    if "burnd guard" in results or results.count("tool_result") >= CALLS:
        return text("done")
    return call("Bash", command="echo hello", description="say hello")


def one_call(request: Request) -> Step:
    """Calls a tool once."""
    is_answered = "tool_result" in json.dumps(request["messages"][-1])
    return text("done") if is_answered else call("Bash", command="echo hello again", description="say it again")


def test_a_session_over_its_limit_is_stopped_and_goes_on_when_allowed(tmp_path: Path) -> None:
    """The denial reaches the agent with its reason; after `guard allow` all calls run."""
    session = str(uuid.uuid4())
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "RELAYBURN_HOME": str(tmp_path / "burn"),
        "ANTHROPIC_API_KEY": "sk-ant-scripted",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }

    def burnctl(*arguments: str) -> str:
        command = [sys.executable, "-m", "burnctl", *arguments]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def claude(*arguments: str, url: str) -> None:
        command = [CLAUDE, "-p", "say hello", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash", *arguments]
        subprocess.run(
            command,
            env={**environ, "ANTHROPIC_BASE_URL": url},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=True,
        )

    (tmp_path / ".claude" / "projects").mkdir(parents=True)  # as after any earlier session
    burnctl("up")
    try:
        burnctl("config", "set", "guard.session_usd", "0.25")  # a response costs $0.153
        burnctl("guard", "install")
        with scripted_api(until_denied) as api:
            claude("--session-id", session, url=api.url)
        assert "burnd guard: this session cost $" in api.texts()[-1]
        # The second response passes the limit. If it is logged after its hook ran, the third call is denied.
        assert len(api.requests) in (3, 4)
        assert json.loads(burnctl("guard", "status", "--json"))["denials"][0]["session"] == session
        burnctl("guard", "allow", session[:8])
        with scripted_api(one_call) as api:
            claude("--resume", session, url=api.url)
        assert "hello again" in api.texts()[-1]
    finally:
        burnctl("down")
