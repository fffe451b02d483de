"""Writes into the index how far each source was read, and the rows that readers of files must find again."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from burnd.index import packs
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
    """Where each file was read to, and the rows its reader must find again."""
    for change in changes:
        where = (change.source, change.path)
        if change.cursor is None or change.anew:
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
        _add_pack(db, file, change.pack)


def _add_pack(db: sqlite3.Connection, file: int, pack: bytes) -> None:
    if not pack:
        return
    sql = "SELECT id, rows FROM reader_packs WHERE file = ? ORDER BY id DESC LIMIT 1"
    newest = list(db.execute(sql, (file,)).fetchall()) if len(pack) < packs.SMALL else []
    if newest and len(newest[0][1]) < packs.SMALL:
        row_id, rows = newest[0]
        db.execute("UPDATE reader_packs SET rows = ? WHERE id = ?", (packs.merged(rows, pack), row_id))
    else:
        db.execute("INSERT INTO reader_packs(file, rows) VALUES(?,?)", (file, pack))
