"""Numbers changes, so that the change feed finds the rows that a push has to send again.

`meta` has a counter, which each transaction raises that changes something a push sends. `turns.seq` is its value at the
last change of the turn itself, `changed_sessions.seq` that of anything of a session, and `every` that of a change to
the rows of all its turns, such as a tag. `feed` is a random name for these numbers; an index with other rows has
another one. `feed_base` is the time of its creation in microseconds: added to the counter, it makes the numbers of a
rebuilt index higher than all before. With every opening the counter jumps to the time since then: after a power failure
SQLite may have lost the last transactions, whose numbers a push has seen.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import msgspec

from burnd.index.store import keyed, many


def next_seq(db: sqlite3.Connection) -> int:
    """The number of the changes of this transaction. A second one in the same transaction does no harm."""
    ((seq,),) = db.execute(_NEXT).fetchall()
    return int(seq)


def mark_sessions(db: sqlite3.Connection, seq: int, sessions: Iterable[int]) -> None:
    """Marks sessions of which anything changed, and those that started them, which have the findings of all.

    A new session may be the parent of older ones, which have no findings of their own then: these are marked, too.
    """
    given = msgspec.json.encode(sorted(sessions)).decode()
    marked = {row[0] for sql in (_ANCESTORS, _CHILDREN_OF_NEW) for row in db.execute(sql, (given,))}
    many(db, _MARK, [(session, seq) for session in sorted(marked)])


def mark_stamped(db: sqlite3.Connection, seq: int, session_ids: Iterable[str], message_ids: Iterable[str]) -> None:
    """Marks turns whose tags may have changed: those of sessions and their descendants, and single messages."""
    every = {row[0] for row in keyed(db, _DESCENDANTS, [(one,) for one in sorted(set(session_ids))])}
    many(db, _MARK_EVERY, [(session, seq) for session in sorted(every)])
    turns = keyed(db, _MESSAGES, [(one,) for one in sorted(set(message_ids))])
    mark_turns(db, seq, turns)


def mark_turns(db: sqlite3.Connection, seq: int, turns: Iterable[tuple[int, int]]) -> None:
    turns = list(turns)
    many(db, "UPDATE turns SET seq = ? WHERE id = ?", [(seq, turn) for turn, _ in turns])
    mark_sessions(db, seq, sorted({session for _, session in turns}))


def mark_moved(db: sqlite3.Connection, turns: Iterable[tuple[int, int | None, int | None]]) -> None:
    """Notes the project that each turn has so far, if it differs from the given one. Call it before writing the turn.

    A push that leaves a project out deletes a turn that moved to it, but names no turn that was always of it.
    """
    many(db, _MOVED, [(turn, project or 0, key or 0) for turn, project, key in turns])


def mark_gone(db: sqlite3.Connection, seq: int, turns: Iterable[int]) -> None:
    """Marks turns as none any more, before they are deleted. One that is recorded again later counts as a turn."""
    rows = [(turn,) for turn in turns]
    many(db, f"INSERT OR REPLACE INTO gone_turns SELECT source, message_id, {int(seq)} FROM turns WHERE id = ?", rows)
    many(db, _FORMER, rows)


_NEXT = "UPDATE meta SET value = value + 1 WHERE key = 'changes' RETURNING value"
_FORMER = """
INSERT OR IGNORE INTO former_projects
SELECT source, message_id, coalesce(project, 0), coalesce(project_key, 0) FROM turns WHERE id = ?1
"""
_MOVED = f"{_FORMER} AND (coalesce(project, 0) <> ?2 OR coalesce(project_key, 0) <> ?3)"
_ANCESTORS = """
WITH RECURSIVE line(id, parent) AS (
  SELECT s.id, s.parent_session_id FROM json_each(?) w CROSS JOIN sessions s ON s.id = w.value
  UNION SELECT s.id, s.parent_session_id FROM line l CROSS JOIN sessions s ON s.session_id = l.parent)
SELECT id FROM line
"""
_CHILDREN_OF_NEW = """
SELECT c.id FROM json_each(?) w CROSS JOIN sessions p ON p.id = w.value
CROSS JOIN sessions c ON c.parent_session_id = p.session_id
WHERE NOT EXISTS (SELECT 1 FROM changed_sessions x WHERE x.session = p.id)
"""
_MARK = "INSERT INTO changed_sessions VALUES(?1, ?2, 0) ON CONFLICT DO UPDATE SET seq = ?2"
_MARK_EVERY = "INSERT INTO changed_sessions VALUES(?1, ?2, ?2) ON CONFLICT DO UPDATE SET seq = ?2, every = ?2"
# A session may be named as a parent before it has a row.
_DESCENDANTS = """
WITH RECURSIVE line(session_id) AS (
  {keys} UNION SELECT s.session_id FROM line l CROSS JOIN sessions s ON s.parent_session_id = l.session_id)
SELECT s.id FROM line l CROSS JOIN sessions s ON s.session_id = l.session_id
"""
_MESSAGES = """
WITH w(message_id) AS ({keys})
SELECT t.id, t.session FROM (SELECT DISTINCT source FROM sessions WHERE source IS NOT NULL) s CROSS JOIN w
CROSS JOIN turns t ON t.source = s.source AND t.message_id = w.message_id
"""
