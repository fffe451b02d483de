"""Restored sessions with the real clients: each sends the same conversation as after resuming the original log."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.real.clients import Machine, client
from tests.real.scripted_api import OUTPUT, Request, Step, call, scripted_api, text, with_thinking

pytestmark = pytest.mark.real


def two_calls(request: Request) -> Step:
    """Two calls for each prompt, with thinking, then an answer."""
    since = []
    for message in reversed(request["messages"]):
        since.append(json.dumps(message))
        if message["role"] == "user" and "tool_result" not in since[-1]:
            break
    results = sum("tool_result" in one for one in since)
    if results >= 2:
        return text("done")
    step = call("Bash", command=f"echo hello {results}", description="say hello")
    return with_thinking(step, "I should call") if "thinking" in request else step


def conversation(request: Request) -> list[tuple[str, Any]]:
    """The messages of a request without thinking and cache marks."""
    messages = []
    for message in request["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks = [
            {name: value for name, value in block.items() if name != "cache_control"}
            for block in blocks
            if block["type"] != "thinking"
        ]
        messages.append((message["role"], blocks))
    return messages


@pytest.mark.parametrize("version", ["1.0.100", "2.0.60", "2.1.197", "latest"])
def test_claude_code_resumes_a_restored_session(tmp_path: Path, version: str) -> None:
    """The same messages in the request, and no turn or content more in burnd."""
    claude, session = client("@anthropic-ai/claude-code", "claude", version), str(uuid.uuid4())
    (tmp_path / ".claude").mkdir()
    environ = {
        "ANTHROPIC_API_KEY": "sk-ant-scripted",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "MAX_THINKING_TOKENS": "2000",
    }
    machine = Machine(tmp_path, environ)
    usual = ("--model", "claude-sonnet-4-5", "--allowedTools", "Bash")

    def resumed() -> Request:
        """The first request after the session is resumed."""
        with scripted_api(two_calls) as api:
            machine.run(claude, "-p", "and again", "--resume", session, *usual, ANTHROPIC_BASE_URL=api.url)
        return api.requests[0]

    machine.burnctl("up")
    with scripted_api(two_calls) as api:
        machine.run(claude, "-p", "say hello", "--session-id", session, *usual, ANTHROPIC_BASE_URL=api.url)
    machine.burnctl("flush")
    machine.burnctl("down")
    ledger, content = machine.ledger(), machine.content()
    original = resumed()
    shutil.rmtree(tmp_path / ".claude" / "projects")
    (tmp_path / ".claude" / "projects").mkdir()
    machine.burnctl("up")
    try:
        machine.burnctl("restore", session[:8])
        machine.burnctl("flush")
        assert (machine.ledger(), machine.content()) == (ledger, content)
        assert conversation(resumed()) == conversation(original)
        machine.burnctl("flush")
        new = [json.loads(line)["record"] for line in machine.ledger()[len(ledger) :]]
        known = {json.loads(line)["record"]["messageId"] for line in ledger}
        assert len({turn["messageId"] for turn in new if turn["railId"] == "main"} - known) == 3
        if version != "1.0.100":  # which continues in a new file, with copies of all lines
            assert not known & {turn["messageId"] for turn in new}
    finally:
        machine.burnctl("down")


def items(request: Request) -> list[Any]:
    """The input of a request without reasoning and ids."""
    return [
        {name: value for name, value in item.items() if name != "id"}
        for item in request["input"]
        if item["type"] != "reasoning"
    ]


def one_command(request: Request) -> Step:
    """A call for each prompt, then an answer."""
    is_answered = request["input"][-1]["type"].endswith("_output")
    return text("done") if is_answered else call("exec_command", cmd="echo hello")


@pytest.mark.parametrize("version", ["0.142.5", "0.158.0", "latest"])
def test_codex_resumes_a_restored_session(tmp_path: Path, version: str) -> None:
    """The same input in the request, reasoning aside, and no turn or content more in burnd."""
    codex = client("@openai/codex", "codex", version)
    home = tmp_path / ".codex"
    home.mkdir()
    machine = Machine(tmp_path, {"SCRIPTED_KEY": "x", "TZ": "UTC"})

    def run(*arguments: str) -> Request:
        """The first request of a run."""
        with scripted_api(one_command) as api:
            provider = f'name = "scripted"\nbase_url = "{api.url}/v1"\nwire_api = "responses"\nenv_key = "SCRIPTED_KEY"'
            settings = f'model = "gpt-5.1-codex"\nmodel_provider = "scripted"\n[model_providers.scripted]\n{provider}\n'
            (home / "config.toml").write_text(settings)
            machine.run(codex, "exec", "--skip-git-repo-check", *arguments)
        return api.requests[0]

    machine.burnctl("up")
    run("say hello")
    machine.burnctl("flush")
    machine.burnctl("down")
    (log,) = home.glob("sessions/*/*/*/*.jsonl")
    session = log.stem[-36:]
    ledger, content = machine.ledger(), machine.content()
    original = run("resume", session, "and again")
    log.unlink()
    machine.burnctl("up")
    try:
        machine.burnctl("restore", session)
        assert log.exists()
        machine.burnctl("flush")
        assert (machine.ledger(), machine.content()) == (ledger, content)
        assert items(run("resume", session, "and again")) == items(original)
        machine.burnctl("flush")
        new = [json.loads(line)["record"] for line in machine.ledger()[len(ledger) :]]
        assert [turn["usage"]["output"] for turn in new] == [OUTPUT, OUTPUT]
    finally:
        machine.burnctl("down")


def one_shell(request: Request) -> Step:
    """A call for each prompt, then an answer."""
    is_answered = "tool_result" in json.dumps(request["messages"][-1])
    return text("done") if is_answered else call("bash", command="echo hello", description="say hello")


@pytest.mark.parametrize("version", ["1.3.2", "latest"])
def test_opencode_resumes_a_restored_session(tmp_path: Path, version: str) -> None:
    """Through its own import: the same messages in the request, and no turn or content more in burnd."""
    opencode = client("opencode-ai", "opencode", version)
    settings = tmp_path / ".config" / "opencode" / "opencode.json"
    settings.parent.mkdir(parents=True)
    quiet = {f"OPENCODE_DISABLE_{name}": "1" for name in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD")}
    machine = Machine(tmp_path, {"ANTHROPIC_API_KEY": "x", **quiet})

    def run(*arguments: str) -> Request:
        """The first request of a run."""
        with scripted_api(one_shell) as api:
            provider = {"anthropic": {"options": {"baseURL": f"{api.url}/v1", "apiKey": "x"}}}
            model = {"model": "anthropic/claude-sonnet-4-5", "permission": "allow"}
            settings.write_text(json.dumps({**model, "provider": provider, "share": "disabled"}))
            machine.run(opencode, "run", *arguments)
        return api.requests[0]

    machine.burnctl("up")
    run("say hello")
    machine.burnctl("flush")
    (session,) = [one["sessionId"] for one in json.loads(machine.burnctl("sessions", "--json"))["sessions"]]
    machine.burnctl("down")
    ledger, content = machine.ledger(), machine.content()
    original = run("--session", session, "and again")
    machine.run(opencode, "session", "delete", session)
    machine.burnctl("up")
    try:
        machine.burnctl("restore", session, path=str(Path(opencode).parent))
        machine.burnctl("flush")
        assert (machine.ledger(), machine.content()) == (ledger, content)
        assert conversation(run("--session", session, "and again")) == conversation(original)
    finally:
        machine.burnctl("down")
