"""Costs of one more turn in a long session, among many files, and after a long history: all should be equal."""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio

from burnd.harness.claude_code.source import ClaudeLogs
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import prepare_home
from burnd.logfiles.log_reader import Log as OpenLog
from burnd.logfiles.log_reader import Logs, batch_of
from burnd.paths import Home
from burnd.recording.crash_guard import Acknowledger
from burnd.recording.pipeline import Pipeline, open_pipeline
from tests.bench.corpus import START_MS, Log, Tree, small_logs
from tests.bench.year import make_year

MORE = 60
SESSION = "55555555-0000-4000-8000-000000000005"
LATER_MS = 1 << 50  # files are long quiet by then, so that nothing in them stays open


class Case(NamedTuple):
    """The state before one more turn."""

    turns: int = 10  # of its session
    files: int = 1
    history: int = 0  # turns in the index


def compared(root: Path, small: Case, large: Case) -> tuple[float, float]:
    """One more turn in each of two cases, in seconds of all of this process's threads.

    They take turns, since a machine is now faster and now slower.
    """
    return anyio.run(_compared, root, small, large)


async def _compared(root: Path, small: Case, large: Case) -> tuple[float, float]:
    shutil.rmtree(root, ignore_errors=True)
    async with _prepared(root / "small", small) as one, _prepared(root / "large", large) as other:
        times = [(await one(), await other()) for _ in range(MORE)]
    return statistics.median(time for time, _ in times), statistics.median(time for _, time in times)


@asynccontextmanager
async def _prepared(root: Path, case: Case) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """A function that records one more turn and returns the seconds it took."""
    async with _opened(root, case.history) as pipeline:
        logs = Logs(ClaudeLogs(), pipeline.home.index_db, Acknowledger(None, frozenset()))
        projects = root / "logs" / "projects"
        others = list(small_logs(root / "logs", case.files - 1)) if case.files > 1 else []
        for begin in range(0, len(others), 500):
            some = [_open(logs, path, projects) for path in others[begin : begin + 500]]
            await _take(pipeline, logs, some, LATER_MS)
        log = Log(Tree(root / "logs"), random.Random(5), "/home/dev/work/x", SESSION, START_MS)
        path = projects / "-home-dev-work-x" / f"{log.session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        transcript = _open(logs, path, projects)
        _append(path, log, case.turns)
        await _take(pipeline, logs, [transcript])

        async def one_more() -> float:
            _append(path, log, 1)
            begun = time.process_time()
            await _take(pipeline, logs, [transcript])
            return time.process_time() - begun

        yield one_more
        logs.close()


@asynccontextmanager
async def _opened(root: Path, history: int) -> AsyncIterator[Pipeline]:
    home = Home(root / "home")
    prepare_home(home.root)
    if history:
        store = await make_year(home.index_db, history)
        await store.close()
    pipeline = await open_pipeline(home, ContentModes("full"), inline_bytes=512, reserve=0)
    try:
        yield pipeline
    finally:
        await pipeline.close()


def _open(logs: Logs, path: Path, projects: Path) -> OpenLog:
    found = logs.open(str(path), str(projects), None)
    assert found is not None
    return found


def _append(path: Path, log: Log, turns: int) -> None:
    log.lines.clear()
    for _ in range(turns):
        log._prompt()
        log._answer(0)
    with path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in log.lines))


async def _take(pipeline: Pipeline, logs: Logs, some: list[OpenLog], seen_ms: int = 0) -> None:
    """Reads what was appended and commits it, as the source does."""
    waiting = some
    while waiting:
        pieces = [logs.read(transcript, 4 << 20, 0.0, seen_ms) for transcript in waiting]
        await pipeline.commit(batch_of(pieces))
        waiting = [transcript for transcript, piece in zip(waiting, pieces, strict=True) if piece.more]
    logs.trim(())
