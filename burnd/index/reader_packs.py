"""Packs that log readers store in the index, and the numbers of recorded turns, for use in a worker thread.

A pack is opaque here: the reader that made it unpacks it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from burnd.index.keys import copy_key, read_only

_IDS = "SELECT id FROM reader_packs WHERE file = (SELECT id FROM files WHERE source = ? AND path = ?) ORDER BY id DESC"
_HAS_TURNS = (
    "SELECT 1 FROM turns WHERE session = (SELECT id FROM sessions WHERE session_id = ?) AND rail = ? UNION ALL "
    "SELECT 1 FROM facts WHERE session = (SELECT id FROM sessions WHERE session_id = ?) AND kind = 'copy' AND rail = ?"
)
_TURN_INDEX = (
    "SELECT t.turn_index FROM turns t JOIN names n ON n.id = t.source JOIN sessions s ON s.id = t.session "
    "WHERE n.name = ? AND t.message_id = ? AND s.session_id = ? AND t.rail = ? "
    "UNION ALL SELECT turn_index FROM facts WHERE kind = 'copy' AND key = ?"
)


class PackLost(Exception):
    """A pack cannot be read or unpacked; its cause is the error."""


class PackSource:
    """A read-only connection for readers, which run in a worker thread and cannot wait for the event loop."""

    def __init__(self, index_path: Path) -> None:
        self._db = sqlite3.connect(read_only(index_path), uri=True, check_same_thread=False)

    def of(self, source: str, path: str) -> FilePacks:
        return FilePacks(self._db, source, path)

    def close(self) -> None:
        self._db.close()


class FilePacks:
    """The packs of one file; none while it is `blank`, read again from its start."""

    def __init__(self, db: sqlite3.Connection, source: str, path: str) -> None:
        self._db = db
        self._source, self._path = source, path
        self._ids: list[int] | None = None
        self.blank = False

    def committed(self) -> None:
        """Makes the packs of the last commit visible."""
        self.blank = False
        self._ids = None

    def ids(self) -> Sequence[int]:
        """The ids of the packs, newest first. Raises PackLost."""
        if self.blank:
            return ()
        if self._ids is None:
            self._ids = [row[0] for row in self._rows(_IDS, (self._source, self._path))]
        return self._ids

    def get(self, pack_id: int) -> bytes:
        """The pack with this id. Raises PackLost."""
        ((pack,),) = self._rows("SELECT rows FROM reader_packs WHERE id = ?", (pack_id,))
        return bytes(pack)

    def has_turns(self, session_id: str, rail_id: str) -> bool:
        """Whether turns or copies of a rail are recorded, also while it is blank."""
        return self._db.execute(_HAS_TURNS, (session_id, rail_id) * 2).fetchone() is not None

    def turn_index(self, session_id: str, rail_id: str, message_id: str) -> int | None:
        """The number of a recorded message on its rail, also while it is blank."""
        key = copy_key(self._source, message_id, session_id, rail_id)
        row = self._db.execute(_TURN_INDEX, (self._source, message_id, session_id, rail_id, key)).fetchone()
        return row[0] if row else None

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise PackLost from error
