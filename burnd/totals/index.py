"""The index of totals: written by a quick pass over all logs, in memory or to a file, and kept up to date there."""

from __future__ import annotations

import os
import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from burnd.harness.quick_pass import LogSettings, LogTask, find_logs
from burnd.index import schema
from burnd.index.apply import Applier
from burnd.index.change import Change
from burnd.index.keys import copy_holder, copy_spans, selecting_copies
from burnd.index.rows import BulkLoader
from burnd.index.store import IndexStore, Writer, keyed, open_index, set_meta
from burnd.ledger.journal import Logged
from burnd.paths import Home, user_home
from burnd.pricing import PriceFileError, PriceTable
from burnd.records import Compaction, Copy, Overhead, Quota, Request, Session, Stamp, Turn
from burnd.records.codec import Entry
from burnd.records.times import index_ms, wall_ms
from burnd.settings import config
from burnd.totals.merge import QuickPass, log_contents

_READ_SHARE: Final = 0.8  # of the time of a pass; writing turns takes up to the next, their sums the rest
_WRITTEN_SHARE: Final = 0.92
Report = Callable[[int, int], None]  # of the bytes that are done, and of all there are
_UNSAFE = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"  # it is written once


class PassRequest(msgspec.Struct):
    """The request of a daemon to the process that runs the pass. `path` is that of the index to write."""

    home: str
    path: str
    sources: list[str]
    announced: dict[str, list[str]]


async def run_pass(encoded: bytes, progress: BinaryIO) -> None:
    """Runs the quick pass that a daemon requests, in the process of `child`.

    Writes a line of `progress` for each percent: the bytes that are done, and all there are.
    """
    request = msgspec.json.decode(encoded, type=PassRequest)
    home = Home(Path(request.home))
    log_settings = LogSettings(config.load(home), os.environ, str(user_home()), request.announced)
    last = -1

    def report(done: int, total: int) -> None:
        nonlocal last
        percent = 100 * done // max(total, 1)
        if percent > last:
            progress.write(msgspec.json.encode((done, total)) + b"\n")
            progress.flush()
            last = percent

    await write_totals(find_logs(log_settings, request.sources), _prices(home), Path(request.path), report)


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


_OF_SESSIONS = Session | Overhead | Request | Compaction


class TotalsIndex:
    """The index of totals, kept up to date with what the pass did not see.

    Of the pass are sessions up to the number `last_session` and times up to `begun`.
    """

    def __init__(self, store: IndexStore, last_session: int, begun: int) -> None:
        self.store = store
        self._applier = Applier(store)
        self._last_session, self._begun = last_session, begun
        self._passed = array("q")  # sorted hashes of the turns that the pass found, with their tokens
        self._passed_sessions: frozenset[str] = frozenset()
        self._added: set[tuple[str, str]] = set()  # messages with a turn that is not among these

    @classmethod
    async def open(cls, path: Path, prices: PriceTable) -> TotalsIndex:
        store = await open_index(path)
        store.prices = prices
        meta = await store.meta()
        return cls(store, int(meta["last_session"]), int(meta["begun"]))

    async def load_passed(self) -> None:
        """Loads what `filtered` needs: most records of old logs are as the pass found them."""
        rows = await self.store.rows("SELECT session_id FROM sessions WHERE id <= ?", (self._last_session,))
        self._passed_sessions = frozenset(session_id for (session_id,) in rows)
        self._passed = await self.store.transact(lambda db: array("q", sorted(map(hash, db.execute(_PASSED)))))

    def filtered(self, change: Change) -> Change | None:
        """The records of a change that the pass may not have found; None if there are none.

        Every change must go through here, in order: a message that changed is filtered no more.
        """
        logged = [item for item in change.logged if self._may_be_new(item[0].entry)]
        opened = [one for one in change.open if self._may_be_new(one.turn)]
        closed = [turn for turn in change.closed if self._may_be_new(turn)]
        return Change(logged=logged, open=opened, closed=closed) if logged or opened or closed else None

    def _may_be_new(self, entry: object) -> bool:
        if isinstance(entry, Turn):
            key = (entry.source, entry.message_id)
            number = hash((*key, _tokens(entry)))
            at = bisect_left(self._passed, number)
            if at < len(self._passed) and self._passed[at] == number and key not in self._added:
                return False
            self._added.add(key)
            return True
        if isinstance(entry, _OF_SESSIONS):
            return self._is_late(entry) or entry.session_id not in self._passed_sessions
        return isinstance(entry, Copy | Stamp | Quota)

    def _is_late(self, entry: Session | Overhead | Request | Compaction) -> bool:
        return not isinstance(entry, Session) and index_ms(entry.ts) >= self._begun

    async def add(self, change: Change) -> None:
        """Adds what the pass did not see."""
        news = await self.store.transact(lambda db: self._news(db, change))
        if news.logged or news.open or news.closed:
            await self._applier.apply(news)

    def _news(self, db: sqlite3.Connection, change: Change) -> Change:
        entries = [line.entry for line, _ in change.logged]
        turns = [one for one in entries if isinstance(one, Turn | Copy)]
        in_index = _KnownTurns(db, [*turns, *(one.turn for one in change.open), *change.closed])
        sessions = {one.session_id for one in entries if isinstance(one, _OF_SESSIONS)}
        rows = keyed(db, "SELECT session_id, id FROM sessions WHERE session_id IN ({keys})", [(s,) for s in sessions])
        passed = {session_id for session_id, number in rows if number <= self._last_session}

        def is_new(entry: object) -> bool:
            if isinstance(entry, Turn):
                return in_index.is_new(entry)
            if isinstance(entry, Copy):
                return not in_index.is_passed(entry)
            if isinstance(entry, _OF_SESSIONS):
                return self._is_late(entry) or entry.session_id not in passed
            return isinstance(entry, Stamp | Quota)

        return Change(
            logged=[(line, digest) for line, digest in change.logged if is_new(line.entry)],
            open=[one for one in change.open if in_index.is_new(one.turn)],
            closed=[turn for turn in change.closed if in_index.is_new(turn)],
        )


def _tokens(turn: Turn) -> int:
    return sum(msgspec.structs.astuple(turn.usage))


class _Row(NamedTuple):
    tokens: int
    is_passed: bool  # as the pass found it


class _KnownTurns:
    """What the index of totals has of some messages."""

    def __init__(self, db: sqlite3.Connection, messages: Iterable[Turn | Copy]) -> None:
        keys = list(dict.fromkeys((one.source, one.message_id) for one in messages))
        rows = keyed(db, _KNOWN, keys)
        self._turns = {(source, name): _Row(tokens, bool(passed)) for source, name, tokens, passed in rows}
        others = [key for key in keys if key not in self._turns]
        copies = keyed(db, selecting_copies("f.key, f.length"), copy_spans(others))
        self._copies = {copy_holder(key)[0] for key, length in copies if not length}

    def is_new(self, turn: Turn) -> bool:
        """Whether the pass did not see a turn, or saw less of it."""
        key = (turn.source, turn.message_id)
        row = self._turns.get(key)
        if row is None:
            return key not in self._copies
        return not row.is_passed or _tokens(turn) > row.tokens

    def is_passed(self, copy: Copy) -> bool:
        key = (copy.source, copy.message_id)
        row = self._turns.get(key)
        return key in self._copies or (row is not None and row.is_passed)


_TOKENS = "t.input + t.output + t.reasoning + t.cache_read + t.cache_create_5m + t.cache_create_1h"
_IS_PASSED = "t.position IS NULL AND t.rev = 1 AND NOT t.open"
_PASSED = (
    f"SELECT n.name, t.message_id, {_TOKENS} FROM turns t CROSS JOIN names n ON n.id = t.source WHERE {_IS_PASSED}"
)
_KNOWN = f"""
WITH w(source, message_id) AS ({{keys}})
SELECT n.name, t.message_id, {_TOKENS}, {_IS_PASSED}
FROM w CROSS JOIN names n ON n.name = w.source
CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id
"""
