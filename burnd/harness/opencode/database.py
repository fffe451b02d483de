"""Read-only connections to opencode's databases that leave no files behind, their schema, and every query.

Queries are short, in pages, and never open across a wait. A reader in WAL mode creates missing `-wal` and `-shm` files
and leaves them. So a database without a log, which no program has open, is read as immutable, and the result counts
only if the file did not change meanwhile. An open connection prevents exclusive access by others, so it is closed when
no rows come.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from burnd.harness.opencode.rows import MessageRow, MessageVersion, PartRow, SessionRow, digest_of
from burnd.index.keys import read_only
from burnd.records.foreign_json import WHOLE_BYTES, small_values
from burnd.records.names import bounded_path

PAGE = 500
FIRST_ROWID, LAST_ROWID = -(1 << 63), (1 << 63) - 1
MOST_PARTS = 5_000  # of a message; a real one has some dozens
_MESSAGES_AT_ONCE = 20
_BLOB_BYTES = 1 << 20
_LARGEST_NUMBER = 1 << 53
_BUSY_TIMEOUT_S = 0.25
_HEADER_BYTES = 20
_WAL_FORMAT = 2
_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_UNREADABLE = ("SQLITE_CORRUPT", "SQLITE_TOOBIG", "SQLITE_NOTADB", "SQLITE_IOERR")


class StaleRead(Exception):
    """Raised when a database changed while it was read: read again."""


class Unsupported(Exception):
    """Raised when a database lacks a required table or column."""


def error_name(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def damage_name(error: sqlite3.Error) -> str:
    """The name of an error about unreadable bytes; raises any other, such as a lock."""
    if not error_name(error).startswith(_UNREADABLE):
        raise error
    return error_name(error)


def is_lock(error: Exception) -> bool:
    return error_name(error).startswith(_LOCKED)


# Connections


class Signature(NamedTuple):
    dev: int
    ino: int
    size: int
    mtime_ns: int
    log: tuple[int, int, int] | None

    @property
    def identity(self) -> tuple[int, int]:
        return (self.dev, self.ino)


class DataVersion(NamedTuple):
    """A state of the rows; SQLite's `data_version` is comparable within one connection only."""

    connection: int
    state: object

    def has_changed_since(self, earlier: DataVersion) -> bool:
        return self.connection == earlier.connection and self.state != earlier.state


class Database:
    """One database file. Used by one thread at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.identity = (0, 0)  # of the file that was opened last
        self._connections = 0
        self._connection: sqlite3.Connection | None = None
        self._connected_to: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def signature(self) -> Signature | None:
        try:
            facts = os.stat(self.path)
        except OSError:
            return None
        return Signature(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, _log_facts(self.path))

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to read with. Raises FileNotFoundError, StaleRead or sqlite3.Error."""
        before = self.signature()
        if before is None:
            self.close()
            raise FileNotFoundError(self.path)
        self.identity = before.identity
        if self._connected_to != before.identity:
            self.close()
        read = self._read_shared
        if before.log is None and self._connection is None and self._is_in_wal_mode():
            read = self._read_immutable
        with read(before) as db:
            yield db

    def version(self, db: sqlite3.Connection) -> DataVersion:
        """A value that is the same while nothing is written; `db` is the connection in use."""
        if db is not self._connection:
            return DataVersion(0, self.signature())
        return DataVersion(self._connections, db.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _read_immutable(self, before: Signature) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(self._connect("&immutable=1")) as db:
            try:
                yield db
            except sqlite3.Error as error:
                if self.signature() != before:
                    raise StaleRead from error
                raise
        if self.signature() != before:
            raise StaleRead

    @contextlib.contextmanager
    def _read_shared(self, before: Signature) -> Iterator[sqlite3.Connection]:
        try:
            if self._connection is None:
                self._connection, self._connected_to = self._connect(), before.identity
                if before.log is not None and _log_facts(self.path) is None:
                    raise StaleRead  # the last program has just closed the database and removed the log
                self._connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()  # opens the log at once
            yield self._connection
        except sqlite3.Error as error:
            self.close()
            after = self.signature()
            if after is None or after.identity != before.identity:
                raise StaleRead from error
            raise
        except BaseException:
            self.close()
            raise

    def _connect(self, parameters: str = "") -> sqlite3.Connection:
        self._connections += 1
        address = read_only(Path(self.path)) + parameters
        db = sqlite3.connect(address, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            db.text_factory = bytes  # a column may hold anything, and JSON is decoded from bytes
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, WHOLE_BYTES)
            for pragma in ("query_only=ON", "temp_store=MEMORY", "cache_size=-4000"):
                db.execute(f"PRAGMA {pragma}")
        except BaseException:
            db.close()
            raise
        return db

    def _is_in_wal_mode(self) -> bool:
        """Whether a shared connection would create the log.

        Closing this descriptor drops all locks of the process on the file, so there must be no connection.
        """
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            header = os.pread(fd, _HEADER_BYTES, 0)
        finally:
            os.close(fd)
        return len(header) < _HEADER_BYTES or header[19] == _WAL_FORMAT


def _log_facts(path: str) -> tuple[int, int, int] | None:
    """Facts of the `-wal` file, which is beside the real file if the path is a link."""
    try:
        facts = os.stat((os.path.realpath(path) if os.path.islink(path) else path) + "-wal")
    except OSError:
        return None
    return (facts.st_ino, facts.st_size, facts.st_mtime_ns)


# Schema

_REQUIRED = {
    "session": ("id", "time_created"),
    "message": ("id", "session_id", "time_created", "data"),
    "part": ("id", "message_id", "data"),
}
SESSION_COLUMNS = ("id", "time_created", "parent_id", "directory", "title", "version", "agent", "time_archived")
_SESSION_TYPES = [(name, (int, float) if name.startswith("time_") else bytes) for name in SESSION_COLUMNS]
_CHANGE_COLUMNS = (  # any of them may be the one that changes with the session
    "time_updated",
    "cost",
    "tokens_input",
    "tokens_output",
    "tokens_reasoning",
    "tokens_cache_read",
    "tokens_cache_write",
    "share_url",
    "workspace_id",
    "project_id",
)
_V2_TABLES = ("session_v2", "session_message")


class Schema(NamedTuple):
    """SQL for the columns of a database; `session` selects `SESSION_COLUMNS`, then columns for a digest."""

    session: str
    message_updated: str
    part_updated: str
    has_sequences: bool


def probe(db: sqlite3.Connection) -> Schema:
    """Looks up columns by name, since releases differ. Raises Unsupported."""
    columns = {table: _columns(db, table) for table in _REQUIRED}
    missing = [table for table, names in columns.items() if not names]
    if missing:
        v2 = v2_tables(db)
        instead = f"; it holds sessions in the coming format ({', '.join(v2)}), which are NOT READ yet"
        raise Unsupported(f"no table {', '.join(missing)}" + (instead if v2 else ""))
    missing = [f"{table}.{name}" for table, names in _REQUIRED.items() for name in names if name not in columns[table]]
    if missing:
        raise Unsupported(f"no column {', '.join(missing)}")
    session = columns["session"]
    return Schema(
        session=", ".join(
            [
                *(name if name in session else "NULL" for name in SESSION_COLUMNS),
                "revert IS NOT NULL" if "revert" in session else "NULL",
                *(name for name in _CHANGE_COLUMNS if name in session),
            ]
        ),
        message_updated="time_updated" if "time_updated" in columns["message"] else "0",
        part_updated="time_updated" if "time_updated" in columns["part"] else "0",
        has_sequences={"aggregate_id", "seq"} <= _columns(db, "event_sequence"),
    )


def v2_tables(db: sqlite3.Connection) -> tuple[str, ...]:
    """The tables of opencode's coming format that have rows."""
    present = [table for table in _V2_TABLES if _columns(db, table)]
    return tuple(table for table in present if db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None)


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1].decode("utf-8", "replace") for row in db.execute(f"PRAGMA table_info({table})")}


# Queries


class StoredSession(NamedTuple):
    """A session's row, when it was archived, a digest of the row, and columns of unexpected types."""

    row: SessionRow
    archived: int | None
    digest: int
    wrong_columns: tuple[str, ...] = ()


class Fetched(NamedTuple):
    """Messages with their parts, their size in bytes, and SQLite's error for each unreadable row."""

    rows: list[MessageRow]
    size: int = 0
    unreadable: tuple[str, ...] = ()

    def plus(self, other: Fetched) -> Fetched:
        self.rows.extend(other.rows)
        return Fetched(self.rows, self.size + other.size, self.unreadable + other.unreadable)


class _TooMuch(Exception):
    """Raised when several messages together take too much memory."""


@contextlib.contextmanager
def snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Runs several queries on one state of the database; must be quick."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:  # SQLite itself ends it after an I/O error
            db.execute("ROLLBACK")


def schema_version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA schema_version").fetchone()[0])


# Sessions


def message_at(db: sqlite3.Connection, rowid: int) -> str | None:
    row = db.execute("SELECT id FROM message WHERE rowid = ?", (rowid,)).fetchone()
    return text(row[0]) if row is not None else None


def last_message(db: sqlite3.Connection) -> tuple[int, str] | None:
    row = db.execute("SELECT rowid, id FROM message ORDER BY rowid DESC LIMIT 1").fetchone()
    return (row[0], text(row[1])) if row is not None else None


def new_messages(db: sqlite3.Connection, rowid: int) -> list[tuple[int, str, str]]:
    sql = "SELECT rowid, id, session_id FROM message WHERE rowid >= ? ORDER BY rowid LIMIT ?"
    return [(row[0], text(row[1]), text(row[2])) for row in db.execute(sql, (rowid, PAGE))]


def sessions_with_messages(db: sqlite3.Connection) -> list[str]:
    return [text(row[0]) for row in db.execute("SELECT DISTINCT session_id FROM message")]


SessionCache = dict[Any, tuple[int, StoredSession]]  # by id: the hash of a session's row, and the session


def all_sessions(db: sqlite3.Connection, schema: Schema, cache: SessionCache) -> Iterator[StoredSession]:
    """Every session; unchanged rows come from the cache."""
    at = FIRST_ROWID
    while at <= LAST_ROWID:
        sql = f"SELECT rowid, {schema.session} FROM session WHERE rowid >= ? ORDER BY rowid LIMIT ?"
        page = db.execute(sql, (at, PAGE)).fetchall()
        if not page:
            return
        at = page[-1][0] + 1
        for _, *row in page:
            session_id, key = row[0], hash(tuple(row))
            if session_id not in cache or cache[session_id][0] != key:
                cache[session_id] = (key, _session(row))
            yield cache[session_id][1]


def one_session(db: sqlite3.Connection, schema: Schema, session_id: str) -> StoredSession | None:
    row = db.execute(f"SELECT {schema.session} FROM session WHERE id = ?", (session_id,)).fetchone()
    return _session(row) if row is not None else None


def orphaned_session(db: sqlite3.Connection, session_id: str) -> StoredSession | None:
    """A session whose row is gone while its messages are there."""
    created = db.execute("SELECT min(time_created) FROM message WHERE session_id = ?", (session_id,)).fetchone()[0]
    return StoredSession(SessionRow(session_id, number(created)), None, 0) if created is not None else None


def sequences(db: sqlite3.Connection, schema: Schema) -> dict[str, int]:
    """The last event number of each session; empty if the release has no event log."""
    if not schema.has_sequences:
        return {}
    rows = db.execute("SELECT aggregate_id, seq FROM event_sequence").fetchall()
    return {text(session): number(seq) for session, seq in rows}


def sequence_of(db: sqlite3.Connection, schema: Schema, session_id: str) -> int:
    if not schema.has_sequences:
        return -1
    row = db.execute("SELECT seq FROM event_sequence WHERE aggregate_id = ?", (session_id,)).fetchone()
    return number(row[0]) if row is not None else -1


def _session(row: Sequence[Any]) -> StoredSession:
    parent, folder, *texts = [text(value) or None if value is not None else None for value in row[2:7]]
    archived = number(row[7]) if row[7] is not None else None
    session = SessionRow(text(row[0]), number(row[1]), parent, bounded_path(folder), *texts)
    types = zip(_SESSION_TYPES, row, strict=False)  # further columns are only hashed
    wrong = tuple(name for (name, kind), value in types if value is not None and not isinstance(value, kind))
    return StoredSession(session, archived, digest_of(row), wrong)


# Versions of messages


def message_ids(db: sqlite3.Connection, session_id: str) -> frozenset[str]:
    return frozenset(text(row[0]) for row in db.execute("SELECT id FROM message WHERE session_id = ?", (session_id,)))


def versions_of(db: sqlite3.Connection, schema: Schema, ids: Sequence[str]) -> dict[str, MessageVersion]:
    versions: list[MessageVersion] = []
    for some in _groups(ids, PAGE):
        sql = f"SELECT id, time_created, {schema.message_updated} FROM message WHERE id IN ({_marks(some)})"
        versions += _with_parts(db, schema, _versions(db.execute(sql, some)))
    return {version.id: version for version in versions}


def session_versions(
    db: sqlite3.Connection, schema: Schema, session_id: str, *, with_parts: bool
) -> list[MessageVersion]:
    """The messages of a session by time, since ids do not sort by time."""
    columns = f"id, time_created, {schema.message_updated}"
    sql = f"SELECT {columns} FROM message WHERE session_id = ? ORDER BY time_created, id"
    versions = _versions(db.execute(sql, (session_id,)))
    return _with_parts(db, schema, versions) if with_parts else versions


def version_of(row: MessageRow) -> MessageVersion:
    parts = [(part.id, part.updated) for part in row.parts]
    return _version(row.id, row.created, row.updated, parts, row.more_parts)


def _version(
    message_id: str, created: int, updated: int, parts: Iterable[tuple[str, int]], more: tuple[int, int]
) -> MessageVersion:
    digest = digest_of([message_id, created, updated, *parts, *([more] if more[0] else [])])
    return MessageVersion(message_id, created, updated, digest)


def _versions(rows: Iterable[Sequence[Any]]) -> list[MessageVersion]:
    return [MessageVersion(text(row[0]), number(row[1]), number(row[2])) for row in rows]


def _with_parts(db: sqlite3.Connection, schema: Schema, versions: Sequence[MessageVersion]) -> list[MessageVersion]:
    parts: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    more: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for some in _groups([version.id for version in versions], PAGE):
        sql = (
            f"SELECT message_id, id, {schema.part_updated} FROM part "
            f"WHERE message_id IN ({_marks(some)}) ORDER BY message_id, id"
        )
        for name, part, updated in db.execute(sql, some):
            message = text(name)
            if len(parts[message]) < MOST_PARTS:
                parts[message].append((text(part), number(updated)))
            else:
                more[message] = (more[message][0] + 1, max(more[message][1], number(updated)))
    return [_version(*version[:3], parts[version.id], more[version.id]) for version in versions]


# Messages with their parts


def fetch(db: sqlite3.Connection, schema: Schema, ids: Sequence[str], max_bytes: int) -> tuple[Fetched, int]:
    """Messages with their parts, in this order, up to `max_bytes`; and the number of ids handled."""
    fetched, done = Fetched([]), 0
    for some in _groups(ids, _MESSAGES_AT_ONCE):
        try:
            fetched = fetched.plus(_fetch_together(db, schema, some))
        except (_TooMuch, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error):
                damage_name(error)  # raises any error but damage
            for message_id in some:
                fetched = fetched.plus(_fetch_one(db, schema, message_id))
        done += len(some)
        if fetched.size >= max_bytes:
            break
    return fetched, done


def _fetch_together(db: sqlite3.Connection, schema: Schema, ids: Sequence[str]) -> Fetched:
    parts: defaultdict[bytes, list[PartRow]] = defaultdict(list)
    size = 0
    sql = (
        f"SELECT message_id, id, {schema.part_updated}, data FROM part "
        f"WHERE message_id IN ({_marks(ids)}) ORDER BY message_id, id"
    )
    for message, part, updated, data in db.execute(sql, ids):
        part_row, others = PartRow(text(part), number(updated), data_of(data)), parts[message]
        others.append(part_row)
        size += len(part_row.data)
        if size > WHOLE_BYTES or len(others) > MOST_PARTS:
            raise _TooMuch
    messages: dict[str, MessageRow] = {}
    sql = f"SELECT id, time_created, {schema.message_updated}, data FROM message WHERE id IN ({_marks(ids)})"
    for name, created, updated, data in db.execute(sql, ids):
        row = MessageRow(text(name), number(created), number(updated), data_of(data), tuple(parts[name]))
        messages[row.id] = row
        size += len(row.data)
        if size > 2 * WHOLE_BYTES:
            raise _TooMuch
    return Fetched([messages[message_id] for message_id in ids if message_id in messages], size)


def _fetch_one(db: sqlite3.Connection, schema: Schema, message_id: str) -> Fetched:
    """One message, part by part; too large rows are reduced to their small values."""
    try:
        sql = f"SELECT rowid, time_created, {schema.message_updated} FROM message WHERE id = ?"
        row = db.execute(sql, (message_id,)).fetchone()
        if row is None:
            return Fetched([])
        data, whole_size = _read_data(db, "message", row[0], WHOLE_BYTES)
        sql = f"SELECT rowid, id, {schema.part_updated} FROM part WHERE message_id = ? ORDER BY id"
        part_rows = db.execute(sql, (message_id,)).fetchmany(MOST_PARTS)
        more = (0, 0)
        if len(part_rows) == MOST_PARTS:
            sql = f"SELECT count(*), max({schema.part_updated}) FROM part WHERE message_id = ? AND id > ?"
            count, newest = db.execute(sql, (message_id, text(part_rows[-1][1]))).fetchone()
            more = (count, number(newest) if count else 0)
    except sqlite3.Error as error:
        return Fetched([], unreadable=(damage_name(error),))
    parts: list[PartRow] = []
    unreadable: list[str] = []
    room = WHOLE_BYTES
    for rowid, part_id, updated in part_rows:
        try:
            part, size = _read_data(db, "part", rowid, room)
        except sqlite3.Error as error:
            unreadable.append(damage_name(error))
            continue
        room -= min(room, len(part))
        parts.append(PartRow(text(part_id), number(updated), part, size))
    message = MessageRow(message_id, number(row[1]), number(row[2]), data, tuple(parts), whole_size, more)
    return Fetched([message], len(data) + sum(len(part.data) for part in parts), tuple(unreadable))


def _read_data(db: sqlite3.Connection, table: str, rowid: int, room: int) -> tuple[bytes, int | None]:
    """A row's `data` and None; if it is larger than `room`, its small values and its size."""
    try:
        (kind,) = db.execute(f"SELECT typeof(data) FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
        if kind in (b"text", b"blob"):
            with db.blobopen(table, "data", rowid, readonly=True) as blob:
                size = len(blob)
                if size > room:
                    return small_values(iter(lambda: blob.read(_BLOB_BYTES), b"")), size
        (data,) = db.execute(f"SELECT data FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
    except TypeError:
        return b"", None  # deleted in between
    return data_of(data), None


# Values


def _groups(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def _marks(items: Sequence[object]) -> str:
    return ",".join("?" * len(items))


def text(value: Any) -> str:
    """A value that should be text; SQLite columns may hold anything."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def data_of(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b"" if value is None else str(value).encode()


def number(value: Any) -> int:
    """A value that should be a time or a count, within bounds."""
    if type(value) is int and 0 <= value <= _LARGEST_NUMBER:
        return value
    return int(min(max(value, 0), _LARGEST_NUMBER)) if isinstance(value, int | float) else 0
