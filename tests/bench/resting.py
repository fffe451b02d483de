"""Costs of an idle daemon with many files, and of a restart with nothing new."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import NamedTuple

import anyio

from burnd.harness.claude_code.source import ClaudeLogs
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import prepare_home
from burnd.logfiles.follower import LogFollower
from burnd.paths import Home as Folders
from burnd.recording.pipeline import Pipeline, open_pipeline
from tests.bench.corpus import small_logs
from tests.bench.running import Home, is_caught_up, running

CALM_S = 30.0  # by then everybody has given back what it took


class Idle(NamedTuple):
    """Memory and CPU share of an idle daemon."""

    bytes: int
    share: float


def idle(root: Path, files: int, watched_s: float) -> Idle:
    """An idle daemon that watches this many files."""
    shutil.rmtree(root, ignore_errors=True)
    logs = root / "logs"
    for _ in small_logs(logs, files):
        pass
    with running(Home(root, logs)) as first:
        wire = first.wire()
        while not is_caught_up(wire.call("status")):
            time.sleep(0.2)
        wire.socket.settimeout(600)
        wire.call("flush")
        wire.close()
    with running(Home(root, logs)) as daemon:
        wire = daemon.wire()
        while not is_caught_up(status := wire.call("status")) or status["causes"]["state"] != "ready":
            time.sleep(0.2)
        wire.close()
        time.sleep(CALM_S)
        before = daemon.processor()
        time.sleep(watched_s)
        return Idle(daemon.resident(), (daemon.processor() - before) / watched_s)


def catch_up(root: Path, files: int, runs: int) -> list[float]:
    """Seconds until a daemon sees that nothing is new in this many files, without imports and opening."""
    shutil.rmtree(root, ignore_errors=True)
    for _ in small_logs(root / "logs", files):
        pass
    return sorted(anyio.run(_caught_up, root) for _ in range(runs + 1))[:runs]


async def _caught_up(root: Path) -> float:
    """The time of one start; the first of them reads everything and is the slowest."""
    home = Folders(root / "home")
    prepare_home(home.root)
    pipeline = await open_pipeline(home, ContentModes("full"), inline_bytes=512)
    source = LogFollower(ClaudeLogs(), [str(root / "logs" / "projects")], pipeline)
    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.run)
        await _until_read(source, pipeline)
        took = time.perf_counter() - begun
        await source.flush()
        tasks.cancel_scope.cancel()
    await pipeline.close()
    return took


async def _until_read(source: LogFollower, pipeline: Pipeline) -> None:
    while not source.status().files or source.status().pending or pipeline.writing:  # noqa: ASYNC110 - what is timed is its end
        await anyio.sleep(0.001)
