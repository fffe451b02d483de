"""Lists sessions that the index lacks or has differently, and plans which messages to index. Reads SQLite only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.ledger.content import Placed
from burnd.ledger.sqlite_files import batches
from burnd.records.codec import hash_of
from burnd.records.content import NO_RAIL
from burnd.search.documents import Coverage, MessageName, session_key
from burnd.tokens.words import SearchWords

if TYPE_CHECKING:
    from burnd.search.index import SearchIndex

AT_ONCE_BYTES: Final = 1 << 20  # of a sidecar: some thousand messages
# The records of a session between two positions, if they are in memory.
Recent = Callable[[str, int, int], Sequence[Placed]]
# A record's position and length in the sidecar, and its words if they are in memory.
Record = tuple[int, int, SearchWords | None]
# The rail, message, number and block of a record, and the record.
_Row = tuple[str, str, int, int, int, int, SearchWords | None]


class SessionState(NamedTuple):
    """A session in the SQLite index."""

    session_id: str
    row: int
    bytes: int
    pruned: int
    title: str | None
    summary: str | None
    updated_at: int

    @property
    def coverage(self) -> Coverage:
        """The coverage of an index that has all of it."""
        names = (self.title, self.summary)
        title = hash_of(msgspec.json.encode(names)) if any(names) else 0
        return Coverage(self.bytes, self.pruned, title)


class PendingMessage(NamedTuple):
    """A message with something new, and the newest line of each of its records."""

    name: MessageName
    records: Sequence[Record]
    is_indexed: bool  # an index with the coverage before may have a part of it


class SessionPlan(NamedTuple):
    """The part of a session to index next."""

    session: SessionState
    before: Coverage
    is_fresh: bool  # remove all that the index has of the session first
    messages: Sequence[PendingMessage]
    after: Coverage
    calls: Sequence[tuple[str, str]] = ()  # id and tool of calls before this part

    @property
    def is_last(self) -> bool:
        return self.after == self.session.coverage

    @property
    def erases(self) -> bool:
        """Whether words must go from the index."""
        return self.is_fresh and (self.before.covered > 0 or self.before.title != 0)


def pending_sessions(db: sqlite3.Connection, index: SearchIndex) -> list[str]:
    """The sessions that the index is behind with, the latest first.

    Marks the index for a rebuild if it has a session that is not recorded any more, whose words must go.
    """
    sessions = _sessions(db, "")
    if not index.covered_keys <= {session_key(session.session_id) for session in sessions}:
        index.has_erased = True
    late = [session for session in sessions if session.coverage != index.coverage(session.session_id)]
    late.sort(key=lambda session: -session.updated_at)
    return [session.session_id for session in late]


def plans(
    db: sqlite3.Connection,
    session_ids: Sequence[str],
    coverage_of: Callable[[str], Coverage],
    most: int,
    needs_calls: Callable[[str], bool],
    recent: Recent = lambda *_: (),
) -> tuple[list[SessionPlan], int]:
    """Plans for these sessions, about `most` messages in all, and the number of sessions that they finish."""
    session_plans: list[SessionPlan] = []
    left = most
    for finished, session_id in enumerate(session_ids):
        if left <= 0:
            return session_plans, finished
        found = _sessions(db, "WHERE session_id = ?", (session_id,))
        session = found[0] if found else SessionState(session_id, 0, 0, 0, None, None, 0)
        before = coverage_of(session_id)
        if session.coverage == before:
            continue
        plan = _plan(db, session, before, recent)
        if plan.messages and before.covered and not plan.is_fresh and needs_calls(session_id):
            plan = plan._replace(calls=db.execute(_CALLS, (session.row,)).fetchall())
        session_plans.append(plan)
        left -= len(plan.messages)
        if not plan.is_last:
            return session_plans, finished
    return session_plans, len(session_ids)


def _plan(db: sqlite3.Connection, session: SessionState, before: Coverage, recent: Recent) -> SessionPlan:
    aim = session.coverage
    is_fresh = before.pruned != aim.pruned or before.covered > aim.covered
    start = 0 if is_fresh else before.covered
    stop = min(start + AT_ONCE_BYTES, aim.covered)
    messages: Sequence[PendingMessage] = ()
    if new := recent(session.session_id, start, stop):
        stop = new[-1].position + new[-1].length
        messages = _recent_messages(db, session, new)
    elif start < stop:
        rows = db.execute(_ALL_ROWS if start == 0 else _GROWN_ROWS, (session.row, start, stop)).fetchall()
        messages = _messages(session.session_id, rows)
        if start:  # a block that was written again has lost its earlier row, so any of them may be in the index
            messages = [message._replace(is_indexed=True) for message in messages]
    return SessionPlan(session, before, is_fresh, messages, Coverage(stop, aim.pruned, aim.title))


def _recent_messages(db: sqlite3.Connection, session: SessionState, new: Sequence[Placed]) -> Sequence[PendingMessage]:
    """The messages of records that are in memory, with the records that these messages had before."""
    rows: list[_Row] = [
        (label.rail, label.message_id, label.n, label.b, position, length, words)
        for label, position, length, words, _ in new
        if label.rail != NO_RAIL
    ]
    if not (start := new[0].position):
        return _messages(session.session_id, rows)
    before: list[_Row] = []
    for some in batches(list({row[1] for row in rows})):
        sql = _ROWS_OF.format(ids=",".join(["(?)"] * len(some)))
        before += db.execute(sql, (*some, session.row, start)).fetchall()
    new_messages = {row[:2] for row in rows}
    before = [row for row in before if row[:2] in new_messages]
    replaced = {(item.label.rail, item.label.message_id) for item in new if item.is_replacement}
    indexed = {row[:2] for row in before} | replaced
    messages = _messages(session.session_id, [*before, *rows])
    return [message._replace(is_indexed=True) if message.name[1:] in indexed else message for message in messages]


def _messages(session_id: str, rows: Iterable[_Row]) -> list[PendingMessage]:
    """The messages of rows that are in the order of their positions."""
    by_message: dict[tuple[str, str], dict[tuple[int, int], Record]] = {}
    for rail, message_id, n, b, position, length, words in rows:
        key = rail, message_id
        if key in by_message:
            by_message[key][n, b] = position, length, words
        else:
            by_message[key] = {(n, b): (position, length, words)}
    return [
        PendingMessage(MessageName(session_id, *key), [blocks[block] for block in sorted(blocks)], is_indexed=False)
        for key, blocks in by_message.items()
    ]


def _sessions(db: sqlite3.Connection, where: str, parameters: tuple[Any, ...] = ()) -> list[SessionState]:
    return [SessionState(*row) for row in db.execute(f"{_SESSIONS} {where}", parameters)]


_SESSIONS = """
SELECT session_id, id, content_bytes, coalesce(pruned_up_to, 0) + erasures,
  coalesce(nullif(title, ''), harness_title), coalesce(nullif(summary, ''), harness_summary), coalesce(updated_at, 0)
FROM sessions
"""
_ALL_ROWS = f"""
SELECT rail, message_id, n, b, position, length, NULL FROM messages
WHERE session = ? AND rail != '{NO_RAIL}' AND position >= ? AND position < ? ORDER BY position
"""
_ROWS_OF = f"""
WITH wanted(id) AS (VALUES {{ids}})
SELECT m.rail, m.message_id, m.n, m.b, m.position, m.length, NULL FROM wanted
CROSS JOIN {MESSAGES_BY_ID} ON m.session = ? AND {is_message("wanted.id")}
WHERE m.rail != '{NO_RAIL}' AND m.position < ? ORDER BY m.position
"""
_GROWN_ROWS = f"""
SELECT m.rail, m.message_id, m.n, m.b, m.position, m.length, NULL FROM (
  SELECT DISTINCT rail, msg_idx FROM messages
  WHERE session = ?1 AND rail != '{NO_RAIL}' AND position >= ?2 AND position < ?3) w
CROSS JOIN messages m ON m.session = ?1 AND m.rail = w.rail AND m.msg_idx = w.msg_idx WHERE m.position < ?3
ORDER BY m.position
"""
_CALLS = """
SELECT c.call_id, n.name FROM turns t JOIN tool_calls c ON c.turn = t.id JOIN names n ON n.id = c.name
WHERE t.session = ?
"""
