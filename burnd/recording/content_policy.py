"""Decides which text of a batch may be stored, by the owner of each message, and which stored text must be erased.

Forks, branches and copies repeat messages. If the owner's text must not be stored, it is withheld in every session, in
any order of reading: the ledger has hashes of the ids of such messages. A product states how copies are recognised
(`Copies`).
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from burnd.harness.registry import PRODUCTS
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.index.store import keyed
from burnd.ledger.content import EncodedRecord
from burnd.ledger.content_modes import ContentModes
from burnd.recording.candidate import Batch, SessionOrigin
from burnd.records import Content, Origin, Session, Withheld
from burnd.records.codec import Entry, hash_of
from burnd.records.content import MAIN, NO_RAIL, TITLE
from burnd.records.times import index_ms, to_iso

DEFERRED: Final = "held"  # cursor source of sessions whose text is deferred
DEFER_MS: Final = 600_000  # then deferred text counts as the session's own
_UNIQUE_LENGTH: Final = 8
_COPIES: Final = {product.source: product.copies for product in PRODUCTS}
_SHARED_IDS: Final = {source: re.compile(copies.ids) for source, copies in _COPIES.items()}


def _names(sources: Iterable[str]) -> str:
    return ",".join(f"'{source}'" for source in sorted(sources))


_ALL: Final = _names(_COPIES)
_BY_TIME: Final = _names(source for source, copies in _COPIES.items() if copies.by_time)
_BY_AGE: Final = _names(source for source, copies in _COPIES.items() if copies.by_age)
# The sessions with these messages. Few messages are looked up in each session, many by one pass over all.
_SIZES: Final = "SELECT count(*), coalesce(sum(kept_count), 0) FROM sessions WHERE content_bytes > 0"
_FEW_EVERYWHERE: Final = (
    "WITH wanted(id) AS ({keys}) SELECT s.session_id, n.name, m.message_id, min(m.ts) FROM sessions s "
    f"JOIN names n ON n.id = s.source AND n.name IN ({_ALL}) CROSS JOIN wanted w "
    f"CROSS JOIN {MESSAGES_BY_ID} ON m.session = s.id AND {is_message('w.id')} "
    "WHERE s.content_bytes > 0 GROUP BY s.id, m.message_id"
)
_MANY_EVERYWHERE: Final = (
    "SELECT s.session_id, n.name, m.message_id, min(m.ts) FROM messages m "
    "CROSS JOIN temp.wanted_messages w ON w.id = m.message_id CROSS JOIN sessions s ON s.id = m.session "
    f"JOIN names n ON n.id = s.source AND n.name IN ({_ALL}) GROUP BY s.id, m.message_id"
)
_STORED: Final = (
    "WITH wanted(session_id) AS ({keys}) SELECT s.session_id, n.name, m.rail, m.message_id, min(m.ts) FROM wanted w "
    "CROSS JOIN sessions s ON s.session_id = w.session_id JOIN messages m ON m.session = s.id "
    f"JOIN names n ON n.id = s.source AND n.name IN ({_ALL}) "
    f"WHERE m.rail <> '{NO_RAIL}' GROUP BY s.id, m.rail, m.message_id"
)
_WITHHELD: Final = (
    "WITH wanted(id) AS ({keys}) SELECT w.id, s.session_id, h.by_mode FROM wanted w "
    "CROSS JOIN withheld h ON h.id = w.id JOIN sessions s ON s.id = h.session"
)
_COPYING: Final = (
    "SELECT DISTINCT s.session_id FROM sessions s CROSS JOIN facts f ON f.session = s.id AND f.kind = 'copy' "
    f"WHERE s.session_id IN ({{keys}}) AND f.rail = '{MAIN}'"
)
# Sessions with copies of messages of these, by equal creation times.
_REPEATED_BY_TIME: Final = (
    "WITH wanted(origin) AS ({keys}) SELECT DISTINCT s.session_id, w.origin FROM wanted w "
    f"CROSS JOIN sessions o ON o.session_id = w.origin JOIN names n ON n.id = o.source AND n.name IN ({_BY_TIME}) "
    "JOIN turns t ON t.session = o.id JOIN facts f ON f.kind = 'copy' AND f.ts = t.ts "
    "JOIN sessions s ON s.id = f.session AND s.source = o.source"
)
_FORKS_BY_AGE: Final = (
    "WITH wanted(origin) AS ({keys}) SELECT s.session_id, w.origin FROM wanted w "
    "CROSS JOIN origins o ON o.origin = w.origin JOIN sessions s ON s.id = o.session "
    f"JOIN names n ON n.id = s.source AND n.name IN ({_BY_AGE})"
)
# Messages older than their session, or than the last message it is known to have copied.
_COPIED_BY_AGE: Final = (
    "SELECT DISTINCT n.name, m.message_id, m.ts, "
    "m.ts <= (SELECT max(f.ts) FROM facts f WHERE f.session = s.id AND f.kind = 'copy') FROM sessions s "
    f"JOIN names n ON n.id = s.source AND n.name IN ({_BY_AGE}) JOIN messages m ON m.session = s.id "
    f"AND m.rail = '{MAIN}' WHERE s.session_id IN ({{keys}})"
)
_WITH_TEXT: Final = "SELECT session_id FROM sessions WHERE content_bytes > 0 AND session_id IN ({keys})"
_TIMES: Final = "SELECT session_id, created_at, updated_at FROM sessions WHERE session_id IN ({keys})"
# The time and the owner of each message that a session copied.
_OWNERS: Final = (
    "WITH wanted(session_id) AS ({keys}) SELECT w.session_id, f.ts, o.session_id FROM wanted w "
    "CROSS JOIN sessions s ON s.session_id = w.session_id "
    f"CROSS JOIN facts f ON f.session = s.id AND f.kind = 'copy' AND f.rail = '{MAIN}' "
    "LEFT JOIN names n ON n.name = json_extract(f.key, '$[0]') "
    "LEFT JOIN turns t ON t.source = n.id AND t.message_id = json_extract(f.key, '$[1]') "
    "LEFT JOIN sessions o ON o.id = t.session"
)


class MessageRef(NamedTuple):
    """A message in a session; `key` is a hash that all its copies share.

    `is_copy`: it certainly belongs to another session. `may_be_copy`: copies would have the same id.
    """

    session_id: str
    rail: str
    message_id: str
    ts: int
    key: int
    may_be_copy: bool = True
    is_copy: bool = False


class Ruling(NamedTuple):
    """Text that may be stored, ledger entries to write first, and sessions whose stored text must be erased."""

    encoded_records: list[EncodedRecord]
    entries: list[Entry]
    erase: set[str]
    deferred: frozenset[str] = frozenset()  # sessions whose text is not stored for now


class ContentPolicy:
    """Decides for one batch at a time. Used only by the one writer."""

    def __init__(self, modes: ContentModes) -> None:
        self.deferred: dict[str, int] = {}  # sessions whose text is deferred, since when; 0: no longer
        self._modes = modes

    def rule(
        self,
        db: sqlite3.Connection,
        batch: Batch,
        encoded_records: Sequence[EncodedRecord],
        origins: Iterable[SessionOrigin],
        copiers: AbstractSet[str],
        now_ms: int,
    ) -> Ruling:
        """Decides what of a batch may be stored.

        `origins` are the sessions that its sessions were derived from; `copiers` are sessions whose copies have a known
        owner.
        """
        modes, copies = self._modes, _COPIES.get(batch.source)
        sessions = [entry for entry in batch.entries if isinstance(entry, Session)]
        changed = {one.session_id for one in sessions if one.content_mode not in (None, "full")}
        # A parent that becomes known late gives its mode to a session with stored text.
        changed |= {one.session_id for one in sessions if one.parent_session_id and modes.is_private(one.session_id)}
        origins = list(origins)
        if not changed and not origins and not modes.has_limits and modes.mode == "full":
            return Ruling(list(encoded_records), [], set())
        work = _WithholdingPass(db, modes)
        starts = self._starts(db, {one.origin for one in origins if one.by_process})
        for session_id, origin, at_ms, by_process in origins:
            modes.came_from(session_id, origin)
            work.inherit(session_id, origin, at_ms, starts.get(origin, 0) if by_process else 0)
            if copies and copies.by_time and modes.is_pruned(origin):
                work.note_origin(session_id, origin)  # a fork's title comes before its messages
        if not changed and not work.entries and not modes.has_limits and modes.mode == "full":
            return Ruling([self._cut(item) for item in encoded_records if self._allows(item)], [], set())
        messages = _messages_in(batch, encoded_records)
        work.withhold_private(messages.values(), changed | work.changed)
        work.withhold_pruned_later(one for one in messages.values() if one.session_id not in copiers)
        barred = work.barred(messages.values())
        if copies and copies.by_age:
            forks = {session_id for session_id, _ in batch.copied if modes.forks_pruned(session_id)}
            barred |= {name for name in batch.copied if name[0] in forks}
            for session_id in forks:
                for origin in modes.origins(session_id):
                    work.note_origin(session_id, origin)
        if modes.mode != "full":
            barred |= batch.copied  # copies have the daemon's mode, whatever the session's
        allowed = [
            self._cut(item)
            for item in encoded_records
            if self._allows(item) and (item.label.session_id, item.label.message_id) not in barred
        ]
        deferred = self._to_defer(db, batch, allowed, copiers) if copies and not copies.by_time else frozenset()
        for session_id in deferred:
            self.deferred.setdefault(session_id, now_ms)
        allowed = [item for item in allowed if not self.deferred.get(item.label.session_id)]
        return Ruling(allowed, work.entries, self._with_text(db, work.erase), deferred)

    def released(self, db: sqlite3.Connection, now_ms: int) -> list[str]:
        """Ends the deferral of sessions whose origin is known or was not found in time; returns them."""
        waiting = [session_id for session_id, since in self.deferred.items() if since]
        unknown = self._without_origin(db, set(waiting), frozenset()) if waiting else set()
        released = [one for one in waiting if one not in unknown or now_ms - self.deferred[one] > DEFER_MS]
        self.deferred |= dict.fromkeys(released, 0)
        return released

    def _to_defer(
        self, db: sqlite3.Connection, batch: Batch, encoded_records: Iterable[EncodedRecord], copiers: AbstractSet[str]
    ) -> frozenset[str]:
        """The sessions with copied text whose unknown owner may be private."""
        if not batch.copied:
            return frozenset()
        names = ((item.label.session_id, item.label.message_id) for item in encoded_records)
        sessions = {name[0] for name in names if name in batch.copied}
        return frozenset(one for one in self._without_origin(db, sessions, copiers) if self.deferred.get(one, 1))

    def _without_origin(self, db: sqlite3.Connection, sessions: set[str], copiers: AbstractSet[str]) -> set[str]:
        modes = self._modes
        candidates = [(one,) for one in sorted(sessions - copiers) if not modes.is_private(one)]
        copying = {row[0] for row in keyed(db, _COPYING, candidates)}
        origins = {one: modes.origins(one) for (one,) in candidates if one not in copying}
        recorded = {row[0] for row in keyed(db, _TIMES, sorted({(o,) for some in origins.values() for o in some}))}
        has_unread = modes.has_unread()
        return {one for one, some in origins.items() if (not some <= recorded if some else has_unread)}

    def pruned(self, db: sqlite3.Connection, session_ids: Sequence[str], going: AbstractSet[str]) -> Ruling:
        """Ledger entries to write before all text of these sessions is deleted, and sessions that repeat some of it.

        Messages that a session only copied stay with their owner, unless it is among `going`, the sessions whose text
        is deleted.
        """
        work = _WithholdingPass(db, self._modes)
        keys = [(session_id,) for session_id in session_ids]
        for sql in (_REPEATED_BY_TIME, _FORKS_BY_AGE):
            for copier, origin in sorted(keyed(db, sql, keys)):
                if copier not in going:
                    work.note_origin(copier, origin)
                    work.erase.add(copier)
        work.withhold_pruned(_stored(db, session_ids), going)
        return Ruling([], work.entries, work.erase)

    def predicate(self, db: sqlite3.Connection, session_id: str) -> Callable[[Content], bool]:
        """A function that returns whether a stored record of a session may stay."""
        modes = self._modes
        messages = _stored(db, [session_id])
        work = _WithholdingPass(db, modes)
        work.look_up(one.key for one in messages)
        barred = {message_id for _, message_id in work.barred(messages)}
        if modes.forks_pruned(session_id):
            for source, message_id, ts, is_older in keyed(db, _COPIED_BY_AGE, [(session_id,)]):
                if is_older or ts < (_COPIES[source].begun_ms(session_id) or 0):
                    barred.add(message_id)
        before = modes.allowed_before(session_id)
        titles = modes.keeps_titles(session_id)

        def keeps(record: Content) -> bool:
            # A title before the first line has no time.
            if before is not None and (index_ms(record.ts) >= before or not index_ms(record.ts)):
                return False
            return titles if record.message_id.startswith(TITLE) else record.message_id not in barred

        return keeps

    def doubtful(self, db: sqlite3.Connection) -> set[str]:
        """Every session whose stored text may have to be erased after the index was rebuilt."""
        modes = self._modes
        if not modes.has_limits:
            return set()
        private = set(modes.private_sessions())
        sessions = private | modes.children(private)
        if modes.has_withheld:
            rows = db.execute("SELECT s.session_id FROM origins o JOIN sessions s ON s.id = o.session")
            sessions |= {session_id for (session_id,) in rows}
        return self._with_text(db, sessions)

    def times(self, db: sqlite3.Connection, session_id: str) -> Session | None:
        """A record of a session's times, to write before the text they come from is erased."""
        for _, created, updated in keyed(db, _TIMES, [(session_id,)]):
            if created is not None and updated is not None:
                return Session(session_id=session_id, source="", created_at=to_iso(created), updated_at=to_iso(updated))
        return None

    def _starts(self, db: sqlite3.Connection, session_ids: set[str]) -> dict[str, int]:
        """The start times of the private ones of these sessions: a process cannot continue one before that."""
        private = [(one,) for one in sorted(session_ids) if self._modes.is_private(one)]
        return {row[0]: row[1] or 0 for row in keyed(db, _TIMES, private)} if private else {}

    def _allows(self, item: EncodedRecord) -> bool:
        label = item.label
        if label.rail == NO_RAIL and not self._modes.keeps_titles(label.session_id):
            return False
        return self._modes.keeps(label.session_id, label.ts_ms)

    def _cut(self, item: EncodedRecord) -> EncodedRecord:
        """The item without its context if a line in there is older than text that was pruned or forgotten."""
        ms = item.context_ms
        return item if ms is None or self._modes.keeps(item.label.session_id, ms) else item.without_context()

    def _with_text(self, db: sqlite3.Connection, session_ids: Iterable[str]) -> set[str]:
        rows = keyed(db, _WITH_TEXT, [(session_id,) for session_id in sorted(session_ids)])
        return {session_id for (session_id,) in rows}


class _WithholdingPass:
    """Finds which sessions withhold messages, and which become private by that."""

    def __init__(self, db: sqlite3.Connection, modes: ContentModes) -> None:
        self.entries: list[Entry] = []
        self.changed: set[str] = set()
        self.erase: set[str] = set()
        self._db = db
        self._modes = modes
        self._withheld: dict[int, dict[str, bool]] = {}  # by key: the owner, and whether its mode is the reason
        self._origins: set[tuple[str, str]] = set()

    def inherit(self, session_id: str, origin: str, at_ms: int, since_ms: int = 0) -> None:
        """Gives a session the stricter mode of its origin, from `since_ms` on."""
        record = self._modes.inherited(session_id, origin, at_ms, since_ms)
        if record is not None:
            self._modes.learn(record)
            self.entries.append(record)
            if record.content_mode is not None:
                self.changed.add(session_id)

    def note_origin(self, session_id: str, origin: str) -> None:
        """Records that a session repeats withheld messages of another, without changing its mode."""
        if (session_id, origin) not in self._origins:
            self._origins.add((session_id, origin))
            if not self._modes.is_private(session_id):
                record = Origin(session_id=session_id, origin=origin)
                self._modes.learn(record)
                self.entries.append(record)

    def look_up(self, keys: Iterable[int]) -> None:
        """Loads which of these messages are withheld, and by which sessions."""
        missing = sorted({key for key in keys if key not in self._withheld})
        if self._modes.has_withheld and missing:
            for key, session_id, by_mode in keyed(self._db, _WITHHELD, [(key,) for key in missing]):
                self._withheld.setdefault(key, {})[session_id] = bool(by_mode)

    def barred(self, messages: Iterable[MessageRef]) -> set[tuple[str, str]]:
        """The messages that another session withholds."""
        return {
            (one.session_id, one.message_id)
            for one in messages
            if one.may_be_copy and any(owner != one.session_id for owner in self._withheld.get(one.key, ()))
        }

    def withhold_private(self, messages: Iterable[MessageRef], changed: set[str]) -> None:
        """Withholds messages of private sessions, and gives their mode to all sessions that repeat any."""
        every, fresh = list(messages), set(changed)
        self.look_up(one.key for one in every if one.may_be_copy)
        while True:
            for one in every:
                self._inherit_from_owner(one)
            fresh |= self.changed
            self.changed = set()
            if fresh:
                for copier, origin in keyed(self._db, _REPEATED_BY_TIME, [(one,) for one in sorted(fresh)]):
                    self._modes.came_from(copier, origin)
                self._inherit_by_children(fresh)
                fresh |= self.changed | self._modes.children(fresh)
                self.changed = set()
                before = _stored(self._db, sorted(fresh))
                self.look_up(one.key for one in before)
                every += before
                self.erase |= fresh
                fresh = set()
            if not self._withhold_by_mode(every) and not self.changed:
                return

    def _inherit_from_owner(self, one: MessageRef) -> None:
        for owner, by_mode in self._withheld.get(one.key, {}).items() if one.may_be_copy else ():
            if owner != one.session_id:
                if by_mode:
                    self.inherit(one.session_id, owner, one.ts)
                self.note_origin(one.session_id, owner)

    def _inherit_by_children(self, changed: set[str]) -> None:
        """Gives the mode of these sessions to those derived from them."""
        children = sorted(self._modes.children(changed))
        newest = {row[0]: row[2] or 0 for row in keyed(self._db, _TIMES, [(child,) for child in children])}
        for _ in children:
            before = len(self.entries)
            for child in children:
                for origin in sorted(self._modes.origins(child)):
                    self.inherit(child, origin, newest.get(child, 0))
            if len(self.entries) == before:
                return

    def _withhold_by_mode(self, every: Sequence[MessageRef]) -> bool:
        """Records messages of private sessions as withheld; returns whether any were new."""
        modes = self._modes
        new = {
            (one.session_id, one.key): one
            for one in every
            if not one.is_copy
            and modes.is_private(one.session_id)
            and not any(self._withheld.get(one.key, {}).values())
            and one.ts >= modes.since(one.session_id)
        }
        self._record(new, by_mode=True)
        holders = self._holders(new.values()) if new else {}
        for one in new.values():
            for holder in holders.get(one.key, set()) - {one.session_id}:
                self.inherit(holder, one.session_id, one.ts)
                self.note_origin(holder, one.session_id)
                self.erase.add(holder)
        return bool(new)

    def withhold_pruned_later(self, messages: Iterable[MessageRef]) -> None:
        """Withholds messages that are read after their session was pruned."""
        pruned = [one for one in messages if not one.is_copy and self._modes.was_pruned(one.session_id, one.ts)]
        self.look_up(one.key for one in pruned)
        if new := [one for one in pruned if one.key not in self._withheld]:
            self.withhold_pruned(new, {one.session_id for one in new})

    def withhold_pruned(self, messages: Sequence[MessageRef], going: AbstractSet[str]) -> None:
        """Withholds the own messages of pruned sessions from all others that repeat them, except those in `going`."""
        sessions = sorted({one.session_id for one in messages})
        owners = keyed(self._db, _OWNERS, [(session_id,) for session_id in sessions])
        holders = self._holders(messages)
        own, repeating = _own(messages, owners, holders, going)
        for copier, origin in sorted(repeating):
            self.note_origin(copier, origin)
            self.erase.add(copier)
        self._record(own, by_mode=False)

    def _record(self, keys: Iterable[tuple[str, int]], *, by_mode: bool) -> None:
        by_session: defaultdict[str, set[int]] = defaultdict(set)
        for session_id, key in keys:
            by_session[session_id].add(key)
            self._withheld.setdefault(key, {})[session_id] = by_mode
        for session_id, some in by_session.items():
            self._modes.has_withheld = True
            self.entries += Withheld.of(session_id, some, by_mode=by_mode)

    def _holders(self, messages: Iterable[MessageRef]) -> dict[int, set[str]]:
        """The sessions with stored text of the same messages, by key."""
        db = self._db
        ids = sorted({(one.message_id,) for one in messages})
        ((sessions, stored),) = db.execute(_SIZES).fetchall()
        if len(ids) * sessions <= stored:
            rows = keyed(db, _FEW_EVERYWHERE, ids)
        else:
            db.execute("CREATE TEMP TABLE IF NOT EXISTS wanted_messages(id PRIMARY KEY) WITHOUT ROWID")
            db.executemany("INSERT INTO temp.wanted_messages VALUES(?)", ids)
            rows = db.execute(_MANY_EVERYWHERE).fetchall()
            db.execute("DELETE FROM temp.wanted_messages")
        holders: defaultdict[int, set[str]] = defaultdict(set)
        for session_id, source, message_id, ts in rows:
            holders[key_of(source, message_id, ts)].add(session_id)
        return holders


def _own(
    messages: Iterable[MessageRef],
    owners: Iterable[tuple[str, int, str | None]],
    holders: Mapping[int, set[str]],
    going: AbstractSet[str],
) -> tuple[set[tuple[str, int]], set[tuple[str, str]]]:
    """(session, key) of sessions' own messages, and (session, origin) of others that repeat any."""
    newest_copy: dict[str, int] = {}
    upstream: defaultdict[str, set[str | None]] = defaultdict(set)
    for session_id, ts, owner in owners:
        newest_copy[session_id] = max(newest_copy.get(session_id, -1), ts)
        upstream[session_id].add(owner)
    own: set[tuple[str, int]] = set()
    repeating: set[tuple[str, str]] = set()
    for one in messages:
        others = holders.get(one.key, set())
        is_copied = one.ts <= newest_copy.get(one.session_id, -1) or not others.isdisjoint(upstream[one.session_id])
        if one.rail != MAIN or not is_copied:
            own.add((one.session_id, one.key))
            repeating |= {(other, one.session_id) for other in others - going}
    return own, repeating


def _stored(db: sqlite3.Connection, session_ids: Sequence[str]) -> list[MessageRef]:
    """The messages of these sessions with stored text, without titles."""
    rows = keyed(db, _STORED, [(session_id,) for session_id in session_ids])
    return [
        MessageRef(session_id, rail, message_id, ts, key_of(source, message_id, ts))
        for session_id, source, rail, message_id, ts in rows
        if _SHARED_IDS[source].search(message_id)
    ]


def key_of(source: str, message_id: str, made_ms: int) -> int:
    """A hash that a message shares with its copies: of its id (with the time if it is too short to be unique), or of
    its creation time.
    """
    if _COPIES[source].by_time:
        return hash_of(f"{source} {made_ms}".encode())
    return hash_of((message_id if len(message_id) >= _UNIQUE_LENGTH else f"{message_id} {made_ms}").encode())


def _messages_in(batch: Batch, encoded_records: Sequence[EncodedRecord]) -> dict[tuple[str, str], MessageRef]:
    """The messages of a batch whose copies can be recognised, with the time of their newest record."""
    messages: dict[tuple[str, str], MessageRef] = {}
    copies = _COPIES.get(batch.source)
    for label in (item.label for item in encoded_records if copies is not None):
        name = (label.session_id, label.message_id)
        if label.rail == NO_RAIL or not _SHARED_IDS[batch.source].search(label.message_id):
            continue
        before = messages.get(name)
        if before is None:
            is_copy = name in batch.copied
            key = key_of(batch.source, label.message_id, batch.message_times.get(name, label.ts_ms))
            may_be_copy = is_copy or not (copies and copies.by_time)
            messages[name] = MessageRef(
                label.session_id, label.rail, label.message_id, label.ts_ms, key, may_be_copy, is_copy
            )
        elif label.ts_ms > before.ts:
            messages[name] = before._replace(ts=label.ts_ms)
    return messages
