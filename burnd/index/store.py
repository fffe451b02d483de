"""The index database: one writer and a pool of readers. Every change and its ledger position is one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import anyio
import msgspec
import zstandard

from burnd.errors import IndexDamaged, Locked, StorageError
from burnd.index import schema
from burnd.index.change import IndexedRecord
from burnd.index.keys import read_only
from burnd.index.query_pool import DEADLINE_S, QueryPool, shrink
from burnd.ledger import files
from burnd.ledger.sqlite_files import BUSY_TIMEOUT_MS, CHECKPOINT, as_not_now, batches, empty_log, name_of, with_values
from burnd.pricing import PriceTable

T = TypeVar("T")
# Errors of SQLite and of decoding a stored value.
UNREADABLE = (sqlite3.Error, msgspec.DecodeError, zstandard.ZstdError)
_SCRUB_TRIES = 40
_SOFT_HEAP_BYTES = 24 << 20  # for cached pages of all connections of this process
_CONTENT = (
    "WITH wanted(session_id, message_id) AS ({keys}) "
    "SELECT s.session_id, m.rail, m.message_id, m.n, m.b, m.position, m.length FROM wanted w "
    "CROSS JOIN sessions s ON s.session_id = w.session_id "
    f"CROSS JOIN {schema.MESSAGES_BY_ID} ON m.session = s.id AND {schema.is_message('w.message_id')}"
)
_DAMAGE = {"SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CORRUPT_INDEX", "SQLITE_CORRUPT_VTAB"}


class Writer:
    """The writing connection, in its own thread; a whole transaction is one job.

    An executor with one thread would take some 50 us more of processor time per job.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        threading.Thread(target=_work_off, args=(self._jobs,), name="index-writer", daemon=True).start()

    @classmethod
    async def open(cls, path: Path | str) -> Writer:
        writer = cls()
        try:
            writer._connection = await writer._submit(partial(sqlite3.connect, path, isolation_level=None))
        except BaseException:
            writer._jobs.put(None)
            raise
        return writer

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` in the thread, after all earlier work."""
        if self._connection is None:
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
        return await self._submit(partial(work, self._connection))

    async def close(self) -> None:
        closing, self._connection = self._connection, None
        if closing is not None:
            try:
                await self._submit(closing.close)
            finally:
                self._jobs.put(None)

    def _submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((future, job))
        return future


def _work_off(jobs: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None]) -> None:
    while (item := jobs.get()) is not None:
        future, job = item
        result: Any = None
        failure: BaseException | None = None
        try:
            result = job()
        except BaseException as error:  # noqa: BLE001 - raised in the caller
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            future.get_loop().call_soon_threadsafe(_resolve, future, result, failure)
        del item, future, job, result, failure  # free them while the thread waits


def _resolve(future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if future.cancelled():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)


class IndexStore:
    """An open index, created by `open_index`, which checks that it is sound and of this version."""

    def __init__(self, path: Path, writer: Writer) -> None:
        self.path = path
        self.closed = False
        self.damaged = anyio.Event()  # set when it is damaged, until it is rebuilt
        self.prices: PriceTable | None = None  # whose context sizes separate sums; None: as shipped
        self.writer = writer
        self.pool = QueryPool(read_only(path), self._check_open)

    async def transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs work in the writer's thread, in one transaction that is not cancelled. Raises StorageError."""
        return await self.in_writer(lambda db: in_transaction(db, work))

    async def in_writer(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs work in the writer's thread, which begins its transactions itself. It is not cancelled."""
        self._check_open()
        try:
            with anyio.CancelScope(shield=True):
                done = await self.writer.run(work)
        except UNREADABLE as error:
            raise self.failed(error) from error
        return done

    async def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        return await self._look_up([(sql, tuple(parameters))])

    async def keyed(self, sql: str, keys: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The rows of a short statement with these values for `{keys}`."""
        statements = list(_statements(sql, keys))
        return await self._look_up(statements) if statements else []

    async def _look_up(self, statements: Sequence[tuple[str, tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        try:
            return await self.pool.look_up(statements)
        except sqlite3.Error as error:
            raise self.failed(error) from error

    async def ask(
        self, question: Callable[[sqlite3.Connection], T], within: float = DEADLINE_S, *, urgent: bool = False
    ) -> T:
        """Runs a query function in a thread, in one snapshot of the index; interrupted if late or cancelled.

        An urgent one does not wait for long ones.
        """
        try:
            return await self.pool.ask(question, within, urgent=urgent)
        except UNREADABLE as error:
            raise self.failed(error) from error

    def failed(self, error: Exception) -> StorageError | IndexDamaged:
        """Converts an error; sets `damaged` if the index is."""
        converted = as_index_error(error, self.path)
        if isinstance(converted, IndexDamaged) and not self.closed:
            self.damaged.set()
        return converted

    def _check_open(self) -> None:
        if self.closed:
            raise IndexDamaged("is closed", str(self.path))

    async def meta(self) -> dict[str, str]:
        return {str(key): str(value) for key, value in await self.rows("SELECT key, value FROM meta")}

    async def cursor(self, source: str, key: str) -> bytes | None:
        rows = await self.rows("SELECT value FROM cursors WHERE source = ? AND key = ?", (source, key))
        return bytes(rows[0][0]) if rows else None

    async def scrub(self) -> None:
        """Checkpoints and truncates the write-ahead log, which has deleted rows. Raises Locked if it stays in use."""
        for _ in range(_SCRUB_TRIES):
            if await self.in_writer(partial(empty_log, within_ms=BUSY_TIMEOUT_MS)):
                return
            await anyio.sleep(0.05)
        raise Locked("is being read all the time", str(self.path))

    async def empty_log(self) -> bool:
        """Like `scrub`, but returns False if the log is in use."""
        return await self.in_writer(empty_log)

    async def shrink(self) -> None:
        """Drops cached pages; the file system caches them as well."""
        await self.in_writer(shrink)
        await self.pool.shrink()

    async def disown(self) -> None:
        """Marks the index as belonging to no ledger, so that the next start rebuilds it."""
        await self.transact(lambda db: set_meta(db, ledger_anchor="none"))

    async def seal(self) -> None:
        """Makes the file complete without its log, so that it can be moved. `close` would not report a failure."""
        await self.transact(lambda db: set_meta(db, closed="clean"))
        await self.scrub()

    async def swap(self, replace: Callable[[], None]) -> None:
        """Calls `replace`, which replaces the file, and reopens the index. Waits for running queries; others wait."""
        async with self.pool.paused():
            await self._close_writer()
            replace()
            self.writer = await _connect(self.path)
            self.closed = False
            self.damaged = anyio.Event()

    async def close(self, *, clean: bool = True) -> None:
        """Closes every connection. After a clean close the next start skips the check of the file."""
        with anyio.CancelScope(shield=True):
            if clean and not self.damaged.is_set():
                with contextlib.suppress(StorageError, IndexDamaged):  # then the next start checks the file
                    await self.transact(lambda db: set_meta(db, closed="clean"))
            async with self.pool.paused():
                await self._close_writer()

    async def _close_writer(self) -> None:
        self.closed = True
        with contextlib.suppress(sqlite3.Error):
            await self.writer.close()


def in_transaction(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    try:
        db.execute("BEGIN IMMEDIATE")
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def keyed(db: sqlite3.Connection, sql: str, keys: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Runs `sql` with the keys for `{keys}`, in batches.

    Keys are bound: SQLite's JSON functions would cut an id at a NUL.
    """
    rows: list[tuple[Any, ...]] = []
    for statement, parameters in _statements(sql, keys):
        rows += db.execute(statement, parameters)
    return rows


def known_turns(db: sqlite3.Connection, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], IndexedRecord]:
    """The recorded turns with these (source, messageId)."""
    sql = (
        "WITH wanted(source, message_id) AS ({keys}) "
        "SELECT n.name, t.message_id, t.id, t.rev, t.digest, t.position, t.length, t.open FROM wanted w "
        "CROSS JOIN names n ON n.name = w.source "
        "CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id"
    )
    return {(row[0], row[1]): IndexedRecord(*row[2:]) for row in keyed(db, sql, keys)}


def known_facts(db: sqlite3.Connection, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], IndexedRecord]:
    """The recorded facts with these (kind, key)."""
    sql = (
        "WITH wanted(kind, key) AS ({keys}) "
        "SELECT f.kind, f.key, f.id, 1, f.digest, f.position, f.length FROM wanted w "
        "CROSS JOIN facts f ON f.kind = w.kind AND f.key = w.key"
    )
    return {(row[0], row[1]): IndexedRecord(*row[2:]) for row in keyed(db, sql, keys)}


def known_content(db: sqlite3.Connection, keys: Iterable[tuple[str, str]]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """The line's position by (session, rail, message, n, b), for these (sessionId, messageId)."""
    messages = list(keys)
    with_content = "SELECT session_id FROM sessions WHERE content_bytes > 0 AND session_id IN ({keys})"
    sessions = {row[0] for row in keyed(db, with_content, {(session_id,) for session_id, _ in messages})}
    rows = keyed(db, _CONTENT, sorted([key for key in messages if key[0] in sessions])) if sessions else ()
    return {row[:5]: row[5:] for row in rows}


def many(db: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> None:
    if parameters:
        db.executemany(sql, parameters)


def _statements(sql: str, keys: Iterable[tuple[Any, ...]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for some in batches(list(keys)):
        yield with_values(sql, len(some[0]), len(some)), tuple(chain.from_iterable(some))


async def open_index(path: Path) -> IndexStore:
    """Opens an index, or creates an empty one. Raises IndexDamaged if it must be rebuilt."""
    return IndexStore(path, await _connect(path))


async def _connect(path: Path) -> Writer:
    """The writer of a sound index."""
    files.make_folder(path.parent)
    files.touch(path)
    writer: Writer | None = None
    try:
        writer = await Writer.open(path)
        await writer.run(_prepare)
    except BaseException as error:
        if writer is not None:
            with anyio.CancelScope(shield=True), contextlib.suppress(sqlite3.Error):
                await writer.close()
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):  # SQLite's message may quote damaged text
            raise as_index_error(error, path) from error
        raise
    return writer


def _prepare(db: sqlite3.Connection) -> None:
    cache = ("cache_size=-8000", CHECKPOINT, f"soft_heap_limit={_SOFT_HEAP_BYTES}")
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON", *cache):
        db.execute(f"PRAGMA {pragma}").fetchall()
    ((version,),) = db.execute("PRAGMA user_version").fetchall()
    if version == 0:
        _create(db)
    elif version != schema.LAYOUT:
        raise IndexDamaged(f"has layout {version}, not {schema.LAYOUT}", "index")
    else:
        _check(db)
        db.execute(_SKIP_NUMBERS, (time.time_ns() // 1000,))
    set_meta(db, closed="no")


def _create(db: sqlite3.Connection) -> None:
    if db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
        raise IndexDamaged("has tables but no layout number", "index")
    db.executescript(schema.TABLES)
    name_feed(db)
    db.execute(f"PRAGMA user_version = {schema.LAYOUT}")


def _check(db: sqlite3.Connection) -> None:
    if db.execute("SELECT value FROM meta WHERE key = 'closed'").fetchall() == [("clean",)]:
        return
    if db.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
        raise IndexDamaged("fails SQLite's quick_check", "index")


# A number that was given before a power failure is not given again (see `index.changes`). Early totals have no feed.
_SKIP_NUMBERS = """
UPDATE meta SET value = max(meta.value + 1, ? - CAST(feed.value AS INTEGER))
FROM meta feed WHERE meta.key = 'changes' AND feed.key = 'feed_base'
"""
_SET_META = "INSERT OR REPLACE INTO meta(key, value) VALUES(?,?)"


def set_meta(db: sqlite3.Connection, **values: str) -> None:
    """Writes facts about the index: its ledger position, whether it was closed."""
    db.executemany(_SET_META, list(values.items()))


def name_feed(db: sqlite3.Connection) -> None:
    """Gives the numbers of changes another name (see `index.changes`), so that every push sends all rows again."""
    set_meta(db, feed=secrets.token_hex(8), feed_base=str(time.time_ns() // 1000))


def as_index_error(error: Exception, path: Path) -> StorageError | IndexDamaged:
    """Converts an error. One without a name of SQLite is about an unreadable value, and its text may quote it."""
    if not isinstance(error, sqlite3.Error) or not (name_of(error) or isinstance(error, sqlite3.ProgrammingError)):
        return IndexDamaged(f"{type(error).__name__}: a value in it cannot be read", str(path))
    if (later := as_not_now(error, path)) is not None:
        return later
    name = name_of(error)
    # A violated constraint means that rows are damaged.
    if name in _DAMAGE or name.startswith(("SQLITE_IOERR", "SQLITE_CONSTRAINT")):
        return IndexDamaged(f"{name}: {error}", str(path))
    return StorageError(f"{name}: {error}", str(path))
