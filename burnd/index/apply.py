"""Applies a change to the index in one transaction; live ingest, catch-up and rebuild all use it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, cast

import msgspec

from burnd.harness.registry import PRODUCTS
from burnd.index import changes, harness_costs, rows, stale_causes, unlogged
from burnd.index.change import Change, CursorChange, FileChange, IndexedRecord
from burnd.index.store import IndexStore, in_transaction, keyed, many, set_meta
from burnd.index.sums import SumWriter
from burnd.ledger.journal import Logged, identity
from burnd.records import (
    Compaction,
    Copy,
    Event,
    Occurrence,
    Origin,
    Overhead,
    Prune,
    Quota,
    Request,
    Session,
    Stamp,
    Turn,
    Withheld,
)
from burnd.records.codec import Entry, Skipped, encode
from burnd.records.content import MAIN
from burnd.records.times import index_ms


def roots_of(source: str) -> str:
    """The cursor source of the folders that clients announced for a source."""
    return f"roots of {source}"


def write_cursors(db: sqlite3.Connection, cursors: Sequence[CursorChange]) -> None:
    values = [(c.source, c.key, c.value) for c in cursors if c.value is not None]
    many(db, "INSERT OR REPLACE INTO cursors VALUES(?,?,?)", values)
    many(db, "DELETE FROM cursors WHERE source = ? AND key = ?", [c[:2] for c in cursors if c.value is None])


def write_files(db: sqlite3.Connection, changes: Sequence[FileChange]) -> None:
    for change in changes:
        where = (change.source, change.path)
        if change.cursor is None:
            db.execute("DELETE FROM files WHERE source = ? AND path = ?", where)
            continue
        db.execute(
            "INSERT INTO files(source, path, root, cursor, state, seen, open) VALUES(?,?,?,?,?,?,?) "
            "ON CONFLICT(source, path) DO UPDATE SET root = excluded.root, cursor = excluded.cursor, "
            "state = excluded.state, seen = excluded.seen, open = excluded.open",
            (*where, change.root, change.cursor, change.state, change.seen_ms, change.open),
        )


_NOT_LOOKED_UP = IndexedRecord(0, 0, 0, None, None)
_NO_RAIL = "2"  # sorts after every rail: the main one is 0, an agent's begins with 1
_UNLOGGED_COMPACTIONS = frozenset(product.source for product in PRODUCTS if not product.logs_compactions)
_ADD_AGENT = """
INSERT INTO agents VALUES(?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET ts = min(ts, excluded.ts),
  type = min(coalesce(type, excluded.type), coalesce(excluded.type, type)),
  group_id = min(coalesce(group_id, excluded.group_id), coalesce(excluded.group_id, group_id))
"""
_CACHE_SIZE = 50_000  # names and sessions with their numbers; a larger cache is cleared


_UPDATE_BY_SESSION = (
    "UPDATE sessions SET source = coalesce(?1, source), parent_session_id = coalesce(?2, parent_session_id), "
    "project = coalesce(?3, project), project_by = iif(?3 IS NULL, project_by, ''), "
    "project_key = iif(?3 IS NULL OR project IS ?3, coalesce(?4, project_key), ?4), agent = coalesce(?5, agent), "
    "created_by = coalesce(?6, created_by), "
    "created_at = min(coalesce(created_at, ?7), coalesce(?7, created_at)), "
    "updated_at = max(coalesce(updated_at, ?8), coalesce(?8, updated_at)), "
    "said_count = max(said_count, ?9), content_mode = coalesce(?10, content_mode), "
    "content_since = iif(?10 IS NULL, content_since, ?11), "
    "title = coalesce(?12, title), summary = coalesce(?13, summary) WHERE session_id = ?14"
)
_UPDATE_BY_TURN = (
    "UPDATE sessions SET source = coalesce(source, ?1), project = iif({better}, ?2, project), "
    "project_by = iif({better}, ?6, project_by), "
    "project_key = CASE WHEN {better} THEN ?3 WHEN project = ?2 THEN coalesce(project_key, ?3) ELSE project_key END, "
    "created_at = min(coalesce(created_at, ?4), coalesce(?4, created_at)), "
    "updated_at = max(coalesce(updated_at, ?4), coalesce(?4, updated_at)) WHERE id = ?5"
).format(better="(?2 IS NOT NULL AND (project_by IS NULL OR ?6 < project_by))")
_SESSION_TAG = (
    "INSERT INTO session_tags VALUES(?,?,?,?,?) ON CONFLICT DO UPDATE SET ts = excluded.ts, "
    "position = excluded.position, value = excluded.value WHERE (excluded.ts, excluded.position) >= (ts, position)"
)
_UPDATE_BY_COPY = (
    "UPDATE sessions SET source = coalesce(source, ?1), "
    "created_at = min(coalesce(created_at, ?2), coalesce(?2, created_at)), "
    "updated_at = max(coalesce(updated_at, ?2), coalesce(?2, updated_at)) WHERE id = ?3"
)
_ADD_ORIGIN = "INSERT INTO origins VALUES(?,?,?) ON CONFLICT DO UPDATE SET repeats = max(repeats, excluded.repeats)"
_UPDATE_BY_ORIGIN = (
    "UPDATE sessions SET content_since = iif(?1 IS NULL, content_since, ?2), content_mode = coalesce(?1, content_mode) "
    "WHERE id = ?3"
)
_SAME_PARENT = (
    "WITH w(session_id, parent) AS ({keys}) SELECT w.session_id, w.parent FROM w "
    "CROSS JOIN sessions s ON s.session_id = w.session_id AND s.parent_session_id = w.parent"
)
_UPDATE_BY_OTHER = "UPDATE sessions SET source = coalesce(source, ?1) WHERE id = ?2"


class _LedgerTurn(NamedTuple):
    turn: Turn
    indexed: IndexedRecord


class Applier:
    """Caches the numbers of names and sessions, so that a batch takes few statements."""

    def __init__(self, store: IndexStore) -> None:
        self.store = store
        self._names: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._sums = SumWriter(store.prices)
        self._seq = 0  # of the changes of this transaction

    async def apply(self, change: Change) -> None:
        await self.store.in_writer(lambda db: self.write(db, change))

    def write(self, db: sqlite3.Connection, change: Change, append: Callable[[], None] = lambda: None) -> None:
        """Writes all of a change, and after `append` the position in the ledger that it covers, in one transaction."""

        def write(db: sqlite3.Connection) -> None:
            self._write(db, change)
            append()
            if change.ledger_end is not None:
                set_meta(db, ledger_end=str(change.ledger_end), ledger_anchor=change.ledger_anchor)

        try:
            in_transaction(db, write)
        except BaseException:
            self._names.clear()  # numbers of a transaction that was rolled back
            self._sessions.clear()
            self._sums.forget()
            raise

    def _write(self, db: sqlite3.Connection, change: Change) -> None:
        entries = [(item, digest) for item, digest in change.logged if not isinstance(item.entry, Skipped)]
        kinds = {type(item.entry) for item, _ in entries}
        touched = self._number(db, entries, change)
        if touched or entries:
            self._seq = changes.next_seq(db)
        if len(entries) < len(change.logged):
            _write_skipped(db, change.logged)
        if entries:
            self._write_entries(db, entries, kinds, change.recorded)
        if Origin in kinds or change.origins:
            origins = [(one.session_id, one.origin, 1) for item, _ in entries if isinstance(one := item.entry, Origin)]
            origins += [(session_id, origin, 0) for session_id, origin in change.origins]
            db.executemany(_ADD_ORIGIN, [(self._sessions[session_id], *origin) for session_id, *origin in origins])
        if change.placed:
            rows.write_messages(db, change.placed, self._sessions, self._names)
        if Prune in kinds:
            rows.prune_messages(db, [item.entry for item, _ in entries if isinstance(item.entry, Prune)])
        if change.cursors or Session in kinds:
            sessions = [item.entry for item, _ in entries if isinstance(item.entry, Session)]
            roots = [CursorChange(roots_of(one.source), root, b"") for one in sessions for root in one.roots]
            write_cursors(db, [*roots, *change.cursors])
        if change.files:
            write_files(db, change.files)
        many(db, _ADD_AGENT, change.agents)
        if change.open or change.closed:
            self._write_open_turns(db, change)
        self._sums.write_sums(db)
        changes.mark_sessions(db, self._seq, touched)

    def _write_entries(
        self,
        db: sqlite3.Connection,
        entries: Sequence[tuple[Logged, int]],
        kinds: set[type[Entry | Skipped]],
        recorded: Mapping[tuple[str, str], IndexedRecord | None],
    ) -> None:
        """Writes new lines of the ledger; `kinds` are the types of their entries."""
        if Turn in kinds:
            self._write_turns(db, entries, recorded)
        if Session in kinds:
            self._mark_moved(db, entries)
        self._update_sessions(db, entries)
        if not kinds <= {Turn}:
            self._write_facts(db, entries)
        if Overhead in kinds:
            self._write_overheads(db, entries)
        if kinds & {Request, Compaction}:
            self._write_requests(db, entries)
        if kinds & {Stamp, Quota}:
            self._write_stamps_and_quotas(db, entries)
        if Withheld in kinds:
            self._write_withheld(db, [item.entry for item, _ in entries])

    def _number(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]], change: Change) -> set[int]:
        """Gives every text and session of a change its number, in a few statements. Returns those of sessions."""
        names: set[str | None] = {p.label.tool for p in change.placed}
        sessions: set[str | None] = {p.label.session_id for p in change.placed}
        for turn in (*(item.turn for item in change.open), *change.closed):
            names.update(rows.turn_names(turn))
            sessions.add(turn.session_id)
        sessions.update(session_id for session_id, _ in change.origins)
        for item, _ in entries:
            names.update(_names_in(item))
            sessions.add(getattr(item.entry, "session_id", None))  # a stamp and a quota have none
        _fill(db, self._names, names, "names", "name")
        _fill(db, self._sessions, sessions, "sessions", "session_id")
        return {self._sessions[session_id] for session_id in sessions if session_id is not None}

    def _name(self, text: str | None) -> int | None:
        return None if text is None else self._names[text]

    def _write_turns(
        self,
        db: sqlite3.Connection,
        entries: Sequence[tuple[Logged, int]],
        recorded: Mapping[tuple[str, str], IndexedRecord | None],
    ) -> None:
        """Writes the newest revision of each turn, which is not open any more."""
        turns = [(item.entry, item, digest) for item, digest in entries if isinstance(item.entry, Turn)]
        indexed, first_new = self._indexed_turns(db, [turn for turn, _, _ in turns], recorded)
        next_id = first_new
        newest: dict[int, _LedgerTurn] = {}
        for turn, item, digest in turns:
            key = (self._names[turn.source], turn.message_id)
            old = indexed.get(key) or IndexedRecord(next_id, 0, 0, None, None)
            next_id += old.id == next_id
            if turn.rev >= old.rev:
                indexed[key] = IndexedRecord(old.id, turn.rev, digest, item.position, item.length)
                newest[old.id] = _LedgerTurn(turn, indexed[key])
                if turn.copy_of is not None:
                    indexed[key] = indexed[key]._replace(rev=0)  # withdrawn: a new record starts with revision 1
        self._put_turns(db, newest, first_new)
        withdrawn = [row_id for row_id, row in newest.items() if row.turn.copy_of is not None]
        if withdrawn:
            ids = [(row_id,) for row_id in withdrawn]
            changes.mark_gone(db, self._seq, withdrawn)
            db.executemany("DELETE FROM tool_calls WHERE turn = ?", ids)
            db.executemany("DELETE FROM turns WHERE id = ?", ids)

    def _write_open_turns(self, db: sqlite3.Connection, change: Change) -> None:
        """Writes turns that are still growing; their position and revision in the ledger stay."""
        turns = [(item.turn, True) for item in change.open] + [(turn, False) for turn in change.closed]
        indexed, first_new = self._indexed_turns(db, [turn for turn, _ in turns])
        next_id = first_new
        newest: dict[int, _LedgerTurn] = {}
        for turn, is_open in turns:
            key = (self._names[turn.source], turn.message_id)
            old = indexed.get(key) or IndexedRecord(next_id, 0, 0, None, None)
            next_id += old.id == next_id
            indexed[key] = old._replace(open=is_open)
            newest[old.id] = _LedgerTurn(turn, indexed[key])
        self._put_turns(db, newest, first_new)
        many(
            db,
            "INSERT OR REPLACE INTO open_turns SELECT ?, id, ? FROM files WHERE source = ? AND path = ?",
            [
                (
                    indexed[self._names[item.turn.source], item.turn.message_id].id,
                    encode(item.turn),
                    item.source,
                    item.path,
                )
                for item in change.open
            ],
        )

    def _indexed_turns(
        self,
        db: sqlite3.Connection,
        turns: Sequence[Turn],
        recorded: Mapping[tuple[str, str], IndexedRecord | None] = {},
    ) -> tuple[dict[tuple[int, str], IndexedRecord], int]:
        """The rows of these turns, and the id of the next new one. Those of `recorded` were looked up before."""
        # A join in this order: for row values IN a list SQLite 3.40 scans every turn of the source.
        sql = (
            "WITH wanted(source, message_id) AS ({keys}) "
            "SELECT t.source, t.message_id, t.id, t.rev, t.digest, t.position, t.length, t.open FROM wanted w "
            "CROSS JOIN turns t ON t.source = w.source AND t.message_id = w.message_id"
        )
        indexed: dict[tuple[int, str], IndexedRecord] = {}
        unknown: list[tuple[int, str]] = []
        for turn in turns:
            key = (self._names[turn.source], turn.message_id)
            row = recorded.get((turn.source, turn.message_id), _NOT_LOOKED_UP)
            if row is _NOT_LOOKED_UP:
                unknown.append(key)
            elif row is not None:
                indexed[key] = row
        indexed |= {(row[0], row[1]): IndexedRecord(*row[2:]) for row in keyed(db, sql, unknown)}
        ((next_id,),) = db.execute("SELECT coalesce(max(id), 0) + 1 FROM turns").fetchall()
        return indexed, int(next_id)

    def _put_turns(self, db: sqlite3.Connection, newest: dict[int, _LedgerTurn], first_new: int) -> None:
        """Writes turns by id; those below `first_new` replace rows."""
        self._sums.mark_before_change(db, newest, first_new)
        old = [(row_id,) for row_id in newest if row_id < first_new]
        places = [(row_id, newest[row_id].turn.project, newest[row_id].turn.project_key) for (row_id,) in old]
        changes.mark_moved(db, [(row_id, self._name(folder), self._name(key)) for row_id, folder, key in places])
        for table, column in (("turns", "id"), ("tool_calls", "turn"), ("open_turns", "turn")):
            many(db, f"DELETE FROM {table} WHERE {column} = ?", old)
        turns = [(turn, record.open) for turn, record in newest.values()]
        numbers = self._sums.number(db, turns, self._names)
        turn_rows: list[rows.Row] = []
        call_rows: list[rows.Row] = []
        name_id = cast("rows.NameId", self._names.get)  # it has all of them, see `_number`
        for (row_id, (turn, record)), dimensions in zip(newest.items(), numbers, strict=True):
            row = rows.turn_row(turn, row_id, self._sessions[turn.session_id], name_id)
            turn_rows.append(
                (*row, record.open, record.rev, record.digest, record.position, record.length, *dimensions, self._seq)
            )
            for n, call in enumerate(turn.tool_calls):
                call_rows.append((row_id, n, call.id, name_id(call.name), name_id(call.target), call.is_error))
        marks = ",".join("?" * len(rows.TURN_COLUMNS))
        many(db, f"INSERT INTO turns({','.join(rows.TURN_COLUMNS)}) VALUES({marks})", turn_rows)
        many(db, "INSERT INTO tool_calls VALUES(?,?,?,?,?,?)", call_rows)
        stale_causes.mark_own(db, [turn for turn, _ in newest.values()], self._sessions)

    def _update_sessions(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]]) -> None:
        """Updates sessions by each line in the ledger's order, so that the result does not depend on batches."""
        updates = [self._session_update(item.entry) for item, _ in entries]
        for sql, group in groupby(filter(None, updates), key=itemgetter(0)):
            some = [row for _, row in group]
            db.executemany(sql, _fewer_updates(some) if sql is _UPDATE_BY_TURN and len(some) > 1 else some)

    def _mark_moved(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]]) -> None:
        """Marks sessions that get another parent, whose tags they inherit. To be called before they are updated."""
        records = [item.entry for item, _ in entries if isinstance(item.entry, Session)]
        parents = {(one.session_id, one.parent_session_id) for one in records if one.parent_session_id is not None}
        same = set(keyed(db, _SAME_PARENT, parents))
        moved = [session_id for session_id, _ in parents - same]
        changes.mark_stamped(db, self._seq, moved, [])
        changes.mark_sessions(db, self._seq, [self._sessions[session_id] for session_id in moved])  # former parents

    def _session_update(self, entry: Entry | Skipped) -> tuple[str, rows.Row] | None:
        if isinstance(entry, Session):
            return _UPDATE_BY_SESSION, rows.session_row(entry, self._name)
        if isinstance(entry, Turn):
            names = (self._name(entry.source), self._name(entry.project), self._name(entry.project_key))
            rail = "0" if entry.rail_id == MAIN else f"1{entry.rail_id}"
            return _UPDATE_BY_TURN, (*names, _holder_time(entry), self._sessions[entry.session_id], rail)
        if isinstance(entry, Copy):
            return _UPDATE_BY_COPY, (self._name(entry.source), _holder_time(entry), self._sessions[entry.session_id])
        if isinstance(entry, Origin):
            since = index_ms(entry.content_since) if entry.content_since else None
            return _UPDATE_BY_ORIGIN, (entry.content_mode, since, self._sessions[entry.session_id])
        if isinstance(entry, Occurrence | Overhead):
            return _UPDATE_BY_OTHER, (self._name(entry.source or None), self._sessions[entry.session_id])
        return None

    def _write_withheld(self, db: sqlite3.Connection, entries: Sequence[Entry | Skipped]) -> None:
        """Writes the messages whose text must not be stored."""
        withheld = [entry for entry in entries if isinstance(entry, Withheld)]
        many(
            db,
            "INSERT INTO withheld VALUES(?,?,?) ON CONFLICT DO UPDATE SET by_mode = max(by_mode, excluded.by_mode)",
            [(key, self._sessions[one.session_id], one.by_mode) for one in withheld for key in one.hashes()],
        )

    def _write_facts(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]]) -> None:
        facts: list[rows.Row] = []
        for item, digest in entries:
            entry = item.entry
            if isinstance(entry, Skipped | Turn):
                continue
            key = identity(entry)
            session = self._sessions.get(getattr(entry, "session_id", ""))
            rail = getattr(entry, "rail_id", None)
            place = (digest, item.position, item.length)
            name = self._name(entry.name) if isinstance(entry, Event) else None
            of_copy = rows.copy_columns(entry) if isinstance(entry, Copy) else (None, None)
            facts.append((key[0], fact_key(key), session, rail, rows.time_of(entry), *place, name, *of_copy))
        self._sums.mark_sessions(_sessions_of_facts(db, facts))
        copies = [item.entry for item, _ in entries if isinstance(item.entry, Copy)]
        if copies:
            stale_causes.mark_copies(db, copies, self._sessions)
        compactions = [item.entry for item, _ in entries if isinstance(item.entry, Compaction)]
        if compactions:
            places = [(self._sessions[c.session_id], c.rail_id, index_ms(c.ts)) for c in compactions]
            stale_causes.mark_compactions(db, places, [(fact_key(identity(c)),) for c in compactions])
        many(
            db,
            "INSERT INTO facts(kind, key, session, rail, ts, digest, position, length, name, turn_index, forked) "
            "VALUES(?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(kind, key) DO UPDATE SET session = excluded.session, "
            "rail = excluded.rail, ts = excluded.ts, digest = excluded.digest, position = excluded.position, "
            "length = excluded.length, name = excluded.name, turn_index = excluded.turn_index, "
            "forked = excluded.forked",
            facts,
        )

    def _write_overheads(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]]) -> None:
        overheads = [item.entry for item, _ in entries if isinstance(item.entry, Overhead)]
        numbered = [(self._sessions[entry.session_id], self._names[entry.source], entry) for entry in overheads]
        harness_costs.write(db, numbered, self._names)

    def _write_requests(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]]) -> None:
        """Writes requests without a response in any log, those for compactions included."""
        requests: dict[tuple[str, str], tuple[int, Request | Compaction]] = {}
        for item, _ in entries:
            entry = item.entry
            if isinstance(entry, Request) or (isinstance(entry, Compaction) and entry.source in _UNLOGGED_COMPACTIONS):
                key = identity(entry)
                requests[key[0], fact_key(key)] = (self._sessions[entry.session_id], entry)
        if requests:
            unlogged.write_requests(db, requests, self._names)

    def _write_stamps_and_quotas(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]]) -> None:
        stamps = [rows.stamp_row(e.entry, e.position) for e, _ in entries if isinstance(e.entry, Stamp)]
        quotas = [rows.quota_row(e.entry, e.position, self._name) for e, _ in entries if isinstance(e.entry, Quota)]
        many(db, "INSERT OR REPLACE INTO stamps VALUES(?,?,?,?,?,?,?)", stamps)
        positions = [(e.entry, e.position) for e, _ in entries if isinstance(e.entry, Stamp)]
        many(db, _SESSION_TAG, [row for stamp in positions for row in rows.session_tag_rows(*stamp)])
        narrow = [row for stamp in positions for row in rows.narrow_tag_rows(*stamp)]
        many(db, "INSERT OR REPLACE INTO narrow_tags VALUES(?,?,?,?,?,?,?,?)", narrow)
        many(db, "INSERT OR REPLACE INTO quotas VALUES(?,?,?,?,?,?)", quotas)
        selectors = [stamp.selector for stamp, _ in positions]
        sessions = [one.session_id for one in selectors if one.session_id is not None]
        messages = [one.message_id for one in selectors if one.message_id is not None]
        changes.mark_stamped(db, self._seq, sessions, messages)


def _fewer_updates(updates: Iterable[rows.Row]) -> list[rows.Row]:
    """Combines equal updates of a session by many turns: only the first and last time count.

    After a better rail has set the session's folder, earlier updates are not combined with later ones.
    """
    times: dict[rows.Row, list[int]] = {}
    best: dict[object, str] = {}
    for source, project, key, ts, session, rail in updates:
        if project is not None and str(rail) < best.get(session, _NO_RAIL):
            best[session] = str(rail)
        some = times.setdefault((source, project, key, session, rail, best.get(session)), [])
        if isinstance(ts, int):
            some.append(ts)
    return [
        (source, project, key, ts, session, rail)
        for (source, project, key, session, rail, _), some in times.items()
        for ts in ({min(some), max(some)} if some else {None})
    ]


def _holder_time(record: Turn | Copy) -> int | None:
    """The time of a message in its holder's own log, whether the holder owns the message or not."""
    return index_ms((record.basis.ts if record.basis is not None else None) or record.ts) or None


def fact_key(key: tuple[str, ...]) -> str:
    """An identity as one text; as JSON, since parts may contain anything."""
    return msgspec.json.encode(key[1:]).decode()


def _sessions_of_facts(db: sqlite3.Connection, facts: Sequence[rows.Row]) -> set[int]:
    """The sessions of facts, now and before the change."""
    keys = [(kind, key) for kind, key, *_ in facts if kind in ("event", "compaction", "request")]
    sql = (
        "WITH w(kind, key) AS ({keys}) SELECT f.session FROM w CROSS JOIN facts f ON f.kind = w.kind AND f.key = w.key"
    )
    before = keyed(db, sql, keys)
    return {session for _, _, session, *_ in (*facts, *((0, 0, *row) for row in before)) if isinstance(session, int)}


def _names_in(item: Logged) -> Iterable[str | None]:
    entry = item.entry
    if isinstance(entry, Turn):
        return rows.turn_names(entry)
    if isinstance(entry, Session):
        return (entry.source or None, entry.project, entry.project_key)
    if isinstance(entry, Event):
        return (entry.source or None, entry.name)
    if isinstance(entry, Overhead):
        return (entry.source, *entry.models)
    if isinstance(entry, Request):
        return (entry.source, entry.model)
    if isinstance(entry, Compaction):
        return (entry.source, "")
    return (entry.source,) if isinstance(entry, Copy | Quota) else ()


def _fill(db: sqlite3.Connection, cache: dict[str, int], texts: set[str | None], table: str, column: str) -> None:
    """Gives every text a number, and adds those that are missing to the cache."""
    if len(cache) > _CACHE_SIZE:
        cache.clear()
    missing = sorted(text for text in texts if text is not None and text not in cache)
    if not missing:
        return
    many(db, f"INSERT OR IGNORE INTO {table}({column}) VALUES(?)", [(text,) for text in missing])
    sql = f"SELECT {column}, id FROM {table} WHERE {column} IN ({{keys}})"
    numbered = keyed(db, sql, [(text,) for text in missing])
    cache.update((row[0], row[1]) for row in numbered)


def _write_skipped(db: sqlite3.Connection, logged: Sequence[tuple[Logged, int]]) -> None:
    skipped = [
        (item.position, item.length, item.entry.reason, item.entry.kind)
        for item, _ in logged
        if isinstance(item.entry, Skipped)
    ]
    many(db, "INSERT OR REPLACE INTO skipped VALUES(?,?,?,?)", skipped)
