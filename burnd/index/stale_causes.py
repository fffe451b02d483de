"""Marks rails whose causes must be recomputed, in the transaction that changes them, and drops their findings.

A background task recomputes them later; a mark is never lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from burnd.index import changes
from burnd.index.keys import copy_key
from burnd.index.store import keyed
from burnd.records import Copy, Turn


class Mark(NamedTuple):
    """A rail that changed from this turn on."""

    session: int
    rail: str
    turn_index: int


def mark(db: sqlite3.Connection, marks: Iterable[Mark]) -> None:
    earliest: dict[tuple[int, str], int] = {}
    for session, rail, turn_index in marks:
        before = earliest.get((session, rail))
        if before is None or turn_index < before:
            earliest[session, rail] = turn_index
    if earliest:
        db.executemany(_MARK, [(*rail, turn_index) for rail, turn_index in earliest.items()])
        _drop_findings(db, {session for session, _ in earliest})


def mark_turns(db: sqlite3.Connection, turns: str) -> None:
    """Marks the rails of these turns; `turns` is a JSON array of their ids."""
    db.execute(_MARK_TURNS, (turns,))
    _drop_findings(db, {session for (session,) in db.execute(_SESSIONS_OF, (turns,))})


def mark_copies(db: sqlite3.Connection, copies: Iterable[Copy], numbers: Mapping[str, int]) -> None:
    """Marks copies by their new and recorded numbers, before they are written."""
    copies = list(copies)
    mark(db, [Mark(numbers[copy.session_id], copy.rail_id, copy.turn_index) for copy in copies])
    mark(db, _recorded_marks(db, copies))


def mark_own(db: sqlite3.Connection, turns: Iterable[Turn], numbers: Mapping[str, int]) -> None:
    """Marks turns by their numbers, and by their earlier numbers as copies."""
    turns = list(turns)
    mark(db, [Mark(numbers[turn.session_id], turn.rail_id, turn.turn_index) for turn in turns])
    sessions = msgspec.json.encode({numbers[turn.session_id] for turn in turns}).decode()
    with_copies = {session for (session,) in db.execute(_WITH_COPIES, (sessions,))}
    if with_copies:
        mark(db, _recorded_marks(db, [turn for turn in turns if numbers[turn.session_id] in with_copies]))


def _recorded_marks(db: sqlite3.Connection, messages: Iterable[Copy | Turn]) -> list[Mark]:
    keys = [(copy_key(one.source, one.message_id, one.session_id, one.rail_id),) for one in messages]
    return [Mark(*row) for row in keyed(db, _COPIES, keys)]


def mark_compactions(
    db: sqlite3.Connection, compactions: Sequence[tuple[int, str, int]], keys: Sequence[tuple[str]]
) -> None:
    """Marks the first turns after compactions (session, rail, time), and recorded compactions with these keys."""
    recorded = keyed(db, _COMPACTED, keys)
    mark(db, [Mark(session, rail, 0) for session, rail in recorded])
    if recorded:
        mark(db, [Mark(session, rail, 0) for session, rail, _ in compactions])
    else:
        db.executemany(_MARK_FROM, compactions)
        _drop_findings(db, {session for session, _, _ in compactions})


def mark_all(db: sqlite3.Connection) -> None:
    """Marks every rail, after a change to how causes are computed."""
    db.execute(f"INSERT INTO changed(session, rail, turn_index) SELECT DISTINCT session, rail, 0 {_EVERY}")


def mark_sessions(db: sqlite3.Connection, session_ids: Iterable[str]) -> None:
    keys = [(session_id,) for session_id in session_ids]
    rows = keyed(db, "SELECT id FROM sessions WHERE session_id IN ({keys})", keys)
    db.executemany(_MARK_SESSION, rows)
    _drop_findings(db, {session for (session,) in rows})


def _drop_findings(db: sqlite3.Connection, sessions: set[int]) -> None:
    if sessions:
        db.executemany(_DROP_FINDINGS, [(session,) for session in sessions])
        changes.mark_sessions(db, changes.next_seq(db), sessions)


_DROP_FINDINGS = "UPDATE findings SET change = change + 1, root = NULL, found = NULL WHERE session = ?"
_SESSIONS_OF = "SELECT DISTINCT session FROM turns WHERE id IN (SELECT value FROM json_each(?))"
_UPSERT = "ON CONFLICT DO UPDATE SET turn_index = min(turn_index, excluded.turn_index), times = times + 1"
_EVERY = f"FROM turns WHERE true {_UPSERT}"
_MARK = f"INSERT INTO changed(session, rail, turn_index) VALUES(?,?,?) {_UPSERT}"
_MARK_SESSION = f"""
INSERT INTO changed(session, rail, turn_index) SELECT DISTINCT session, rail, 0 FROM turns WHERE session = ? {_UPSERT}
"""
_MARK_TURNS = f"""
INSERT INTO changed(session, rail, turn_index)
SELECT session, rail, min(turn_index) FROM turns WHERE id IN (SELECT value FROM json_each(?)) GROUP BY 1, 2 {_UPSERT}
"""
_COPIES = (
    "SELECT session, rail, turn_index FROM facts WHERE kind = 'copy' AND turn_index IS NOT NULL AND key IN ({keys})"
)
_WITH_COPIES = """
SELECT w.value FROM json_each(?) w WHERE EXISTS (SELECT 1 FROM facts WHERE session = w.value AND kind = 'copy')
"""
_COMPACTED = "SELECT session, rail FROM facts WHERE kind = 'compaction' AND session IS NOT NULL AND key IN ({keys})"
# A compaction comes before the first message that is not older.
_MARK_FROM = f"""
INSERT INTO changed(session, rail, turn_index)
SELECT ?1, ?2, min(first) FROM (
  SELECT min(turn_index) AS first FROM turns WHERE session = ?1 AND rail = ?2 AND ts >= ?3
  UNION ALL SELECT min(turn_index) FROM facts WHERE session = ?1 AND kind = 'copy' AND rail = ?2 AND ts >= ?3)
HAVING min(first) IS NOT NULL {_UPSERT}
"""
