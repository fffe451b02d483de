"""The base of search and of attribution: tasks that follow what the pipeline records."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import ClassVar, Final, TypeVar

import anyio
import anyio.to_thread
import structlog

from burnd.errors import IndexDamaged, NotNow
from burnd.index.change import Change
from burnd.index.query_pool import TookTooLong
from burnd.recording.crash_guard import InProcessGuard
from burnd.recording.pipeline import Pipeline

T = TypeVar("T")
log = structlog.get_logger()

WITHIN_S: Final = 60.0  # of a question to the index
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0


class BackgroundFollower:
    """A task behind the pipeline, which calls `on_change` after every batch.

    What is left to do is derived from what is stored with the results, so a crash, a lost result and a rebuild are
    handled alike; `on_change` only makes it quick. Failed work is retried with growing pauses.

    A subclass implements `_work`, one piece of work, and `on_change`. `is_reading` is whether old logs are being read.
    """

    task: ClassVar[str]  # its name in the log
    note: ClassVar[str]  # the crash guard's file
    item: ClassVar[str]  # what the crash guard skips
    retried: tuple[type[Exception], ...] = (IndexDamaged, NotNow, TookTooLong, OSError)

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        is_reading: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipeline = pipeline
        self._is_reading = is_reading
        self._clock = clock
        self._thread = anyio.CapacityLimiter(1)
        self._bell = anyio.Event()
        self._caught_up = anyio.Event()
        self._waited_for = anyio.Event()  # set while a request waits for the result
        self._waiters = 0
        self._generation = pipeline.generation
        self._guard: InProcessGuard | None = None

    async def run(self) -> None:
        """Works until cancelled."""
        self._guard = InProcessGuard(self._pipeline.home.index / self.note, self._pipeline.now())
        try:
            await self._follow()
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()
            guard, self._guard = self._guard, None
            guard.close()

    async def _follow(self) -> None:
        failures, failed_at = 0, float("-inf")
        while True:
            try:
                await self._work()
            except self.retried as error:
                is_repeated = self._clock() - failed_at < 2 * LAST_RETRY_S
                failures, failed_at = failures + 1 if is_repeated else 1, self._clock()
                log.warning("background.retry", task=self.task, error=type(error).__name__, failures=failures)
                await self._failed(error, failures)
                await anyio.sleep(min(FIRST_RETRY_S * 2 ** (failures - 1), LAST_RETRY_S))

    async def _work(self) -> None:
        raise NotImplementedError

    async def _failed(self, error: Exception, failures: int) -> None:
        """Called before a failed piece of work is retried."""

    async def _close(self) -> None:
        """Called at the end."""

    def on_change(self, change: Change) -> None:
        raise NotImplementedError

    @property
    def skipped_summary(self) -> str:
        """A sentence about items that are skipped after repeated crashes."""
        return self._guard.summary(self.item) if self._guard is not None else ""

    async def caught_up(self) -> None:
        """Waits until all that was recorded is done, which is not put off any longer."""
        self._waiters += 1
        self._waited_for.set()
        self.wake()
        try:
            await self._caught_up.wait()
        finally:
            self._waiters -= 1
            if not self._waiters:
                self._waited_for = anyio.Event()

    def wake(self) -> None:
        if self._caught_up.is_set():
            self._caught_up = anyio.Event()
        self._bell.set()

    def _rest(self) -> None:
        """Marks all as done, unless something changed meanwhile."""
        if not self._bell.is_set():
            self._caught_up.set()

    async def _woken_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._bell.wait()
        is_woken = self._bell.is_set()
        self._bell = anyio.Event()
        return is_woken

    async def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        return await self._pipeline.index.ask(question, within=WITHIN_S)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._thread)
