"""One client: its requests one by one, each answered, refused, or given up when the client is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

import anyio
import anyio.lowlevel
import structlog

from burnd import failures, protocol
from burnd.contract.checking import decoded
from burnd.errors import SyncFailed
from burnd.server import rpc
from burnd.server.faults import UNFORESEEN, fault_of
from burnd.server.method import AnyMethod, Result, answered
from burnd.server.rpc import Fault, Request
from burnd.server.service import Service, Visitors
from burnd.server.stream import Gone, Stream, TooLarge, TooSlow

_MOMENT_S: Final = 0.05  # so soon nobody leaves: looking out for it would cost as much as many a request
log = structlog.get_logger()


class Connection:
    """Serves until the client leaves, is silent for too long, or breaks a rule so that nothing can be understood."""

    def __init__(self, stream: Stream, service: Service, methods: Mapping[str, AnyMethod]) -> None:
        self._stream = stream
        self._service = service
        self._methods = methods

    async def serve(self) -> None:
        try:
            while (line := await self._next()) is not None:
                await self._handle(line)
                await anyio.lowlevel.checkpoint()  # a client with much to ask is not the only one
        except Gone:
            log.debug("client.gone")

    async def _next(self) -> bytes | None:
        try:
            return await self._stream.line()
        except TooLarge:
            limit = protocol.REQUEST_BYTES >> 20
            fault = Fault(protocol.TOO_LARGE, f"a request has at most {limit} MiB", "send less at a time")
        except TooSlow:
            fault = Fault(protocol.TOO_LONG, "the request did not arrive in time", "end each request with a newline")
        await self._stream.send(rpc.error(rpc.NO_ID, fault))
        return None

    async def _handle(self, line: bytes) -> None:
        try:
            request = rpc.parse(line)
        except rpc.BadRequest as bad:
            await self._stream.send(rpc.error(bad.id, bad))
            return
        asked = Asked(request, self._stream, self._service.visitors)
        try:
            await self._answer(asked)
        finally:
            asked.done()

    async def _answer(self, asked: Asked) -> None:
        """Runs the request for as long as its client is there."""
        loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as tasks:
            later = loop.call_later(_MOMENT_S, tasks.start_soon, self._give_up_when_gone, tasks.cancel_scope)
            try:
                await self._run(asked)
            finally:
                later.cancel()
            if loop.time() >= later.when():
                tasks.cancel_scope.cancel()
        if isinstance(asked.failure, Gone | SyncFailed):
            raise asked.failure

    async def _give_up_when_gone(self, scope: anyio.CancelScope) -> None:
        await self._stream.gone()
        scope.cancel()

    async def _run(self, asked: Asked) -> None:
        """Answers, or says why not. What went wrong is noted first: there may be nobody left to tell."""
        try:
            await asked.answer(await self._call(asked))
        except Exception as caught:  # noqa: BLE001 - whatever it is, the client is told something
            asked.failure = error = _bare(caught)
            if not isinstance(error, Gone):
                with contextlib.suppress(Gone):
                    await asked.refuse(_fault(error, asked.request.method))

    async def _call(self, asked: Asked) -> Result:
        method = self._methods.get(asked.request.method)
        if method is None:
            raise Fault(protocol.NO_SUCH_METHOD, f"there is no method {asked.request.method[:100]!r}")
        params = decoded(method.params, asked.request.params)
        with anyio.fail_after(method.params.deadline):
            return await answered(method, self._service, params, asked)


def _bare(error: Exception) -> Exception:
    """What a task group wrapped, where it was one thing."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _fault(error: Exception, method: str) -> Fault:
    fault = fault_of(error)
    if fault is not None:
        return fault
    log.error(
        "request.failed", method=method[:100], error=failures.error_types(error), where=failures.error_location(error)
    )
    return UNFORESEEN


class Asked:
    """A request and the way back to its client: one answer, at most, and notifications."""

    def __init__(self, request: Request, stream: Stream, visitors: Visitors) -> None:
        self.request = request
        self.failure: Exception | None = None
        self._stream = stream
        self._visitors = visitors
        self._answered = False
        visitors.answering += 1

    async def answer(self, result: Result) -> None:
        if not self._answered:
            line = b"" if self.request.id is None else rpc.answer(self.request.id, result)
            await self._say(line)

    async def refuse(self, fault: Fault) -> None:
        if not self._answered:
            await self._say(b"" if self.request.id is None else rpc.error(self.request.id, fault))

    def done(self) -> None:
        """There is nothing more to wait for, answered or not."""
        if not self._answered:
            self._answered = True
            self._visitors.answering -= 1
            self._visitors.served += 1

    async def _say(self, line: bytes) -> None:
        try:
            await self._stream.send(line)
        finally:
            self.done()

    async def notify(self, method: str, params: Result) -> None:
        await self._stream.send(rpc.notification(method, params))

    async def progress(self, done: int, total: int) -> None:
        request_id = rpc.NO_ID if self.request.id is None else self.request.id
        await self.notify("progress", {"id": request_id, "done": done, "total": total})
