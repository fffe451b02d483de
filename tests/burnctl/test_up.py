"""The first minute: `burnctl up` shows spending and next commands, or the demo."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnctl.demo_machine import Machine
from burnd.paths import Home
from tests.burnctl.invoke import run


@pytest.fixture
def folder() -> Iterator[Path]:
    """A user's folder, short enough for a socket path; its daemon is stopped at the end."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)
        run(Home(Path(name) / "home"), "down")


def test_the_first_look_shows_what_was_spent_and_what_to_ask_next(folder: Path) -> None:
    """`make run` ends with the overview of the user's own logs and the next commands."""
    machine = Machine(str(folder / "machine"))
    machine.write_logs(time.time())
    home = Home(folder / "home")
    logs = {name: machine.environment[name] for name in ("CLAUDE_CONFIG_DIR", "XDG_DATA_HOME")}
    done = run(home, "up", "--look", **logs, COLUMNS="100")
    assert done.returncode == 0, done.stderr
    for shown in (
        "$ burnctl\n",
        "shop-api",
        "30 days",
        "at API list prices",
        "why --costliest",
        "waste",
        "search WORDS",
    ):
        assert shown in done.stdout
    assert "made-up" not in done.stdout
    again = run(home, "up")
    assert "already running" in again.stdout
    assert "30 days" not in again.stdout


def test_a_full_disk_is_named_instead_of_waiting(folder: Path) -> None:
    """`up` and `restart` explain once for all sources why old logs cannot be read; `status` shows blocked."""
    machine = Machine(str(folder / "machine"))
    machine.write_logs(time.time())
    home = Home(folder / "home")
    home.root.mkdir(mode=0o700)
    (home.root / "config.toml").write_text("[disk]\nreserve = 1000000000000000\n")
    logs = {name: machine.environment[name] for name in ("CLAUDE_CONFIG_DIR", "XDG_DATA_HOME", "CODEX_HOME")}
    for words in (["up"], ["up", "--look"], ["restart"]):  # just started, already running, started again
        done = run(home, *words, **logs)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("old logs cannot be read: ") == 1
        assert "MB are free, and 1,000,000,000 MB are reserved; see: burnctl status" in done.stderr
        assert "no logs of agents" not in done.stdout
    assert "  blocked \u00b7 pid" in run(home, "status").stdout


def test_without_logs_up_lists_folders_and_shows_the_demo(folder: Path) -> None:
    """Where no agent ever ran, `up` lists the folders that burnd watches and shows the demo."""
    (folder / "tmp").mkdir()
    home = Home(folder / "home")
    try:
        done = run(home, "up", "--look", XDG_DATA_HOME=str(folder / "share"), TMPDIR=str(folder / "tmp"))
    finally:
        shutil.rmtree(folder / "tmp", ignore_errors=True)
    assert done.returncode == 0, done.stderr
    assert "no logs of agents on this machine yet" in done.stdout
    assert str(folder / ".claude" / "projects") in done.stdout
    assert "$ burnctl waste" in done.stdout


def test_a_script_is_not_shown_around(folder: Path) -> None:
    """`burnctl up` in a script starts burnd without a summary or demo."""
    done = run(Home(folder / "home"), "up")
    assert done.returncode == 0, done.stderr
    assert "is running" in done.stdout
    assert "$ burnctl" not in done.stdout
