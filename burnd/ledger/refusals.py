"""Which of SQLite's errors only mean that something cannot be written at the moment, in our own words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from burnd.errors import Locked, NoSpace, NotNow
from burnd.ledger.files import WRITABLE_AGAIN

# A full disk shows in many ways: cutting a log, or making the memory that connections share, needs room as well.
_NO_ROOM = {
    "SQLITE_FULL",
    "SQLITE_IOERR_WRITE",
    "SQLITE_IOERR_TRUNCATE",
    "SQLITE_IOERR_SHMOPEN",
    "SQLITE_IOERR_SHMSIZE",
    "SQLITE_IOERR_SHMMAP",
}
_SEALED = {"SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY", "SQLITE_READONLY_CANTINIT"}
_TO_OPEN = "free some space, raise the limit of open files (ulimit -n), or mend its folder; nothing is lost meanwhile"


def name_of(error: sqlite3.Error) -> str:
    """SQLite's own name of an error; empty where it is Python's."""
    return getattr(error, "sqlite_errorname", None) or ""


def no_space(error: sqlite3.Error, path: Path) -> NoSpace:
    what = f"cannot be written to at the moment ({name_of(error)})"
    return NoSpace(what, str(path), "free some space; nothing is lost meanwhile")


def as_not_now(error: sqlite3.Error, path: Path) -> NotNow | None:
    """The error, if the same may well succeed later."""
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
