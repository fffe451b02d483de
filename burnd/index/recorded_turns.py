"""The numbers of recorded turns, for log readers in a worker thread, which cannot wait for the event loop."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from burnd.index.keys import copy_key, read_only

_HAS_TURNS = (
    "SELECT 1 FROM turns WHERE session = (SELECT id FROM sessions WHERE session_id = ?) AND rail = ? UNION ALL "
    "SELECT 1 FROM facts WHERE session = (SELECT id FROM sessions WHERE session_id = ?) AND kind = 'copy' AND rail = ?"
)
_TURN_INDEX = (
    "SELECT t.turn_index FROM turns t JOIN names n ON n.id = t.source JOIN sessions s ON s.id = t.session "
    "WHERE n.name = ? AND t.message_id = ? AND s.session_id = ? AND t.rail = ? "
    "UNION ALL SELECT turn_index FROM facts WHERE kind = 'copy' AND key = ?"
)


class RecordedTurns:
    """Reads through a connection of its own. Its methods raise sqlite3.Error."""

    def __init__(self, index_path: Path) -> None:
        self._db = sqlite3.connect(read_only(index_path), uri=True, check_same_thread=False)

    def close(self) -> None:
        self._db.close()

    def has_turns(self, session_id: str, rail_id: str) -> bool:
        return self._db.execute(_HAS_TURNS, (session_id, rail_id) * 2).fetchone() is not None

    def turn_index(self, source: str, session_id: str, rail_id: str, message_id: str) -> int | None:
        key = copy_key(source, message_id, session_id, rail_id)
        row = self._db.execute(_TURN_INDEX, (source, message_id, session_id, rail_id, key)).fetchone()
        return row[0] if row else None
