"""Cursors of a database, and the search for sessions that changed since."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from burnd.harness.opencode import database
from burnd.harness.opencode.database import FIRST_ROWID, LAST_ROWID, Schema, StoredSession
from burnd.harness.opencode.rows import UnusableRow
from burnd.index.change import CursorChange

T = TypeVar("T")
_MOST_UNFINISHED = 500
_ROWS = "marker"
_SESSION = "session:"


class RowCursor(msgspec.Struct, frozen=True, array_like=True):
    """The next rowid to read, the message before it, and the file's identity.

    Rowids are reused after the newest rows were deleted, and change when a database is restored from a dump: then the
    message before the next rowid is another one.
    """

    next: int = FIRST_ROWID
    last_id: str | None = None
    identity: tuple[int, int] | None = None

    @property
    def is_last(self) -> bool:
        """Whether the largest rowid is taken, so that SQLite gives new rows any free one."""
        return self.next > LAST_ROWID


class SessionCursor(msgspec.Struct, frozen=True, array_like=True):
    """Digests of a session's row and of its messages' versions, and the last number in its event log."""

    row: int
    sequence: int = -1
    versions: int = 0
    pending: bool = False
    unfinished: tuple[tuple[str, int, int], ...] = ()
    unusable: tuple[UnusableRow, ...] = ()
    unusable_count: int = 0


class Cursors(NamedTuple):
    rows: RowCursor
    sessions: dict[str, SessionCursor]


def cursor_changes(
    source: str, rows: RowCursor | None, sessions: Iterable[tuple[str, SessionCursor | None]]
) -> list[CursorChange]:
    encode = msgspec.msgpack.encode
    changes = [
        CursorChange(source, _SESSION + name, encode(cursor) if cursor is not None else None)
        for name, cursor in sessions
    ]
    return changes + ([CursorChange(source, _ROWS, encode(rows))] if rows is not None else [])


def load_cursors(stored: Iterable[tuple[str, bytes]]) -> Cursors:
    rows, sessions = RowCursor(), {}
    for key, value in stored:
        if key == _ROWS:
            rows = _decode(value, RowCursor) or rows
        elif (cursor := _decode(value, SessionCursor)) is not None:
            sessions[key.removeprefix(_SESSION)] = cursor
    return Cursors(rows, sessions)


def _decode(value: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.MsgspecError, ValueError):
        return None


class ChangeFinder:
    """Finds changed sessions: by new rows, by their own rows, and those still open.

    `waiting` are the sessions to read, each with whether to compare all parts; `postponed` wait for another database.
    """

    def __init__(self, includes: Callable[[StoredSession], bool], cursors: Cursors) -> None:
        self.stored_rows = cursors.rows
        self.rows = cursors.rows  # behind all rows whose sessions are marked, though perhaps unread
        self.sessions = cursors.sessions
        self.with_unusable = {name: one for name, one in cursors.sessions.items() if one.unusable_count}
        self.waiting: dict[str, bool] = {}
        self.postponed: set[str] = set()
        self._live: set[str] = set()  # waiting sessions that changed after the first scan
        self._includes = includes
        self._cache: database.SessionCache = {}
        self._scans_deeply = True
        self._has_scanned = False

    @property
    def is_behind(self) -> bool:
        return bool(self.waiting or self.postponed) or self.rows != self.stored_rows

    def mark(self, session_id: str, *, deep: bool) -> None:
        self.waiting[session_id] = deep or self.waiting.get(session_id, False)
        if self._has_scanned:
            self._live.add(session_id)

    def in_order(self) -> list[tuple[str, bool]]:
        live = [item for item in self.waiting.items() if item[0] in self._live]
        return live + [item for item in reversed(self.waiting.items()) if item[0] not in self._live]

    def done(self, session_id: str) -> None:
        self.waiting.pop(session_id, None)
        self._live.discard(session_id)

    def postpone(self, session_id: str) -> None:
        self.done(session_id)
        self.postponed.add(session_id)

    def resume_postponed(self) -> None:
        for session_id in self.postponed:
            self.mark(session_id, deep=True)
        self.postponed.clear()

    def find_new(self, db: sqlite3.Connection, identity: tuple[int, int]) -> str:
        """Marks the sessions of new rows. Returns the reason if all sessions must be compared."""
        reason = ""
        if self.rows.identity not in (None, identity):
            reason = "another file is in its place"
            self.rows = RowCursor()
            for session_id in self.sessions:
                self.mark(session_id, deep=True)
        self.rows = replace(self.rows, identity=identity)
        while True:
            sessions: list[str] = []
            with database.snapshot(db):  # the last message must be in the state that is read
                last_id = self.rows.last_id
                if last_id is not None and database.message_at(db, self.rows.next - 1) != last_id:
                    reason = "rows were deleted or renumbered"
                    self._scans_deeply = True
                    rowid, last_id = database.last_message(db) or (FIRST_ROWID - 1, None)
                    self.rows = replace(self.rows, next=rowid + 1, last_id=last_id)
                    sessions = [name for name in database.sessions_with_messages(db) if name not in self.sessions]
                page = database.new_messages(db, self.rows.next) if not self.rows.is_last else []
                if page:
                    self.rows = replace(self.rows, next=page[-1][0] + 1, last_id=page[-1][1])
                    sessions += [session_id for _, _, session_id in page]
                if self.rows.is_last:
                    sessions = database.sessions_with_messages(db)
            for session_id in reversed(dict.fromkeys(reversed(sessions))):
                is_deep = self.waiting.pop(session_id, False)  # moves to the end: its message is the newest so far
                self.mark(session_id, deep=is_deep or bool(reason) or self.rows.is_last)
            if not page or self.rows.is_last:
                return reason

    def scan(self, db: sqlite3.Connection, schema: Schema, with_open_turns: Iterable[str]) -> None:
        """Compares every session's row and event log with its cursor. Without an event log, as before 1.16 or after an
        import, a message may change without a trace in its session's row: these are compared deeply in the first scan,
        and after rows were deleted.
        """
        sequences = database.sequences(db, schema)
        present: set[str] = set()
        for stored in database.all_sessions(db, schema, self._cache):
            session_id, cursor = stored.row.id, self.sessions.get(stored.row.id)
            if not self._includes(stored):
                continue
            present.add(session_id)
            sequence = sequences.get(session_id, -1)
            is_doubtful = sequence < 0 and self._scans_deeply
            is_same = cursor is not None and (cursor.row, cursor.sequence) == (stored.digest, sequence)
            if cursor is None or cursor.pending or is_doubtful or not is_same:
                self.mark(session_id, deep=True)
        for session_id in {*self.sessions, *with_open_turns} - present:
            self.mark(session_id, deep=True)
        self._check_unfinished(db, schema)
        self._scans_deeply, self._has_scanned = False, True

    def _check_unfinished(self, db: sqlite3.Connection, schema: Schema) -> None:
        watched = {
            message_id: (updated, digest, session_id)
            for session_id, cursor in self.sessions.items()
            for message_id, updated, digest in cursor.unfinished
        }
        newest = dict(sorted(watched.items(), key=lambda item: item[1])[-_MOST_UNFINISHED:])
        versions = database.versions_of(db, schema, list(newest))
        for message_id, (_, digest, session_id) in newest.items():
            if message_id not in versions or versions[message_id].digest != digest:
                self.mark(session_id, deep=True)

    def reread(self, session_id: str) -> None:
        if session_id in self.sessions:
            self.sessions[session_id] = replace(self.sessions[session_id], pending=True)
            self.mark(session_id, deep=True)

    def committed(self, rows: RowCursor | None, sessions: dict[str, SessionCursor | None]) -> None:
        for session_id, cursor in sessions.items():
            self.with_unusable.pop(session_id, None)
            if cursor is None:
                self.sessions.pop(session_id, None)
            else:
                self.sessions[session_id] = cursor
                if cursor.unusable_count:
                    self.with_unusable[session_id] = cursor
        self.stored_rows = rows or self.stored_rows
