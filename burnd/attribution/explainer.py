"""Explains changed rails in the background and writes the sums of their causes.

Each change of a rail adds a row to `changed` in the same transaction, so crashes and rebuilds need no special handling.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, Literal

import anyio

from burnd.attribution import segments
from burnd.attribution.cause_keys import CauseKey, CauseNumber
from burnd.index import stale_causes
from burnd.index.change import Change
from burnd.index.sums import condense
from burnd.recording.background import BackgroundFollower
from burnd.recording.pipeline import Pipeline

AT_ONCE: Final = 500  # messages per transaction, some 15 ms of the writer
# While agents work, unless a report waits: a new turn explains up to 256 messages again, which takes 25 ms.
EVERY_S: Final = 30.0
YIELD_S: Final = 0.002
STALLED_S: Final = 5.0  # after so long without progress, a backfill is not waited for
BACKLOG_POLL_S: Final = 0.1
POLL_S: Final = 30.0
CONDENSE_S: Final = 30.0  # an active session makes its day stale with every turn
DAYS_AT_ONCE = 2  # condensed in some 20 ms
BLOCKS_S: Final = 3600.0  # the newest block is stale while agents work
ROWS_AT_ONCE: Final = 4000  # written in some 10 ms
_MOST_NUMBERS: Final = 50_000


State = Literal["ready", "catching-up", "waiting"]


class Explainer(BackgroundFollower):
    task, note, item = "causes", "counting", "piece"

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        is_reading: Callable[[], bool] = lambda: False,
        is_asked: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(pipeline, is_reading=is_reading, clock=clock)
        self._is_asked = is_asked
        self._landed_at = 0.0
        self._explained_at = float("-inf")  # when nothing was due
        self._condense_at = self._blocks_at = 0.0
        self._numbers: dict[CauseKey, CauseNumber] = {}
        self._retries: list[str] = []

    def on_change(self, change: Change) -> None:
        if change.logged or change.open or change.closed or self._generation != self._pipeline.generation:
            self._landed_at = self._clock()
            self.wake()

    @property
    def state(self) -> State:
        """`ready` also while a report would explain what is new."""
        if self._caught_up.is_set():
            return "ready"
        if self._has_backlog():
            return "waiting"
        return "ready" if self._clock() < self._explained_at + EVERY_S else "catching-up"

    async def settled(self, within: float) -> None:
        """Does not wait during a backfill."""
        if self._has_backlog():
            return
        with anyio.move_on_after(within):
            await self.caught_up()

    async def catch_up(self) -> None:
        while await self.step(AT_ONCE):
            pass

    async def step(self, most: int) -> bool:
        """False if nothing was due."""
        generation = self._pipeline.generation
        if generation != self._generation or len(self._numbers) > _MOST_NUMBERS:
            self._numbers.clear()
            self._generation = generation
        ledger = self._pipeline.home.ledger
        due = await self._ask(
            lambda db: segments.explain_due(db, ledger, most, self._yield, partial(self._guarded, db))
        )
        if due:
            numbers, self._numbers = self._numbers, {}  # the numbers of a failed transaction are invalid
            writing = partial(segments.write, explanations=due, numbers=numbers)
            if await self._pipeline.write_derived(generation, writing) is not None:
                self._numbers = numbers
        return bool(due)

    def _guarded(self, db: sqlite3.Connection, session: int, rail: str, n: int) -> AbstractContextManager[None]:
        """Names the segment for the crash guard by ids that outlive the index."""
        row = db.execute("SELECT session_id FROM sessions WHERE id = ?", (session,)).fetchone()
        if self._guard is None or row is None:
            return nullcontext()
        return self._guard.item(row[0], f"{rail} {n}".strip())

    def _yield(self) -> None:
        """Releases the interpreter for half of the time while a request is answered or a batch is written."""
        if not self._waiters and (self._is_asked() or self._pipeline.writing):
            time.sleep(YIELD_S)

    async def _work(self) -> None:
        if self._guard is not None:
            self._retries += self._guard.due(self._pipeline.now())
        if self._retries:  # sessions with skipped segments
            marking = partial(stale_causes.mark_sessions, session_ids=self._retries)
            await self._pipeline.write_derived(self._pipeline.generation, marking)
            self._retries = []
        self._bell = anyio.Event()
        await self._until_due()
        if await self.step(AT_ONCE):
            return
        self._rest()
        self._explained_at = self._clock()
        while not self._bell.is_set() and self._clock() >= self._condense_at:
            some = partial(condense, days=DAYS_AT_ONCE)
            if not await self._pipeline.write_derived(self._pipeline.generation, some):
                self._condense_at = self._clock() + CONDENSE_S
        while not self._bell.is_set() and self._clock() >= self._blocks_at:
            if not await self.condense_block():
                self._blocks_at = self._clock() + BLOCKS_S
        await self._woken_within(POLL_S)

    async def condense_block(self) -> bool:
        """False if no block is stale."""
        generation = self._pipeline.generation
        block = await self._ask(segments.read_stale_block)
        if block is None:
            return False
        await self._pipeline.write_derived(generation, partial(segments.begin_block, block=block.block))
        for begin in range(0, len(block.rows), ROWS_AT_ONCE):
            some = block.rows[begin : begin + ROWS_AT_ONCE]
            await self._pipeline.write_derived(generation, partial(segments.write_block, rows=some))
        await self._pipeline.write_derived(generation, partial(segments.finish_block, block=block))
        return True

    async def _until_due(self) -> None:
        """Does not wait if a request waits for the result."""
        while self._has_backlog():
            self._explained_at = float("-inf")
            await anyio.sleep(BACKLOG_POLL_S)
        with anyio.move_on_after(self._explained_at + EVERY_S - self._clock()):
            await self._waited_for.wait()

    def _has_backlog(self) -> bool:
        return self._clock() - self._landed_at < STALLED_S and self._is_reading()
