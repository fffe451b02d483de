"""Writes into the index how far each source was read, with the states and packs of readers."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from burnd.index.change import CursorChange, FileChange
from burnd.index.store import many


def roots_of(source: str) -> str:
    """Under which name the index keeps the folders that clients told of."""
    return f"roots of {source}"


def write(db: sqlite3.Connection, cursors: Sequence[CursorChange]) -> None:
    kept = [(c.source, c.key, c.value) for c in cursors if c.value is not None]
    gone: list[tuple[Any, ...]] = [(c.source, c.key) for c in cursors if c.value is None]
    many(db, "INSERT OR REPLACE INTO cursors VALUES(?,?,?)", kept)
    many(db, "DELETE FROM cursors WHERE source = ? AND key = ?", gone)


def write_files(db: sqlite3.Connection, changes: Sequence[FileChange]) -> None:
    """Where each file was read to, and the state and pack of its reader."""
    for change in changes:
        where = (change.source, change.path)
        if change.cursor is None or change.from_start:
            own = "(SELECT id FROM files WHERE source = ? AND path = ?)"
            db.execute(f"DELETE FROM reader_packs WHERE file = {own}", where)
        if change.cursor is None:
            db.execute("DELETE FROM files WHERE source = ? AND path = ?", where)
            continue
        found = db.execute(
            "INSERT INTO files(source, path, root, cursor, state, seen, open) VALUES(?,?,?,?,?,?,?) "
            "ON CONFLICT(source, path) DO UPDATE SET root = excluded.root, cursor = excluded.cursor, "
            "state = excluded.state, seen = excluded.seen, open = excluded.open RETURNING id",
            (*where, change.root, change.cursor, change.state, change.seen_ms, change.open),
        ).fetchall()
        ((file,),) = found
        if change.pack:
            pack = (change.replaces, file, change.pack)
            db.execute("INSERT OR REPLACE INTO reader_packs(id, file, rows) VALUES(?,?,?)", pack)
