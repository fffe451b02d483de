"""The demo shows every report on a simulated machine, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnctl.demo_machine import Machine
from burnd.paths import Home
from tests.burnctl.invoke import TerminalProcess


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose name leaves room for a socket's path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_the_demo_runs_through_and_cleans_up(short_folder: Path) -> None:
    """No data of the user is read or written, and the simulated machine is removed."""
    own = {"HOME": str(short_folder / "own"), "TMPDIR": str(short_folder), "PATH": os.environ["PATH"], "CI": "1"}
    command = [sys.executable, "-P", "-m", "burnctl", "demo", "--no-color"]
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for shown in ("$ burnctl --no-color\n", "30 days", "webapp", "Codex", "opencode", "running  shop-api (sonnet-4-5"):
        assert shown in done.stdout
    for shown in ("$ burnctl why --costliest", "Move the nightly jobs", "$ burnctl waste", "Avoidable: about"):
        assert shown in done.stdout
    assert sorted(entry.name for entry in short_folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_cleans_up(short_folder: Path, number: signal.Signals) -> None:
    """Killed, or its terminal closed: neither its daemon nor a file of it is left."""
    own = {"HOME": str(short_folder / "own"), "TMPDIR": str(short_folder), "PATH": os.environ["PATH"], "CI": "1"}
    command = [sys.executable, "-P", "-m", "burnctl", "demo", "--no-color"]
    with subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as demo:
        assert demo.stdout is not None
        assert any("$ burnctl" in line for line in demo.stdout)
        demo.send_signal(number)
        demo.stdout.read()
    assert demo.returncode == 128 + number
    assert list(short_folder.iterdir()) == []


def test_a_key_leads_to_the_next_screen(short_folder: Path) -> None:
    """At a terminal each screen waits; q ends the tour, and the machine is removed all the same."""
    own = {"HOME": str(short_folder / "own"), "TMPDIR": str(short_folder), "CI": "1", "PAGER": "cat"}
    command = [sys.executable, "-P", "-m", "burnctl", "demo"]
    with TerminalProcess(Home(short_folder / "none"), command=command, environ=own, columns=100) as person:
        person.wait_for("screen 1 of 3")
        person.type(" ")
        person.wait_for("screen 2 of 3")
        person.type("q")
        shown = person.end()
    assert shown.code == 0
    assert "$ burnctl waste" not in shown.text
    assert list(short_folder.iterdir()) == []


def test_the_sessions_are_the_same_every_time(tmp_path: Path) -> None:
    """The demo's output is the same every time, except for times."""
    logs = []
    for name in ("one", "two"):
        machine = Machine(str(tmp_path / name))
        machine.write_logs(1_780_000_000.0)
        logs.append({path.name: path.read_bytes().replace(name.encode(), b"") for path in tmp_path.rglob("*.jsonl")})
    assert logs[0].keys() <= logs[1].keys()
    assert len(logs[0]) >= 7
