"""Every question asked of opencode's database: short ones, in pages, none of which spans a wait."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from burnd.harness.opencode.cursor import FIRST_ROWID, LAST_ROWID, Anchor, Marker, digest_of
from burnd.harness.opencode.rows import MessageRow, PartRow, SessionRow
from burnd.harness.opencode.schema import Schema
from burnd.records import folders
from burnd.records.foreign_json import WHOLE_BYTES, small_values

PAGE = 500
_AT_ONCE = 20
MOST_PARTS = 5_000  # of a message; a real one has some dozens
_READ_BYTES = 1 << 20
_FOLDER = 1  # among a session's texts
_LARGEST = 1 << 53
_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_UNREADABLE = ("SQLITE_CORRUPT", "SQLITE_TOOBIG", "SQLITE_NOTADB", "SQLITE_IOERR")


class SessionFound(NamedTuple):
    """A session's row, when it was archived, and a digest that changes with the row."""

    row: SessionRow
    archived: int | None
    digest: int


class RowVersion(NamedTuple):
    """A message as it stands in its session's order: a change of it or its parts changes `digest`.

    Without a look at the parts, `digest` is 0.
    """

    id: str
    created: int
    updated: int
    digest: int = 0


class _TooMuch(Exception):
    """Raised when several messages together take too much memory."""


class Fetched(NamedTuple):
    """Messages with their parts, their size in bytes, and SQLite's error for each unreadable row."""

    rows: list[MessageRow]
    size: int = 0
    unreadable: tuple[str, ...] = ()


def schema_version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA schema_version").fetchone()[0])


@contextlib.contextmanager
def one_state(db: sqlite3.Connection) -> Iterator[None]:
    """Several questions about one and the same state of the database; to be over in an instant."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


def standing(db: sqlite3.Connection, anchors: Sequence[Anchor]) -> Anchor | None:
    """The newest of these rows that is still there under its number."""
    for anchor in reversed(anchors):
        found = db.execute("SELECT id FROM message WHERE rowid = ?", (anchor.rowid,)).fetchone()
        if found is not None and _text(found[0]) == anchor.id:
            return anchor
    return None


def new_rows(db: sqlite3.Connection, marker: Marker) -> tuple[list[str], Marker]:
    """The sessions of a page of rows from the marker on, and the marker behind it, which is the same where none are."""
    if marker.is_last:
        return [], marker
    sql = "SELECT rowid, id, session_id FROM message WHERE rowid >= ? ORDER BY rowid LIMIT ?"
    page = db.execute(sql, (marker.next, PAGE)).fetchall()
    if not page:
        return [], marker
    return list(dict.fromkeys(_text(row[2]) for row in page)), marker.after(page[-1][0], _text(page[-1][1]))


def sessions_with_messages(db: sqlite3.Connection) -> list[str]:
    return [_text(row[0]) for row in db.execute("SELECT DISTINCT session_id FROM message")]


Known = dict[Any, tuple[int, SessionFound]]  # by their ids: what sessions' rows hashed to, and what they say


def all_sessions(db: sqlite3.Connection, schema: Schema, known: Known) -> Iterator[SessionFound]:
    """Every session; what is `known` already is not made anew, and what was made is added to it."""
    at = FIRST_ROWID
    while at <= LAST_ROWID:
        sql = f"SELECT rowid, {schema.session} FROM session WHERE rowid >= ? ORDER BY rowid LIMIT ?"
        page = db.execute(sql, (at, PAGE)).fetchall()
        if not page:
            return
        at = page[-1][0] + 1
        for _, *row in page:
            session_id, key = row[0], hash(tuple(row))
            if session_id not in known or known[session_id][0] != key:
                known[session_id] = (key, _session(row))
            yield known[session_id][1]


def one_session(db: sqlite3.Connection, schema: Schema, session_id: str) -> SessionFound | None:
    row = db.execute(f"SELECT {schema.session} FROM session WHERE id = ?", (session_id,)).fetchone()
    return _session(row) if row is not None else None


def orphaned(db: sqlite3.Connection, session_id: str) -> SessionFound | None:
    """A session whose own row is gone while its messages are still there: they were paid for all the same."""
    begun = db.execute("SELECT min(time_created) FROM message WHERE session_id = ?", (session_id,)).fetchone()[0]
    return SessionFound(SessionRow(session_id, _whole(begun)), None, 0) if begun is not None else None


def sequences(db: sqlite3.Connection, schema: Schema) -> dict[str, int]:
    """Where the event log of each session stands; empty where the release keeps none."""
    if not schema.has_sequences:
        return {}
    rows = db.execute("SELECT aggregate_id, seq FROM event_sequence").fetchall()
    return {_text(session): _whole(seq) for session, seq in rows}


def sequence_of(db: sqlite3.Connection, schema: Schema, session_id: str) -> int:
    if not schema.has_sequences:
        return -1
    row = db.execute("SELECT seq FROM event_sequence WHERE aggregate_id = ?", (session_id,)).fetchone()
    return _whole(row[0]) if row is not None else -1


def message_ids(db: sqlite3.Connection, session_id: str) -> frozenset[str]:
    return frozenset(_text(row[0]) for row in db.execute("SELECT id FROM message WHERE session_id = ?", (session_id,)))


def versions_of(db: sqlite3.Connection, schema: Schema, ids: Sequence[str]) -> dict[str, RowVersion]:
    """The versions of these messages, with a look at their parts."""
    found: list[RowVersion] = []
    for some in _groups(ids, PAGE):
        sql = f"SELECT id, time_created, {schema.message_updated} FROM message WHERE id IN ({_marks(some)})"
        found += _with_parts(db, schema, _versions(db.execute(sql, some)))
    return {version.id: version for version in found}


def row_versions(db: sqlite3.Connection, schema: Schema, session_id: str, *, with_parts: bool) -> list[RowVersion]:
    """A session's messages in its order, which is that of their times: ids do not sort by time any more."""
    sql = (
        f"SELECT id, time_created, {schema.message_updated} FROM message WHERE session_id = ? ORDER BY time_created, id"
    )
    found = _versions(db.execute(sql, (session_id,)))
    return _with_parts(db, schema, found) if with_parts else found


def _versions(rows: Iterable[Sequence[Any]]) -> list[RowVersion]:
    return [RowVersion(_text(row[0]), _whole(row[1]), _whole(row[2])) for row in rows]


def _with_parts(db: sqlite3.Connection, schema: Schema, found: Sequence[RowVersion]) -> list[RowVersion]:
    parts: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    more: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for some in _groups([version.id for version in found], PAGE):
        sql = (
            f"SELECT message_id, id, {schema.part_updated} FROM part "
            f"WHERE message_id IN ({_marks(some)}) ORDER BY message_id, id"
        )
        for name, part, updated in db.execute(sql, some):
            message = _text(name)
            if len(parts[message]) < MOST_PARTS:
                parts[message].append((_text(part), _whole(updated)))
            else:
                more[message] = (more[message][0] + 1, max(more[message][1], _whole(updated)))
    return [one._replace(digest=version_digest(*one[:3], parts[one.id], more[one.id])) for one in found]


def version_of(row: MessageRow) -> RowVersion:
    """The version of a message that was read with its parts."""
    parts = [(part.id, part.updated) for part in row.parts]
    digest = version_digest(row.id, row.created, row.updated, parts, row.more_parts)
    return RowVersion(row.id, row.created, row.updated, digest)


def version_digest(
    message_id: str, created: int, updated: int, parts: Iterable[tuple[str, int]], more: tuple[int, int] = (0, 0)
) -> int:
    return digest_of([message_id, created, updated, *parts, *([more] if more[0] else [])])


def fetch(db: sqlite3.Connection, schema: Schema, ids: Sequence[str], most_bytes: int) -> tuple[Fetched, int]:
    """Messages with their parts, in this order, until there are so many bytes; also, how many ids were dealt with."""
    together, done = Fetched([]), 0
    for some in _groups(ids, _AT_ONCE):
        together = _with(together, _fetch_some(db, schema, some))
        done += len(some)
        if together.size >= most_bytes:
            break
    return together, done


def _with(one: Fetched, other: Fetched) -> Fetched:
    one.rows.extend(other.rows)
    return Fetched(one.rows, one.size + other.size, one.unreadable + other.unreadable)


def _fetch_some(db: sqlite3.Connection, schema: Schema, ids: Sequence[str]) -> Fetched:
    """Messages with their parts. If a row is unreadable, or all take too much memory, each is read by itself."""
    try:
        return _fetch_together(db, schema, ids)
    except _TooMuch:
        pass
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
    together = Fetched([])
    for message_id in ids:
        together = _with(together, _fetch_one(db, schema, message_id))
    return together


def _fetch_together(db: sqlite3.Connection, schema: Schema, ids: Sequence[str]) -> Fetched:
    parts: defaultdict[bytes, list[PartRow]] = defaultdict(list)
    size = 0
    sql = (
        f"SELECT message_id, id, {schema.part_updated}, data FROM part "
        f"WHERE message_id IN ({_marks(ids)}) ORDER BY message_id, id"
    )
    for message, part, updated, data in db.execute(sql, ids):
        parts[message].append(PartRow(_text(part), _whole(updated), _data(data)))
        size += len(parts[message][-1].data)
        if size > WHOLE_BYTES or len(parts[message]) > MOST_PARTS:
            raise _TooMuch
    messages: dict[str, MessageRow] = {}
    sql = f"SELECT id, time_created, {schema.message_updated}, data FROM message WHERE id IN ({_marks(ids)})"
    for name, created, updated, data in db.execute(sql, ids):
        message_id = _text(name)
        messages[message_id] = MessageRow(message_id, _whole(created), _whole(updated), _data(data), tuple(parts[name]))
        size += len(messages[message_id].data)
        if size > 2 * WHOLE_BYTES:
            raise _TooMuch
    return Fetched([messages[message_id] for message_id in ids if message_id in messages], size)


def _fetch_one(db: sqlite3.Connection, schema: Schema, message_id: str) -> Fetched:
    """One message, part by part. Rows that are too large are reduced to their small values."""
    unreadable: tuple[str, ...] = ()
    try:
        sql = f"SELECT rowid, time_created, {schema.message_updated} FROM message WHERE id = ?"
        found = db.execute(sql, (message_id,)).fetchone()
        if found is None:
            return Fetched([])
        data, whole_size = _read_data(db, "message", found[0], WHOLE_BYTES)
        part_rows = db.execute(_PART_ROWS.format(updated=schema.part_updated), (message_id,)).fetchmany(MOST_PARTS)
        more = (0, 0)
        if len(part_rows) == MOST_PARTS:
            sql = f"SELECT count(*), max({schema.part_updated}) FROM part WHERE message_id = ? AND id > ?"
            count, newest = db.execute(sql, (message_id, _text(part_rows[-1][1]))).fetchone()
            more = (count, _whole(newest) if count else 0)
    except sqlite3.Error as error:
        return _nothing_if_damaged(error)
    parts: list[PartRow] = []
    room = WHOLE_BYTES
    for rowid, part_id, updated in part_rows:
        try:
            part, size = _read_data(db, "part", rowid, room)
        except sqlite3.Error as error:
            unreadable += _nothing_if_damaged(error).unreadable
            continue
        room -= min(room, len(part))
        parts.append(PartRow(_text(part_id), _whole(updated), part, size))
    message = MessageRow(message_id, _whole(found[1]), _whole(found[2]), data, tuple(parts), whole_size, more)
    return Fetched([message], len(message.data) + sum(len(part.data) for part in parts), unreadable)


def _read_data(db: sqlite3.Connection, table: str, rowid: int, room: int) -> tuple[bytes, int | None]:
    """A row's `data` and None; if it is larger than `room`, its small values and its size."""
    try:
        (kind,) = db.execute(f"SELECT typeof(data) FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
        if kind in (b"text", b"blob"):
            with db.blobopen(table, "data", rowid, readonly=True) as blob:
                size = len(blob)
                if size > room:
                    return small_values(iter(lambda: blob.read(_READ_BYTES), b"")), size
        (data,) = db.execute(f"SELECT data FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
    except TypeError:
        return b"", None  # deleted in between
    return _data(data), None


_PART_ROWS = "SELECT rowid, id, {updated} FROM part WHERE message_id = ? ORDER BY id"


def _nothing_if_damaged(error: sqlite3.Error) -> Fetched:
    if not is_damage(error):
        raise error
    return Fetched([], unreadable=(error_name(error),))


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that bytes cannot be read, rather than that it is not the time to read them."""
    return error_name(error).startswith(_UNREADABLE)


def is_lock(error: sqlite3.Error) -> bool:
    """Whether somebody else has the database just now."""
    return error_name(error).startswith(_LOCKED)


def error_name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def _session(row: Sequence[Any]) -> SessionFound:
    texts = [_text(value) or None if value is not None else None for value in row[2:7]]  # empty tells nothing
    texts[_FOLDER] = folders.bounded(texts[_FOLDER])
    archived = _whole(row[7]) if row[7] is not None else None
    return SessionFound(SessionRow(_text(row[0]), _whole(row[1]), *texts), archived, digest_of(row))


def _groups(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def _marks(items: Sequence[object]) -> str:
    return ",".join("?" * len(items))


def _text(value: Any) -> str:
    """A value that should be a text; SQLite lets any column hold anything."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _data(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b"" if value is None else str(value).encode()


def _whole(value: Any) -> int:
    """A value that should be a whole number within what times and counts can be."""
    if type(value) is int and 0 <= value <= _LARGEST:
        return value
    return int(min(max(value, 0), _LARGEST)) if isinstance(value, int | float) else 0
