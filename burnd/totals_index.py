"""Writes what a quick pass over the logs found into an index: in memory for `scan`, to a file for `early_totals`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from burnd.harness.quick_pass import LogTask, PassRequest, Places, QuickPass, Report, find_logs, scan_logs
from burnd.index import schema
from burnd.index.apply import Applier
from burnd.index.change import Change
from burnd.index.rows import BulkLoader, TurnGroup
from burnd.index.store import IndexStore, Writer, set_meta
from burnd.ledger.journal import Logged
from burnd.paths import Home, user_home
from burnd.pricing import PriceFileError, PriceTable
from burnd.records import Copy
from burnd.records.codec import Entry
from burnd.records.times import wall_ms
from burnd.settings import config

_READ_PERCENT: Final = 60  # of the time of a pass; writing turns takes up to the next, their sums the rest
_LOADED_PERCENT: Final = 90
_UNSAFE = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"  # it is written once


async def pass_for_daemon(encoded: bytes, progress: BinaryIO) -> None:
    """Runs the quick pass that `early_totals` requests.

    Writes a line of `progress` for each percent: the bytes that are done, and all there are.
    """
    request = msgspec.json.decode(encoded, type=PassRequest)
    home = Home(Path(request.home))
    places = Places(config.load(home), os.environ, str(user_home()), request.announced)
    last = -1

    def report(done: int, total: int) -> None:
        nonlocal last
        percent = 100 * done // max(total, 1)
        if percent > last:
            progress.write(msgspec.json.encode((done, total)) + b"\n")
            progress.flush()
            last = percent

    await write_totals(find_logs(places, request.sources), _prices(home), Path(request.path), report)


def _prices(home: Home) -> PriceTable:
    """The prices as the daemon loads them; only their context sizes matter here."""
    try:
        return PriceTable.load(str(home.prices) if home.prices.exists() else None)
    except PriceFileError:
        return PriceTable.load()


async def write_totals(
    tasks: Sequence[LogTask], prices: PriceTable, path: Path, report: Report = lambda _done, _total: None
) -> None:
    """Writes an index of what these logs have now. Interrupted, it leaves a file that cannot be opened as one."""
    start, total = wall_ms(), sum(task.size for task in tasks)

    def report_read(done: int, _total: int) -> None:
        report(done * _READ_PERCENT // 100, total)

    def report_loaded(left: float) -> None:
        report(int(total * (_LOADED_PERCENT - left * (_LOADED_PERCENT - _READ_PERCENT)) / 100), total)

    quick_pass = await scan_logs(tasks, report=report_read)
    async with _filled(str(path), quick_pass, prices, report_loaded) as store:

        def finish(db: sqlite3.Connection) -> None:
            ((last,),) = db.execute("SELECT coalesce(max(id), 0) FROM sessions").fetchall()
            set_meta(db, closed="clean", begun=str(start), last_session=str(last))
            db.execute(f"PRAGMA user_version = {schema.LAYOUT}")

        await store.transact(finish)
        report(total, total)


def memory_index(quick_pass: QuickPass, prices: PriceTable) -> AbstractAsyncContextManager[IndexStore]:
    """An index of what a quick pass found, for reports that need turns and unlogged usage only."""
    return _filled(":memory:", quick_pass, prices)


@asynccontextmanager
async def _filled(
    path: str, quick_pass: QuickPass, prices: PriceTable, report: Callable[[float], None] = lambda _left: None
) -> AsyncIterator[IndexStore]:
    """An index of what a quick pass found; reports the share of logs whose turns are left to write."""
    writer = await Writer.open(path)
    try:
        await writer.run(lambda db: db.executescript(_UNSAFE + schema.TABLES))
        store = IndexStore(Path(path), writer)
        store.prices = prices
        await Applier(store).apply(Change(logged=_logged(quick_pass.facts())))
        copies: list[Copy] = []
        logs = max(quick_pass.left, 1)

        def turns() -> Iterator[TurnGroup]:
            for entry in quick_pass.turns():
                report(quick_pass.left / logs)
                if isinstance(entry, Copy):
                    copies.append(entry)
                else:
                    yield entry

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
