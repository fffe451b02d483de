"""The hook in the settings of harnesses: everything else stays, and a hook that is gone stops no agent."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from burnctl.commands import guard
from burnctl.errors import BurnctlError
from burnd.harness.claude_code.product import PRODUCT as CLAUDE
from burnd.harness.codex.product import PRODUCT as CODEX
from burnd.harness.opencode.product import PRODUCT as OPENCODE
from burnd.paths import Home
from tests.burnctl.invoke import run

SETTINGS = {
    "model": "opus",
    "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}], "Stop": []},
}


def test_install_and_uninstall_keep_everything_else(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(SETTINGS))
    path.chmod(0o640)
    for _ in range(2):  # a second time replaces the first
        guard.install_hook(CLAUDE, str(path), "/tmp/a b/burnd.sock")
    written = json.loads(path.read_text())
    assert written["model"] == "opus"
    assert written["hooks"]["PreToolUse"][0] == SETTINGS["hooks"]["PreToolUse"][0]  # type: ignore[index]
    assert len(written["hooks"]["PreToolUse"]) == 2
    assert path.stat().st_mode & 0o777 == 0o640
    assert guard.hook_state(CLAUDE, str(path), "/tmp/a b/burnd.sock") == "on"
    assert guard.hook_state(CLAUDE, str(path), "/tmp/other home/burnd.sock") == "other"
    path.write_text(json.dumps({**written, "disableAllHooks": True}))
    assert guard.hook_state(CLAUDE, str(path), "/tmp/a b/burnd.sock") == "off"
    path.write_text(json.dumps(written))
    assert guard.remove_hook(CLAUDE, str(path))
    assert json.loads(path.read_text()) == SETTINGS
    assert not guard.remove_hook(CLAUDE, str(path))


def test_a_new_file_is_private_and_is_empty_again_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "new" / "hooks.json"
    guard.install_hook(CODEX, str(path), "/tmp/burnd.sock")
    assert path.stat().st_mode & 0o777 == 0o600
    assert guard.remove_hook(CODEX, str(path))
    assert json.loads(path.read_text()) == {}


def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "dotfiles.json", tmp_path / "settings.json"
    target.write_text("{}")
    link.symlink_to(target)
    guard.install_hook(CLAUDE, str(link), "/tmp/burnd.sock")
    assert link.is_symlink()
    assert guard.hook_state(CLAUDE, str(target), "/tmp/burnd.sock") == "on"


ODD = [
    {"hooks": {"PreToolUse": ["text", 7, {}, {"hooks": None}, {"hooks": [None, {"command": None}]}, {"hooks": []}]}},
    {"text": "half of a character: \ud800", "number": 12345678901234567890},
]


@pytest.mark.parametrize("settings", ODD)
def test_odd_settings_stay_as_they_are(tmp_path: Path, settings: Any) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(settings))
    guard.install_hook(CLAUDE, str(path), "/tmp/burnd.sock")
    assert guard.hook_state(CLAUDE, str(path), "/tmp/burnd.sock") == "on"
    assert guard.remove_hook(CLAUDE, str(path))
    assert json.loads(path.read_text()) == settings


def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text("\n")
    guard.install_hook(CLAUDE, str(path), "/tmp/burnd.sock")
    assert guard.hook_state(CLAUDE, str(path), "/tmp/burnd.sock") == "on"


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}', '{"hooks": null}'])
def test_a_file_that_is_no_settings_is_not_touched(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(BurnctlError, match=r"settings\.json"):
        guard.install_hook(CLAUDE, str(path), "/tmp/burnd.sock")
    assert path.read_text() == text


def test_a_command_whose_python_or_script_is_gone_stops_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ends with code 2 if its script is gone, which harnesses take for a denial."""
    monkeypatch.setattr(guard, "_SCRIPT", "/nowhere/guard_hook.py")
    for program in (sys.executable, "/nowhere/python"):
        monkeypatch.setattr(sys, "executable", program)
        done = subprocess.run(
            guard.hook_command("/tmp/it's here.sock", "codex"),
            shell=True,
            input="{}",
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


PLUGIN = """
import {{ BurndGuard }} from "{plugin}"
const hooks = await BurndGuard({{}})
const call = [{{ sessionID: "s1", tool: "bash" }}, {{ args: {{ command: "ls" }} }}]
try {{ await hooks["tool.execute.before"](...call); console.log("allowed") }}
catch (error) {{ console.log(error.message) }}
"""


def test_the_plugin_of_opencode_throws_the_reason(tmp_path: Path) -> None:
    """Without burnd it allows; a denial is thrown, which opencode gives to the agent."""
    path, script = tmp_path / "plugin" / "burnd-guard.mjs", tmp_path / "ask.mjs"
    where = tmp_path / "burnd.sock"
    guard.install_hook(OPENCODE, str(path), str(where))
    script.write_text(PLUGIN.format(plugin=path))

    def ask() -> str:
        return subprocess.run(["node", script], capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    assert ask() == "allowed"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(where))
        server.listen()
        result = {"decision": "deny", "reason": "burnd guard: over the limit"}

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                assert json.loads(connection.recv(65_536))["params"] == {
                    "session": "s1",
                    "tool": "bash",
                    "source": "opencode",
                    "subject": "ls",
                }
                connection.sendall(json.dumps({"id": 1, "result": result}).encode() + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert ask() == "burnd guard: over the limit"
        thread.join()
    assert guard.hook_state(OPENCODE, str(path), str(where)) == "on"
    assert guard.hook_state(OPENCODE, str(path), "/tmp/another.sock") == "other"
    assert guard.remove_hook(OPENCODE, str(path))
    assert not path.exists()
    assert not guard.remove_hook(OPENCODE, str(path))


def test_install_shows_where_and_what_is_missing(home: Home) -> None:
    """It names the file, and that no call is stopped without burnd."""
    claude = home.root.parent / ".claude"
    claude.mkdir(exist_ok=True)
    done = run(home, "guard", "install")
    assert done.returncode == 0, done.stderr
    assert str(claude / "settings.json") in done.stdout
    assert "burnd is not running: until it runs, every call is allowed" in done.stdout
    assert "removed the hook of Claude Code" in run(home, "guard", "uninstall").stdout
    assert "Claude Code has no hook of burnd in" in run(home, "guard", "uninstall").stdout
    assert run(home, "guard", "install", "--source", "anthropic-api").returncode == 1
