"""What no ledger tells, and an index that is made anew takes over from the one before: cursors and open turns."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread

from burnd.errors import IndexDamaged
from burnd.index.change import Change, CursorChange, FileChange, OpenTurn
from burnd.index.keys import is_there, read_only
from burnd.index.store import IndexStore
from burnd.ledger.journal import Journal
from burnd.records import Turn
from burnd.records.codec import Entry, decode

_OPEN_TURNS = "SELECT o.record, f.source, f.path FROM open_turns o JOIN files f ON f.id = o.file"
_OPEN_FILES = """
SELECT source, path, cursor, state, seen, root, open FROM files WHERE id IN (SELECT file FROM open_turns)
"""


async def carried_over(index: IndexStore, journal: Journal) -> Change:
    """Cursors, and turns that may still grow with their files; of a damaged index what can be saved."""
    try:
        cursors = [CursorChange(*row) for row in await index.rows("SELECT source, key, value FROM cursors")]
        grows, places = await index.rows(_OPEN_TURNS), await index.rows(_OPEN_FILES)
        meta = await index.meta()
    except IndexDamaged:
        return await anyio.to_thread.run_sync(salvaged, index.path, journal)
    turns = await anyio.to_thread.run_sync(_not_said_since, _turns(grows), journal, meta)
    return Change(cursors=cursors, files=_files(places), open=turns)


def salvaged(path: Path, journal: Journal) -> Change:
    """Of an index that cannot be trusted, the open turns of logs that are gone: nobody else could tell of them.

    All other logs are read again from their start.
    """
    try:
        with contextlib.closing(sqlite3.connect(read_only(path), uri=True)) as db:
            grows, places = db.execute(_OPEN_TURNS).fetchall(), db.execute(_OPEN_FILES).fetchall()
            meta = _meta(db)
    except sqlite3.Error:
        return Change()
    gone = {place[1] for place in places if isinstance(place[1], str) and not is_there(place[1])}
    turns = _turns(row for row in grows if row[2] in gone)
    return Change(
        files=_files(place for place in places if place[1] in gone), open=_not_said_since(turns, journal, meta)
    )


def changed_open(turns: Sequence[OpenTurn], change: Callable[[Entry], Entry]) -> list[OpenTurn]:
    """Turns that may still grow, changed as the ledger's are."""
    pairs = ((item, change(item.turn)) for item in turns)
    return [item._replace(turn=turn) for item, turn in pairs if isinstance(turn, Turn)]


def _not_said_since(turns: list[OpenTurn], journal: Journal, meta: Mapping[str, str]) -> list[OpenTurn]:
    """Without those that the ledger tells of since the index knew it: they grew, and what they were is out of date.

    Of another ledger than the index knew all counts. Files stay: what their readers know joins what the ledger says.
    """
    if not turns:
        return []
    end = int(known) if (known := meta.get("ledger_end", "")).isdecimal() else 0
    start = end if journal.has_anchor(end, meta.get("ledger_anchor")) else 0
    entries = (line.entry for line in journal.read(start, journal.end))
    said = {(entry.source, entry.message_id) for entry in entries if isinstance(entry, Turn)}
    return [item for item in turns if (item.turn.source, item.turn.message_id) not in said]


def _meta(db: sqlite3.Connection) -> dict[str, str]:
    """How far the index knew its ledger; nothing where that is damaged too."""
    try:
        return {str(key): str(value) for key, value in db.execute("SELECT key, value FROM meta")}
    except sqlite3.Error:
        return {}


def _turns(rows: Iterable[Sequence[Any]]) -> list[OpenTurn]:
    found = ((decode(record), source, path) for record, source, path in rows if isinstance(record, bytes))
    return [OpenTurn(turn, source, path) for turn, source, path in found if isinstance(turn, Turn)]


def _files(rows: Iterable[Sequence[Any]]) -> list[FileChange]:
    return [
        FileChange(source, path, cursor, state, seen_ms=seen, root=root, open=bool(is_open))
        for source, path, cursor, state, seen, root, is_open in rows
    ]
