"""Finds the sessions of a database that have changed: by new rows, by their own rows, and by those still open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import msgspec

from burnd.harness.opencode import queries
from burnd.harness.opencode.cursor import Cursors, Marker, Seen
from burnd.harness.opencode.schema import Schema
from burnd.harness.opencode.wanted import Wanted

_MOST_WATCHED = 500


class Finder:
    """Knows how far a database was read. Deep is what asks for a look at all parts of a session, not only new ones."""

    def __init__(self, wanted: Wanted, cursors: Cursors) -> None:
        self.marker = cursors.marker  # as it is stored
        self.found = cursors.marker  # behind the rows that were found, whose sessions may not have been read yet
        self.seen = cursors.seen
        self.marred = {name: seen for name, seen in cursors.seen.items() if seen.unused_count}  # with unusable rows
        self.waiting: dict[str, bool] = {}  # session to whether it is to be looked at deeply
        self.postponed: set[str] = set()  # sessions to be read again once another database can be asked about them
        self._lively: set[str] = set()  # those of them that changed after the first look
        self._wanted = wanted
        self._rows: queries.Known = {}
        self._verified = False

    def mark(self, session_id: str, *, deep: bool) -> None:
        self.waiting[session_id] = deep or self.waiting.get(session_id, False)
        if self._verified:
            self._lively.add(session_id)

    def in_turn(self) -> list[tuple[str, bool]]:
        """What waits, with what is going on now before what was there already."""
        lively = [(name, deep) for name, deep in self.waiting.items() if name in self._lively]
        return lively + [(name, deep) for name, deep in self.waiting.items() if name not in self._lively]

    def done_with(self, session_id: str) -> None:
        self.waiting.pop(session_id, None)
        self._lively.discard(session_id)

    def put_off(self, session_id: str) -> None:
        """What was read of a session does not count: it is read again, but not at once."""
        self.done_with(session_id)
        self.postponed.add(session_id)

    def take_up_postponed(self) -> None:
        for session_id in self.postponed:
            self.mark(session_id, deep=True)
        self.postponed.clear()

    def find_new(self, db: sqlite3.Connection, identity: tuple[int, int]) -> str:
        """Looks at the rows behind the marker. Returns why it had to go back, if it had to.

        Numbers are given out again after the newest rows are deleted, and anew when a database is written from a
        dump: so the row before the marker must still be the one it was, in the very state that is read on from.
        """
        reason = ""
        if self.found.identity not in (None, identity):
            reason = "another file is in its place"
            self.found = Marker()
            for session_id in self.seen:
                self.mark(session_id, deep=True)
        self.found = msgspec.structs.replace(self.found, identity=identity)
        while True:
            with queries.one_state(db):
                anchor = queries.standing(db, self.found.anchors)
                if self.found.anchors and anchor != self.found.anchors[-1]:
                    reason = "rows were deleted or numbered anew"
                    self.found = self.found.back_to(anchor)
                sessions, behind = queries.new_rows(db, self.found)
                if behind.is_last:
                    # New rows may have any free rowid, so all sessions are compared with their saved state.
                    sessions = queries.sessions_with_messages(db)
            if behind == self.found and not behind.is_last:
                return reason
            self.found = behind
            for session_id in sessions:
                self.mark(session_id, deep=bool(reason) or behind.is_last)
            if behind.is_last:
                return reason

    def scan(self, db: sqlite3.Connection, schema: Schema, shown_in: Iterable[str]) -> None:
        """Compares every session's row with what was seen; those `shown_in` hold turns that are still open.

        Where a session has no event log, as before 1.16 or after an import, a message may change without a trace in
        its session's row: such a session is looked at deeply once, and as long as it is followed each time.
        """
        sequences = queries.sequences(db, schema)
        there: set[str] = set()
        for found in queries.all_sessions(db, schema, self._rows):
            session_id, known = found.row.id, self.seen.get(found.row.id)
            if not self._wanted.takes(found):
                continue
            there.add(session_id)
            seq = sequences.get(session_id, -1)
            doubtful = seq < 0 and not self._verified
            if known is None or known.pending or doubtful or (known.row, known.seq) != (found.digest, seq):
                self.mark(session_id, deep=True)
        for session_id in {*self.seen, *shown_in} - there:
            self.mark(session_id, deep=True)
        self._watch_unfinished(db, schema)
        self._verified = True

    def _watch_unfinished(self, db: sqlite3.Connection, schema: Schema) -> None:
        """An answer that was taken for dead may be finished after all."""
        watched = {
            message_id: (updated, digest, session_id)
            for session_id, seen in self.seen.items()
            for message_id, updated, digest in seen.unfinished
        }
        newest = dict(sorted(watched.items(), key=lambda item: item[1])[-_MOST_WATCHED:])
        now = queries.versions_of(db, schema, list(newest))
        for message_id, (_, digest, session_id) in newest.items():
            if message_id not in now or now[message_id].digest != digest:
                self.mark(session_id, deep=True)

    def remember(self, seen: dict[str, Seen | None], marker: Marker | None) -> None:
        """What is durable now."""
        for session_id, one in seen.items():
            self.marred.pop(session_id, None)
            if one is None:
                self.seen.pop(session_id, None)
            else:
                self.seen[session_id] = one
                if one.unused_count:
                    self.marred[session_id] = one
        self.marker = marker or self.marker
