"""One client: reads its requests in turn, and sends an answer or an error to each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

import anyio
import anyio.lowlevel
import structlog

from burnd import errors, protocol
from burnd.contract.validation import BadParams, decoded
from burnd.errors import BurndError, IndexDamaged, NotNow, SyncFailed
from burnd.index.query_pool import TookTooLong
from burnd.queries.view import Missing, Mistaken, NoSession, Refusal
from burnd.server import rpc
from burnd.server.method import AnyMethod, Result, answered
from burnd.server.rpc import Fault, Request
from burnd.server.service import Clients, Service
from burnd.server.stream import Gone, Stream, TooLarge, TooSlow

_QUICK_S: Final = 0.05  # a watch for disconnects costs as much as a quick request
_UNFORESEEN: Final = Fault(
    protocol.FAILED, "burnd failed while answering", "the log has the location; please report it"
)
log = structlog.get_logger()


def fault_of(error: Exception) -> Fault | None:
    """None for a defect of burnd."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, Refusal):
        mistake = protocol.BAD_PARAMS if isinstance(error, Mistaken) else protocol.REFUSED
        code = protocol.NOT_FOUND if isinstance(error, Missing) else mistake
        return Fault(code, str(error), error.hint, "session" if isinstance(error, NoSession) else "")
    if isinstance(error, BadParams):
        return Fault(protocol.BAD_PARAMS, str(error), error.hint)
    if isinstance(error, TimeoutError | TookTooLong):
        return Fault(protocol.TOO_LONG, "the request took too long and was stopped", "narrow the filters, or try later")
    if isinstance(error, OverflowError):
        return Fault(protocol.BAD_PARAMS, "a number is too large")
    if isinstance(error, IndexDamaged):
        return Fault(
            protocol.NOT_NOW, "the index is being rebuilt", "try again in a moment; see the progress: burnctl status"
        )
    if isinstance(error, BurndError):
        code = protocol.NOT_NOW if isinstance(error, NotNow) else protocol.FAILED
        return Fault(code, ": ".join(filter(None, (error.thing, error.what))), error.remedy)
    return None


class Connection:
    """Serves a client until it disconnects, is silent for too long, or sends a line without an end."""

    def __init__(self, stream: Stream, service: Service, methods: Mapping[str, AnyMethod]) -> None:
        self._stream = stream
        self._service = service
        self._methods = methods

    async def serve(self) -> None:
        try:
            while (line := await self._next()) is not None:
                await self._handle(line)
                await anyio.lowlevel.checkpoint()  # lets other clients run
        except Gone:
            log.debug("client.gone")

    async def _next(self) -> bytes | None:
        try:
            return await self._stream.line()
        except TooLarge:
            limit = protocol.REQUEST_BYTES >> 20
            fault = Fault(protocol.TOO_LARGE, f"the request is larger than {limit} MiB", "send less at a time")
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
        exchange = Exchange(request, self._stream, self._service.clients)
        loop = asyncio.get_running_loop()
        try:
            async with anyio.create_task_group() as tasks:

                async def cancel_when_gone() -> None:
                    await self._stream.gone()
                    tasks.cancel_scope.cancel()

                later = loop.call_later(_QUICK_S, tasks.start_soon, cancel_when_gone)
                try:
                    await self._run(exchange)
                finally:
                    later.cancel()
                if loop.time() >= later.when():
                    tasks.cancel_scope.cancel()
        finally:
            exchange.close()
        if isinstance(exchange.failure, Gone | SyncFailed):
            raise exchange.failure

    async def _run(self, exchange: Exchange) -> None:
        """Saves the failure before it sends an error: sending may be cancelled."""
        method = exchange.request.method
        try:
            if (handler := self._methods.get(method)) is None:
                hint = "the method `methods` lists them"
                raise Fault(protocol.NO_SUCH_METHOD, f"there is no method {method[:100]!r}", hint)
            params = decoded(handler.params, exchange.request.params)
            with anyio.fail_after(handler.params.deadline):
                result = await answered(handler, self._service, params, exchange)
            await exchange.answer(result)
        except Exception as caught:  # noqa: BLE001 - every failure becomes an error for the client
            error = caught
            while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            exchange.failure = error
            if isinstance(error, Gone):
                return
            if (fault := fault_of(error)) is None:
                types, where = errors.error_types(error), errors.error_location(error)
                log.error("request.failed", method=method[:100], error=types, where=where)
                fault = _UNFORESEEN
            with contextlib.suppress(Gone):
                await exchange.refuse(fault)


class Exchange:
    """A request with its client: at most one answer or error, any number of notifications."""

    def __init__(self, request: Request, stream: Stream, clients: Clients) -> None:
        self.request = request
        self.failure: Exception | None = None
        self._stream = stream
        self._clients = clients
        self._is_closed = False
        clients.answering += 1

    async def answer(self, result: Result) -> None:
        if not self._is_closed:
            await self._send(b"" if self.request.id is None else rpc.answer(self.request.id, result))

    async def refuse(self, fault: Fault) -> None:
        if not self._is_closed:
            await self._send(b"" if self.request.id is None else rpc.error(self.request.id, fault))

    def close(self) -> None:
        """Counts the request as served, answered or not."""
        if not self._is_closed:
            self._is_closed = True
            self._clients.answering -= 1
            self._clients.served += 1

    async def _send(self, line: bytes) -> None:
        try:
            await self._stream.send(line)
        finally:
            self.close()

    async def notify(self, method: str, params: Result) -> None:
        await self._stream.send(rpc.notification(method, params))

    async def progress(self, done: int, total: int) -> None:
        request_id = rpc.NO_ID if self.request.id is None else self.request.id
        await self.notify("progress", {"id": request_id, "done": done, "total": total})
