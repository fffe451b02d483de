"""Keeps sources running, each on its own: one that fails is started again after a while, the others do not notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import structlog

from burnd import unforeseen
from burnd.recording.source import Rooted, Source, State, Status
from burnd.restarting import keep_running

log = structlog.get_logger()


class Ended(Exception):
    """Raised when a source has come to an end, which none should."""


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
        await keep_running(self._run_once, self._note)

    async def flush(self, session_id: str | None = None) -> str | None:
        """None when everything is recorded, else the reason: the source is not running, ended or could not read."""
        if not self.last_failure:
            await self._begun.wait()
        source = self.source
        reason: str | None = None
        done = False
        if source is not None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._cancel_at_end, tasks.cancel_scope)
                reason = await source.flush(session_id)
                done = True
                tasks.cancel_scope.cancel()
        return reason if done else f"stopped on {self.last_failure or 'a failure'} and is started again"

    def add_roots(self, folders: Sequence[str]) -> None:
        """More folders to read, where this source takes any; one that starts later finds them by itself."""
        if isinstance(self.source, Rooted):
            self.source.add_roots(folders)

    def status(self) -> Status:
        if self.source is not None:
            return self.source.status()
        detail = f"stopped on {self.last_failure}, is started again" if self.last_failure else "starting"
        state: State = "degraded" if self.last_failure else "waiting"
        blocked = detail if self.last_failure else ""
        return Status(self.name, state, detail, has_looked=False, blocked=blocked)

    async def _run_once(self) -> None:
        if self.last_failure:
            self.restarts += 1
        self._ended = anyio.Event()
        self.source = self._make()
        self._begun.set()
        try:
            await self.source.run()
            raise Ended
        finally:
            self.source = None
            self._ended.set()

    async def _cancel_at_end(self, scope: anyio.CancelScope) -> None:
        await self._ended.wait()
        scope.cancel()

    def _note(self, error: BaseException) -> None:
        self.last_failure = unforeseen.kinds(error)
        log.error("source.failed", source=self.name, errors=self.last_failure, where=unforeseen.place(error))
