"""Requests run completely, in one snapshot, and stop when the client is gone."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from burnd.errors import StorageError
from burnd.index.query_pool import QueryPool, TookTooLong
from burnd.recording.candidate import Batch
from tests.conftest import Opened
from tests.make import turn

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def count(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM turns").fetchone()[0])


def forever(db: sqlite3.Connection) -> object:
    return db.execute(ENDLESS).fetchone()


async def test_a_question_sees_what_was_committed_and_cannot_write(opened: Opened) -> None:
    """A question reads the newest state; an attempt to write is an error, not a change."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn()]))
    assert await pipeline.index.ask(count) == 1
    with pytest.raises(StorageError):
        await pipeline.index.ask(lambda db: db.execute("DELETE FROM turns"))


async def test_a_late_question_is_interrupted_and_the_next_one_is_quick(opened: Opened) -> None:
    """A pathological question ends at its deadline and leaves nothing running behind it (F56)."""
    pipeline = await opened()
    for _ in range(8):
        begun = time.monotonic()
        with pytest.raises(TookTooLong):
            await pipeline.index.ask(forever, within=0.05)
        assert time.monotonic() - begun < 30
    assert await pipeline.index.ask(count) == 0


async def test_a_question_that_is_late_between_two_statements_is_stopped(opened: Opened) -> None:
    """F56: the deadline passes while no statement runs, as on a busy machine; the next statement ends all the same."""
    pipeline = await opened()

    def late(db: sqlite3.Connection) -> object:
        time.sleep(0.2)
        return forever(db)

    with pytest.raises(TookTooLong):
        await pipeline.index.ask(late, within=0.05)
    assert await pipeline.index.ask(count) == 0


async def test_a_question_of_many_short_statements_is_stopped(opened: Opened) -> None:
    """F56: though hardly any of them is running when it is to end."""
    pipeline = await opened()

    def dawdle(db: sqlite3.Connection) -> object:
        while True:
            db.execute("SELECT 1").fetchone()
            time.sleep(0.001)

    with anyio.fail_after(60), pytest.raises(TookTooLong):
        await pipeline.index.ask(dawdle, within=0.05)
    assert await pipeline.index.ask(count) == 0


async def test_an_abandoned_query_is_interrupted(opened: Opened) -> None:
    """A client that goes away takes its question with it (F70)."""
    pipeline = await opened()
    with anyio.move_on_after(0.05) as scope:
        await pipeline.index.ask(forever, within=60)
    assert scope.cancelled_caught
    assert await pipeline.index.ask(count) == 0


async def test_a_question_given_up_before_it_began_holds_nothing(opened: Opened) -> None:
    """F70: its place is free for the next one."""
    pipeline = await opened()
    for _ in range(8):
        with pytest.raises(TookTooLong):
            await pipeline.index.ask(count, within=0)
    assert await pipeline.index.ask(count) == 0


async def test_lookups_and_urgent_questions_do_not_wait_for_long_ones(opened: Opened) -> None:
    """Eight questions in real threads end only after a commit, a lookup and an urgent question are done."""
    pipeline = await opened()
    order: list[str] = []
    gate = threading.Event()

    async def ask_long() -> None:
        await pipeline.index.ask(lambda _: gate.wait(60), within=120)
        order.append("long")

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(ask_long)
        await anyio.wait_all_tasks_blocked()
        await pipeline.commit(Batch(entries=[turn()]))
        order.append("commit")
        assert await pipeline.index.rows("SELECT count(*) FROM turns") == [(1,)]
        order.append("lookup")
        assert await pipeline.index.ask(count, urgent=True) == 1
        order.append("urgent")
        gate.set()
    assert order == ["commit", "lookup", "urgent", *["long"] * 8]


async def test_questions_go_on_after_the_index_was_swapped(opened: Opened) -> None:
    """A rebuilt index answers the same, also while others keep query_pool."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn()]))
    async with anyio.create_task_group() as tasks:
        answers: list[int] = []

        async def keep_queries() -> None:
            while len(answers) < 50:
                answers.append(await pipeline.index.ask(count))

        tasks.start_soon(keep_queries)
        await pipeline.rebuild_index()
    assert answers == [1] * 50


async def test_an_exclusively_locked_file_does_not_block_the_loop(tmp_path: Path) -> None:
    """While a connection cannot be opened the event loop runs, so the lock holder can release it."""
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as greedy:
        greedy.execute("CREATE TABLE turns(id)")
        greedy.execute("BEGIN EXCLUSIVE")
        query_pool = QueryPool(f"file:{tmp_path}/db?mode=ro", lambda: None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query_pool.ask, count)
            await anyio.sleep(0.2)
            greedy.execute("COMMIT")
    async with query_pool.paused():
        pass


async def test_a_lookup_cancelled_while_it_connects_leaves_nothing_open(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuild closes all connections, so a shutdown just after it finds lookups that are opening theirs."""
    pipeline = await opened()
    threads = set(threading.enumerate())
    connecting, may_connect = anyio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(*args: Any, **options: Any) -> sqlite3.Connection:
        loop.call_soon_threadsafe(connecting.set)
        assert may_connect.wait(60)
        return sqlite3.Connection(*args, **options)

    async with pipeline.index.pool.paused():
        monkeypatch.setattr(sqlite3, "connect", slow)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipeline.index.rows, "SELECT 1")
        await connecting.wait()
        tasks.cancel_scope.cancel()
        loop.call_later(0.05, may_connect.set)
    assert may_connect.is_set()  # it was waited for
    for thread in set(threading.enumerate()) - threads:
        thread.join(60)
        assert not thread.is_alive()
