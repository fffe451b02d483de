"""The guard with real clients: a session is stopped at its limit, continues once allowed, and runs without burnd."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real.clients import Machine, client
from tests.real.scripted_api import Request, ScriptedApi, Step, call, scripted_api, text

pytestmark = pytest.mark.real
CALLS = 6  # more than fit the limit
LIMIT = "0.25"  # dollars; a response costs $0.15
# Claude Code 2.1 writes its log some hundred ms after a response. A model needs at least as long for the next one.
RESPONSE_S = 1.1

# Runs a client with the given arguments against an API of these steps.
Run = Callable[..., ScriptedApi]


def results_of(request: Request) -> str:
    """All results of calls in a request."""
    items = request["input"] if "input" in request else request["messages"]
    return json.dumps(
        [item for item in items if "tool_result" in json.dumps(item) or "_output" in item.get("type", "")]
    )


def calling(command: str, times: int) -> Callable[[Request], Step]:
    """Steps that run a command so many times in one prompt, or until a call is denied."""

    def step(request: Request) -> Step:
        time.sleep(RESPONSE_S)
        since = []
        for item in reversed(request["input"] if "input" in request else request["messages"]):
            one = json.dumps(item)
            if item.get("role") == "user" and "tool_result" not in one:
                break
            since.append(one)
        results = sum(one.count('"tool_result"') + one.count('_output"') for one in since)
        if results >= times or "burnd guard" in "".join(since):
            return text("done")
        if "input" in request:
            return call("exec_command", cmd=command)
        name = "bash" if any(tool["name"] == "bash" for tool in request["tools"]) else "Bash"
        return call(name, command=command, description="run it")

    return step


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    environ = {
        "ANTHROPIC_API_KEY": "sk-ant-scripted",
        "SCRIPTED_KEY": "x",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **{f"OPENCODE_DISABLE_{name}": "1" for name in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD")},
    }
    machine = Machine(tmp_path, environ)
    for folder in (".claude/projects", ".codex/sessions", ".config/opencode"):  # as after any earlier session
        (tmp_path / folder).mkdir(parents=True)
    machine.burnctl("up")
    try:
        yield machine
    finally:
        machine.burnctl("down")


def claude(machine: Machine, version: str) -> Run:
    program = client("@anthropic-ai/claude-code", "claude", version)

    def run(step: Callable[[Request], Step], *arguments: str) -> ScriptedApi:
        usual = ("-p", "say hello", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash")
        with scripted_api(step) as api:
            machine.run(program, *usual, *arguments, ANTHROPIC_BASE_URL=api.url)
        return api

    return run


def codex(machine: Machine) -> Run:
    program = client("@openai/codex", "codex")

    def run(step: Callable[[Request], Step], *arguments: str) -> ScriptedApi:
        with scripted_api(step) as api:
            provider = f'name = "scripted"\nbase_url = "{api.url}/v1"\nwire_api = "responses"\nenv_key = "SCRIPTED_KEY"'
            settings = f'model = "gpt-5.1-codex"\nmodel_provider = "scripted"\n[model_providers.scripted]\n{provider}\n'
            (machine.home / ".codex" / "config.toml").write_text(settings)
            options = ("--skip-git-repo-check", "--dangerously-bypass-hook-trust")
            machine.run(program, "exec", *options, *arguments, "say hello")
        return api

    return run


def opencode(machine: Machine) -> Run:
    program = client("opencode-ai", "opencode")

    def run(step: Callable[[Request], Step], *arguments: str) -> ScriptedApi:
        with scripted_api(step) as api:
            provider = {"anthropic": {"options": {"baseURL": f"{api.url}/v1", "apiKey": "x"}}}
            model = {"model": "anthropic/claude-sonnet-4-5", "permission": "allow"}
            settings = {**model, "provider": provider, "share": "disabled"}
            (machine.home / ".config" / "opencode" / "opencode.json").write_text(json.dumps(settings))
            machine.run(program, "run", *arguments, "say hello")
        return api

    return run


@pytest.mark.parametrize("version", ["2.0.60", "2.1.197", "latest"])
def test_claude_code_is_stopped_and_goes_on_when_allowed(machine: Machine, version: str) -> None:
    """The denial reaches the agent with its reason; the user's own hook runs as well and stays."""
    session, run = str(uuid.uuid4()), claude(machine, version)
    settings, marks = machine.home / ".claude" / "settings.json", machine.home / "marks"
    mine = {"matcher": "Bash", "hooks": [{"type": "command", "command": f"echo mine >> {marks}"}]}
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [mine]}}))
    machine.burnctl("config", "set", "guard.session_usd", LIMIT)
    machine.burnctl("guard", "install", "--source", "claude-code")
    api = run(calling("echo hello", CALLS), "--session-id", session)
    assert "burnd guard: this session cost $" in results_of(api.requests[-1])
    # The second response passes the limit; the first with those of 2.0.60's warm-up agents. If it is logged after its
    # hook ran, the next call is denied.
    assert len(api.requests) in (2, 3, 4)
    assert json.loads(machine.burnctl("guard", "status", "--json"))["denials"][0]["session"] == session
    assert marks.read_text().startswith("mine")
    machine.burnctl("guard", "allow", session[:8])
    api = run(calling("echo hello again", 1), "--resume", session)
    assert "hello again" in results_of(api.requests[-1])
    machine.burnctl("guard", "uninstall", "--source", "claude-code")
    assert json.loads(settings.read_text()) == {"hooks": {"PreToolUse": [mine]}}


def test_a_claude_code_that_goes_on_is_ended(machine: Machine) -> None:
    """It ignores two denials; at the third it ends, however many calls it would have made."""
    machine.burnctl("config", "set", "guard.day_usd", "0.1")
    machine.burnctl("guard", "install", "--source", "claude-code")

    def stubborn(_: Request) -> Step:
        time.sleep(RESPONSE_S)
        return (
            call("Bash", command="echo hello", description="go on") if len(api.requests) < 3 * CALLS else text("done")
        )

    with scripted_api(stubborn) as api:
        program = client("@anthropic-ai/claude-code", "claude")
        usual = ("-p", "say hello", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash")
        machine.try_run(program, *usual, ANTHROPIC_BASE_URL=api.url)
    assert results_of(api.requests[-1]).count("burnd guard") == 2


@pytest.mark.parametrize("harness", [codex, opencode])
def test_other_clients_are_stopped(machine: Machine, harness: Callable[[Machine], Run]) -> None:
    run = harness(machine)
    machine.burnctl("config", "set", "guard.session_usd", LIMIT)
    machine.burnctl("guard", "install", "--source", harness.__name__)
    api = run(calling("echo hello", CALLS))
    assert "burnd guard: this session cost $" in results_of(api.requests[-1])
    (denial,) = json.loads(machine.burnctl("guard", "status", "--json"))["denials"]
    machine.burnctl("guard", "allow", denial["session"][:13])
    resume = ("resume", denial["session"]) if harness is codex else ("--session", denial["session"])
    api = run(calling("echo hello again", 1), *resume)
    assert "hello again" in results_of(api.requests[-1])
    machine.burnctl("guard", "uninstall", "--source", harness.__name__)


@pytest.mark.parametrize("harness", [lambda machine: claude(machine, "latest"), codex, opencode])
def test_a_call_that_fails_again_and_again_is_denied(machine: Machine, harness: Callable[[Machine], Run]) -> None:
    """Not another one: the reason names the command."""
    run = harness(machine)
    machine.burnctl("config", "set", "guard.failing_calls", "3")
    machine.burnctl("guard", "install")
    api = run(calling("git frobnicate", CALLS))
    results = results_of(api.requests[-1])
    assert "burnd guard" in results, results
    assert "failed 3 times in a row" in results or "failed 4 times in a row" in results
    assert "git" in results.partition("burnd guard: ")[2].partition(" failed")[0]


def test_without_an_answer_every_call_runs(machine: Machine) -> None:
    """burnd is stopped by a signal, so that it accepts connections and answers none."""
    run = claude(machine, "latest")
    machine.burnctl("config", "set", "guard.day_usd", "0.1")
    machine.burnctl("guard", "install", "--source", "claude-code")
    pid = json.loads(machine.burnctl("status", "--json"))["daemon"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        api = run(calling("echo hello", CALLS))
        assert len(api.requests) == CALLS + 1
        assert "burnd guard" not in results_of(api.requests[-1])
    finally:
        os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGKILL)
    assert len(run(calling("echo hello", 2)).requests) == 3
