"""Follows one database of opencode's, in a worker thread: finds what changed, takes it in, says what is new."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar

import msgspec
import structlog

from burnd.harness.opencode import queries
from burnd.harness.opencode.cursor import Cursors, Seen, marker_change, seen_change, source_key
from burnd.harness.opencode.database import Database, Disturbed, Version
from burnd.harness.opencode.fetching import Keys, Raw, RowFetcher
from burnd.harness.opencode.finding import Finder
from burnd.harness.opencode.precedence import Precedence
from burnd.harness.opencode.queries import SessionFound
from burnd.harness.opencode.schema import Schema, coming_tables, probe
from burnd.harness.opencode.session import SOURCE, Place
from burnd.harness.opencode.session_state import DatabasePiece, SessionState
from burnd.harness.opencode.wanted import Wanted
from burnd.index.change import CursorChange
from burnd.index.path_key import path_key
from burnd.logfiles.unused import FATAL, LINES_SHOWN, PLACES_KEPT
from burnd.recording.batch import Told
from burnd.recording.hazard import Hazard
from burnd.recording.source import UnusedInAll, UnusedLine
from burnd.records import Turn

BATCH_BYTES = 8 << 20
_READING_S = 0.15
_KEPT_MESSAGES = 5000

T = TypeVar("T")
log = structlog.get_logger()


class Looked(NamedTuple):
    """Whether anything is sure to have been written since the last look, and why rows are read again, if they are."""

    changed: bool
    rewound: str = ""


class DatabaseFollower:
    """`look` finds out what changed, `read` takes it in, `settle` says what has gone quiet; one thread at a time."""

    def __init__(
        self,
        path: str,
        wanted: Wanted,
        cursors: Cursors,
        shown: dict[str, Turn],
        hazard: Hazard,
        folders: Sequence[str] = (),
    ) -> None:
        self.db = Database(path)
        self.key = path_key(path)
        self.shown = shown  # turns that the index shows as open
        self.wanting: set[str] = set()  # folders whose projects must be known before more can be read
        self.coming: tuple[str, ...] = ()
        self.damage = ""
        self.caught_up = False
        self.counts: Counter[str] = Counter()
        self.precedence = Precedence(self.counts)
        self._wanted = wanted
        self._finder = Finder(wanted, cursors)
        self._hazard = hazard
        self._rows = RowFetcher([os.path.dirname(path), *folders], wanted, hazard)
        self._cursor_source = source_key(SOURCE, self.key)
        self._sessions: OrderedDict[str, SessionState] = OrderedDict()
        self._due: dict[str, float] = {}
        self._unreadable: set[str] = set()
        self._schema: tuple[tuple[int, int], int, Schema] | None = None
        self._version = Version(-1, None)

    @property
    def waiting(self) -> int:
        """How many sessions wait to be read."""
        return len(self._finder.waiting)

    @property
    def postponed(self) -> int:
        """How many sessions wait until another database can be asked whether it tells of them."""
        return len(self._finder.postponed)

    @property
    def is_behind(self) -> bool:
        """Whether something was found that is not recorded yet."""
        return bool(self._finder.waiting or self._finder.postponed) or self._finder.found != self._finder.marker

    @property
    def due(self) -> float | None:
        """When something settles though nothing changes."""
        return min(self._due.values(), default=None)

    def look(self, *, scan: bool) -> Looked:
        """Finds what changed; a scan compares every session with what was seen of it."""
        damage = self.damage
        try:
            return self._look(scan=scan)
        except Disturbed:
            self.damage = damage  # what was written to meanwhile may have looked damaged
            raise

    def _look(self, *, scan: bool) -> Looked:
        with self.db.reading() as db:
            version = self.db.version(db)
            if version == self._version and not scan:
                return Looked(False)
            schema = self._probe(db)
            rewound = self._past_damage(lambda: self._finder.find_new(db, self.db.identity)) or ""
            for session_id, state in self._sessions.items():
                deep = scan and not state.has_sequence
                if deep or state.pending:
                    self._finder.mark(session_id, deep=deep)
            if scan or rewound:
                shown_in = {turn.session_id for turn in self.shown.values()}
                self._past_damage(lambda: self._finder.scan(db, schema, shown_in))
                self.coming = coming_tables(db)
            changed, self._version = version.was_written_since(self._version), version
        return Looked(changed, rewound)

    def read(self, now: float, wall_ms: int, keys: Keys, most_bytes: int = BATCH_BYTES) -> DatabasePiece:
        """Takes in some of the sessions that wait, for as long as a moment lasts."""
        try:
            return self._read(now, wall_ms, keys, most_bytes)
        except BaseException:
            self._hazard.hold(())  # what could not be read is in nobody's hand
            raise

    def _read(self, now: float, wall_ms: int, keys: Keys, most_bytes: int) -> DatabasePiece:
        self.wanting = set()
        piece = DatabasePiece()
        for raw in self._read_raw(keys, most_bytes):
            if not raw.more:
                self._finder.done_with(raw.session_id)
            self._take_safely(raw, now, wall_ms, keys, piece)
            piece.size += raw.fetched.size
        if not self._finder.waiting and not self._finder.postponed and self._finder.found != self._finder.marker:
            piece.marker = self._finder.found
        return piece

    def settle(self, now: float, *, flush: bool = False, session_id: str | None = None) -> DatabasePiece:
        """What has gone quiet by now; with `flush` all that is open, or all of one session."""
        piece = DatabasePiece()
        for name, state in list(self._sessions.items()):
            flushed = flush and session_id in (None, name)
            if flushed or self._due.get(name, now + 1) <= now:
                self._tell(state, piece, now, flush=flushed)
        return piece

    def unused(self) -> UnusedInAll:
        """The unusable rows of all sessions: the first of each, then the second of each, and so on."""
        marred = self._finder.marred.values()
        ranked = sorted((n, row) for seen in marred for n, row in enumerate(seen.unused))[:LINES_SHOWN]
        rows = [UnusedLine(self.db.path, 0, row.size, row.reason, row.row) for _, row in ranked]
        return UnusedInAll(sum(seen.unused_count for seen in marred), 0, rows)

    def changes(self, piece: DatabasePiece) -> list[CursorChange]:
        """What is to be stored along with a piece."""
        seen = {name: one for name, one in piece.seen.items() if one != self._finder.seen.get(name)}
        changes = [seen_change(self._cursor_source, name, one) for name, one in seen.items()]
        return changes + ([marker_change(self._cursor_source, piece.marker)] if piece.marker is not None else [])

    def put_aside(self) -> AbstractContextManager[None]:
        """While a piece waits to be recorded nobody dies over it."""
        return self._hazard.put_aside()

    def committed(self, piece: DatabasePiece) -> None:
        """A piece is durable."""
        for told in piece.steps:
            if told.settled:
                self.shown.pop(told.turn.message_id, None)
            else:
                self.shown[told.turn.message_id] = told.turn
        self._finder.remember(piece.seen, piece.marker)
        self._let_go(piece)
        self._trim()

    def failed(self, piece: DatabasePiece) -> None:
        """A piece could not be recorded: its sessions are read again from what is durable."""
        self._hazard.hold(())
        for name in {*piece.seen, *(told.turn.session_id for told in piece.steps)}:
            self._forget(name)
            self._finder.mark(name, deep=True)

    def take_up_postponed(self) -> None:
        """Sessions that could not be told from another database's are read again."""
        self._finder.take_up_postponed()

    def try_again(self) -> None:
        """What could not be read whole is given another chance."""
        self.damage = ""
        for name in self._unreadable:
            self._finder.mark(name, deep=True)
        self._unreadable.clear()

    def ids_of(self, session_id: str) -> frozenset[str] | None:
        """The messages this database holds of a session; None where it does not know it. Raises as `look` does."""
        with self.db.reading() as db:
            found = queries.one_session(db, self._probe(db), session_id)
            if found is None or not self._wanted.takes(found):
                return None
            return queries.message_ids(db, session_id)

    def has_seen(self, session_id: str) -> bool:
        """Whether a session of this database was recorded, as far as anybody remembers."""
        return session_id in self._finder.seen

    def _probe(self, db: sqlite3.Connection) -> Schema:
        version = queries.schema_version(db)
        if self._schema is None or self._schema[:2] != (self.db.identity, version):
            self._schema = (self.db.identity, version, probe(db))
        return self._schema[2]

    def _past_damage(self, find: Callable[[], T]) -> T | None:
        """A bad page hides what is on it and behind it; what was found before is found."""
        try:
            return find()
        except sqlite3.Error as error:
            if not queries.is_damage(error):
                raise
            self.damage = queries.error_name(error)
            return None

    def _read_raw(self, keys: Keys, most_bytes: int) -> list[Raw]:
        """Rows of sessions that wait, until there are enough; they count once the connection is given back."""
        raws: list[Raw] = []
        size, begun = 0, time.monotonic()
        with self.db.reading() as db:
            schema = self._probe(db)
            for session_id, deep in self._finder.in_turn():
                if session_id in self._unreadable:
                    self._finder.done_with(session_id)
                    continue
                is_suspect = self._hazard.is_suspect(session_id)
                if is_suspect and raws:
                    break  # it is taken in by itself
                self._hazard.hold([*(raw.session_id for raw in raws), session_id])
                raw = self._read_one(db, schema, session_id, keys, deep=deep, most_bytes=most_bytes - size)
                if raw.wanting is not None:
                    self.wanting.add(raw.wanting)
                    continue
                raws.append(raw)
                size += raw.fetched.size
                if is_suspect or size >= most_bytes or time.monotonic() - begun > _READING_S:
                    break
        return raws

    def _read_one(
        self, db: sqlite3.Connection, schema: Schema, session_id: str, keys: Keys, *, deep: bool, most_bytes: int
    ) -> Raw:
        state, seen = self._sessions.get(session_id), self._finder.seen.get(session_id)
        if self._hazard.forbids(session_id):
            return Raw(session_id, failure=FATAL)
        try:
            return self._rows.fetch(db, schema, session_id, state, seen, keys=keys, deep=deep, most_bytes=most_bytes)
        except sqlite3.Error as error:
            if not queries.is_damage(error):
                raise
            return Raw(session_id, failure=queries.error_name(error))

    def _take_safely(self, raw: Raw, now: float, wall_ms: int, keys: Keys, piece: DatabasePiece) -> None:
        """One session must never stop the others."""
        part = DatabasePiece()
        try:
            self._take(raw, now, wall_ms, keys, part)
        except Disturbed:
            self._finder.put_off(raw.session_id)
            return
        except Exception as error:  # noqa: BLE001 - status shows it, and it is tried again
            log.error("source.session_failed", source=SOURCE, error=type(error).__name__)
            self._forget(raw.session_id)
            self._note_unreadable(Raw(raw.session_id, failure=type(error).__name__))
            return
        piece.add(part)

    def _take(self, raw: Raw, now: float, wall_ms: int, keys: Keys, piece: DatabasePiece) -> None:
        """What was read of a session: that it is gone, or as it was, or cannot be read, or its rows."""
        session_id, found = raw.session_id, raw.found
        if raw.failure:
            self._note_unreadable(raw)
        elif found is None:
            self._drop(session_id, now, piece)
        elif raw.unchanged:
            known = self._finder.seen[session_id]
            piece.seen[session_id] = msgspec.structs.replace(known, row=found.digest, seq=raw.seq)
        else:
            self._take_rows(raw, found, Place(found.row, keys.get(found.row.directory or "")), now, wall_ms, piece)

    def _take_rows(
        self, raw: Raw, found: SessionFound, place: Place, now: float, wall_ms: int, piece: DatabasePiece
    ) -> None:
        """Brings the rows of a session to what is known of it, and says what is new."""
        session_id, state = raw.session_id, self._sessions.get(raw.session_id)
        elsewhere = self.precedence.told_above(session_id, state.elsewhere if state is not None else None, now)
        self._note_unreadable(raw)
        if state is None:
            state = SessionState(place, self.key, known=not self.caught_up or session_id in self._finder.seen)
        state.move(place)
        state.elsewhere = elsewhere
        state.read_as, state.partly_read = (found.digest, raw.seq), raw.more
        heard = self._rows.messages(raw, state, None if state.known else now, now, wall_ms)
        state.known = state.known and raw.more
        state.take([version.id for version in raw.versions], {one.version.id: one for one in heard}, now)
        self._sessions[session_id] = state
        self._sessions.move_to_end(session_id)
        self._tell(state, piece, now)

    def _tell(self, state: SessionState, piece: DatabasePiece, now: float, *, flush: bool = False) -> None:
        name = state.place.session.id
        news, due = state.news(now, flush=flush)
        piece.add(news)
        piece.steps += state.orphans(self.shown)
        if due is None:
            self._due.pop(name, None)
        else:
            self._due[name] = due
        pending = bool(state.pending) or state.partly_read or name in self._unreadable
        row, seq = state.read_as
        versions = 0 if pending else state.versions_digest
        unused = state.unused
        piece.seen[name] = Seen(row, seq, versions, pending, state.unfinished, tuple(unused[:PLACES_KEPT]), len(unused))

    def _drop(self, session_id: str, now: float, piece: DatabasePiece) -> None:
        """A session that is gone, or not wanted any more: what was seen of it stands."""
        state = self._sessions.get(session_id)
        if state is not None:
            state.take((), {}, now)
            piece.content += state.news(now)[0].content
        left = [turn for turn in self.shown.values() if turn.session_id == session_id]
        piece.steps += [Told(turn, True, self.key) for turn in left]
        piece.seen[session_id] = None
        self._forget(session_id)

    def _let_go(self, piece: DatabasePiece) -> None:
        """What was in hand is durable, and nobody died over it."""
        self._hazard.hold(())
        for name in piece.seen:
            state = self._sessions.get(name)
            if state is None or not state.partly_read:
                self._hazard.clear(name)

    def _trim(self) -> None:
        """Lets go of sessions in which nothing is open, the longest unchanged first; old ones are not kept at all."""
        spare = sum(len(state.messages) for state in self._sessions.values())
        spare -= _KEPT_MESSAGES if self.caught_up else 0
        for name, state in list(self._sessions.items()):
            if spare <= 0:
                return
            if not state.pending and name not in self._finder.waiting:
                spare -= len(state.messages)
                self._forget(name)

    def _forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
        self._due.pop(session_id, None)

    def _note_unreadable(self, raw: Raw) -> None:
        self.counts["messages"] += len(raw.fetched.rows)
        for name in (*raw.fetched.unreadable, *filter(None, [raw.failure])):
            self.counts[f"unreadable rows ({name})"] += 1
            self.damage = name
            self._unreadable.add(raw.session_id)
