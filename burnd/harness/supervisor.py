"""Runs each harness's source, and restarts one that fails after a delay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

import anyio
import structlog

from burnd import errors
from burnd.harness.product import Product
from burnd.harness.registry import PRODUCTS
from burnd.recording.pipeline import Pipeline
from burnd.recording.source import Rooted, Source, State, Status
from burnd.settings.config import Settings
from burnd.tasks import run_with_restart

log = structlog.get_logger()


class SourceContext(NamedTuple):
    pipeline: Pipeline
    settings: Settings
    environ: Mapping[str, str]
    user_home: str
    announced: Sequence[str] = ()  # homes of the harness that clients announced

    def logs(self, product: Product) -> list[str]:
        extra = [*self.settings.roots_of(product), *self.announced]
        return product.logs(self.environ, self.user_home, extra)


Make = Callable[[SourceContext], Source]


def maker(product: Product) -> Make:

    def make(context: SourceContext) -> Source:
        source: Source = import_module(product.module).make(context)
        return source

    return make


SOURCES: dict[str, Make] = {product.source: maker(product) for product in PRODUCTS}


class Ended(Exception):
    """Raised when a source returns, which none should."""


class SourceSupervisor:
    """Runs one source and restarts it; `make` gives a new one for every start."""

    def __init__(self, name: str, make: Callable[[], Source]) -> None:
        self.name = name
        self.restarts = 0
        self.last_failure = ""
        self.source: Source | None = None
        self._make = make
        self._started = anyio.Event()
        self._ended = anyio.Event()

    async def run(self) -> None:
        """Runs the source forever; raises only failures to write to the ledger."""
        await run_with_restart(self._run_once, self._on_failure)

    async def flush(self, session_id: str | None = None) -> str | None:
        """None when everything is recorded, else why not: the source is not running, ended or could not read."""
        if not self.last_failure:
            await self._started.wait()
        source = self.source
        reason: str | None = None
        is_done = False
        if source is not None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._cancel_at_end, tasks.cancel_scope)
                reason = await source.flush(session_id)
                is_done = True
                tasks.cancel_scope.cancel()
        return reason if is_done else f"stopped on {self.last_failure or 'a failure'} and is started again"

    def add_roots(self, folders: Sequence[str]) -> None:
        if isinstance(self.source, Rooted):
            self.source.add_roots(folders)

    @property
    def is_reading(self) -> bool:
        return self.source is not None and self.source.is_reading

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
        self._started.set()
        try:
            await self.source.run()
            raise Ended
        finally:
            self.source = None
            self._ended.set()

    async def _cancel_at_end(self, scope: anyio.CancelScope) -> None:
        await self._ended.wait()
        scope.cancel()

    def _on_failure(self, error: BaseException) -> None:
        self.last_failure = errors.error_types(error)
        log.error("source.failed", source=self.name, errors=self.last_failure, where=errors.error_location(error))
