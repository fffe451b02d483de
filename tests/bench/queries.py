"""Times reports over an index of a million turns: `python -m tests.bench.queries [TURNS] [INDEX]`."""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import msgspec

from burnd.index.store import IndexStore, open_index
from burnd.memory import collect_seldom
from burnd.pricing import PriceTable
from burnd.queries.compare import CompareParams, compare
from burnd.queries.limits import LimitsParams, limits
from burnd.queries.statusline import StatuslineParams, statusline
from burnd.queries.summary import SummaryParams, summary
from burnd.queries.view import View
from tests.bench.year import END_MS, make_year, session_id

Question = tuple[str, float, Callable[[View], Any]]
RUNS = 5
PRICES = PriceTable.load()
CHEAP = ("model", "provider", "project", "activity", "source", "day")
DEAR = ("session", "branch", "agent", "tag:persona", "tag:workflowId")
BUDGETS = {"daily": Decimal(20), "weekly": Decimal(80), "monthly": Decimal(250)}
MIXES: tuple[dict[str, Any], ...] = (
    {"tags": {"persona": "p3"}},
    {"tags": {"persona": "p3"}, "since": "90d"},
    {"workflow": "wf-100"},
    {"branch": "topic-3"},
    {"agent": "agent-17"},
    {"agent": "Explore"},
    {"session": session_id(40)},
    {"branch": "topic-3", "tags": {"step": "1"}, "activity": "coding", "project": "/home/me/code"},
    {"tags": {"persona": "p3", "step": "2"}, "model": "sonnet", "since": "180d", "until": "10d"},
    {"branch": "topic-3", "source": "opencode", "activity": "exploration"},
    {"workflow": "wf-100", "session": session_id(1001), "branch": "topic-1"},
)
ODD = {"since": "33d", "until": END_MS - 2 * 86_400_000 - 12_345}


def questions() -> Iterator[Question]:
    """What is asked, within how many milliseconds it is to be answered, and the asking of it."""
    for by in CHEAP:
        for filters in (
            {},
            {"since": "7d"},
            ODD,
            {"model": "claude-sonnet-4-5"},
            {"provider": "openai"},
            {"project": "github.com/me/p1"},
            {"source": "opencode"},
            {"activity": "exploration"},
            {"project": "/home/me/code"},
            {"activity": "coding", "project": "/home/me/code/p0", "model": "sonnet"},
        ):
            for tz in ("UTC", "America/Los_Angeles", "+05:45") if by == "day" else ("UTC",):
                yield _summary(50, by=by, tz=tz, **filters)
    yield from _close_questions()
    yield from _mixed_questions()
    for history in (0, 10, 100):
        yield f"limits {history}", 50 if history <= 10 else 400, _limits(history)
    yield "statusline", 50, lambda view: statusline(view, StatuslineParams(session=session_id(40)), BUDGETS)


def _close_questions() -> Iterator[Question]:
    """Hours, small charts, one-shot rates and comparisons, by what sums over all sessions tell."""
    for since in ({"since": "24h"}, {"since": "31d"}, {"since": "31d", "activity": "coding"}, {}):
        for tz in ("UTC", "Asia/Kolkata"):
            yield _summary(50 if since else 400, by="hour", tz=tz, **since)
    for filters in ({}, {"since": "30d"}, {"model": "opus"}, {"project": "/home/me/code/p0"}, {"activity": "coding"}):
        for tz in ("UTC", "Europe/Berlin"):
            yield _summary(50, by="model", series=True, tz=tz, **filters)
        yield _summary(100, by="model", quality=True, **filters)
        yield _compare(50, **filters)
        yield _compare(50, by="source", **filters)
    yield _compare(50, whatIf="claude-haiku-4-5")
    yield _compare(50, models="opus,sonnet", provider="anthropic", since="90d")


def _mixed_questions() -> Iterator[Question]:
    """Whatever needs sessions one by one: tags, branches, agents, and any mix of them."""
    for by in (*CHEAP, *DEAR):
        for some in MIXES:
            yield _summary(400, by=by, tz="+05:45", **some)
    for by in DEAR:
        yield _summary(400, by=by)
        yield _summary(400, by=by, **ODD)
        yield _summary(400, by=by, activity="coding")
    for some in MIXES:
        yield _compare(400, **some)
        yield _compare(400, by="tag:persona", **some)
    yield _compare(400, by="tag:persona")
    yield _compare(400, by="tag:workflowId", since="90d")
    yield _compare(400, by="tag:persona", whatIf="claude-haiku-4-5")
    for some in MIXES[::2]:
        yield _summary(400, by="model", quality=True, series=True, tz="America/Los_Angeles", **some)
        yield _summary(400, by="hour", tz="America/Los_Angeles", **some)
    for by in (*DEAR, "day"):
        yield _summary(400, by=by, quality=True, limit=30, tz="Europe/Berlin")
    yield _summary(400, by="agent", tree=True)
    yield _summary(400, by="session", limit=30, series=True, tz="Europe/Berlin")


def _limits(history: int) -> Callable[[View], Any]:
    return lambda view: limits(view, LimitsParams(history=history), BUDGETS)


def _summary(within: float, **params: Any) -> Question:
    asked = msgspec.convert(params, SummaryParams)
    return f"summary {params}", within, lambda view: summary(view, asked)


def _compare(within: float, **params: Any) -> Question:
    asked = msgspec.convert(params, CompareParams)
    return f"compare {params}", within, lambda view: compare(view, asked)


async def main(turns: int, path: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = path or Path(folder) / "burn.db"
        begun = time.perf_counter()
        store = await open_index(place) if place.exists() else await make_year(place, turns)
        ((count, sessions),) = await store.rows("SELECT count(*), count(DISTINCT session) FROM turns")
        print(f"{count:,} turns in {sessions:,} sessions, ready after {time.perf_counter() - begun:.0f} s")
        await _sizes(store)
        await measure(store)
        await store.close()


async def measure(store: IndexStore) -> None:
    """The median time each question keeps a core busy in the daemon, slowest last: others may use the machine too."""
    found = []
    for name, within, question in questions():
        times = [await store.ask(lambda db: _timed(db, question), 60) for _ in range(RUNS)]  # noqa: B023 - asked at once
        found.append((within, statistics.median(times), name))
    for within, took, name in sorted(found):
        print(f"{took:8.1f} ms of {within:3.0f}  {'LATE ' if took > within else ''}{name}")


def _timed(db: sqlite3.Connection, question: Callable[[View], Any]) -> float:
    begun = time.thread_time()
    question(View(db, PRICES, END_MS))
    return (time.thread_time() - begun) * 1000


async def _sizes(store: IndexStore) -> None:
    rows = await store.rows("SELECT name, sum(pgsize) / 1e6 FROM dbstat GROUP BY 1 ORDER BY 2 DESC LIMIT 14")
    print("  ".join(f"{name} {megabytes:.0f} MB" for name, megabytes in rows))


if __name__ == "__main__":
    given = sys.argv[1:]
    collect_seldom()
    anyio.run(main, int(given[0]) if given else 1_000_000, Path(given[1]) if len(given) > 1 else None)
