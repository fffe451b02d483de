"""Writes what a quick pass over the logs found into an index: in memory for `scan`, to a file for `early_totals`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from burnd.harness.quick_pass import LogTask, PassRequest, Places, QuickPass, find_logs, log_contents
from burnd.index import schema
from burnd.index.apply import Applier
from burnd.index.change import Change
from burnd.index.rows import BulkLoader
from burnd.index.store import IndexStore, Writer, set_meta
from burnd.ledger.journal import Logged
from burnd.paths import Home, user_home
from burnd.pricing import PriceFileError, PriceTable
from burnd.records.codec import Entry
from burnd.records.times import wall_ms
from burnd.settings import config

_READ_SHARE: Final = 0.8  # of the time of a pass; writing turns takes up to the next, their sums the rest
_WRITTEN_SHARE: Final = 0.92
Report = Callable[[int, int], None]  # of the bytes that are done, and of all there are
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

    def report_part(done: float) -> None:
        report(int(total * done), total)

    async with _filled(str(path), tasks, prices, report_part) as store:

        def finish(db: sqlite3.Connection) -> None:
            ((last,),) = db.execute("SELECT coalesce(max(id), 0) FROM sessions").fetchall()
            set_meta(db, closed="clean", begun=str(start), last_session=str(last))
            db.execute(f"PRAGMA user_version = {schema.LAYOUT}")

        await store.transact(finish)
        report(total, total)


def memory_index(
    tasks: Sequence[LogTask], prices: PriceTable, processes: int | None = None
) -> AbstractAsyncContextManager[IndexStore]:
    """An index of what these logs have, for reports that need turns and unlogged usage only."""
    return _filled(":memory:", tasks, prices, processes=processes)


@asynccontextmanager
async def _filled(
    path: str,
    tasks: Sequence[LogTask],
    prices: PriceTable,
    report: Callable[[float], None] = lambda _done: None,
    processes: int | None = None,
) -> AsyncIterator[IndexStore]:
    """An index of what a quick pass finds in these logs; reports the share that is done."""
    quick_pass, total = QuickPass(), max(sum(task.size for task in tasks), 1)
    with log_contents(tasks, processes) as contents:  # starts processes, so it comes before threads
        writer = await Writer.open(path)
        try:
            await writer.run(lambda db: db.executescript(_UNSAFE + schema.TABLES))
            store = IndexStore(Path(path), writer)
            store.prices = prices

            def read(db: sqlite3.Connection) -> BulkLoader:
                loader, done = BulkLoader(db, prices), 0
                for size, logs in contents:
                    for log in logs:
                        loader.stage(quick_pass.add(log))
                    done += size
                    report(_READ_SHARE * done / total)
                loader.unstage(quick_pass.contested_rows())
                return loader

            loader = await store.transact(read)
            await Applier(store).apply(Change(logged=_logged(quick_pass.facts())))

            def write(_db: sqlite3.Connection) -> None:
                loader.stage(quick_pass.decide(loader.first_times()))
                loader.write(quick_pass.turns())

            await store.transact(write)
            report(_WRITTEN_SHARE)
            copies = quick_pass.copies
            await Applier(store).apply(Change(logged=_logged(copies, len(copies))))
            await store.transact(lambda _db: loader.finish())
            yield store
        finally:
            await writer.close()


def _logged(entries: Sequence[Entry], begin: int = 0) -> list[tuple[Logged, int]]:
    """Entries with made-up ledger positions, as the index expects them."""
    return [(Logged(position, 0, entry), 0) for position, entry in enumerate(entries, begin)]
