"""Loads the entries of rails in one snapshot of the index."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from burnd.attribution.rail import RailEntry, in_order
from burnd.index.store import keyed
from burnd.ledger.lines import read_spans
from burnd.records import Compaction, Copy, ServerTools, Subagent, ToolCall, Turn, Usage
from burnd.records.codec import decode_again, decode_many_again
from burnd.records.content import MAIN
from burnd.records.times import to_iso

_SESSIONS_AT_ONCE = 500
LAST = 1 << 62  # above every turn index
Key = tuple[int, str]  # row of the session, and the rail


class RailName(msgspec.Struct, frozen=True):
    session: int
    session_id: str
    rail_id: str

    @property
    def key(self) -> Key:
        return self.session, self.rail_id


class RailEntries(RailName, frozen=True):
    entries: list[RailEntry]

    @property
    def turns(self) -> list[Turn]:
        return [entry for entry in self.entries if isinstance(entry, Turn)]


class Span(NamedTuple):
    """Messages from `begin` to before `end`, and compactions after the time `after`."""

    begin: int
    end: int
    after: str = ""


class _Unordered(msgspec.Struct):
    turns: list[Turn] = msgspec.field(default_factory=list)
    copies: list[Copy] = msgspec.field(default_factory=list)
    compactions: list[Compaction] = msgspec.field(default_factory=list)

    def in_order(self) -> list[RailEntry]:
        return in_order(self.turns, self.copies, self.compactions)


def load(
    db: sqlite3.Connection,
    ledger: Path,
    sessions: Iterable[int],
    rail: str | None = None,
) -> list[RailEntries]:
    """All rails with turns of these sessions, or those with one id; by session, the main rail first."""
    rows = sorted(set(sessions))
    rails: defaultdict[Key, _Unordered] = defaultdict(_Unordered)
    names: dict[int, str] = {}
    for begin in range(0, len(rows), _SESSIONS_AT_ONCE):
        some = msgspec.json.encode(rows[begin : begin + _SESSIONS_AT_ONCE]).decode()
        names.update(db.execute(_NAMES, (some,)).fetchall())
        for key, turn in _turns(db, ledger, some, rail):
            rails[key].turns.append(turn)
        _add_facts(rails, db, ledger, some, rail)
    order = sorted((key for key, one in rails.items() if one.turns), key=main_first)
    return [RailEntries(session, names[session], name, rails[session, name].in_order()) for session, name in order]


def main_first(key: Key) -> tuple[int, bool, str]:
    session, rail = key
    return session, rail != MAIN, rail


def load_span(db: sqlite3.Connection, ledger: Path, session: int, rail: str, span: Span) -> list[RailEntry]:
    some = msgspec.json.encode([session]).decode()
    rails: defaultdict[Key, _Unordered] = defaultdict(_Unordered)
    one = rails[session, rail]
    one.turns += [turn for _, turn in _turns(db, ledger, some, rail, span)]
    _add_facts(rails, db, ledger, some, rail, span)
    one.compactions = [compaction for compaction in one.compactions if compaction.ts > span.after]
    return one.in_order()


_WHOLE = Span(0, LAST)
_LOST = b"?\n"


def _turns(
    db: sqlite3.Connection,
    ledger: Path,
    sessions: str,
    rail: str | None,
    span: Span = _WHOLE,
) -> Iterator[tuple[Key, Turn]]:
    # Not as "?2 IS NULL OR ...", so that SQLite uses the primary key.
    condition = "" if rail is None else " AND t.rail = ?2"
    rows = db.execute(_TURNS.format(condition=condition), (sessions, rail, span.begin, span.end)).fetchall()
    lines = read_spans(ledger, [(row[4], row[5]) for row in rows if not row[3] and row[4] is not None])
    records = dict(keyed(db, _OPEN, [(row[2],) for row in rows if row[3]]))
    lost: list[int] = []
    data = [(records.get(row[2]) if row[3] else lines.get(row[4])) or _LOST for row in rows]
    for (session, name, number, *_, terms), entry in zip(rows, decode_many_again(data), strict=True):
        if isinstance(entry, Turn):
            # some billing terms come from other records than the turn
            yield (session, name), entry if entry.speed == terms else msgspec.structs.replace(entry, speed=terms)
        else:
            lost.append(number)
    yield from _turns_of_index(db, lost)


def _add_facts(
    rails: dict[Key, _Unordered],
    db: sqlite3.Connection,
    ledger: Path,
    sessions: str,
    rail: str | None,
    span: Span = _WHOLE,
) -> None:
    rows = db.execute(_FACTS, (sessions, rail, span.begin, span.end)).fetchall()
    lines = read_spans(ledger, [(row[2], row[3]) for row in rows])
    copies: list[tuple[Key, Copy]] = []
    for session, name, position, _ in rows:
        entry = decode_again(lines.get(position, b""))
        if isinstance(entry, Copy):
            copies.append(((session, name), entry))
        elif isinstance(entry, Compaction):
            rails[session, name].compactions.append(entry)
    # A copy may have become a turn of this rail since, possibly at another index.
    own = set(keyed(db, _OWN, {(copy.source, copy.message_id) for _, copy in copies}))
    for key, copy in copies:
        if (*key, copy.source, copy.message_id) not in own:
            rails[key].copies.append(copy)


def _turns_of_index(db: sqlite3.Connection, turns: Sequence[int]) -> Iterator[tuple[Key, Turn]]:
    """For unreadable records: turns with usage, but without blocks."""
    numbers = [(number,) for number in turns]
    calls: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for number, *call in keyed(db, _CALLS, numbers):
        calls[number].append(tuple(call))
    for number, session, session_id, rail, *facts in keyed(db, _BARE, numbers):
        source, message_id, turn_index, parent, ts, model, provider, speed, quality, search, fetch = facts[:11]
        agent_id, agent_type, parent_call, *tokens = facts[11:]
        is_agent = rail != MAIN or parent_call is not None
        yield (
            (session, rail),
            Turn(
                source=source,
                session_id=session_id,
                rail_id=rail,
                message_id=message_id,
                turn_index=turn_index,
                parent=parent,
                ts=to_iso(ts),
                model=model,
                provider=provider,
                speed=speed,
                quality=quality,
                usage=Usage(**dict(zip(Usage.__struct_fields__, tokens, strict=True))),
                server_tools=ServerTools(search=search, fetch=fetch) if search or fetch else None,
                subagent=Subagent(agent_id=agent_id, type=agent_type, parent_tool_use_id=parent_call)
                if is_agent
                else None,
                tool_calls=tuple(
                    ToolCall(id=id_, name=name, target=target, is_error=None if failed is None else bool(failed))
                    for id_, name, target, failed in calls[number]
                ),
            ),
        )


_NAMES = "SELECT id, session_id FROM sessions WHERE id IN (SELECT value FROM json_each(?))"
_TURNS = """
SELECT t.session, t.rail, t.id, t.open, t.position, t.length, n.name FROM json_each(?1) w
CROSS JOIN turns t ON t.session = w.value{condition} AND t.turn_index >= ?3 AND t.turn_index < ?4
JOIN classes c ON c.id = t.class LEFT JOIN names n ON n.id = c.terms
"""
_OPEN = "SELECT turn, record FROM open_turns WHERE turn IN ({keys})"
_FACTS = """
SELECT f.session, f.rail, f.position, f.length FROM json_each(?1) w
CROSS JOIN facts f ON f.session = w.value AND f.kind IN ('copy', 'compaction') AND (?2 IS NULL OR f.rail = ?2)
  AND (f.turn_index IS NULL OR (f.turn_index >= ?3 AND f.turn_index < ?4))
"""
_OWN = """
WITH w(source, message_id) AS ({keys})
SELECT t.session, t.rail, w.source, w.message_id FROM w CROSS JOIN names n ON n.name = w.source
CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id
"""
_BARE = """
SELECT t.id, t.session, s.session_id, t.rail, src.name, t.message_id, t.turn_index, t.parent, t.ts, m.name, p.name,
       sp.name, t.quality, t.searches, t.fetches, t.agent_id, a.name, t.parent_call,
       t.input, t.output, t.reasoning, t.cache_read, t.cache_create_5m, t.cache_create_1h
FROM turns t JOIN sessions s ON s.id = t.session JOIN names src ON src.id = t.source JOIN names m ON m.id = t.model
JOIN classes c ON c.id = t.class LEFT JOIN names sp ON sp.id = c.terms
LEFT JOIN names p ON p.id = t.provider LEFT JOIN names a ON a.id = t.agent_type
WHERE t.id IN ({keys})
"""
_CALLS = """
SELECT c.turn, c.call_id, n.name, g.name, c.is_error FROM tool_calls c
JOIN names n ON n.id = c.name LEFT JOIN names g ON g.id = c.target WHERE c.turn IN ({keys}) ORDER BY c.turn, c.n
"""
