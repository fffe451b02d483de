"""Part B: events that are lost, limits that are reached, folders that come and go, under a running daemon."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from tests.faults import tally
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.server.wire import Daemon, environment, running, until


@pytest.mark.slow
def test_lost_events_lose_nothing(home: Home) -> None:
    """F21: 20,000 files created while the daemon is stopped overflow the kernel's queue: all are recorded. The scan
    that finds them comes within a minute because of the overflow, not by chance."""
    with running(home, log_level="debug") as daemon:
        watched = Watched(home, daemon)
        watched.append("f21", whole(answers("f21", 0, 1)))
        assert watched.recorded("f21") == sum_of(0)
        daemon.process.send_signal(signal.SIGSTOP)
        for n in range(20_000):
            watched.append(f"f21-{n}", whole(answers(f"f21-{n}", 0, 1)))
        daemon.process.send_signal(signal.SIGCONT)
        until(lambda: _missed(daemon), 60, daemon.why)
        until(lambda: watched.call("summary")["totals"]["turns"] == 20_001, 300)
        assert watched.call("status")["degraded"] == []
    tally.load(20_000)
    tally.faults()


def _missed(daemon: Daemon) -> bool:
    """True if a scan caused by lost events found many unread files."""
    said = daemon.log.read_text()
    lines = [json.loads(line) for line in said[: said.rfind("\n") + 1].splitlines() if "source.scanned" in line]
    return bool({one["reason"] for one in lines if one["unread"] > 1000} - {"start", "timer", "polling", "flush"})


@pytest.mark.parametrize(
    ("limit", "value"),
    [("max_inotify_watches", 5), pytest.param("max_inotify_instances", 0, marks=pytest.mark.slow)],
)
def test_without_watches_it_polls_and_says_so(home: Home, limit: str, value: int) -> None:
    """F22, F27: the kernel's limits are no reason to miss a line; status names the limit."""
    _needs_namespaces()
    folders = [home.root.parent / ".claude" / "projects" / f"-p{n}" for n in range(20)]
    for folder in folders:
        folder.mkdir(parents=True)
    shell = f'echo {value} > /proc/sys/user/{limit} && exec "$@"'
    limited = ["unshare", "-Ur", "sh", "-c", shell, "sh", sys.executable, "-m", "burnd", "run"]
    log = (home.root.parent / "daemon.log").open("wb")
    process = subprocess.Popen(limited, env=environment(home), stderr=log, cwd=Path(__file__).parents[2])
    try:
        watched = Watched(home, _Started(home, process))
        until(lambda: (home.root / "burnd.sock").exists() and _ready(watched), 60)
        for n, folder in enumerate(folders):
            (folder / f"f22-{n}.jsonl").write_bytes(whole(answers(f"f22-{n}", 0, 1)))
        until(lambda: watched.call("summary")["totals"]["turns"] == len(folders), 60)
        until(lambda: _source(watched)["detail"].startswith("polling: inotify"), why=lambda: str(_source(watched)))
    finally:
        process.kill()
        process.wait()
        log.close()
    tally.faults()


@pytest.mark.parametrize("times", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_root_that_comes_and_goes(watched: Watched, times: int) -> None:
    """F24: the projects' folder is removed and made again, or a link takes its place; what is written later arrives."""
    for n in range(times):
        _make_away_with(watched.root)
        time.sleep(0.05)
        if n == 2:
            elsewhere = watched.root.parent / "elsewhere"
            elsewhere.mkdir()
            watched.root.symlink_to(elsewhere)
        watched.append(f"f24-{n}", whole(answers(f"f24-{n}", 0, 2)))
        watched.until_recorded(f"f24-{n}", sum_of(0, 1), 120)
    tally.faults(times)


def _make_away_with(root: Path) -> None:
    if root.is_symlink():
        root.unlink()
    else:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_new_folders_are_looked_into(watched: Watched, count: int) -> None:
    """F25: files may be written before their folder is watched: many, as fast as possible."""
    before = watched.call("summary")["totals"]["turns"]
    for n in range(count):
        folder = watched.root / f"-new-{count}-{n}"
        folder.mkdir(parents=True)
        (folder / f"f25-{count}-{n}.jsonl").write_bytes(whole(answers(f"f25-{count}-{n}", 0, 1)))
    until(lambda: watched.call("summary")["totals"]["turns"] == before + count, 120)
    tally.load(count)


@pytest.mark.slow
def test_its_own_reads_cause_no_events(watched: Watched) -> None:
    """F26: with a thousand files and nothing to do, it does next to nothing."""
    before = watched.call("summary")["totals"]["turns"]
    for n in range(1000):
        folder = watched.root / f"-quiet-{n % 20}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f26-{n}.jsonl").write_bytes(whole(answers(f"f26-{n}", 0, 1)))
    until(lambda: watched.call("summary")["totals"]["turns"] == before + 1000, 120)
    watched.flush()
    until(lambda: watched.call("status")["causes"]["state"] == "ready", 60)
    time.sleep(1.5)  # what the flush settled is committed to search meanwhile
    used, began = _cpu_s(watched.daemon), time.monotonic()
    time.sleep(10)
    share = (_cpu_s(watched.daemon) - used) / (time.monotonic() - began)
    assert share < 0.01, share


def _source(watched: Watched) -> dict[str, Any]:
    found: dict[str, Any] = next(s for s in watched.call("status")["sources"] if s["name"] == "claude-code")
    return found


class _Started(Daemon):
    """A daemon started elsewhere."""

    def __init__(self, home: Home, process: subprocess.Popen[bytes]) -> None:
        self.home = home
        self.socket = home.root / "burnd.sock"
        self.log = home.root.parent / "daemon.log"
        self.process = process


def _ready(watched: Watched) -> bool:
    try:
        return bool(watched.call("status")["daemon"]["state"] == "ready")
    except OSError:
        return False


def _cpu_s(daemon: Daemon) -> float:
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _needs_namespaces() -> None:
    probe = ["unshare", "-Ur", "sh", "-c", "echo 5 > /proc/sys/user/max_inotify_watches"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("needs user namespaces in which the kernel's limits can be lowered")
