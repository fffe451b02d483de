"""A method of the socket and the function that answers it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import msgspec

from burnd.contract import Params
from burnd.queries.view import Missing, View
from burnd.records.times import DAY_MS, to_ms
from burnd.server.service import Service

_PROGRESS_S = 0.25
_OLD_PRICES_MS = 60 * DAY_MS
_READING = "old logs are still being read: try again when that is done (burnctl status)"
Result = Mapping[str, Any]


class Caller(Protocol):
    async def answer(self, result: Result) -> None:
        """Answers now; what the method returns is not sent."""
        ...

    async def notify(self, method: str, params: Result) -> None: ...

    async def progress(self, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class Method:
    params: type[Params]
    call: Callable[[Service, Any], Awaitable[Result]]

    async def run(self, service: Service, given: Any, caller: Caller) -> Result:  # noqa: ARG002
        return await self.call(service, given)


@dataclass(frozen=True)
class LongMethod:
    """A method that notifies its caller or reports progress."""

    params: type[Params]
    call: Callable[[Service, Any, Caller], Awaitable[Result]]

    async def run(self, service: Service, given: Any, caller: Caller) -> Result:
        return await self.call(service, given, caller)


AnyMethod = Method | LongMethod


def query(params: type[Params], function: Callable[[View, Any], Result]) -> Method:
    """`function` runs in a worker thread, on one state of the index."""

    async def call(service: Service, given: Any) -> Result:
        project = getattr(given, "project", None)
        return await service.ask(lambda view: function(view, given), project=project, totals=given.is_of_totals)

    return Method(params, call)


async def answered(method: AnyMethod, service: Service, given: Any, caller: Caller) -> Result:
    """A partial answer gets `backfill`, as it was before the call; all get the display settings."""
    if not method.params.partial:
        return await method.run(service, given, caller)
    backfill = service.backfill()
    is_exact = service.has_totals and given.is_of_totals
    try:
        answer = await method.run(service, given, caller)
    except Missing as error:
        if backfill.done:
            raise
        raise Missing(str(error), _READING) from error
    display = service.settings.display
    # no longer used: all logs are read, or the totals failed
    if is_exact and (service.has_totals or service.backfill().done):
        return {**answer, **display, "backfill": msgspec.structs.replace(backfill, exact=True)}
    return {"backfill": backfill, **display, **answer} if backfill.done else {**answer, **display, "backfill": backfill}


@asynccontextmanager
async def with_progress(caller: Caller, progress: Callable[[], tuple[int, int] | None]) -> AsyncIterator[None]:
    async def notify() -> None:
        while True:
            await anyio.sleep(_PROGRESS_S)
            if (now := progress()) is not None:
                await caller.progress(*now)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notify)
        yield
        tasks.cancel_scope.cancel()


def at_its_prices(view: View, answer: Result) -> Result:
    """Adds notes if the price file cannot be used or the list is old."""
    notes = {}
    if view.prices.problem:
        notes["pricesProblem"] = view.prices.problem
    if answer.get("unpricedModels") or answer.get("harnessModels"):
        with contextlib.suppress(ValueError):  # the list has no date
            if view.now > to_ms(view.prices.newest) + _OLD_PRICES_MS:
                notes["stalePrices"] = view.prices.newest
    return {**answer, **notes}
