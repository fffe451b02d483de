"""Empties write-ahead logs when nothing is being written: a backlog leaves long ones behind."""

from __future__ import annotations

import anyio
import structlog

from burnd.errors import IndexDamaged, NotNow
from burnd.ledger.write_ahead import log_bytes
from burnd.recording.pipeline import Pipeline

log = structlog.get_logger()
EVERY_S = 5.0
LONG = 1 << 20  # bytes; a shorter one is not worth the syncs


class Tidying:
    """Looks now and then, which costs next to nothing."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def run(self) -> None:
        beats = -1
        while True:
            await anyio.sleep(EVERY_S)
            before, beats = beats, self._pipeline.pulse.beats
            if before == beats and self._is_due():
                await self._empty()

    def _is_due(self) -> bool:
        home = self._pipeline.home
        return any(log_bytes(database) > LONG for database in (home.index_db, home.content / "blobs.db"))

    async def _empty(self) -> None:
        try:
            await self._pipeline.empty_logs()
        except (NotNow, IndexDamaged) as error:
            log.warning("tidying.waiting", reason=str(error))
