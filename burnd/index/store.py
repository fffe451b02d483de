"""The index database: one writer, a few readers, and every change with its ledger position in one transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import aiosqlite
import anyio

from burnd.errors import IndexDamaged, NoSpace, StorageError
from burnd.index import schema
from burnd.ledger import files
from burnd.ledger.content import Placed
from burnd.ledger.journal import Logged
from burnd.records import Turn

READERS = 3
_DAMAGE = {"SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CORRUPT_INDEX", "SQLITE_CORRUPT_VTAB"}
_NO_ROOM = {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE", "SQLITE_READONLY"}


class Known(NamedTuple):
    """What the index remembers of a record, enough to tell whether a new one says anything new."""

    id: int
    rev: int
    digest: int
    position: int | None
    length: int | None
    open: bool = False


class CursorChange(NamedTuple):
    """How far a source has been read; None forgets it."""

    source: str
    key: str
    value: bytes | None


class FileChange(NamedTuple):
    """How far a file has been read, with the reader's state there and the rows it must find again.

    `anew` forgets the rows of earlier readings: the file is read from its start. A cursor of None forgets
    the file.
    """

    source: str
    path: str
    cursor: bytes | None
    state: bytes = b""
    rows: Sequence[tuple[int, bytes, bytes]] = ()
    anew: bool = False
    seen_ms: int = 0


class AgentRow(NamedTuple):
    """Which call started an agent, as one file tells it; a smaller `told_by` is the better word."""

    session_id: str
    agent_id: str
    told_by: int
    tool_use_id: str | None
    type: str | None
    parent_agent_id: str | None


class OpenTurn(NamedTuple):
    """A turn that may still grow, and the file it grows in."""

    turn: Turn
    source: str
    path: str


@dataclass
class Change:
    """All that one transaction puts into the index."""

    logged: Sequence[tuple[Logged, int]] = ()
    placed: Sequence[Placed] = ()
    cursors: Sequence[CursorChange] = ()
    files: Sequence[FileChange] = ()
    agents: Sequence[AgentRow] = ()
    open: Sequence[OpenTurn] = ()
    closed: Sequence[Turn] = ()  # open no more, and the ledger says the same already
    ledger_end: int = 0
    ledger_anchor: str = ""


class IndexStore:
    """An open index. Made by `open_index`, which vouches that it is sound and belongs to this version."""

    def __init__(self, path: Path, writer: aiosqlite.Connection, readers: list[aiosqlite.Connection]) -> None:
        self.path = path
        self.closed = False
        self.writer = writer
        self._readers = readers
        self._idle = list(readers)
        self._free = anyio.Semaphore(len(readers))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[aiosqlite.Connection]:
        """The writer inside a transaction: all of it or nothing, and errors in our own words."""
        try:
            await self.writer.execute("BEGIN IMMEDIATE")
            yield self.writer
            await self.writer.execute("COMMIT")
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                if self.writer.in_transaction:
                    await self.writer.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise as_index_error(error, self.path) from error
            raise

    async def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """What a query gives, on a connection that can only read."""
        async with self._free:
            reader = self._idle.pop()
            try:
                return [tuple(row) for row in await reader.execute_fetchall(sql, tuple(parameters))]
            except sqlite3.Error as error:
                raise as_index_error(error, self.path) from error
            finally:
                self._idle.append(reader)

    async def meta(self) -> dict[str, str]:
        return {str(key): str(value) for key, value in await self.rows("SELECT key, value FROM meta")}

    async def known_turns(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Known]:
        """What is known of the turns with these (source, messageId)."""
        sql = (
            "WITH wanted(source, message_id) AS ({keys}) "
            "SELECT n.name, t.message_id, t.id, t.rev, t.digest, t.position, t.length, t.open FROM wanted w "
            "CROSS JOIN names n ON n.name = w.source "
            "CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id"
        )
        return {(row[0], row[1]): Known(*row[2:]) for row in await select_keyed(self.rows, sql, keys)}

    async def known_facts(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Known]:
        """What is known of the facts with these (kind, key)."""
        sql = "SELECT kind, key, id, 1, digest, position, length FROM facts WHERE (kind, key) IN ({keys})"
        return {(row[0], row[1]): Known(*row[2:]) for row in await select_keyed(self.rows, sql, keys)}

    async def cursor(self, source: str, key: str) -> bytes | None:
        found = await self.rows("SELECT value FROM cursors WHERE source = ? AND key = ?", (source, key))
        return bytes(found[0][0]) if found else None

    async def scrub(self) -> None:
        """Leaves nothing of deleted rows behind: deleted pages are zeroed, and the log that held them is cut."""
        try:
            await self.writer.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise as_index_error(error, self.path) from error

    async def close(self, *, clean: bool = True) -> None:
        """Closes every connection; a clean close saves the next start a check of the whole file."""
        with anyio.CancelScope(shield=True):
            try:
                if clean:
                    async with self.transaction() as db:
                        await _set_meta(db, {"closed": "clean"})
            finally:
                self.closed = True
                await _close_all([*self._readers, self.writer])


Fetch = Callable[[str, tuple[Any, ...]], Awaitable[Iterable[Any]]]
_KEYS_AT_ONCE = 500


async def select_keyed(fetch: Fetch, sql: str, keys: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Runs `sql` with `{keys}` standing for the given keys, bound, as many at once as SQLite takes well.

    SQLite's JSON functions would cut a text at a NUL, and an id may hold one: so values are bound.
    """
    wanted = list(keys)
    found: list[tuple[Any, ...]] = []
    for begin in range(0, len(wanted), _KEYS_AT_ONCE):
        some = wanted[begin : begin + _KEYS_AT_ONCE]
        marks = "(" + ",".join("?" * len(some[0])) + ")"
        values = "VALUES " + ",".join([marks] * len(some))
        found += await fetch(sql.format(keys=values), tuple(chain.from_iterable(some)))
    return found


async def open_index(path: Path) -> IndexStore:
    """Opens an index, or makes an empty one. Raises IndexDamaged when it must be built anew."""
    files.make_folder(path.parent)
    files.touch(path)
    opened: list[aiosqlite.Connection] = []
    try:
        opened.append(await aiosqlite.connect(path, isolation_level=None))
        await _prepare(opened[0])
        while len(opened) <= READERS:
            opened.append(await _open_reader(path))
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            await _close_all(opened)
        if isinstance(error, sqlite3.Error):
            raise as_index_error(error, path) from error
        raise
    return IndexStore(path, opened[0], opened[1:])


async def _close_all(connections: list[aiosqlite.Connection]) -> None:
    """Each connection has a thread that would keep the process alive: every one is closed, whatever it says."""
    for connection in connections:
        with contextlib.suppress(sqlite3.Error):
            await connection.close()


async def _prepare(writer: aiosqlite.Connection) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON", "cache_size=-16000"):
        await writer.execute_fetchall(f"PRAGMA {pragma}")
    ((version,),) = await writer.execute_fetchall("PRAGMA user_version")
    if version == 0:
        await _create(writer)
    elif version != schema.VERSION:
        raise IndexDamaged(f"is of version {version}, not {schema.VERSION}", "index")
    else:
        await _check(writer)
    await _set_meta(writer, {"closed": "no"})


async def _create(writer: aiosqlite.Connection) -> None:
    tables = await writer.execute_fetchall("SELECT count(*) FROM sqlite_master")
    if next(iter(tables))[0]:
        raise IndexDamaged("has tables but no version", "index")
    for step in schema.STEPS:
        await writer.executescript(step)
    await writer.execute(f"PRAGMA user_version = {schema.VERSION}")


async def _check(writer: aiosqlite.Connection) -> None:
    closed = await writer.execute_fetchall("SELECT value FROM meta WHERE key = 'closed'")
    if [row[0] for row in closed] == ["clean"]:
        return
    verdict = await writer.execute_fetchall("PRAGMA quick_check(1)")
    if [row[0] for row in verdict] != ["ok"]:
        raise IndexDamaged("does not pass SQLite's own check", "index")


async def _open_reader(path: Path) -> aiosqlite.Connection:
    reader = await aiosqlite.connect(f"file:{_quoted(path)}?mode=ro", uri=True, isolation_level=None)
    await reader.execute_fetchall("PRAGMA query_only=ON")
    return reader


async def set_ledger_end(db: aiosqlite.Connection, end: int, anchor: str) -> None:
    await _set_meta(db, {"ledger_end": str(end), "ledger_anchor": anchor})


async def _set_meta(db: aiosqlite.Connection, values: dict[str, str]) -> None:
    await db.executemany("INSERT OR REPLACE INTO meta(key, value) VALUES(?,?)", list(values.items()))


def as_index_error(error: sqlite3.Error, path: Path) -> StorageError | IndexDamaged:
    name = getattr(error, "sqlite_errorname", None) or ""
    if name in _NO_ROOM:
        return NoSpace(str(error), str(path), "free some space; nothing is lost meanwhile")
    if name in _DAMAGE or name.startswith("SQLITE_IOERR"):
        return IndexDamaged(f"{name or 'damaged'}: {error}", str(path))
    return StorageError(f"{name}: {error}", str(path))


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
