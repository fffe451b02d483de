"""Keeps sources running, each on its own: one that fails is started again after a while, the others do not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import anyio
import structlog

from burnd.errors import IndexDamaged, StorageError
from burnd.sources.base import Rooted, Source, Status

log = structlog.get_logger()
FIRST_DELAY_S, LAST_DELAY_S = 1.0, 60.0


class Kept:
    """One source and what became of it. `make` gives a fresh one for every start."""

    def __init__(self, name: str, make: Callable[[], Source]) -> None:
        self.name = name
        self.restarts = 0
        self.last_failure = ""
        self.source: Source | None = None
        self._make = make
        self._begun = anyio.Event()
        self._ended = anyio.Event()

    async def run(self) -> None:
        """Runs the source for ever. A failure to write what is the truth is nobody's to swallow: it is raised."""
        delay = FIRST_DELAY_S
        while True:
            begun = anyio.current_time()
            try:
                await self._run_once()
            except* (StorageError, IndexDamaged):
                raise
            except* Exception as failures:  # noqa: BLE001 - the one place that may swallow: it counts and says so
                self._note(failures)
            if anyio.current_time() - begun > LAST_DELAY_S:
                delay = FIRST_DELAY_S
            await anyio.sleep(delay)
            delay = min(delay * 2, LAST_DELAY_S)
            self.restarts += 1

    async def flush(self, session_id: str | None = None) -> bool:
        """Whether everything readable is recorded; False when the source does not run, or ended meanwhile."""
        if not self.last_failure:
            await self._begun.wait()
        source = self.source
        if source is None:
            return False
        done = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_at_end, tasks.cancel_scope)
            await source.flush(session_id)
            done = True
            tasks.cancel_scope.cancel()
        return done

    def add_roots(self, folders: Sequence[str]) -> None:
        """More folders to read, where this source takes any; one that starts later finds them by itself."""
        if isinstance(self.source, Rooted):
            self.source.add_roots(folders)

    def status(self) -> Status:
        if self.source is not None:
            return self.source.status()
        detail = f"stopped on {self.last_failure}, is started again" if self.last_failure else "starting"
        return Status(self.name, "degraded" if self.last_failure else "waiting", detail, has_looked=False)

    async def _run_once(self) -> None:
        self._ended = anyio.Event()
        self.source = self._make()
        self._begun.set()
        try:
            await self.source.run()
        finally:
            self.source = None
            self._ended.set()

    async def _cancel_at_end(self, scope: anyio.CancelScope) -> None:
        await self._ended.wait()
        scope.cancel()

    def _note(self, failures: BaseExceptionGroup[BaseException]) -> None:
        names = sorted({type(error).__name__ for error in leaves(failures)})
        self.last_failure = ", ".join(names)
        log.error("source.failed", source=self.name, errors=self.last_failure)


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
