"""Writes one change into the index. Live ingest, catch-up and rebuild all come through here, so they agree."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from burnd.harness.registry import PRODUCTS
from burnd.index import changed, cost_states, rows, unlogged
from burnd.index.change import Change, CursorChange, FileChange, Known
from burnd.index.store import IndexStore, keyed, many, set_ledger_end
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
    """Under which name the index keeps the folders that clients told of."""
    return f"roots of {source}"


def write_cursors(db: sqlite3.Connection, cursors: Sequence[CursorChange]) -> None:
    kept = [(c.source, c.key, c.value) for c in cursors if c.value is not None]
    gone: list[tuple[Any, ...]] = [(c.source, c.key) for c in cursors if c.value is None]
    many(db, "INSERT OR REPLACE INTO cursors VALUES(?,?,?)", kept)
    many(db, "DELETE FROM cursors WHERE source = ? AND key = ?", gone)


def write_files(db: sqlite3.Connection, changes: Sequence[FileChange]) -> None:
    """Where each file was read to, and the state and pack of its reader."""
    for change in changes:
        where = (change.source, change.path)
        if change.cursor is None or change.from_start:
            own = "(SELECT id FROM files WHERE source = ? AND path = ?)"
            db.execute(f"DELETE FROM reader_packs WHERE file = {own}", where)
        if change.cursor is None:
            db.execute("DELETE FROM files WHERE source = ? AND path = ?", where)
            continue
        found = db.execute(
            "INSERT INTO files(source, path, root, cursor, state, seen, open) VALUES(?,?,?,?,?,?,?) "
            "ON CONFLICT(source, path) DO UPDATE SET root = excluded.root, cursor = excluded.cursor, "
            "state = excluded.state, seen = excluded.seen, open = excluded.open RETURNING id",
            (*where, change.root, change.cursor, change.state, change.seen_ms, change.open),
        ).fetchall()
        ((file,),) = found
        if change.pack:
            pack = (change.replaces, file, change.pack)
            db.execute("INSERT OR REPLACE INTO reader_packs(id, file, rows) VALUES(?,?,?)", pack)


_NO_RAIL = "2"  # after every rail that tells a folder: the main one's is 0, an agent's begins with 1
_UNLOGGED_COMPACTIONS = frozenset(product.source for product in PRODUCTS if not product.logs_compactions)
_TELL_OF_AGENT = """
INSERT INTO agents VALUES(?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET ts = min(ts, excluded.ts),
  type = min(coalesce(type, excluded.type), coalesce(excluded.type, type)),
  group_id = min(coalesce(group_id, excluded.group_id), coalesce(excluded.group_id, group_id))
"""
_REMEMBERED = 50_000  # names and sessions looked up before; beyond this the memory starts afresh


_SESSION_SAYS = (
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
_TURN_TOUCHES = (
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
_COPY_TOUCHES = (
    "UPDATE sessions SET source = coalesce(source, ?1), "
    "created_at = min(coalesce(created_at, ?2), coalesce(?2, created_at)), "
    "updated_at = max(coalesce(updated_at, ?2), coalesce(?2, updated_at)) WHERE id = ?3"
)
_CAME_FROM = "INSERT INTO origins VALUES(?,?,?) ON CONFLICT DO UPDATE SET repeats = max(repeats, excluded.repeats)"
_INHERITS = (
    "UPDATE sessions SET content_since = iif(?1 IS NULL, content_since, ?2), content_mode = coalesce(?1, content_mode) "
    "WHERE id = ?3"
)
_OTHER_TOUCHES = "UPDATE sessions SET source = coalesce(source, ?1) WHERE id = ?2"


class _Standing(NamedTuple):
    """A turn and what its row says of its place in the ledger."""

    turn: Turn
    known: Known


class Applier:
    """Knows which numbers stand for which texts, so that a batch costs a handful of statements."""

    def __init__(self, store: IndexStore) -> None:
        self.store = store
        self._names: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._sums = SumWriter(store.prices)

    async def apply(self, change: Change) -> None:
        """All of a change, in one transaction that also says how far the ledger is covered."""
        try:
            await self.store.transact(lambda db: self._apply(db, change))
        except BaseException:
            self._names.clear()  # what was numbered in a transaction that did not happen
            self._sessions.clear()
            self._sums.forget()
            raise

    def _apply(self, db: sqlite3.Connection, change: Change) -> None:
        entries = [(item, digest) for item, digest in change.logged if not isinstance(item.entry, Skipped)]
        self._number(db, entries, change)
        _write_skipped(db, change.logged)
        self._write_turns(db, entries)
        self._write_sessions(db, entries)
        self._write_facts(db, entries)
        self._write_overheads(db, entries)
        self._write_requests(db, entries)
        self._write_stamps_and_quotas(db, entries)
        self._write_withheld(db, [item.entry for item, _ in entries])
        origins = [(one.session_id, one.origin, 1) for item, _ in entries if isinstance(one := item.entry, Origin)]
        origins += [(session_id, origin, 0) for session_id, origin in change.origins]
        pairs = [(self._sessions[session_id], *origin) for session_id, *origin in origins]
        many(db, _CAME_FROM, pairs)
        rows.write_messages(db, change.placed, self._sessions, self._names)
        rows.prune_messages(db, [item.entry for item, _ in entries if isinstance(item.entry, Prune)])
        write_cursors(db, [*_roots_in(entries), *change.cursors])
        write_files(db, change.files)
        many(db, _TELL_OF_AGENT, change.agents)
        self._write_open_turns(db, change)
        self._sums.settle(db)
        if change.ledger_end is not None:
            set_ledger_end(db, change.ledger_end, change.ledger_anchor)

    def _number(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]], change: Change) -> None:
        """Gives every text and session of a change its number, in a few statements."""
        names: set[str | None] = {p.label.tool for p in change.placed}
        sessions: set[str | None] = {p.label.session_id for p in change.placed}
        for turn in (*(item.turn for item in change.open), *change.closed):
            names.update(rows.turn_names(turn))
            sessions.add(turn.session_id)
        sessions.update(session_id for session_id, _ in change.origins)
        for item, _ in entries:
            names.update(_names_in(item))
            sessions.add(rows.session_of(item.entry))  # type: ignore[arg-type]
        _fill(db, self._names, names, "names", "name")
        _fill(db, self._sessions, sessions, "sessions", "session_id")

    def _name(self, text: str | None) -> int | None:
        return None if text is None else self._names[text]

    def _write_turns(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]]) -> None:
        """The newest revision of each turn; what the ledger says of it is not open any more."""
        turns = [(item, digest) for item, digest in entries if isinstance(item.entry, Turn)]
        known, first_new = self._known_turns(db, [_turn(pair) for pair in turns])
        next_id = first_new
        newest: dict[int, _Standing] = {}
        for pair in turns:
            turn, (item, digest) = _turn(pair), pair
            key = (self._names[turn.source], turn.message_id)
            old = known.get(key) or Known(next_id, 0, 0, None, None)
            next_id += old.id == next_id
            if turn.rev >= old.rev:
                known[key] = Known(old.id, turn.rev, digest, item.position, item.length)
                newest[old.id] = _Standing(turn, known[key])
                if turn.copy_of is not None:
                    known[key] = known[key]._replace(rev=0)  # it is gone: should it be said again, that begins anew
        self._put_turns(db, newest, first_new)
        taken_back = [(row_id,) for row_id, standing in newest.items() if standing.turn.copy_of is not None]
        many(db, "DELETE FROM tool_calls WHERE turn = ?", taken_back)
        many(db, "DELETE FROM turns WHERE id = ?", taken_back)

    def _write_open_turns(self, db: sqlite3.Connection, change: Change) -> None:
        """Turns that still grow are shown as they are now; the ledger's place and revision stay with their row."""
        shown = [(item.turn, True) for item in change.open] + [(turn, False) for turn in change.closed]
        known, first_new = self._known_turns(db, [turn for turn, _ in shown])
        next_id = first_new
        standing: dict[int, _Standing] = {}
        for turn, is_open in shown:
            key = (self._names[turn.source], turn.message_id)
            old = known.get(key) or Known(next_id, 0, 0, None, None)
            next_id += old.id == next_id
            known[key] = old._replace(open=is_open)
            standing[old.id] = _Standing(turn, known[key])
        self._put_turns(db, standing, first_new)
        many(
            db,
            "INSERT OR REPLACE INTO open_turns SELECT ?, id, ? FROM files WHERE source = ? AND path = ?",
            [
                (
                    known[self._names[item.turn.source], item.turn.message_id].id,
                    encode(item.turn),
                    item.source,
                    item.path,
                )
                for item in change.open
            ],
        )

    def _known_turns(self, db: sqlite3.Connection, turns: Sequence[Turn]) -> tuple[dict[tuple[int, str], Known], int]:
        """What stands of these turns, and the number the next new one gets."""
        if not turns:
            return {}, 1
        known = _turn_rows(db, [(self._names[turn.source], turn.message_id) for turn in turns])
        ((next_id,),) = db.execute("SELECT coalesce(max(id), 0) + 1 FROM turns").fetchall()
        return known, int(next_id)

    def _put_turns(self, db: sqlite3.Connection, newest: dict[int, _Standing], first_new: int) -> None:
        """Writes turns by their numbers, those below `first_new` in the place of what stands of them."""
        if not newest:
            return
        self._sums.leave(db, newest)
        old = [(row_id,) for row_id in newest if row_id < first_new]
        for table, column in (("turns", "id"), ("tool_calls", "turn"), ("open_turns", "turn")):
            many(db, f"DELETE FROM {table} WHERE {column} = ?", old)
        shown = [(turn, known.open) for turn, known in newest.values()]
        numbers = self._sums.number(db, shown, self._names)
        turn_rows: list[rows.Row] = []
        call_rows: list[rows.Row] = []
        for (row_id, (turn, known)), dimensions in zip(newest.items(), numbers, strict=True):
            session = self._sessions[turn.session_id]
            row = rows.turn_row(turn, row_id, session, self._name)
            turn_rows.append((*row, known.open, known.rev, known.digest, known.position, known.length, *dimensions))
            call_rows += rows.call_rows(turn, row_id, self._name)
        marks = ",".join("?" * len(rows.TURN_COLUMNS))
        many(db, f"INSERT INTO turns({','.join(rows.TURN_COLUMNS)}) VALUES({marks})", turn_rows)
        many(db, "INSERT INTO tool_calls VALUES(?,?,?,?,?,?)", call_rows)
        changed.mark_own(db, [turn for turn, _ in newest.values()], self._sessions)

    def _write_sessions(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]]) -> None:
        """What every line says of its session, in the ledger's order: so it does not matter in which batches."""
        said = [self._said_of_session(item.entry) for item, _ in entries]
        for sql, group in groupby(filter(None, said), key=itemgetter(0)):
            told = [row for _, row in group]
            many(db, sql, _in_few(told) if sql is _TURN_TOUCHES else told)

    def _said_of_session(self, entry: Entry | Skipped) -> tuple[str, rows.Row] | None:
        if isinstance(entry, Session):
            return _SESSION_SAYS, rows.session_row(entry, self._name)
        if isinstance(entry, Turn):
            names = (self._name(entry.source), self._name(entry.project), self._name(entry.project_key))
            rail = "0" if entry.rail_id == MAIN else f"1{entry.rail_id}"
            return _TURN_TOUCHES, (*names, _when_held(entry), self._sessions[entry.session_id], rail)
        if isinstance(entry, Copy):
            return _COPY_TOUCHES, (self._name(entry.source), _when_held(entry), self._sessions[entry.session_id])
        if isinstance(entry, Origin):
            since = index_ms(entry.content_since) if entry.content_since else None
            return _INHERITS, (entry.content_mode, since, self._sessions[entry.session_id])
        if isinstance(entry, Occurrence | Overhead):
            return _OTHER_TOUCHES, (self._name(entry.source or None), self._sessions[entry.session_id])
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
            session = self._sessions.get(rows.session_of(entry) or "")
            rail = getattr(entry, "rail_id", None)
            place = (digest, item.position, item.length)
            name = self._name(entry.name) if isinstance(entry, Event) else None
            of_copy = rows.copy_columns(entry) if isinstance(entry, Copy) else (None, None)
            facts.append((key[0], fact_key(key), session, rail, rows.time_of(entry), *place, name, *of_copy))
        self._sums.touch(_told_of(db, facts))
        self._mark_rails(db, [item.entry for item, _ in entries])
        many(
            db,
            "INSERT INTO facts(kind, key, session, rail, ts, digest, position, length, name, turn_index, forked) "
            "VALUES(?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(kind, key) DO UPDATE SET session = excluded.session, "
            "rail = excluded.rail, ts = excluded.ts, digest = excluded.digest, position = excluded.position, "
            "length = excluded.length, name = excluded.name, turn_index = excluded.turn_index, "
            "forked = excluded.forked",
            facts,
        )

    def _mark_rails(self, db: sqlite3.Connection, entries: Sequence[Entry | Skipped]) -> None:
        """Copies and compactions change what the turns after them stand on. To be called before they are written."""
        changed.mark_copies(db, [entry for entry in entries if isinstance(entry, Copy)], self._sessions)
        told = [entry for entry in entries if isinstance(entry, Compaction)]
        if told:
            places = [(self._sessions[c.session_id], c.rail_id, index_ms(c.ts)) for c in told]
            changed.mark_compactions(db, places, [(fact_key(identity(c)),) for c in told])

    def _write_overheads(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]]) -> None:
        said = [item.entry for item, _ in entries if isinstance(item.entry, Overhead)]
        numbered = [(self._sessions[entry.session_id], self._names[entry.source], entry) for entry in said]
        cost_states.write(db, numbered, self._names)

    def _write_requests(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]]) -> None:
        """Writes requests without a response in any log, those for compactions included."""
        found: dict[tuple[str, str], tuple[int, Request | Compaction]] = {}
        for item, _ in entries:
            entry = item.entry
            if isinstance(entry, Request) or (isinstance(entry, Compaction) and entry.source in _UNLOGGED_COMPACTIONS):
                key = identity(entry)
                found[key[0], fact_key(key)] = (self._sessions[entry.session_id], entry)
        if found:
            unlogged.write_requests(db, found, self._names)

    def _write_stamps_and_quotas(self, db: sqlite3.Connection, entries: Sequence[tuple[Logged, int]]) -> None:
        stamps = [rows.stamp_row(e.entry, e.position) for e, _ in entries if isinstance(e.entry, Stamp)]
        quotas = [rows.quota_row(e.entry, e.position, self._name) for e, _ in entries if isinstance(e.entry, Quota)]
        many(db, "INSERT OR REPLACE INTO stamps VALUES(?,?,?,?,?,?,?)", stamps)
        said = [(e.entry, e.position) for e, _ in entries if isinstance(e.entry, Stamp)]
        many(db, _SESSION_TAG, [row for stamp in said for row in rows.session_tag_rows(*stamp)])
        narrow = [row for stamp in said for row in rows.narrow_tag_rows(*stamp)]
        many(db, "INSERT OR REPLACE INTO narrow_tags VALUES(?,?,?,?,?,?,?,?)", narrow)
        many(db, "INSERT OR REPLACE INTO quotas VALUES(?,?,?,?,?,?)", quotas)


def _in_few(touches: Iterable[rows.Row]) -> list[rows.Row]:
    """What many turns say of their sessions: of those that say the same, the first time and the last one count.

    Only since the session's folder was last told by a better rail, though: from then on, another's key may be missing.
    """
    times: dict[rows.Row, list[int]] = {}
    best: dict[object, str] = {}
    for source, project, key, when, session, rail in touches:
        if project is not None and str(rail) < best.get(session, _NO_RAIL):
            best[session] = str(rail)
        told = times.setdefault((source, project, key, session, rail, best.get(session)), [])
        if isinstance(when, int):
            told.append(when)
    return [
        (source, project, key, when, session, rail)
        for (source, project, key, session, rail, _), told in times.items()
        for when in ({min(told), max(told)} if told else {None})
    ]


def _when_held(said: Turn | Copy) -> int | None:
    """The time that its holder's own log gives a message: whoever holds it, and owned it meanwhile, says the same."""
    return index_ms((said.basis.ts if said.basis is not None else None) or said.ts) or None


def fact_key(key: tuple[str, ...]) -> str:
    """An identity as one text; JSON keeps parts apart whatever is in them."""
    return msgspec.json.encode(key[1:]).decode()


def _told_of(db: sqlite3.Connection, facts: Sequence[rows.Row]) -> set[int]:
    """The sessions that facts are about, and those that they were about before."""
    keys = [(kind, key) for kind, key, *_ in facts if kind in ("event", "compaction", "request")]
    sql = (
        "WITH w(kind, key) AS ({keys}) SELECT f.session FROM w CROSS JOIN facts f ON f.kind = w.kind AND f.key = w.key"
    )
    before = keyed(db, sql, keys)
    return {session for _, _, session, *_ in (*facts, *((0, 0, *row) for row in before)) if isinstance(session, int)}


def _turn(pair: tuple[Logged, int]) -> Turn:
    entry = pair[0].entry
    assert isinstance(entry, Turn)  # noqa: S101 - callers pass turns only; this tells the type checker
    return entry


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


def _fill(db: sqlite3.Connection, memory: dict[str, int], texts: set[str | None], table: str, column: str) -> None:
    """Makes sure that every text has a number and that `memory` knows it."""
    if len(memory) > _REMEMBERED:
        memory.clear()
    missing = sorted(text for text in texts if text is not None and text not in memory)
    if not missing:
        return
    many(db, f"INSERT OR IGNORE INTO {table}({column}) VALUES(?)", [(text,) for text in missing])
    sql = f"SELECT {column}, id FROM {table} WHERE {column} IN ({{keys}})"
    found = keyed(db, sql, [(text,) for text in missing])
    memory.update((row[0], row[1]) for row in found)


def _turn_rows(db: sqlite3.Connection, keys: list[tuple[int, str]]) -> dict[tuple[int, str], Known]:
    # A join, and in this order: for a row value IN a list SQLite 3.40 would scan every turn of the source.
    sql = (
        "WITH wanted(source, message_id) AS ({keys}) "
        "SELECT t.source, t.message_id, t.id, t.rev, t.digest, t.position, t.length, t.open FROM wanted w "
        "CROSS JOIN turns t ON t.source = w.source AND t.message_id = w.message_id"
    )
    found = keyed(db, sql, keys)
    return {(row[0], row[1]): Known(*row[2:]) for row in found}


def _write_skipped(db: sqlite3.Connection, logged: Sequence[tuple[Logged, int]]) -> None:
    skipped = [
        (item.position, item.length, item.entry.reason, item.entry.kind)
        for item, _ in logged
        if isinstance(item.entry, Skipped)
    ]
    many(db, "INSERT OR REPLACE INTO skipped VALUES(?,?,?,?)", skipped)


def _roots_in(entries: Sequence[tuple[Logged, int]]) -> Iterable[CursorChange]:
    """Folders that somebody said a source's logs are in, beside the cursors that say how far they were read."""
    sessions = (item.entry for item, _ in entries if isinstance(item.entry, Session))
    return (CursorChange(roots_of(said.source), root, b"") for said in sessions for root in said.roots)
