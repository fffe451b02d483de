"""burnctl starts within milliseconds: few imports, and few of them external."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from tests.burnctl.cpu_time import cpu_seconds
from tests.burnctl.demo_home import DemoHome
from tests.burnctl.fake_daemon import fake_daemon
from tests.burnctl.invoke import environment

STATUS: dict[str, Any] = {"daemon": {}, "sources": []}

# What `burnctl status --json` may import beyond what a bare interpreter has. Each of these was measured; before
# adding one, see what it costs with `python -X importtime`.
ALLOWED = {
    "__future__", "_json", "_socket",
    "burnctl", "burnctl.cli", "burnctl.client", "burnctl.commands", "burnctl.commands.status", "burnctl.errors",
    "burnctl.flags", "burnctl.output", "burnctl.quick_json",
    "burnctl.daemon", "burnctl.connection",
    "burnd", "burnd.paths", "burnd.protocol",
    "burnd.contract", "burnd.contract.daemon", "burnd.contract.reports", "burnd.contract.sessions",
    "burnd.harness", "burnd.harness.product", "burnd.harness.registry",
    *(f"burnd.harness.{name}" for name in ("api", "claude_code", "codex", "opencode")),
    *(f"burnd.harness.{name}.product" for name in ("api", "claude_code", "codex", "opencode")),
    # A verb and its screen are one module. All of these together take 5 ms on a busy machine.
    "burnctl.progress", "burnctl.render", "burnctl.render.names",
    "burnctl.render.numbers", "burnctl.render.text", "burnctl.render.tables",
}  # fmt: skip


@pytest.fixture
def warm(home: Home, tmp_path: Path) -> dict[str, str]:
    """An environment with compiled modules, as in an installation."""
    return environment(home, PYTHONPYCACHEPREFIX=str(tmp_path / "compiled"), PYTHONPATH=os.getcwd())


def modules_after(code: str, env: dict[str, str]) -> set[str]:
    script = f"{code}\nimport sys; sys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def imported(words: list[str], env: dict[str, str]) -> set[str]:
    run = f"from burnctl.cli import main; assert main({words!r}) == 0"
    return modules_after(run, env) - modules_after("", env)


def test_a_question_imports_only_what_it_needs(home: Home, warm: dict[str, str]) -> None:
    """No json, re, argparse, typing, pathlib, subprocess, asyncio, rich, nor any part of the daemon but its leaves."""
    with fake_daemon(home.root / "burnd.sock", status=STATUS):
        found = imported(["status", "--json"], warm)
    assert found <= ALLOWED, sorted(found - ALLOWED)


def test_a_home_that_has_pushed_costs_no_library(home: Home, warm: dict[str, str]) -> None:
    """`status` reads the notes about push targets, and the age of the last push, without json, re or datetime."""
    folder = home.root / "push"
    folder.mkdir(parents=True)
    note = '{"target": "/backup", "cursor": null, "at": "2026-11-17T14:30:00Z", "error": ""}'
    (folder / "0123456789abcdef.json").write_text(note)
    with fake_daemon(home.root / "burnd.sock", status=STATUS):
        found = imported(["status", "--json"], warm)
        assert found <= ALLOWED | {"burnctl.push", "burnctl.push.state"}, sorted(found - ALLOWED)
        shown = imported(["status"], warm)
    assert not shown & {"json", "hashlib", "contextlib", "re", "datetime", "calendar"}


def test_what_a_person_sees_needs_no_library(home: Home, warm: dict[str, str]) -> None:
    """A table costs a person no import of rich: that is for the progress bar alone."""
    with fake_daemon(home.root / "burnd.sock", status=STATUS):
        found = imported(["status"], warm)
    assert not found & {"rich", "typing", "dataclasses", "asyncio", "json", "re", "argparse", "datetime"}


# The parts of Python that a table may need beyond `ALLOWED`: dates, and the widths of characters.
_OF_TABLES = {"_datetime", "_operator", "datetime", "math", "operator", "unicodedata"}


@pytest.mark.parametrize(
    "command",
    ["", "today", "summary", "summary --json", "daily", "sessions", "projects", "why", "waste", "hotspots", "limits"],
)
def test_a_report_imports_only_what_it_needs(demo: DemoHome, warm: dict[str, str], command: str) -> None:
    """Of Python's library the allowed modules alone, and of the daemon the table of methods and the harnesses."""
    found = imported(command.split(), warm | demo.machine.environment)
    library = {name for name in found if not name.startswith(("burnctl", "burnd"))}
    assert library <= ALLOWED | _OF_TABLES, sorted(library - ALLOWED - _OF_TABLES)
    assert {name for name in found if name.startswith("burnd")} <= ALLOWED
    verbs = {name for name in found if name.startswith("burnctl.commands.")}
    assert len(verbs) <= 3, verbs  # its own, those of findings (`explain`) and of their table (`waste`)


def test_the_status_line_imports_only_what_it_needs(demo: DemoHome, warm: dict[str, str]) -> None:
    """json, to read what Claude Code passes; no table, no parser."""
    found = imported(["statusline"], warm | demo.machine.environment)
    assert not found & {"argparse", "typing", "datetime", "asyncio", "burnctl.render.tables", "burnctl.render.screen"}


def test_importing_the_package_is_cheap(warm: dict[str, str]) -> None:
    """`import burnctl` loads nothing; naming `Client` loads what it needs."""
    ours = modules_after("import burnctl", warm) - modules_after("", warm)
    assert ours <= {"burnctl", "__future__"}
    with_client = modules_after("from burnctl import Client", warm)
    assert "burnctl.client" in with_client
    assert "argparse" not in with_client


def test_it_starts_within_a_blink(home: Home, warm: dict[str, str]) -> None:
    """The whole of `burnctl status --json` takes hardly longer than an interpreter that does nothing.

    25 ms over it is the promise on a quiet machine (it takes 13); on a busy one the same work takes longer.
    """
    with fake_daemon(home.root / "burnd.sock", status=STATUS):
        command = [sys.executable, "-c", "import sys; from burnctl.cli import main; sys.exit(main())", "status"]
        cpu_seconds(command, env=warm, times=1)
        bare, as_json, table = cpu_seconds([sys.executable, "-c", "pass"], [*command, "--json"], command, env=warm)
    assert as_json - bare < max(0.025, 2 * bare)
    assert table - bare < max(0.025, 2 * bare)
