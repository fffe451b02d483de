"""All read-only connections of an index: query functions in worker threads, and the lookups of recording.

Neither waits for the other, and questions that run long wait only for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Generic, TypeVar

import aiosqlite
import anyio
import anyio.to_thread

T = TypeVar("T")
AT_ONCE = 2  # more are not faster: they share one interpreter with the recording
# A longer query moves to the slow lane: behind two queries of 3 s a quick one waits 0.2 s, without the lane 3 s.
LONG_S = 0.2
LONG_AT_ONCE = 2
URGENT_AT_ONCE = 1  # for recording, `status` and the status line, however many long queries run
LOOKUPS_AT_ONCE = 3
DEADLINE_S = 5.0
_SHRINK = "PRAGMA shrink_memory"
_RETRY_S = 0.02
# Runs during the whole query: SQLite drops an interrupt if a statement begins while none is running, so a query of many
# short statements could not be stopped.
_RUNNING = "SELECT 1 UNION ALL SELECT 2"


class TookTooLong(Exception):
    """A query was stopped at its deadline."""


class QueryPool:
    """Connections that are opened when needed. A cancelled or late query is interrupted.

    `check` raises if the index is closed.
    """

    def __init__(self, address: str, check: Callable[[], None]) -> None:
        self._address = address
        self._check = check
        self._idle: list[sqlite3.Connection] = []
        self.lookups: list[aiosqlite.Connection] = []  # idle ones
        self._lane = anyio.Semaphore(AT_ONCE, fast_acquire=True)
        self._urgent_lane = anyio.Semaphore(URGENT_AT_ONCE, fast_acquire=True)
        self._slow_lane = anyio.Semaphore(LONG_AT_ONCE)
        self._lookup_lane = anyio.Semaphore(LOOKUPS_AT_ONCE)
        self._threads = anyio.CapacityLimiter(AT_ONCE + URGENT_AT_ONCE + LONG_AT_ONCE)

    async def ask(
        self, question: Callable[[sqlite3.Connection], T], within: float = DEADLINE_S, *, urgent: bool = False
    ) -> T:
        """The result of `question`, which sees one snapshot of the index. An urgent one waits for no other."""
        async with _LaneSlot(self._urgent_lane if urgent else self._lane, self._slow_lane):
            self._check()
            connection = self._idle.pop() if self._idle else await self._opened()
            try:
                return await self._run(_Query(question, connection), within)
            finally:
                self._idle.append(connection)

    async def _run(self, query: _Query[T], within: float) -> T:
        with anyio.move_on_after(within):
            try:
                return await anyio.to_thread.run_sync(query.run, abandon_on_cancel=True, limiter=self._threads)
            finally:
                await query.stop()  # a connection is reusable when its thread is done
        raise TookTooLong

    async def look_up(self, statements: Iterable[tuple[str, tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        """The rows of short statements that recording needs, on a connection that no query uses."""
        rows: list[Any] = []
        async with self._lookup_lane:
            self._check()
            connection = self.lookups.pop() if self.lookups else await _open_lookup(self._address)
            try:
                for sql, parameters in statements:
                    rows += await connection.execute_fetchall(sql, parameters)
            finally:
                self.lookups.append(connection)
        return rows

    async def shrink(self) -> None:
        """Drops cached pages of idle connections."""
        for connection in self._idle:
            shrink(connection)
        for lookup in [*self.lookups]:
            await lookup.execute_fetchall(_SHRINK)

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Waits for running queries, closes all connections, and blocks new queries meanwhile."""
        lanes = [self._lane] * AT_ONCE + [self._urgent_lane] * URGENT_AT_ONCE + [self._slow_lane] * LONG_AT_ONCE
        async with contextlib.AsyncExitStack() as slots:
            for lane in lanes + [self._lookup_lane] * LOOKUPS_AT_ONCE:
                await slots.enter_async_context(lane)
            while self._idle:
                self._idle.pop().close()
            while self.lookups:
                await self.lookups.pop().close()
            yield

    async def _opened(self) -> sqlite3.Connection:
        """Connects in a thread: that reads the schema, and waits while another program locks the file."""
        return await anyio.to_thread.run_sync(self._connect, limiter=self._threads)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._address, uri=True, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA query_only=ON")
        connection.execute("PRAGMA cache_size=-4000")
        return connection


async def _open_lookup(address: str) -> aiosqlite.Connection:
    with anyio.CancelScope(shield=True):  # cancelled in here it would leave its thread and the file open
        connection = await aiosqlite.connect(address, uri=True, isolation_level=None)
    try:
        await connection.execute_fetchall("PRAGMA query_only=ON")
    except BaseException:
        with anyio.CancelScope(shield=True):
            await connection.close()  # its thread would keep the process alive
        raise
    return connection


def shrink(db: sqlite3.Connection) -> None:
    """Drops cached pages of a connection."""
    db.execute(_SHRINK)


class _LaneSlot:
    """A slot of the fast lane, which moves to the slow lane after LONG_S if that has a free slot.

    The move is a timer, not a task: most queries end before it fires.
    """

    def __init__(self, lane: anyio.Semaphore, slow_lane: anyio.Semaphore) -> None:
        self._lane, self._slow_lane = lane, slow_lane
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._lane.acquire()
        self._move_in(LONG_S)

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._lane.release()

    def _move_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._move)

    def _move(self) -> None:
        try:
            self._slow_lane.acquire_nowait()
        except anyio.WouldBlock:
            self._move_in(_RETRY_S)
            return
        self._lane.release()
        self._lane, self._timer = self._slow_lane, None


class _Query(Generic[T]):
    """One run of a query function in a thread. After `stop` it is not running and will never run."""

    def __init__(self, question: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> None:
        self._question, self._connection = question, connection
        self._started = threading.Lock()  # taken by `run`, or by `stop` before that
        self._done = threading.Event()

    def run(self) -> T:
        """Runs in a thread, in one transaction, so that all statements see the same snapshot."""
        if not self._started.acquire(blocking=False):
            raise TookTooLong
        db = self._connection
        try:
            if db.in_transaction:  # the query before was interrupted at its end
                db.execute("ROLLBACK")
            db.execute("BEGIN")
            with contextlib.closing(db.execute(_RUNNING)):
                return self._question(db)
        finally:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            self._done.set()

    async def stop(self) -> None:
        """Interrupts the query if it still runs, repeatedly: an interrupt stops only the current statement."""
        if self._done.is_set() or self._started.acquire(blocking=False):
            return
        with anyio.CancelScope(shield=True):
            while not self._done.is_set():
                self._connection.interrupt()
                await anyio.sleep(_RETRY_S)
