"""Runs a real daemon over growing logs and kills it again and again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests import warm
from tests.capture.rig import Rig
from tests.capture.trees import clean_read, comparable
from tests.server.wire import until


def start(home: Path, projects: Path) -> subprocess.Popen[bytes]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home.parent),
        "RELAYBURN_HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(projects.parent),
        "CODEX_HOME": str(projects.parent),
        "RELAYBURN_CONTENT_TTL_DAYS": "forever",
    }
    return warm.Popen(
        [sys.executable, "-m", "burnd", "run", "--log-format", "json"], env=environment, stderr=subprocess.PIPE
    )


def grow(whole: dict[Path, bytes], rng: random.Random, budget: int) -> None:
    """Appends about so many bytes to random logs, in random pieces, slowly enough to be read in between."""
    while budget > 0:
        left = [path for path, data in whole.items() if path.stat().st_size < len(data)]
        if not left:
            return
        path = rng.choice(left)
        at = path.stat().st_size
        piece = whole[path][at : at + max(7, int(rng.random() ** 3 * budget))]
        with path.open("ab") as file:
            file.write(piece)
        budget -= len(piece)
        time.sleep(rng.choice([0, 0.002, 0.02]))


async def run_and_kill(tmp_path: Path, projects: Path, rounds: int, make: type[Rig] = Rig) -> None:
    expected = comparable(await clean_read(tmp_path / "clean", projects, make))
    whole = {path: path.read_bytes() for path in sorted(projects.rglob("*.jsonl"))}
    for path in whole:
        path.write_bytes(b"")
    rng = random.Random(5)
    home = tmp_path / "home"
    size = sum(map(len, whole.values()))
    rounds = min(rounds, size // 3000 + 1)
    budget = size // rounds + 1
    caught_busy = 0
    for left in reversed(range(rounds)):
        before = _size(home / "ledger.jsonl")
        daemon = start(home, projects)
        wait_until_ready(daemon)
        time.sleep(rng.uniform(0, 0.25))
        grow(whole, rng, budget)
        if left < max(1, rounds // 4) - caught_busy:  # a busy machine may never have got on; it must have at times
            until(lambda before=before: _size(home / "ledger.jsonl") > before)  # type: ignore[misc]
        daemon.kill()
        daemon.wait()
        daemon.stderr.close()  # type: ignore[union-attr]
        caught_busy += _size(home / "ledger.jsonl") > before
    assert caught_busy >= max(1, rounds // 4), "the daemon was killed before it did anything"
    assert comparable(await finish(home, projects, make)) == expected


def wait_until_ready(daemon: subprocess.Popen[bytes]) -> None:
    assert daemon.stderr is not None
    lines: list[bytes] = []
    for line in daemon.stderr:
        lines.append(line)
        if b"daemon.ready" in line:
            return
    raise AssertionError((daemon.wait(60), b"".join(lines).decode()))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


async def finish(home: Path, projects: Path, make: type[Rig]) -> dict[str, Any]:
    """Reads and settles what the next start would, without waiting for the settling time."""
    rig = make(home, projects)
    await rig.open()
    await rig.read(*rig.files())
    await rig.flush()
    outcome = await rig.outcome()
    await rig.close()
    return outcome
