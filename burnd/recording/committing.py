"""Hands batches to the pipeline, and waits where there is no room: nothing is lost, and no cursor moves meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import anyio
import structlog

from burnd.errors import NotNow
from burnd.recording.batch import Batch
from burnd.recording.pipeline import Pipeline

log = structlog.get_logger()

FIRST_RETRY_S, LAST_RETRY_S = 5.0, 60.0


class Committer:
    """Commits for one source; `blocked` says why it has to wait, while it has to."""

    def __init__(self, pipeline: Pipeline, source: str) -> None:
        self.blocked = ""
        self._pipeline, self._source = pipeline, source

    async def commit(self, batch: Batch, waits: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """Returns when the batch is durable and visible; `waits` is around the time in which nothing is done."""
        delay = FIRST_RETRY_S
        while (problem := await self._try_to_commit(batch)) is not None:
            self.blocked = f"blocked: {problem}"
            log.warning("source.blocked", source=self._source, reason=problem.what)
            with waits():
                await anyio.sleep(delay)
            delay = min(delay * 2, LAST_RETRY_S)
        self.blocked = ""

    async def _try_to_commit(self, batch: Batch) -> NotNow | None:
        try:
            await self._pipeline.commit(batch)
        except NotNow as error:
            return error
        return None
