"""Measures questions: whole processes of burnctl, the daemon's part, and the time from a new line to a report."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.corpus import long_log
from tests.bench.running import Daemon, Home, is_caught_up, running

ASKED = 15


class Asked(NamedTuple):
    """Medians in seconds."""

    process: float
    daemon: float
    terminal: float


def asking(root: Path, tree: Path) -> Asked:
    """`burnctl summary`, in a script and at a terminal, over a complete home."""
    home = Home(root, tree)
    with running(home) as daemon:
        _settled(daemon)
        wire = daemon.wire()
        wire.call("summary")
        inside = []
        for _ in range(ASKED):
            begun = time.perf_counter()
            wire.call("summary")
            inside.append(time.perf_counter() - begun)
        wire.close()
        home.burnctl("summary", "--json")
        whole = [home.burnctl("summary", "--json") for _ in range(ASKED)]
        seen = [home.at_a_terminal("summary") for _ in range(ASKED)]
    return Asked(statistics.median(whole), statistics.median(inside), statistics.median(seen))


def why(root: Path, turns: int) -> float:
    """Explaining one long session over the socket, in seconds."""
    shutil.rmtree(root, ignore_errors=True)
    home = Home(root, root / "logs")
    session = long_log(root / "logs", turns)
    with running(home) as daemon:
        _settled(daemon)
        wire = daemon.wire()
        explained = wire.call("why", session=session)["totals"]["turns"]
        if explained != turns:
            raise RuntimeError(f"{explained:,} turns explained instead of {turns:,}")
        times = []
        for _ in range(ASKED):
            begun = time.perf_counter()
            wire.call("why", session=session)
            times.append(time.perf_counter() - begun)
        wire.close()
    return statistics.median(times)


def start_up(root: Path) -> float:
    """Time of `burnctl` over a bare interpreter, in seconds."""
    home = Home(root)
    bare, ours = [], []
    for _ in range(ASKED):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], env=home.environment, check=True)
        bare.append(time.perf_counter() - begun)
        ours.append(home.burnctl("--version"))
    return statistics.median(ours) - statistics.median(bare)


def line_to_report(root: Path, tree: Path, lines: int, *, while_reading: bool = False) -> list[float]:
    """Seconds from writing a line until a summary counts its turn, sorted.

    `while_reading` empties the home first and ends when all old logs are read.
    """
    if while_reading:
        shutil.rmtree(root, ignore_errors=True)
    home = Home(root, tree)
    session = "99999999-0000-4000-8000-000000000009"
    path = tree / "projects" / "-home-dev-work-live" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    times: list[float] = []
    try:
        with running(home) as daemon:
            if not while_reading:
                _settled(daemon)
            wire = daemon.wire()
            while not (wire.call("status").get("backfill") or {}).get("exact", not while_reading):
                time.sleep(0.05)
            for number in range(lines):
                if while_reading and is_caught_up(wire.call("status")):
                    break
                _append(path, session, number)
                begun = time.perf_counter()
                while _turns(wire.ask("summary", session=session)) <= number:
                    time.sleep(0.001)
                times.append(time.perf_counter() - begun)
                time.sleep(0.05)
            wire.close()
    finally:
        os.unlink(path)
    return sorted(times)


def _turns(answer: dict[str, Any]) -> int:
    """The number of turns in an answer; 0 for an unknown session."""
    return int(answer["result"]["totals"]["turns"]) if "result" in answer else 0


def _append(path: Path, session: str, number: int) -> None:
    message = {
        "id": f"msg_live_{number}",
        "model": "claude-sonnet-4-5-20250929",
        "role": "assistant",
        "content": [{"type": "text", "text": "a line that was just written"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 9},
    }
    line: dict[str, Any] = {"type": "assistant", "uuid": f"live-{number}", "parentUuid": None, "sessionId": session}
    line |= {"timestamp": f"2026-11-16T00:00:{number % 60:02d}.000Z", "cwd": "/home/dev/work/live", "message": message}
    with path.open("ab") as file:
        file.write(json.dumps(line).encode() + b"\n")


def _settled(daemon: Daemon) -> None:
    """Waits until all logs are read, searchable and attributed."""
    wire = daemon.wire()
    while wire.call("status")["daemon"]["state"] != "ready":
        time.sleep(0.05)
    wire.call("hotspots")  # attributes new turns at once
    while not (is_caught_up(status := wire.call("status")) and status["causes"]["state"] == "ready"):
        time.sleep(0.05)
    wire.close()
