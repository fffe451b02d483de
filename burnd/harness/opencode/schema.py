"""Which tables and columns a database of opencode's has: releases differ, so columns are looked up by name."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

_ESSENTIAL = {
    "session": ("id", "time_created"),
    "message": ("id", "session_id", "time_created", "data"),
    "part": ("id", "message_id", "data"),
}
# What tells that something about a session changed, where its own release keeps it up to date.
_TELLING = (
    "parent_id",
    "directory",
    "title",
    "version",
    "agent",
    "time_created",
    "time_updated",
    "time_archived",
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
_COMING = ("session_v2", "session_message")


class Unsupported(Exception):
    """Raised when a database lacks what cannot be done without."""


class Schema(NamedTuple):
    """How to ask this database. `session` gives the columns of a SessionRow, then the archive time, then a digest's."""

    session: str
    message_updated: str
    part_updated: str
    has_sequences: bool


def probe(db: sqlite3.Connection) -> Schema:
    """Raises Unsupported when tables or columns are missing."""
    columns = {table: _columns(db, table) for table in _ESSENTIAL}
    missing = [table for table, found in columns.items() if not found]
    if missing:
        coming = coming_tables(db)
        instead = f"; it holds sessions in the coming format ({', '.join(coming)}), which are NOT READ yet"
        raise Unsupported(f"no table {', '.join(missing)}" + (instead if coming else ""))
    lacking = [f"{t}.{name}" for t, names in _ESSENTIAL.items() for name in names if name not in columns[t]]
    if lacking:
        raise Unsupported(f"no column {', '.join(lacking)}")
    sequences = _columns(db, "event_sequence")
    return Schema(
        session=_session_columns(columns["session"]),
        message_updated="time_updated" if "time_updated" in columns["message"] else "0",
        part_updated="time_updated" if "time_updated" in columns["part"] else "0",
        has_sequences={"aggregate_id", "seq"} <= sequences,
    )


def coming_tables(db: sqlite3.Connection) -> tuple[str, ...]:
    """The tables of opencode's coming format that hold rows already."""
    return tuple(table for table in _COMING if _holds_rows(db, table))


def _session_columns(found: set[str]) -> str:
    def column(name: str) -> str:
        return name if name in found else "NULL"

    shown = ("id", "time_created", "parent_id", "directory", "title", "version", "agent", "time_archived")
    revert = "revert IS NOT NULL" if "revert" in found else "NULL"
    return ", ".join([*map(column, shown), revert, *(name for name in _TELLING if name in found)])


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1].decode("utf-8", "replace") for row in db.execute(f"PRAGMA table_info({table})")}


def _holds_rows(db: sqlite3.Connection, table: str) -> bool:
    return bool(_columns(db, table)) and db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None
