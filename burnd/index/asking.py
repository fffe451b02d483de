"""Questions to the index: each runs whole in a worker thread, on a connection that can only read."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")
AT_ONCE = 2  # more would not answer sooner: they share one interpreter, of which what is recorded needs its part
LONG_S = 0.2  # a question that takes longer makes way, so that those that take a moment need not wait for it
LONG_AT_ONCE = 2
DEADLINE_S = 5.0
SHRINK = "PRAGMA shrink_memory"
_AGAIN_S = 0.02
# Begun before a question and left there: SQLite forgets an interrupt when a statement begins while none is running, so
# that a question of many short ones could not be stopped.
_RUNNING = "SELECT 1 UNION ALL SELECT 2"


class TookTooLong(Exception):
    """Raised when a question was stopped at its deadline."""


class Asking:
    """A few connections, opened when first needed. A question that is cancelled or late is interrupted at once.

    `check` raises when there is nothing to ask; it is called when the file is not just being replaced.
    """

    def __init__(self, address: str, check: Callable[[], None]) -> None:
        self._address = address
        self._check = check
        self._idle: list[sqlite3.Connection] = []
        self._free = anyio.Semaphore(AT_ONCE, fast_acquire=True)
        self._free_for_long = anyio.Semaphore(LONG_AT_ONCE)
        self._threads = anyio.CapacityLimiter(AT_ONCE + LONG_AT_ONCE)

    async def ask(self, question: Callable[[sqlite3.Connection], T], within: float = DEADLINE_S) -> T:
        """What `question` returns, seen in one consistent state of the index."""
        async with _Place(self._free, self._free_for_long):
            self._check()
            connection = self._idle.pop() if self._idle else await self._opened()
            try:
                return await self._run(_Asked(question, connection), within)
            finally:
                self._idle.append(connection)

    async def _run(self, asked: _Asked[T], within: float) -> T:
        with anyio.move_on_after(within):
            try:
                return await anyio.to_thread.run_sync(asked.run, abandon_on_cancel=True, limiter=self._threads)
            finally:
                await asked.over()  # only a connection whose thread is done may be used again
        raise TookTooLong

    def shrink(self) -> None:
        """Lets go of pages that connections which nobody uses just now keep at hand."""
        for connection in self._idle:
            shrink(connection)

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Nothing is asked meanwhile and no connection is open: the file may be replaced."""
        async with contextlib.AsyncExitStack() as taken:
            for free in [self._free] * AT_ONCE + [self._free_for_long] * LONG_AT_ONCE:
                await taken.enter_async_context(free)
            while self._idle:
                self._idle.pop().close()
            yield

    async def _opened(self) -> sqlite3.Connection:
        """In a thread: it reads the schema, and so waits for seconds where somebody has the file for himself."""
        return await anyio.to_thread.run_sync(self._connect, limiter=self._threads)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._address, uri=True, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA query_only=ON")
        connection.execute("PRAGMA cache_size=-4000")
        return connection


def shrink(db: sqlite3.Connection) -> None:
    """Lets go of what a connection keeps at hand and does not need; it touches no file."""
    db.execute(SHRINK)


class _Place:
    """What a question holds while it is asked: one of the few places, or one of those for what takes long.

    After a while it lets the next one have its place, where there is another for it. That is a timer and no task: most
    questions are answered before it rings.
    """

    def __init__(self, free: anyio.Semaphore, for_long: anyio.Semaphore) -> None:
        self._held, self._for_long = free, for_long
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._held.acquire()
        self._make_way_in(LONG_S)

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._held.release()

    def _make_way_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._make_way)

    def _make_way(self) -> None:
        try:
            self._for_long.acquire_nowait()
        except anyio.WouldBlock:
            self._make_way_in(_AGAIN_S)
            return
        self._held.release()
        self._held, self._timer = self._for_long, None


class _Asked(Generic[T]):
    """A question on its way to a thread and back. When it is over, it runs no more, and never will."""

    def __init__(self, question: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> None:
        self._question, self._connection = question, connection
        self._begun = threading.Lock()  # whoever gets it first: the thread that asks, or who wants no answer any more
        self._done = threading.Event()

    def run(self) -> T:
        """In a thread: asks within one transaction, so that several statements see the same state."""
        if not self._begun.acquire(blocking=False):
            raise TookTooLong
        db = self._connection
        try:
            if db.in_transaction:  # an interrupt may have met the end of the question before
                db.execute("ROLLBACK")
            db.execute("BEGIN")
            with contextlib.closing(db.execute(_RUNNING)):
                return self._question(db)
        finally:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            self._done.set()

    async def over(self) -> None:
        """Returns at once when it was answered; else it is interrupted.

        Again and again: an interrupt stops only what is running, and a question is many statements.
        """
        if self._done.is_set() or self._begun.acquire(blocking=False):
            return
        with anyio.CancelScope(shield=True):
            while not self._done.is_set():
                self._connection.interrupt()
                await anyio.sleep(_AGAIN_S)
