"""Times reports over an index of a million turns: `python -m tests.bench.reports [TURNS] [INDEX]`. Prints misses last.
A given index is reused the next time."""

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
# Milliseconds of processor time within which any question is to be answered, by the length of the history.
BOUNDS = {250_000: 150.0, 1_000_000: 500.0}


class Answered(NamedTuple):
    """CPU time of the daemon for a request, and its limit, in milliseconds."""

    report: str
    took: float
    within: float
    params: str

    @property
    def is_late(self) -> bool:
        return self.took > self.within

    def __str__(self) -> str:
        return f"{self.took:8.1f} ms of {self.within:3.0f}  {self.report} {self.params}"


def bound(turns: int) -> float:
    """The bound of a history: that of the next longer one, and beyond the longest, of that."""
    return BOUNDS[min((size for size in BOUNDS if size >= turns), default=max(BOUNDS))]


def measured(turns: int, index: Path | None = None) -> list[Answered]:
    """Every question's median, by report, the slowest last."""
    return anyio.run(_measured, turns, index)


def by_report(answered: list[Answered]) -> Iterator[list[Answered]]:
    """The answers of each report, the slowest last."""
    for _, group in groupby(sorted(answered), key=lambda one: one.report):
        yield list(group)


async def _measured(turns: int, index: Path | None) -> list[Answered]:
    with tempfile.TemporaryDirectory() as folder:
        place = index or Path(folder) / "burn.db"
        store = await open_index(place) if place.exists() else await make_year(place, turns)
        try:
            if not await store.rows("SELECT 1 FROM segments LIMIT 1"):
                await causes.fill(store)
            ((stored,),) = await store.rows("SELECT count(*) FROM turns")
            asked = [*queries.questions(), *causes.questions()]
            return sorted([await _ask(store, question, bound(stored)) for question in asked])
        finally:
            await store.close()


async def _ask(store: IndexStore, question: Question, within: float) -> Answered:
    times = [await store.ask(lambda db: _timed(db, question), 60) for _ in range(RUNS)]
    return Answered(question.report, statistics.median(times), within, question.params)


def _timed(db: sqlite3.Connection, question: Question) -> float:
    begun = time.thread_time()
    question.ask(View(db, PRICES, END_MS))
    return (time.thread_time() - begun) * 1000


if __name__ == "__main__":
    given = sys.argv[1:]
    relax_gc()
    found = measured(int(given[0]) if given else 1_000_000, Path(given[1]) if len(given) > 1 else None)
    print(*found, sep="\n")
    late = [answer for answer in found if answer.is_late]
    print(f"\n{len(late)} of {len(found)} questions missed their bound", *late, sep="\n")
