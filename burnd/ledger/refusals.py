"""Which of SQLite's errors only mean that something cannot be written at the moment, in our own words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from burnd.errors import Locked, NoSpace, NotNow

# A full disk shows in many ways: cutting a log, or making the memory that connections share, needs room as well.
_NO_ROOM = {
    "SQLITE_FULL",
    "SQLITE_READONLY",
    "SQLITE_IOERR_WRITE",
    "SQLITE_IOERR_TRUNCATE",
    "SQLITE_IOERR_SHMOPEN",
    "SQLITE_IOERR_SHMSIZE",
    "SQLITE_IOERR_SHMMAP",
}


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
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Locked(str(error), str(path), "another program is using it")
    return None
