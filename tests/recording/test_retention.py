"""Write-ahead logs shrink again after a backlog."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import anyio
import pytest

from burnd import memory
from burnd.ledger.sqlite_files import log_bytes
from burnd.recording import retention
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.recording.retention import Cleanup
from tests.conftest import Opened
from tests.make import read_content, text, turn


def lengths(pipeline: Pipeline) -> tuple[int, int]:
    return log_bytes(pipeline.home.index_db), log_bytes(pipeline.home.content / "blobs.db")


async def backlog(pipeline: Pipeline, n: int) -> None:
    said = [text(f"{n}-{m}", f"{n} {m} " * 400) for m in range(20)]
    await pipeline.commit(Batch(entries=[turn(f"m{n}-{m}", turn_index=m) for m in range(200)], content=said))


async def until_empty(pipeline: Pipeline) -> None:
    with anyio.fail_after(30):
        while any(lengths(pipeline)):  # noqa: ASYNC110 - nobody tells of it
            await anyio.sleep(0.01)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CLEAN_EVERY_S", 0.02)
    monkeypatch.setattr(retention, "LONG_LOG", 0)


@pytest.mark.usefixtures("quickly")
async def test_logs_are_emptied_when_nothing_is_written(opened: Opened) -> None:
    """Both of them, again and again, and nothing of what they held is lost."""
    pipeline = await opened()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Cleanup(pipeline).run)
        for n in range(3):
            await backlog(pipeline, n)
            await until_empty(pipeline)
        tasks.cancel_scope.cancel()
    assert await pipeline.index.rows("SELECT count(*) FROM turns") == [(600,)]
    assert [record.text for record in read_content(pipeline.content, "s1")][-1] == "2 19 " * 400


@pytest.mark.usefixtures("quickly")
async def test_a_long_reader_does_not_delay_recording(opened: Opened) -> None:
    """A long reader delays the truncation of the log, but not the recording."""
    pipeline = await opened()
    await backlog(pipeline, 0)
    with closing(sqlite3.connect(pipeline.home.index_db, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM turns").fetchall()
        await backlog(pipeline, 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Cleanup(pipeline).run)
            await anyio.sleep(0.2)
            assert lengths(pipeline)[0]
            with anyio.fail_after(4):  # a connection of SQLite's would wait for five seconds
                await backlog(pipeline, 2)
            reader.execute("COMMIT")
            await until_empty(pipeline)
            tasks.cancel_scope.cancel()


@pytest.mark.usefixtures("quickly")
async def test_memory_is_given_back_once_after_work(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """F80: when nothing was written for a while; after that only when something was written again."""
    given_back: list[int] = []
    pipeline = await opened()
    monkeypatch.setattr(retention, "BUSY_CHECKS", 1 << 30)
    monkeypatch.setattr(memory, "trim", lambda: given_back.append(pipeline.status.heartbeat))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Cleanup(pipeline).run)
        for n in range(2):
            await backlog(pipeline, n)
            with anyio.fail_after(30):
                while len(given_back) <= n:  # noqa: ASYNC110 - nobody tells of it
                    await anyio.sleep(0.01)
            await anyio.sleep(0.3)
        tasks.cancel_scope.cancel()
    assert len(given_back) == len(set(given_back)) == 2
    assert await pipeline.index.rows("SELECT count(*) FROM turns") == [(400,)]


async def test_garbage_is_cleared_away_while_work_never_ends(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """F80: dropped readers are in reference cycles, which the collector would not look at for a long time."""
    cleared: list[None] = []
    pipeline = await opened()
    monkeypatch.setattr(retention, "CLEAN_EVERY_S", 0.01)
    monkeypatch.setattr(retention, "CALM_CHECKS", 1 << 30)
    monkeypatch.setattr(memory, "collect", lambda: cleared.append(None))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Cleanup(pipeline).run)
        with anyio.fail_after(30):
            while len(cleared) < 2:
                pipeline.status.heartbeat += 1
                await anyio.sleep(0.002)
        tasks.cancel_scope.cancel()


async def test_short_logs_are_left_alone(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few turns are not worth the syncs."""
    monkeypatch.setattr(retention, "CLEAN_EVERY_S", 0.01)
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("m1")]))
    with anyio.move_on_after(0.2):
        await Cleanup(pipeline).run()
    assert lengths(pipeline)[0]


@pytest.mark.usefixtures("quickly")
async def test_a_log_that_a_crash_left_is_emptied(opened: Opened) -> None:
    """Also when nothing large is ever written in this life."""
    pipeline = await opened()
    await backlog(pipeline, 0)
    blobs = pipeline.home.content / "blobs.db"
    left = {path: path.read_bytes() for path in (blobs, blobs.with_name("blobs.db-wal"))}
    await opened.close()
    for path, data in left.items():
        path.write_bytes(data)
    pipeline = await opened()
    assert lengths(pipeline)[1]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Cleanup(pipeline).run)
        await until_empty(pipeline)
        tasks.cancel_scope.cancel()
    assert [record.text for record in read_content(pipeline.content, "s1")][-1] == "0 19 " * 400
