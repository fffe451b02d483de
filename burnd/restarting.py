"""Starts work again that failed, after a while that grows: what goes wrong in one part of the daemon stays in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import structlog

from burnd import unforeseen
from burnd.errors import NotNow, StorageError

log = structlog.get_logger()
FIRST_DELAY_S, LAST_DELAY_S = 1.0, 60.0
Work = Callable[[], Awaitable[None]]


def is_fatal(error: BaseException) -> bool:
    """Whether what is the truth could not be written or read: nobody may swallow that."""
    return any(isinstance(one, StorageError) and not isinstance(one, NotNow) for one in unforeseen.leaves(error))


async def keep_running(work: Work, failed: Callable[[BaseException], None]) -> None:
    """Runs work to its end; begins it anew after a failure, of which `failed` hears. What is fatal is raised."""
    delay = FIRST_DELAY_S
    while True:
        begun = anyio.current_time()
        try:
            await work()
        except Exception as error:
            if is_fatal(error):
                raise
            failed(error)
        else:
            return
        if anyio.current_time() - begun > LAST_DELAY_S:
            delay = FIRST_DELAY_S
        await anyio.sleep(delay)
        delay = min(delay * 2, LAST_DELAY_S)


class Minded:
    """Work that goes on for as long as the daemon does, whatever becomes of it."""

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        self._work = work
        self._failure = ""
        self._failed_at = float("-inf")

    async def run(self) -> None:
        await keep_running(self._work, self._note)

    @property
    def problem(self) -> str:
        """What it stopped on, until it has gone well for a while since."""
        is_lately = anyio.current_time() - self._failed_at < 2 * LAST_DELAY_S
        return f"{self.name} stopped on {self._failure} and is started again" if is_lately else ""

    def _note(self, error: BaseException) -> None:
        self._failure, self._failed_at = unforeseen.kinds(error), anyio.current_time()
        log.error("work.failed", work=self.name, error=self._failure, where=unforeseen.place(error))
