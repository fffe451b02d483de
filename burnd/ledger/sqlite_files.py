"""SQLite for blobs and index: retryable errors, statements with many values, write-ahead logs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from burnd.errors import Locked, NoSpace, NotNow
from burnd.ledger.files import WRITABLE_AGAIN

# Errors of a full disk: truncating a log and creating shared memory need space as well.
_NO_ROOM = {
    "SQLITE_FULL",
    "SQLITE_IOERR_WRITE",
    "SQLITE_IOERR_TRUNCATE",
    "SQLITE_IOERR_SHMOPEN",
    "SQLITE_IOERR_SHMSIZE",
    "SQLITE_IOERR_SHMMAP",
}
_SEALED = {"SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY", "SQLITE_READONLY_CANTINIT"}
_TO_OPEN = "free some space, raise the limit of open files (ulimit -n), or repair its folder; nothing is lost meanwhile"


def name_of(error: sqlite3.Error) -> str:
    """SQLite's name of an error; empty for an error of Python's module."""
    return getattr(error, "sqlite_errorname", None) or ""


def no_space(error: sqlite3.Error, path: Path) -> NoSpace:
    what = f"cannot be written to at the moment ({name_of(error)})"
    return NoSpace(what, str(path), "free some space; nothing is lost meanwhile")


def as_not_now(error: sqlite3.Error, path: Path) -> NotNow | None:
    """The error as NotNow if a retry may succeed; else None."""
    name = name_of(error)
    if name in _NO_ROOM:
        return no_space(error, path)
    if name in _SEALED:
        return NoSpace(f"cannot be written to ({name})", str(path), WRITABLE_AGAIN)
    if name == "SQLITE_CANTOPEN":
        return NotNow(f"cannot be opened ({name})", str(path), _TO_OPEN)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Locked(str(error), str(path), "another program is using it")
    return None


T = TypeVar("T")
MOST_AT_ONCE = 256


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Splits items into batches of few distinct lengths, so that few statements are prepared."""
    begin, rest = 0, len(items)
    while rest:
        # The largest of 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, ... up to `rest`.
        power = 1 << rest.bit_length() - 1
        length = next(power + part for part in (power // 2, power // 4, 0) if power + part <= rest)
        length = min(MOST_AT_ONCE, length)
        yield items[begin : begin + length]
        begin, rest = begin + length, rest - length


def insert(db: sqlite3.Connection, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Runs `sql` with the rows for `{keys}`, many at once.

    `executemany` releases the interpreter lock for each row, and waits for it while other threads compute: with one
    such thread, 40,000 rows took 2 s that way and 0.3 s this way.
    """
    for some in batches(rows):
        db.execute(with_values(sql, len(some[0]), len(some)), tuple(chain.from_iterable(some)))


@lru_cache(maxsize=512)  # sqlite3 finds a prepared statement faster by the same object
def with_values(sql: str, width: int, count: int) -> str:
    marks = "(" + ",".join("?" * width) + ")"
    return sql.format(keys="VALUES " + ",".join([marks] * count))


# In pages. A batch of old logs changes pages all over an index by hash; with SQLite's 1,000 each is copied every time.
CHECKPOINT = "wal_autocheckpoint=4000"
BUSY_TIMEOUT_MS = 5_000  # the default of Python's sqlite3


def log_bytes(database: Path) -> int:
    try:
        return os.stat(f"{database}-wal").st_size
    except FileNotFoundError:
        return 0


def empty_log(db: sqlite3.Connection, within_ms: int = 0) -> bool:
    """Checkpoints and truncates the write-ahead log; False if a reader is still using it after `within_ms`."""
    db.execute(f"PRAGMA busy_timeout = {within_ms}")
    try:
        ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return not busy
