"""Questions to the index: each runs whole in a worker thread, on a connection that can only read."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, TypeVar, cast

import anyio
import anyio.lowlevel
import anyio.to_thread

T = TypeVar("T")
AT_ONCE = 2  # more would not answer sooner: they share one interpreter, of which what is recorded needs its part
LONG_S = 0.2  # a question that takes longer makes way, so that those that take a moment need not wait for it
LONG_AT_ONCE = 2
DEADLINE_S = 5.0
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
        place = _Place(self._free, self._free_for_long)
        async with place:
            self._check()
            connection = self._idle.pop() if self._idle else await self._opened()
            try:
                return await self._run(question, connection, within, place)
            finally:
                self._idle.append(connection)

    async def _run(
        self, question: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection, within: float, place: _Place
    ) -> T:
        answered = threading.Event()
        with anyio.move_on_after(within) as deadline:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_look_after, connection, answered, place)
                try:
                    # Waited for even when cancelled: only a connection whose thread is done may be used again.
                    outcome = await anyio.to_thread.run_sync(
                        _outcome, question, connection, answered, limiter=self._threads
                    )
                finally:
                    answered.set()  # also when it was cancelled before it began
                tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint_if_cancelled()
        if deadline.cancel_called:
            raise TookTooLong
        if outcome.error is not None:
            raise outcome.error
        return cast("T", outcome.answer)

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
    db.execute("PRAGMA shrink_memory")


class _Place:
    """What a question holds while it is asked: one of the few places, or one of those for what takes long."""

    def __init__(self, free: anyio.Semaphore, for_long: anyio.Semaphore) -> None:
        self._held, self._for_long = free, for_long

    async def __aenter__(self) -> None:
        await self._held.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._held.release()

    async def make_way(self) -> None:
        """After a while lets the next one have its place, where there is another for it."""
        await anyio.sleep(LONG_S)
        await self._for_long.acquire()
        self._held.release()
        self._held = self._for_long


class _Outcome(NamedTuple):
    answer: object
    error: Exception | None


def _outcome(
    question: Callable[[sqlite3.Connection], object], connection: sqlite3.Connection, answered: threading.Event
) -> _Outcome:
    """Asks within one transaction, so that several statements see the same state."""
    try:
        if connection.in_transaction:  # an interrupt may have met the end of the question before
            connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        with contextlib.closing(connection.execute(_RUNNING)):
            return _Outcome(question(connection), None)
    except Exception as error:  # noqa: BLE001 - it is raised again where the question was asked
        return _Outcome(None, error)
    finally:
        answered.set()
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


async def _look_after(connection: sqlite3.Connection, answered: threading.Event, place: _Place) -> None:
    """Makes way when it takes long, interrupts it when it is cancelled: one task for both, as each question has one.

    Again and again: an interrupt stops only what is running, and the question may not have begun yet.
    """
    try:
        await place.make_way()
        await anyio.sleep_forever()
    finally:
        if not answered.is_set():
            with anyio.CancelScope(shield=True):
                while not answered.is_set():
                    connection.interrupt()
                    await anyio.sleep(_AGAIN_S)
