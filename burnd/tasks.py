"""Background tasks of the daemon: aligned timers, and restart with back-off after a failure."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator

import anyio
import structlog

from burnd.errors import NotNow, StorageError, error_location, error_types, leaves

log = structlog.get_logger()
FIRST_DELAY_S, LAST_DELAY_S = 1.0, 60.0
Work = Callable[[], Awaitable[None]]


def next_tick(after: float, every: float) -> float:
    """Timers of one length fire together, so an idle daemon wakes up less."""
    if not every:
        return after
    tick = (math.floor(after / every) + 1) * every
    return tick if tick > after else tick + every  # floating point: the division may round up


async def sleep_until_tick(every: float) -> None:
    now = anyio.current_time()
    await anyio.sleep(next_tick(now, every) - now)


def is_fatal(error: BaseException) -> bool:
    """The ledger or content cannot be written or read: the daemon must stop."""
    return any(isinstance(one, StorageError) and not isinstance(one, NotNow) for one in leaves(error))


def backoff() -> Iterator[float]:
    delay = FIRST_DELAY_S
    while True:
        yield delay
        delay = min(delay * 2, LAST_DELAY_S)


async def run_with_restart(work: Work, on_failure: Callable[[BaseException], None]) -> None:
    """Retries with back-off. Fatal errors are raised."""
    delays = backoff()
    while True:
        started = anyio.current_time()
        try:
            await work()
        except Exception as error:
            if is_fatal(error):
                raise
            on_failure(error)
        else:
            return
        if anyio.current_time() - started > LAST_DELAY_S:
            delays = backoff()
        await anyio.sleep(next(delays))


class BackgroundTask:
    """Runs as long as the daemon."""

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        self._work = work
        self._failure = ""
        self._failed_at = float("-inf")

    async def run(self) -> None:
        await run_with_restart(self._work, self._on_failure)

    @property
    def problem(self) -> str:
        """For `status`; empty after two minutes without a failure."""
        is_recent = anyio.current_time() - self._failed_at < 2 * LAST_DELAY_S
        return f"{self.name} stopped on {self._failure} and was restarted" if is_recent else ""

    def _on_failure(self, error: BaseException) -> None:
        self._failure, self._failed_at = error_types(error), anyio.current_time()
        log.error("task.failed", task=self.name, error=self._failure, where=error_location(error))
