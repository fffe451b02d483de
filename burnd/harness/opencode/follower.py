"""Follows one database in a worker thread: finds changed sessions, reads them, collects what is new."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import structlog
from msgspec.structs import replace

from burnd.harness.opencode import database
from burnd.harness.opencode.cursor import ChangeFinder, Cursors, RowCursor, SessionCursor, cursor_changes
from burnd.harness.opencode.database import (
    Database,
    DataVersion,
    Schema,
    StaleRead,
    Unsupported,
    damage_name,
    error_name,
    is_lock,
    probe,
    v2_tables,
)
from burnd.harness.opencode.reader import ReadOptions, SessionReader, SessionRows
from burnd.harness.opencode.rows import digest_of
from burnd.harness.opencode.session import SOURCE, SessionChanges, SessionState
from burnd.index.change import CursorChange
from burnd.index.keys import path_key
from burnd.ledger.content import INLINE_BYTES
from burnd.logfiles.tail import FATAL, LINES_SHOWN, PLACES_KEPT
from burnd.recording.candidate import turn_of
from burnd.recording.crash_guard import CrashGuard
from burnd.recording.source import UnusedInAll, UnusedLine
from burnd.records import Turn

BATCH_BYTES = 8 << 20
LOCK_PATIENCE_S = 60.0  # how long a session waits for another, locked database
_READ_S = 0.15
_MESSAGES_IN_MEMORY = 5000

MessageIds = frozenset[str]
log = structlog.get_logger()


def cursor_source(key: str) -> str:
    return f"{SOURCE}:{key}"


class DatabaseChanges(SessionChanges):
    """Changes of several sessions with the cursors to store; `size` is the number of bytes read."""

    row_cursor: RowCursor | None = None
    session_cursors: dict[str, SessionCursor | None] = msgspec.field(default_factory=dict)
    size: int = 0


class LookResult(NamedTuple):
    """Whether rows have certainly changed since the last look, and why all sessions are compared again."""

    changed: bool
    rewound: str = ""


class Precedence:
    """Looks up which messages of a session the databases with precedence have.

    An import into another channel's database keeps all ids; the first database with a message records it.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self.earlier: Sequence[DatabaseFollower] = ()
        self._counts = counts
        self._locked_since: dict[str, float] = {}
        self._locked_at: dict[str, float] = {}

    def messages_elsewhere(self, session_id: str, before: MessageIds | None, now: float) -> MessageIds | None:
        """The messages of a session that earlier databases have; None if none has the session.

        Raises StaleRead while one is locked. If it stays locked or is unreadable, the earlier result (`before`) counts,
        so that new messages here are not lost.
        """
        results = [self._messages_in(database, session_id, before, now) for database in self.earlier]
        ids = [one for one in results if one is not None]
        return frozenset().union(*ids) if ids else None

    def _messages_in(
        self, database: DatabaseFollower, session_id: str, before: MessageIds | None, now: float
    ) -> MessageIds | None:
        reason = "locked"
        if self._locked_at.get(database.key) != now:  # wait for a lock only once in each read
            try:
                ids = database.ids_of(session_id)
            except FileNotFoundError:
                return None
            except (OSError, sqlite3.Error, StaleRead, Unsupported) as error:
                if isinstance(error, StaleRead) or is_lock(error):
                    self._locked_at[database.key] = now
                    self._locked_since.setdefault(database.key, now)
                else:
                    reason = error_name(error)
            else:
                self._locked_since.pop(database.key, None)
                return ids
        if reason == "locked" and now - self._locked_since[database.key] < LOCK_PATIENCE_S:
            raise StaleRead
        self._counts[f"sessions compared with no other database ({reason})"] += 1
        return before or (frozenset() if database.has_cursor(session_id) else None)


class DatabaseFollower:
    """`look` finds what changed, `read` takes it, `settle` collects what is quiet; one thread at a time."""

    def __init__(
        self,
        path: str,
        options: ReadOptions,
        cursors: Cursors,
        open_turns: dict[str, Turn],
        guard: CrashGuard,
        folders: Sequence[str] = (),
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        self.db = Database(path)
        self.key = path_key(path)
        self.open_turns = open_turns  # as the index has them
        self.v2_tables: tuple[str, ...] = ()
        self.damage = ""
        self.caught_up = False
        self.counts: Counter[str] = Counter()
        self.precedence = Precedence(self.counts)
        self.finder = ChangeFinder(options.includes, cursors)
        self._options = options
        self._guard = guard
        self._reader = SessionReader([os.path.dirname(path), *folders], options, guard, inline_bytes)
        self._sessions: OrderedDict[str, SessionState] = OrderedDict()
        self._due: dict[str, float] = {}
        self._unreadable: set[str] = set()
        self._schema: tuple[tuple[int, int], int, Schema] | None = None
        self._version = DataVersion(-1, None)
        for session_id in [name for name in cursors.sessions if name in guard.suspected]:
            self.finder.reread(session_id)

    @property
    def due(self) -> float | None:
        return min(self._due.values(), default=None)

    def close(self) -> None:
        self.db.close()
        self._reader.close()

    def look(self, *, scan: bool) -> LookResult:
        """Finds what changed; a scan compares every session with its cursor.

        A bad page hides its rows and those behind it, but not what was found before.
        """
        rewound, damage = "", ""
        with self.db.reading() as db:
            version = self.db.version(db)
            if version == self._version and not scan:
                return LookResult(False)
            schema = self._probe(db)
            try:
                rewound = self.finder.find_new(db, self.db.identity)
            except sqlite3.Error as error:
                damage = damage_name(error)
            for session_id, state in self._sessions.items():
                deep = scan and state.sequence < 0  # without an event log any part may have changed
                if deep or state.is_pending:
                    self.finder.mark(session_id, deep=deep)
            if scan or rewound:
                try:
                    self.finder.scan(db, schema, {turn.session_id for turn in self.open_turns.values()})
                except sqlite3.Error as error:
                    damage = damage_name(error)
                self.v2_tables = v2_tables(db)
            changed, self._version = version.has_changed_since(self._version), version
        self.damage = damage or self.damage  # not after a stale read: a page being written may look damaged
        return LookResult(changed, rewound)

    def read(self, now: float, wall_ms: int, max_bytes: int = BATCH_BYTES) -> DatabaseChanges:
        changes = DatabaseChanges()
        for rows in self._fetch(max_bytes):
            if not rows.is_partial:
                self.finder.done(rows.session_id)
            self._take_safely(rows, now, wall_ms, changes)
            changes.size += rows.fetched.size
        if not self.finder.waiting and not self.finder.postponed and self.finder.rows != self.finder.stored_rows:
            changes.row_cursor = self.finder.rows
        return changes

    def settle(self, now: float, *, flush: bool = False, session_id: str | None = None) -> DatabaseChanges:
        """With `flush` settles all that is open, or all of one session."""
        changes = DatabaseChanges()
        for name, state in list(self._sessions.items()):
            is_flushed = flush and session_id in (None, name)
            if is_flushed or self._due.get(name, now + 1) <= now:
                new, changes.session_cursors[name] = self._collect(state, now, flush=is_flushed)
                changes.add(new)
        return changes

    def unusable(self) -> UnusedInAll:
        """The first unused row of each session, then the second of each, and so on."""
        cursors = self.finder.with_unusable.values()
        ranked = sorted((n, row) for cursor in cursors for n, row in enumerate(cursor.unusable))[:LINES_SHOWN]
        rows = [UnusedLine(self.db.path, 0, row.size, row.reason, row.row) for _, row in ranked]
        return UnusedInAll(sum(cursor.unusable_count for cursor in cursors), 0, rows)

    def skipped(self) -> list[str]:
        sessions = self.finder.with_unusable.items()
        return [f"{row.row} of {name}" for name, cursor in sessions for row in cursor.unusable if row.reason == FATAL]

    def cursor_changes(self, changes: DatabaseChanges) -> list[CursorChange]:
        before = self.finder.sessions
        sessions = [item for item in changes.session_cursors.items() if item[1] != before.get(item[0])]
        return cursor_changes(cursor_source(self.key), changes.row_cursor, sessions)

    def committed(self, changes: DatabaseChanges) -> None:
        for turn in changes.orphans:
            self.open_turns.pop(turn.message_id, None)
        for candidate in (step.candidate for step in changes.steps):
            if candidate.settled:
                self.open_turns.pop(candidate.message_id, None)
            else:
                self.open_turns[candidate.message_id] = turn_of(candidate)
        self.finder.committed(changes.row_cursor, changes.session_cursors)
        self._free_memory()

    def failed(self, changes: DatabaseChanges) -> None:
        """Reads the sessions again, since their changes were not recorded."""
        for name in changes.session_cursors:
            self._forget(name)
            self.finder.mark(name, deep=True)

    def reread(self, session_id: str) -> None:
        self._forget(session_id)
        self.finder.reread(session_id)

    def retry_unreadable(self) -> None:
        self.damage = ""
        for name in self._unreadable:
            self.finder.mark(name, deep=True)
        self._unreadable.clear()

    def ids_of(self, session_id: str) -> MessageIds | None:
        """The messages of a session; None if this database lacks it. Raises as `look` does."""
        with self.db.reading() as db:
            stored = database.one_session(db, self._probe(db), session_id)
            if stored is None or not self._options.includes(stored):
                return None
            return database.message_ids(db, session_id)

    def has_cursor(self, session_id: str) -> bool:
        return session_id in self.finder.sessions

    def _probe(self, db: sqlite3.Connection) -> Schema:
        version = database.schema_version(db)
        if self._schema is None or self._schema[:2] != (self.db.identity, version):
            self._schema = (self.db.identity, version, probe(db))
        return self._schema[2]

    def _fetch(self, max_bytes: int) -> list[SessionRows]:
        batch: list[SessionRows] = []
        size, start = 0, time.monotonic()
        with self.db.reading() as db:
            schema = self._probe(db)
            for session_id, deep in self.finder.in_order():
                if session_id in self._unreadable:
                    self.finder.done(session_id)
                    continue
                try:
                    rows = self._fetch_session(db, schema, session_id, deep=deep, max_bytes=max_bytes - size)
                except sqlite3.Error as error:
                    rows = SessionRows(session_id, failure=damage_name(error))
                batch.append(rows)
                size += rows.fetched.size
                if size >= max_bytes or time.monotonic() - start > _READ_S:
                    break
        return batch

    def _fetch_session(
        self, db: sqlite3.Connection, schema: Schema, name: str, *, deep: bool, max_bytes: int
    ) -> SessionRows:
        """The rows to decode; a session that is not in memory is first compared with its cursor."""
        state, cursor = self._sessions.get(name), self.finder.sessions.get(name)
        with database.snapshot(db):
            stored = database.one_session(db, schema, name) or database.orphaned_session(db, name)
            if stored is None or not self._options.includes(stored):
                return SessionRows(name)
            sequence = database.sequence_of(db, schema, name)
            if state is None and cursor is not None and not cursor.pending:
                versions = database.session_versions(db, schema, name, with_parts=True)
                digests = (stored.digest, digest_of(version.digest for version in versions))
                if digests == (cursor.row, cursor.versions):
                    return SessionRows(name, stored, sequence, is_unchanged=True)
            else:
                versions = database.session_versions(db, schema, name, with_parts=deep and state is not None)
            ids = [version.id for version in versions if state is None or state.must_read(version)]
            fetched, done = database.fetch(db, schema, ids, max_bytes)
            return SessionRows(name, stored, sequence, versions, fetched, is_partial=done < len(ids))

    def _take_safely(self, rows: SessionRows, now: float, wall_ms: int, changes: DatabaseChanges) -> None:
        """Takes the rows of a session; a failure must not stop the others."""
        name = rows.session_id
        try:
            result = self._take(rows, now, wall_ms)
        except StaleRead:
            self.finder.postpone(name)
        except Exception as error:  # noqa: BLE001 - status shows it, and it is tried again
            log.error("source.session_failed", source=SOURCE, error=type(error).__name__)
            self._forget(name)
            self._note_unreadable(SessionRows(name, failure=type(error).__name__))
        else:
            if result is not None:
                new, changes.session_cursors[name] = result
                changes.add(new)
            if name in self._guard.suspected and not rows.failure and not rows.is_partial:
                self._guard.clear(name)

    def _take(self, rows: SessionRows, now: float, wall_ms: int) -> tuple[SessionChanges, SessionCursor | None] | None:
        name, stored, state = rows.session_id, rows.stored, self._sessions.get(rows.session_id)
        if rows.failure:
            self._note_unreadable(rows)
            return None
        if stored is None:
            return self._drop(name, now), None
        if rows.is_unchanged:
            return SessionChanges(), replace(self.finder.sessions[name], row=stored.digest, sequence=rows.sequence)
        before = state.elsewhere if state is not None else None
        elsewhere = self.precedence.messages_elsewhere(name, before, now)
        self._note_unreadable(rows)
        if state is None:
            state = SessionState(stored.row, self.key, is_old=not self.caught_up or name in self.finder.sessions)
        state.update_row(stored.row)
        state.wrong_columns = stored.wrong_columns
        state.elsewhere = elsewhere
        state.row_digest, state.sequence, state.partly_read = stored.digest, rows.sequence, rows.is_partial
        readings = self._reader.decode(rows, state, now, wall_ms)
        state.is_old = state.is_old and rows.is_partial
        state.update([version.id for version in rows.versions], readings, now)
        self._sessions[name] = state
        self._sessions.move_to_end(name)
        return self._collect(state, now)

    def _collect(self, state: SessionState, now: float, *, flush: bool = False) -> tuple[SessionChanges, SessionCursor]:
        name = state.row.id
        changes, due = state.changes(now, flush=flush)
        changes.orphans += state.orphans(self.open_turns)
        if due is None:
            self._due.pop(name, None)
        else:
            self._due[name] = due
        pending = state.is_pending or state.partly_read or name in self._unreadable
        unusable = sorted(state.unusable, key=lambda row: row.reason != FATAL)
        cursor = SessionCursor(
            row=state.row_digest,
            sequence=state.sequence,
            versions=0 if pending else state.versions_digest,
            pending=pending,
            unfinished=state.unfinished,
            unusable=tuple(unusable[:PLACES_KEPT]),
            unusable_count=len(unusable),
        )
        return changes, cursor

    def _drop(self, session_id: str, now: float) -> SessionChanges:
        changes = SessionChanges()
        state = self._sessions.get(session_id)
        if state is not None:
            state.update((), {}, now)
            changes.content += state.changes(now)[0].content
        changes.orphans += [turn for turn in self.open_turns.values() if turn.session_id == session_id]
        self._forget(session_id)
        return changes

    def _free_memory(self) -> None:
        """Drops sessions without anything open, the longest unchanged first; during a first read all."""
        surplus = sum(map(len, self._sessions.values())) - (_MESSAGES_IN_MEMORY if self.caught_up else 0)
        for name, state in list(self._sessions.items()):
            if surplus <= 0:
                return
            if not state.is_pending and name not in self.finder.waiting:
                surplus -= len(state)
                self._forget(name)

    def _forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
        self._due.pop(session_id, None)

    def _note_unreadable(self, rows: SessionRows) -> None:
        self.counts["messages"] += len(rows.fetched.rows)
        for name in (*rows.fetched.unreadable, *filter(None, [rows.failure])):
            self.counts[f"unreadable rows ({name})"] += 1
            self.damage = name
            self._unreadable.add(rows.session_id)
