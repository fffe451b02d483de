"""The demo shows everything on a machine of its own, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnctl.demo.machine import Machine


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose name leaves room for a socket's path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_the_demo_runs_through_and_cleans_up(short_folder: Path) -> None:
    """Nothing of the person's own is read or written, and the made-up machine is gone in the end."""
    own = {"HOME": str(short_folder / "own"), "TMPDIR": str(short_folder), "PATH": os.environ["PATH"], "CI": "1"}
    command = [sys.executable, "-P", "-m", "burnctl", "demo", "--pace", "0.2", "--no-color"]
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for shown in ("$ burnctl summary", "shop-api", "webapp", "infra", "$ burnctl tail", "claude-sonnet-4-5"):
        assert shown in done.stdout
    for title in ("Move the nightly jobs", "Write the runbook", "Pin the base images"):
        assert title in done.stdout, "a session of each harness"
    assert sorted(entry.name for entry in short_folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_cleans_up(short_folder: Path, number: signal.Signals) -> None:
    """Killed, or its terminal closed: neither its daemon nor a file of it is left."""
    own = {"HOME": str(short_folder / "own"), "TMPDIR": str(short_folder), "PATH": os.environ["PATH"], "CI": "1"}
    command = [sys.executable, "-P", "-m", "burnctl", "demo", "--no-color"]
    with subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as demo:
        assert demo.stdout is not None
        assert any("burnctl summary" in line for line in demo.stdout)
        demo.send_signal(number)
        demo.stdout.read()
    assert demo.returncode == 128 + number
    assert list(short_folder.iterdir()) == []


def test_the_sessions_are_the_same_every_time(tmp_path: Path) -> None:
    """What the demo shows today it shows tomorrow, times aside."""
    logs = []
    for name in ("one", "two"):
        machine = Machine(str(tmp_path / name))
        machine.write_logs(1_780_000_000.0)
        logs.append({path.name: path.read_bytes().replace(name.encode(), b"") for path in tmp_path.rglob("*.jsonl")})
    assert logs[0].keys() <= logs[1].keys()
    assert len(logs[0]) >= 7
