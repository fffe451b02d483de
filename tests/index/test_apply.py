"""Applying one more turn costs the same whatever the index holds, counted in SQLite steps."""

from __future__ import annotations

import aiosqlite
import pytest

from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from tests.conftest import Opened
from tests.make import at, text, tool_result, tool_use, turn

EVERY = 50  # instructions between two counts


def said(n: int, session: str = "s1") -> Batch:
    """A turn with its words, its call and the result of the one before."""
    name = f"{session}-m{n}"
    return Batch(
        entries=[turn(name, session_id=session, turn_index=n, ts=at(n), prompt_id=f"{session}-p{n // 20}")],
        content=[
            tool_result(f"{session}-r{n}", "done", session_id=session, ts=at(n)),
            text(name, f"words {n}", session_id=session, ts=at(n)),
            tool_use(name, {"n": n}, session_id=session, ts=at(n), b=1),
        ],
    )


async def steps_of(pipeline: Pipeline, batch: Batch) -> int:
    """SQLite instructions of a commit, over all connections."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    readers: list[aiosqlite.Connection] = pipeline.index.pool.lookups
    await pipeline.index.writer.run(lambda db: db.set_progress_handler(count, EVERY))
    for reader in readers:
        await reader.set_progress_handler(count, EVERY)
    await pipeline.commit(batch)
    await pipeline.index.writer.run(lambda db: db.set_progress_handler(None, 0))
    for reader in readers:
        await reader.set_progress_handler(None, 0)  # type: ignore[arg-type]
    return steps * EVERY


async def fill(pipeline: Pipeline, batches: list[Batch]) -> None:
    merged = Batch()
    for batch in batches:
        merged.entries += batch.entries
        merged.content += batch.content
    await pipeline.commit(merged)


@pytest.mark.parametrize("way", ["new", "again"])
async def test_one_more_turn_costs_the_same_in_a_long_session(opened: Opened, way: str) -> None:
    """A turn that is new, and one that is read again, after 20 turns and after 1,500."""
    pipeline = await opened()
    counts = []
    for begin, end in ((0, 20), (20, 1500)):
        await fill(pipeline, [said(n) for n in range(begin, end)])
        n = end + 10_000 if way == "new" else end - 1
        counts.append(await steps_of(pipeline, said(n)))
    assert counts[1] < 1.5 * counts[0] + 500


async def test_one_more_turn_costs_the_same_among_many_sessions(opened: Opened) -> None:
    """Beside 5 sessions and beside 500."""
    pipeline = await opened()
    counts = []
    for begin, end in ((0, 5), (5, 500)):
        await fill(pipeline, [said(n, f"s{session}") for session in range(begin, end) for n in range(3)])
        counts.append(await steps_of(pipeline, said(3, f"s{end - 1}")))
    assert counts[1] < 1.5 * counts[0] + 500
