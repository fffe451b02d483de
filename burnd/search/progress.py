"""How far an index has come with each session, against how far the content has: what is left to be taken in.

A session's content grows at its end, is pruned, loses some messages, or is replaced by hand. So three numbers say how
far the index is: the bytes of the sidecar it covers, the last prune or erasure it has applied, and a hash of the title
it has.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.ledger.content import Placed
from burnd.ledger.sqlite_files import batches
from burnd.records.codec import hash_of
from burnd.records.content import NO_RAIL
from burnd.search.documents import Place

T = TypeVar("T")
_Row = tuple[str, str, int, int, int, int]  # a record's rail and message, and its MessageRow
# What is known to have been added to a session between two places: so it need not be looked for.
Landed = Callable[[str, int, int], Sequence[Placed]]
STATES: Final = "search"  # the cursors that hold a Progress for each session
CURRENT: Final = "search-index"  # the cursor that says which folder is in use
AT_ONCE_BYTES: Final = 1 << 20  # of a sidecar: some thousand messages


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """What an index holds of a session."""

    covered: int = 0
    pruned: int = 0
    title: int = 0


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """Which folder is in use, its last commit that was told of, and whether pruned words may still be in its files."""

    folder: str
    commit: int
    stained: bool = False


NOTHING: Final = Progress()
_UNKNOWN: Final = Progress(covered=1 << 62)  # more than there ever is: whatever the index holds goes first


class Standing(NamedTuple):
    """A session as it is now."""

    session_id: str
    row: int
    bytes: int
    pruned: int
    title: str | None
    summary: str | None
    updated_at: int

    @property
    def aim(self) -> Progress:
        """What an index should hold of it."""
        return Progress(self.bytes, self.pruned, _title_hash(self.title, self.summary))


_position = itemgetter(2)


class MessageRow(NamedTuple):
    """Where one record of a message stands in the sidecar."""

    n: int
    b: int
    position: int
    length: int


class Message(NamedTuple):
    """A message that has something new: all its records, the newest of each, in their order."""

    place: Place
    rows: Sequence[MessageRow]
    grown: bool  # an index that covers what was before may hold it already


class Plan(NamedTuple):
    """What is to be done for one session, or as much of it as is done at once."""

    standing: Standing
    before: Progress
    anew: bool  # whatever the index holds of it goes first
    messages: Sequence[Message]
    after: Progress
    calls: Sequence[tuple[str, str]] = ()


def states(db: sqlite3.Connection) -> dict[str, Progress]:
    rows = db.execute("SELECT key, value FROM cursors WHERE source = ?", (STATES,))
    return {key: _decoded(value, Progress) or _UNKNOWN for key, value in rows}


def current(db: sqlite3.Connection) -> Current | None:
    row = db.execute("SELECT value FROM cursors WHERE source = ? AND key = ''", (CURRENT,)).fetchone()
    return _decoded(row[0], Current) if row else None


def due(db: sqlite3.Connection, known: Mapping[str, Progress]) -> list[str]:
    """Every session that an index with this progress has something to do for, those written last first."""
    found = {standing.session_id: standing for standing in _standings(db, "")}
    late = [s for s in found.values() if s.aim != known.get(s.session_id, NOTHING)]
    late.sort(key=lambda standing: -standing.updated_at)
    return [s.session_id for s in late] + [session_id for session_id in known if session_id not in found]


def plans(
    db: sqlite3.Connection,
    session_ids: Sequence[str],
    known: Mapping[str, Progress],
    most: int,
    needs_calls: Callable[[str], bool],
    landed: Landed = lambda *_: (),
) -> tuple[list[Plan], int]:
    """What is to be done for these sessions, about so many messages of it, and how many sessions that finishes."""
    made: list[Plan] = []
    left = most
    for finished, session_id in enumerate(session_ids):
        if left <= 0:
            return made, finished
        standing = _standing(db, session_id)
        before = known.get(session_id, NOTHING)
        if standing.aim == before:
            continue
        plan = _plan(db, standing, before, landed)
        if plan.messages and needs_calls(session_id):
            plan = plan._replace(calls=_calls(db, standing.row))
        made.append(plan)
        left -= len(plan.messages)
        if plan.after != standing.aim:
            return made, finished
    return made, len(session_ids)


def _plan(db: sqlite3.Connection, standing: Standing, before: Progress, landed: Landed) -> Plan:
    aim = standing.aim
    anew = before.pruned != aim.pruned or before.covered > aim.covered
    start = 0 if anew else before.covered
    stop = min(start + AT_ONCE_BYTES, aim.covered)
    messages: list[Message] = []
    if new := landed(standing.session_id, start, stop):
        stop = new[-1].position + new[-1].length
        messages = _landed_messages(db, standing, new)
    elif start < stop:
        rows = db.execute(_ALL_ROWS if start == 0 else _GROWN_ROWS, (standing.row, start, stop)).fetchall()
        # A block that was told anew has left its place, so that nobody can tell what was there before.
        messages = [message._replace(grown=start > 0) for message in _messages(standing, rows, start)]
    return Plan(standing, before, anew, messages, Progress(stop, aim.pruned, aim.title))


def _landed_messages(db: sqlite3.Connection, standing: Standing, new: Sequence[Placed]) -> list[Message]:
    """The messages of what landed. Of a session that is taken in from its start nothing else can be there."""
    start = new[0].position
    said = [_row(item) for item in new if item.label.rail != NO_RAIL]
    before = _rows_of(db, standing.row, {row[1] for row in said}, start) if start else []
    messages = _messages(standing, [*before, *said], start)
    told_anew = {(item.label.rail, item.label.message_id) for item in new if item.anew} if start else ()
    return [message._replace(grown=True) if message.place[1:] in told_anew else message for message in messages]


def _row(item: Placed) -> _Row:
    label = item.label
    return label.rail, label.message_id, label.n, label.b, item.position, item.length


def _rows_of(db: sqlite3.Connection, session: int, message_ids: set[str], stop: int) -> list[_Row]:
    """The records of these messages up to a place; it takes as long however much the session has beside them."""
    ids, found = list(message_ids), list[_Row]()
    for some in batches(ids):
        sql = _ROWS_OF.format(ids=",".join(["(?)"] * len(some)))
        found += db.execute(sql, (*some, session, stop)).fetchall()
    return found


def _messages(standing: Standing, rows: Sequence[_Row], start: int) -> list[Message]:
    """The messages that have one of these records from `start` on, with all of them."""
    by_message: dict[tuple[str, str], list[MessageRow]] = {}
    for rail, message_id, n, b, position, length in rows:
        by_message.setdefault((rail, message_id), []).append(MessageRow(n, b, position, length))
    messages = []
    for (rail, message_id), every in by_message.items():
        every.sort(key=_position)
        if every[-1].position >= start:
            newest = list({(row.n, row.b): row for row in every}.values())
            newest.sort()
            place = Place(standing.session_id, rail, message_id)
            messages.append(Message(place, newest, every[0].position < start))
    messages.sort(key=attrgetter("place"))
    return messages


_ROW = "SELECT rail, message_id, n, b, position, length FROM messages"
_ALL_ROWS = f"{_ROW} WHERE session = ? AND rail != '{NO_RAIL}' AND position >= ? AND position < ?"
_ROWS_OF = f"""
WITH wanted(id) AS (VALUES {{ids}})
SELECT m.rail, m.message_id, m.n, m.b, m.position, m.length FROM wanted
CROSS JOIN {MESSAGES_BY_ID} ON m.session = ? AND {is_message("wanted.id")}
WHERE m.rail != '{NO_RAIL}' AND m.position < ?
"""
_GROWN_ROWS = f"""
SELECT m.rail, m.message_id, m.n, m.b, m.position, m.length FROM (
  SELECT DISTINCT rail, msg_idx FROM messages
  WHERE session = ?1 AND rail != '{NO_RAIL}' AND position >= ?2 AND position < ?3) w
CROSS JOIN messages m ON m.session = ?1 AND m.rail = w.rail AND m.msg_idx = w.msg_idx WHERE m.position < ?3
"""


def _calls(db: sqlite3.Connection, session: int) -> list[tuple[str, str]]:
    """Which tool each call of a session was of."""
    return db.execute(
        "SELECT c.call_id, n.name FROM turns t JOIN tool_calls c ON c.turn = t.id JOIN names n ON n.id = c.name "
        "WHERE t.session = ?",
        (session,),
    ).fetchall()


def _standing(db: sqlite3.Connection, session_id: str) -> Standing:
    found = _standings(db, "WHERE session_id = ?", (session_id,))
    return found[0] if found else Standing(session_id, 0, 0, 0, None, None, 0)


def _standings(db: sqlite3.Connection, where: str, parameters: tuple[Any, ...] = ()) -> list[Standing]:
    rows = db.execute(
        "SELECT session_id, id, content_bytes, coalesce(pruned_up_to, 0) + erasures, "
        "coalesce(nullif(title, ''), harness_title), "
        f"coalesce(nullif(summary, ''), harness_summary), coalesce(updated_at, 0) FROM sessions {where}",
        parameters,
    )
    return [Standing(*row) for row in rows]


def _title_hash(title: str | None, summary: str | None) -> int:
    return hash_of(msgspec.json.encode((title, summary))) if title or summary else 0


def _decoded(value: bytes, kind: type[T]) -> T | None:
    """What was stored; None for what cannot be read, as after damage."""
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.MsgspecError, ValueError):
        return None
