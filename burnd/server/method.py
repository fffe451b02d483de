"""What a method of the socket is: its parameters, what it does, and how long it may take."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio

from burnd.queries.view import Missing, Params, View
from burnd.records.times import DAY_MS, to_ms
from burnd.server.service import Service

DEADLINE_S = 10.0
TOLD_EVERY_S = 0.25
LONG_S = 600.0  # for what may have to read or write everything there is
Result = Mapping[str, Any]


class NoParams(Params, frozen=True):
    """Nothing can be said."""


class Caller(Protocol):
    """The client that asked, for methods that say more than one thing."""

    async def answer(self, result: Result) -> None:
        """Answers now, before the method is done; what it returns is then not sent."""
        ...

    async def notify(self, method: str, params: Result) -> None: ...

    async def progress(self, done: int, total: int) -> None:
        """Tells how far the request has come, in whatever unit."""
        ...


@dataclass(frozen=True)
class Method:
    """Answered once. What `call` raises becomes an error; `within` is None where only the client's leaving ends it."""

    params: type[Params]
    call: Callable[[Service, Any], Awaitable[Result]]
    within: float | None = DEADLINE_S


@dataclass(frozen=True)
class LongMethod:
    """Like Method, for what goes on for long: it is given its caller, to tell how far it has come."""

    params: type[Params]
    call: Callable[[Service, Any, Caller], Awaitable[Result]]
    within: float | None = LONG_S


AnyMethod = Method | LongMethod


@asynccontextmanager
async def telling(caller: Caller, how_far: Callable[[], tuple[int, int] | None]) -> AsyncIterator[None]:
    """Tells the caller how far something has come, for as long as it lasts."""

    async def tell() -> None:
        while True:
            await anyio.sleep(TOLD_EVERY_S)
            if (far := how_far()) is not None:
                await caller.progress(*far)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tell)
        yield
        tasks.cancel_scope.cancel()


_OLD_AFTER_MS = 60 * DAY_MS


def at_its_prices(view: View, answer: Result) -> Result:
    """An answer about costs, with notes if the user's price file cannot be used or the list is old."""
    notes = {}
    if view.prices.problem:
        notes["pricesProblem"] = view.prices.problem
    if (answer.get("unpricedModels") or answer.get("harnessModels")) and _is_old(view.prices.newest, view.now):
        notes["stalePrices"] = view.prices.newest
    return {**answer, **notes}


def _is_old(day: str, now: int) -> bool:
    """Whether a list of that day may lack models that are in use now."""
    try:
        return now > to_ms(day) + _OLD_AFTER_MS
    except ValueError:
        return False


def with_backfill(method: AnyMethod) -> AnyMethod:
    """The method with `backfill` in its answer: whether all logs were read when it was called.

    Once all logs are read, a method's own `backfill` counts. Until then, a failed lookup has a hint to try again.
    """

    async def call(service: Service, *given: Any) -> Result:
        backfill = service.backfill()
        try:
            answer = await method.call(service, *given)
        except Missing as error:
            if backfill.done:
                raise
            hint = "old logs are still being read: try again when that is done (burnctl status)"
            raise Missing(str(error), hint) from error
        return {"backfill": backfill, **answer} if backfill.done else {**answer, "backfill": backfill}

    return type(method)(method.params, call, method.within)


def query(params: type[Params], function: Callable[[View, Any], Result]) -> Method:
    """A method that is a question to the index: `function` runs in a worker thread, in one state of it."""

    async def call(service: Service, given: Any) -> Result:
        return await service.ask(lambda view: function(view, given), project=getattr(given, "project", None))

    return Method(params, call)
