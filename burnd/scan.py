"""Answers reports without a daemon: reads all logs into an index in memory and writes nothing.

For a first look, for containers and for CI. Tags, activities and deleted logs are missing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from burnd import protocol
from burnd.clients.folders import Folders
from burnd.contract.checking import decoded
from burnd.contract.reports import NOT_OF_TOTALS, OF_TOTALS, SummaryParams
from burnd.harness.quick_pass import QuickPass, find_logs, scan_logs
from burnd.harness.totals import LogTask, PassRequest, Places
from burnd.index import schema
from burnd.index.apply import Applier
from burnd.index.bulk_load import BulkLoader
from burnd.index.change import Change
from burnd.index.store import IndexStore, Writer, set_meta
from burnd.ledger.journal import Logged
from burnd.paths import Home, user_home
from burnd.pricing import PriceTable
from burnd.queries.summary import summary
from burnd.queries.view import Mistaken, View
from burnd.records import Copy, Turn
from burnd.records.codec import Entry
from burnd.records.times import wall_ms
from burnd.server import rpc
from burnd.server.connection import fault_of
from burnd.server.method import Result, at_its_prices
from burnd.server.service import LivePrices
from burnd.settings import config

_UNSAFE = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"  # it is written once
_NEEDS_DAEMON = ("workflow", "tags", *NOT_OF_TOTALS)
_WHOLE = {"done": True, "percent": None, "secondsLeft": None, "blocked": None}


async def serve(home: Home, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers the requests, one per line, as the socket does, from one pass over the logs of all harnesses."""
    prices = LivePrices(home.prices).table
    async with AsyncExitStack() as stack:
        index: IndexStore | None = None
        for line in requests:
            request = rpc.parse(line)
            try:
                params = _params(request)
                if index is None:
                    places = Places(config.load(home), os.environ, str(user_home()))
                    quick_pass = await scan_logs(find_logs(places))
                    index = await stack.enter_async_context(memory_index(quick_pass, prices))
                answer = rpc.answer(request.id or rpc.NO_ID, await _summary(index, prices, params))
            except Exception as error:
                fault = error if isinstance(error, rpc.Fault) else fault_of(error)
                if fault is None:
                    raise
                answer = rpc.error(request.id or rpc.NO_ID, fault)
            answers.write(answer)
            answers.flush()


async def _summary(index: IndexStore, prices: PriceTable, params: SummaryParams) -> dict[str, Any]:
    project = params.project
    folders = {project: await Folders().resolve(project)} if project and os.path.isabs(project) else {}

    def report(db: sqlite3.Connection) -> Result:
        view = View(db, prices, wall_ms(), folders)
        return at_its_prices(view, summary(view, params))

    return {"backfill": _WHOLE, **await index.transact(report)}


def _params(request: rpc.Request) -> SummaryParams:
    """The parameters of a request. Raises Fault, Mistaken or BadParams."""
    if request.method != "summary":
        hint = "leave out --scan: burnd records what it needs"
        raise rpc.Fault(protocol.NO_SUCH_METHOD, f"{request.method} is not possible with --scan", hint)
    params = decoded(SummaryParams, request.params)
    _check(params)
    return params


def _check(params: SummaryParams) -> None:
    """Raises Mistaken for groups and filters that need recorded turns."""
    hint = "leave out --scan: burnd records it"
    if not set(params.by.split(",")) <= set(OF_TOTALS):
        raise Mistaken(f"--by {params.by} is not possible with --scan", hint)
    for name in _NEEDS_DAEMON:
        if getattr(params, name):
            raise Mistaken(f"--{name} is not possible with --scan", hint)


async def pass_for_daemon(encoded: bytes, path: str) -> None:
    """Runs the quick pass that `early_totals` requests, into an index at `path`."""
    request = msgspec.json.decode(encoded, type=PassRequest)
    home = Home(Path(request.home))
    places = Places(config.load(home), os.environ, str(user_home()), request.announced)
    await write_totals(find_logs(places, request.sources), LivePrices(home.prices).table, Path(path))


async def write_totals(tasks: Sequence[LogTask], prices: PriceTable, path: Path) -> None:
    """Writes an index of what these logs have now. Interrupted, it leaves a file that cannot be opened as one."""
    begun = wall_ms()
    async with _filled(str(path), await scan_logs(tasks), prices) as store:

        def finish(db: sqlite3.Connection) -> None:
            ((last,),) = db.execute("SELECT coalesce(max(id), 0) FROM sessions").fetchall()
            set_meta(db, closed="clean", begun=str(begun), last_session=str(last))
            db.execute(f"PRAGMA user_version = {schema.LAYOUT}")

        await store.transact(finish)


def memory_index(quick_pass: QuickPass, prices: PriceTable) -> AbstractAsyncContextManager[IndexStore]:
    """An index of what a quick pass found, for reports that need turns and unlogged usage only."""
    return _filled(":memory:", quick_pass, prices)


@asynccontextmanager
async def _filled(path: str, quick_pass: QuickPass, prices: PriceTable) -> AsyncIterator[IndexStore]:
    writer = await Writer.open(path)
    try:
        await writer.run(lambda db: db.executescript(_UNSAFE + schema.TABLES))
        store = IndexStore(Path(path), writer, [])
        store.prices = prices
        await Applier(store).apply(Change(logged=_logged(quick_pass.facts())))
        copies: list[Copy] = []

        def turns() -> Iterator[Turn]:
            for entry in quick_pass.turns():
                if isinstance(entry, Turn):
                    yield entry
                else:
                    copies.append(entry)

        def load(db: sqlite3.Connection) -> BulkLoader:
            loader = BulkLoader(db, prices)
            loader.load(turns())
            return loader

        loader = await store.transact(load)
        await Applier(store).apply(Change(logged=_logged(copies, len(copies))))
        await store.transact(lambda _db: loader.finish())
        yield store
    finally:
        await writer.close()


def _logged(entries: Sequence[Entry], begin: int = 0) -> list[tuple[Logged, int]]:
    """Entries with made-up ledger positions, as the index expects them."""
    return [(Logged(position, 0, entry), 0) for position, entry in enumerate(entries, begin)]
