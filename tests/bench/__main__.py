"""Runs the benchmarks and writes docs/benchmarks.md: ratios within one run, since machines differ and are shared."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import structlog

from burnd.ledger.files import prepare_home
from burnd.ledger.keeping import Keeping
from burnd.paths import Home
from burnd.pipeline import Batch, Pipeline, open_pipeline
from burnd.records import Content
from tests.make import at, text, turn

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
RUNS = 5
SESSIONS, TURNS, PER_BATCH = 20, 200, 100


async def main() -> None:
    """Measures, then writes the page."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    rows = [await first_write(), await one_more_turn(), await rebuild()]
    table = "".join(f"| {what} | {found} |\n" for what, found in rows)
    PAGE.write_text(_PAGE.format(system=platform.system(), cores=os.cpu_count(), runs=RUNS, table=table))
    print(table)


async def first_write() -> tuple[str, str]:
    """How fast records and content become durable and indexed, against merely writing and syncing the bytes."""
    ours, plain, size = [], [], 0
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            home = Home(Path(folder) / "home")
            pipeline = await opened(home)
            ours.append(await timed(lambda: fill(pipeline, SESSIONS)))  # noqa: B023 - called before the next turn
            await pipeline.close()
            size = home.ledger.stat().st_size + sum(len(str(record.text)) for record in _texts(SESSIONS))
            plain.append(write_and_sync(Path(folder) / "plain", size))
    rate = size / statistics.median(ours) / 1e6
    factor = statistics.median(ours) / statistics.median(plain)
    return "records and content taken in", f"{rate:.0f} MB/s, {factor:.1f} times the time of a plain write and fsync"


async def one_more_turn() -> tuple[str, str]:
    """What one more turn costs in a long history, against a short one."""
    medians = []
    for sessions in (1, 10 * SESSIONS):
        with tempfile.TemporaryDirectory() as folder:
            pipeline = await opened(Home(Path(folder) / "home"))
            await fill(pipeline, sessions)
            times = []
            for n in range(60):
                batch = Batch(
                    entries=[turn(f"x{n}", session_id="s0")], content=[text(f"x{n}", "more", session_id="s0")]
                )
                times.append(await timed(lambda: pipeline.commit(batch)))  # noqa: B023 - called at once
            medians.append(statistics.median(times))
            await pipeline.close()
    return (
        f"one more turn after {10 * SESSIONS * TURNS:,} turns",
        f"{medians[1] / medians[0]:.2f} times one after {TURNS:,}",
    )


async def rebuild() -> tuple[str, str]:
    """How fast a deleted index comes back."""
    with tempfile.TemporaryDirectory() as folder:
        pipeline = await opened(Home(Path(folder) / "home"))
        await fill(pipeline, SESSIONS)
        times = [await timed(pipeline.rebuild_index) for _ in range(RUNS)]
        await pipeline.close()
    return "turns a second when the index is rebuilt", f"{SESSIONS * TURNS / statistics.median(times):,.0f}"


async def opened(home: Home) -> Pipeline:
    prepare_home(home.root)
    return await open_pipeline(home, Keeping("full"), inline_bytes=1024)


async def fill(pipeline: Pipeline, sessions: int) -> None:
    for number in range(sessions):
        session_id = f"s{number}"
        for begin in range(0, TURNS, PER_BATCH):
            numbers = range(begin, min(begin + PER_BATCH, TURNS))
            entries = [
                turn(f"{session_id}-{n}", session_id=session_id, turn_index=n, ts=at(number * TURNS + n))
                for n in numbers
            ]
            await pipeline.commit(Batch(entries=list(entries), content=_of_session(number)[begin : begin + PER_BATCH]))


def _of_session(number: int) -> list[Content]:
    made = []
    for n in range(TURNS):
        length = 200 + (n * 7919 + number * 104729) % 8000
        words = (f"turn {n} of session {number} says something new about file_{n * 31 % 97}.py; " * 120)[:length]
        made.append(text(f"s{number}-{n}", words, session_id=f"s{number}", ts=at(number * TURNS + n)))
    return made


def _texts(sessions: int) -> list[Content]:
    return [record for number in range(sessions) for record in _of_session(number)]


def write_and_sync(path: Path, size: int) -> float:
    begun = time.perf_counter()
    with open(path, "wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - begun


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun


_PAGE = """# Benchmarks

Made by `make bench` on {system}, {cores} cores; medians of {runs} runs. Machines are shared and noisy, so what counts
are the ratios within one run. The corpora, the peers and the numbers to reach come with capture and reports; for now
this measures the foundation alone.

| what | measured |
|---|---|
{table}"""

if __name__ == "__main__":
    anyio.run(main)
