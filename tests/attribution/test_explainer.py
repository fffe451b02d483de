"""The attribution task: prompt, in small pieces, and robust against changes in between."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any

import anyio
import pytest

from burnd.attribution import segments
from burnd.attribution.explainer import STALLED_S, Explainer
from burnd.attribution.segments import LENGTH
from burnd.errors import IndexDamaged, NoSpace
from burnd.index.change import Change
from burnd.protocol import NOT_COUNTED
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from tests.conftest import Opened
from tests.dump import causes_dump
from tests.make import at, turn
from tests.queries.asking import ask_hotspots


async def with_turns(opened: Opened, count: int) -> Pipeline:
    pipeline = await opened()
    entries = [turn(f"m{n}", turn_index=n, ts=at(n), parent=f"m{n - 1}" if n else None) for n in range(count)]
    await pipeline.commit(Batch(entries=list(entries)))
    return pipeline


def is_counted(answer: dict[str, Any]) -> bool:
    return all(row["key"] != NOT_COUNTED for row in answer["rows"])


async def test_what_landed_is_counted_at_once(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request waits for it; what is not requested is counted soon, too."""
    monkeypatch.setattr("burnd.attribution.explainer.EVERY_S", 0.1)
    pipeline = await with_turns(opened, 3)
    explainer = Explainer(pipeline)
    pipeline.follow(explainer.on_change)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(explainer.run)
        await explainer.settled(30)
        assert is_counted(await ask_hotspots(pipeline))
        assert explainer.state == "ready"
        await pipeline.commit(Batch(entries=[turn("m3", turn_index=3, ts=at(3))]))
        with anyio.fail_after(30):
            while not is_counted(await ask_hotspots(pipeline)):  # noqa: ASYNC110 - nobody asks, so nobody is told
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()


async def test_an_active_session_is_explained_when_a_request_needs_it(opened: Opened) -> None:
    """One more turn explains up to 256 messages again, so without a request it waits for EVERY_S."""
    explainer = Explainer(await with_turns(opened, 3))
    explainer._explained_at = explainer._clock()
    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(0.01) as scope:
            await explainer._until_due()
        assert scope.cancelled_caught
        tasks.start_soon(explainer.settled, 30)
        await explainer._until_due()
        tasks.cancel_scope.cancel()


async def test_damage_is_not_taken_for_a_rail_that_cannot_be_explained(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F53: damage found while reading a rail leads to a rebuild, after which all rails are explained."""
    explainer = Explainer(await with_turns(opened, 3))

    def damaged(*_: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(explainer, "_guarded", damaged)
    with pytest.raises(IndexDamaged):
        await explainer.catch_up()


async def test_it_gives_way_to_who_asks(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses after every few messages while a request runs, except one that waits for attribution itself."""
    pipeline = await with_turns(opened, 100)
    rests: list[float] = []
    monkeypatch.setattr("burnd.attribution.explainer.time.sleep", rests.append)
    is_asked = True
    explainer = Explainer(pipeline, is_asked=lambda: is_asked)
    plan = partial(segments.explain_due, ledger=pipeline.home.ledger, most=10**6, pause=explainer._yield)
    await pipeline.index.ask(plan)
    assert len(rests) >= 100 // 20
    rests.clear()
    explainer._waiters = 1
    await pipeline.index.ask(plan)
    explainer._waiters, is_asked = 0, False
    await explainer.catch_up()
    assert rests == []
    assert is_counted(await ask_hotspots(pipeline))


async def test_old_logs_are_read_first(opened: Opened) -> None:
    """Nothing is explained while a source reads old logs, and answers list what is missing."""
    pipeline = await opened()
    now, is_reading = [0.0], True
    explainer = Explainer(pipeline, is_reading=lambda: is_reading, clock=lambda: now[0])
    pipeline.follow(explainer.on_change)
    await pipeline.commit(Batch(entries=[turn(f"m{n}", turn_index=n, ts=at(n)) for n in range(3)]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(explainer.run)
        await anyio.sleep(0.2)
        with anyio.fail_after(10):
            await explainer.settled(60)
        answer = await ask_hotspots(pipeline)
        assert (explainer.state, answer["pending"]) == ("waiting", 1)
        assert [row["key"] for row in answer["rows"]] == [NOT_COUNTED]
        assert answer["rows"][0]["usage"] == answer["totals"]["usage"]
        is_reading = False
        await explainer.settled(30)
        answer = await ask_hotspots(pipeline)
        assert is_counted(answer)
        assert (explainer.state, answer["pending"]) == ("ready", 0)
        tasks.cancel_scope.cancel()


async def test_attribution_runs_while_old_logs_are_unreadable(opened: Opened) -> None:
    """A source may have a backlog for ever, on a disk that is full or of a file that cannot be read."""
    pipeline = await with_turns(opened, 3)
    now = [0.0]
    explainer = Explainer(pipeline, is_reading=lambda: True, clock=lambda: now[0])
    explainer.on_change(Change(closed=[turn("m0")]))
    assert explainer.state == "waiting"
    now[0] += STALLED_S
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(explainer.run)
        await explainer.settled(30)
        assert is_counted(await ask_hotspots(pipeline))
        tasks.cancel_scope.cancel()


async def test_one_more_turn_counts_one_piece(opened: Opened) -> None:
    """However long a rail is: a new turn, or a late word on the last one, never counts more than two pieces again."""
    pipeline = await with_turns(opened, 3 * LENGTH - 1)
    await Explainer(pipeline).catch_up()
    for n in range(3 * LENGTH - 2, 3 * LENGTH + 2):
        await pipeline.commit(Batch(entries=[turn(f"m{n}", turn_index=n, ts=at(n), parent=f"m{n - 1}", retries=1)]))
        due = await pipeline.index.ask(lambda db: segments.explain_due(db, pipeline.home.ledger, 10**6))
        assert sum(segment.messages for one in due for segment in one.segments) <= LENGTH + 1
        await Explainer(pipeline).catch_up()
    assert is_counted(await ask_hotspots(pipeline))


async def test_a_failure_loses_nothing(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure before or after the write leaves the marks, and the next run ends in the same sums."""
    pipeline = await with_turns(opened, LENGTH + 10)
    write = segments.write

    def fails(db: sqlite3.Connection, **what: Any) -> None:
        write(db, **what)
        raise NoSpace("the disk is full")

    monkeypatch.setattr(segments, "write", fails)
    with pytest.raises(NoSpace):
        await Explainer(pipeline).catch_up()
    assert not is_counted(await ask_hotspots(pipeline))
    monkeypatch.undo()
    pipeline = await opened()
    await Explainer(pipeline).catch_up()
    found = await causes_dump(pipeline.index)
    assert is_counted(await ask_hotspots(pipeline))
    await pipeline.rebuild_index()
    await Explainer(pipeline).catch_up()
    assert await causes_dump(pipeline.index) == found
