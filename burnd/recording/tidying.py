"""Tidies up: empties long write-ahead logs when nothing is being written, and gives back memory that was for work."""

from __future__ import annotations

import contextlib

import anyio
import anyio.to_thread
import structlog

from burnd import looking_again, memory
from burnd.errors import IndexDamaged, NotNow
from burnd.ledger.write_ahead import log_bytes
from burnd.recording.pipeline import Pipeline

log = structlog.get_logger()
EVERY_S = 5.0
LONG = 2 << 20  # bytes; a new index alone leaves 1 MB
CALM_LOOKS = 4  # without anything written between them: what is needed again in a moment is not given back
BUSY_LOOKS = 4  # with something written before each: what became garbage by then is cleared away all the same


class Tidying:
    """Looks now and then, which costs next to nothing."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def run(self) -> None:
        beats, calm, busy = -1, 0, 0
        while True:
            await looking_again.rest(EVERY_S)
            before, beats = beats, self._pipeline.pulse.beats
            calm, busy = (calm + 1, 0) if before == beats else (0, busy + 1)
            if calm and self._is_due():
                await self._empty()
            if calm == CALM_LOOKS:
                await self._give_back()
            if busy == BUSY_LOOKS:
                busy = 0
                await anyio.to_thread.run_sync(memory.clear_away)

    async def _give_back(self) -> None:
        """Rows that SQLite keeps at hand, and what lies free between things that are in use."""
        with contextlib.suppress(NotNow, IndexDamaged):  # then it stays a little larger
            await self._pipeline.index.shrink()
        await anyio.to_thread.run_sync(memory.clear_away)

    def _is_due(self) -> bool:
        home = self._pipeline.home
        return any(log_bytes(database) > LONG for database in (home.index_db, home.content / "blobs.db"))

    async def _empty(self) -> None:
        try:
            await self._pipeline.empty_logs()
        except (NotNow, IndexDamaged) as error:
            log.warning("tidying.waiting", reason=str(error))
