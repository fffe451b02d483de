"""Times reports over an index of a million turns: `python -m tests.bench.reports [TURNS] [INDEX]`.

An index that is named is kept, and used again the next time.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import anyio

from burnd.index.store import IndexStore, open_index
from burnd.memory import relax_gc
from burnd.queries.view import View
from tests.bench import causes, queries
from tests.bench.queries import PRICES, Question
from tests.bench.year import END_MS, make_year

RUNS = 5


class Answered(NamedTuple):
    """How long a question keeps a core busy in the daemon, and how long it may; in milliseconds."""

    report: str
    within: float
    took: float
    params: str

    def __str__(self) -> str:
        late = "LATE " if self.took > self.within else ""
        return f"{self.took:8.1f} ms of {self.within:3.0f}  {late}{self.report} {self.params}"


def measured(turns: int, index: Path | None = None) -> list[Answered]:
    """Every question's median, those with the least time first and the slowest last."""
    return anyio.run(_measured, turns, index)


def slowest(answered: list[Answered]) -> Iterator[tuple[Answered, int]]:
    """The slowest of each report and bound, and how many such questions were asked."""
    for _, group in groupby(sorted(answered), key=lambda one: one[:2]):
        some = list(group)
        yield some[-1], len(some)


async def _measured(turns: int, index: Path | None) -> list[Answered]:
    with tempfile.TemporaryDirectory() as folder:
        place = index or Path(folder) / "burn.db"
        store = await open_index(place) if place.exists() else await make_year(place, turns)
        try:
            if not await store.rows("SELECT 1 FROM segments LIMIT 1"):
                await causes.fill(store)
            return sorted([await _ask(store, question) for question in (*queries.questions(), *causes.questions())])
        finally:
            await store.close()


async def _ask(store: IndexStore, question: Question) -> Answered:
    times = [await store.ask(lambda db: _timed(db, question), 60) for _ in range(RUNS)]
    return Answered(question.report, question.within, statistics.median(times), question.params)


def _timed(db: sqlite3.Connection, question: Question) -> float:
    begun = time.thread_time()
    question.ask(View(db, PRICES, END_MS))
    return (time.thread_time() - begun) * 1000


if __name__ == "__main__":
    given = sys.argv[1:]
    relax_gc()
    found = measured(int(given[0]) if given else 1_000_000, Path(given[1]) if len(given) > 1 else None)
    print(*found, sep="\n")
