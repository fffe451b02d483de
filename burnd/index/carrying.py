"""What no ledger tells, and an index that is made anew takes over from the one before: cursors and open turns."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from burnd.errors import IndexDamaged
from burnd.index.change import Change, CursorChange, FileChange, OpenTurn
from burnd.index.store import IndexStore
from burnd.records import Turn
from burnd.records.codec import Entry, decode

_OPEN_TURNS = "SELECT o.record, f.source, f.path FROM open_turns o JOIN files f ON f.id = o.file"
_OPEN_FILES = """
SELECT source, path, cursor, state, seen, root, open FROM files WHERE id IN (SELECT file FROM open_turns)
"""


async def carried_over(index: IndexStore) -> Change:
    """Cursors, and turns that may still grow with their files; nothing of a damaged index."""
    try:
        cursors = [CursorChange(*row) for row in await index.rows("SELECT source, key, value FROM cursors")]
        grows, places = await index.rows(_OPEN_TURNS), await index.rows(_OPEN_FILES)
    except IndexDamaged:
        return Change()
    return Change(cursors=cursors, files=_files(places), open=_turns(grows))


def salvaged(path: Path) -> Change:
    """Of an index that cannot be trusted, the open turns of logs that are gone: nobody else could tell of them.

    All other logs are read again from their start.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            grows, places = db.execute(_OPEN_TURNS).fetchall(), db.execute(_OPEN_FILES).fetchall()
    except sqlite3.Error:
        return Change()
    gone = {place[1] for place in places if isinstance(place[1], str) and not os.path.lexists(place[1])}
    return Change(
        files=_files(place for place in places if place[1] in gone), open=_turns(row for row in grows if row[2] in gone)
    )


def changed_open(turns: Sequence[OpenTurn], change: Callable[[Entry], Entry]) -> list[OpenTurn]:
    """Turns that may still grow, changed as the ledger's are."""
    pairs = ((item, change(item.turn)) for item in turns)
    return [item._replace(turn=turn) for item, turn in pairs if isinstance(turn, Turn)]


def _turns(rows: Iterable[Sequence[Any]]) -> list[OpenTurn]:
    found = ((decode(record), source, path) for record, source, path in rows if isinstance(record, bytes))
    return [OpenTurn(turn, source, path) for turn, source, path in found if isinstance(turn, Turn)]


def _files(rows: Iterable[Sequence[Any]]) -> list[FileChange]:
    return [
        FileChange(source, path, cursor, state, seen_ms=seen, root=root, open=bool(is_open))
        for source, path, cursor, state, seen, root, is_open in rows
    ]
