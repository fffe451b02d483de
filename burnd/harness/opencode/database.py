"""Read-only connections to opencode's databases that leave no files behind, and the schema.

A reader in WAL mode creates missing `-wal` and `-shm` files and leaves them. So a database without a log, which no
program has open, is read as immutable, and the result counts only if the file did not change meanwhile. An open
connection prevents exclusive access by others, so it is closed when no rows come.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from burnd.index.keys import read_only
from burnd.records.foreign_json import WHOLE_BYTES

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
    """File system facts of a database and its log, which change with the rows."""

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
