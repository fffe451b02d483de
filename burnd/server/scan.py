"""Answers reports without a daemon (`--scan`), from an index in memory; writes nothing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, BinaryIO

from burnd import protocol
from burnd.clients.folders import Folders
from burnd.contract import Params
from burnd.contract.reports import SummaryParams
from burnd.contract.sessions import ListParams
from burnd.contract.validation import decoded
from burnd.harness.quick_pass import LogSettings, find_logs
from burnd.index.store import IndexStore
from burnd.paths import Home, user_home
from burnd.pricing import PriceTable
from burnd.queries.sessions import list_sessions
from burnd.queries.summary import summary
from burnd.queries.view import Mistaken, View
from burnd.records.times import wall_ms
from burnd.server import rpc
from burnd.server.connection import fault_of
from burnd.server.method import Result, at_its_prices
from burnd.server.service import LivePrices
from burnd.settings import config
from burnd.totals.index import memory_index

Query = Callable[[View, Any], Result]
_QUERIES: dict[str, tuple[type[Params], Query]] = {
    SummaryParams.method: (SummaryParams, summary),
    ListParams.method: (ListParams, list_sessions),
}
_TAGS = ("workflow", "tags")
_WHOLE = {"done": True, "percent": None, "secondsLeft": None, "blocked": None}


async def serve(home: Home, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers one request per line, from one pass over all logs."""
    prices = LivePrices(home.prices).table
    async with AsyncExitStack() as stack:
        index: IndexStore | None = None
        for line in requests:
            request = rpc.parse(line)
            try:
                params, query = _params(request)
                if index is None:
                    log_settings = LogSettings(config.load(home), os.environ, str(user_home()))
                    index = await stack.enter_async_context(memory_index(find_logs(log_settings), prices))
                answer = rpc.answer(request.id or rpc.NO_ID, await _answer(index, prices, params, query))
            except Exception as error:
                fault = error if isinstance(error, rpc.Fault) else fault_of(error)
                if fault is None:
                    raise
                answer = rpc.error(request.id or rpc.NO_ID, fault)
            answers.write(answer)
            answers.flush()


async def _answer(index: IndexStore, prices: PriceTable, params: Params, query: Query) -> dict[str, Any]:
    project = getattr(params, "project", None)
    folders = {project: await Folders().resolve(project)} if project and os.path.isabs(project) else {}

    def report(db: sqlite3.Connection) -> Result:
        view = View(db, prices, wall_ms(), folders)
        return at_its_prices(view, query(view, params))

    return {"backfill": _WHOLE, **await index.transact(report)}


def _params(request: rpc.Request) -> tuple[Params, Query]:
    """Raises Fault, Mistaken or BadParams."""
    if request.method not in _QUERIES:
        hint = "leave out --scan: burnd records what it needs"
        raise rpc.Fault(protocol.NO_SUCH_METHOD, f"{request.method} is not possible with --scan", hint)
    table, query = _QUERIES[request.method]
    params = decoded(table, request.params)
    for name in (*params.beyond_totals(), *(name for name in _TAGS if getattr(params, name, None))):
        flag = f"--by {params.by}" if isinstance(params, SummaryParams) and name == "by" else f"--{name}"
        raise Mistaken(f"{flag} is not possible with --scan", "leave out --scan: burnd records it")
    return params, query
