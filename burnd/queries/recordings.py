"""All that is recorded of a session, to write its log again: responses, and the places of its content records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Self

import msgspec

from burnd import protocol
from burnd.queries.sessions import find
from burnd.queries.view import Refusal, View
from burnd.records.times import to_iso


class Place(NamedTuple):
    """A line of a recording: the number of a response, or the position of a record; and a character of it."""

    is_record: bool = False
    number: int = 0
    begin: int = 0

    @classmethod
    def parse(cls, token: str | None) -> Self:
        """Raises Refusal."""
        if token is None:
            return cls()
        kind, *numbers = token.split(".")
        if kind not in ("turn", "record") or len(numbers) != 2 or not all(one.isdecimal() for one in numbers):
            raise Refusal("next is not a token of an earlier page")
        return cls(kind == "record", int(numbers[0]), int(numbers[1]))

    def __str__(self) -> str:
        return f"{'record' if self.is_record else 'turn'}.{self.number}.{self.begin}"


class RecordedItem(NamedTuple):
    """A line of a recording; that of a record is read from its sidecar."""

    place: Place
    length: int = 0
    line: str | None = None


class Recorded(NamedTuple):
    """A session's facts, and its lines from a place on."""

    session_id: str
    facts: dict[str, Any]
    items: list[RecordedItem]


def recording(view: View, session_id: str, after: Place) -> Recorded:
    """Raises Missing or Refusal."""
    session = find(view, session_id)
    ((pruned,),) = view.rows("SELECT pruned_count FROM sessions WHERE id = ?", (session.row,))
    items = [] if after.is_record else list(_turns(view, session.row, after.number))
    rows = view.rows(_RECORDS, (session.row, after.number if after.is_record else 0))
    items += [RecordedItem(Place(True, position), length) for position, length in rows]
    return Recorded(session.session_id, session.facts | {"prunedMessages": pruned}, items)


def _turns(view: View, session: int, first: int) -> Iterator[RecordedItem]:
    """The responses whose messages the session has, also those that it repeats from another."""
    for number, *row in view.rows(_TURNS, (session, first)):
        facts = dict(zip(_TURN_FACTS, row, strict=False))
        tokens = row[len(_TURN_FACTS) :]
        facts |= {"ts": to_iso(facts["ts"]), "usage": dict(zip(protocol.USAGE_FIELDS, tokens, strict=True))}
        line = msgspec.json.encode({"turn": {name: value for name, value in facts.items() if value is not None}})
        yield RecordedItem(Place(False, number), line=line.decode() + "\n")


_TURN_FACTS: Final = (
    *("messageId", "railId", "turnIndex", "parent", "ts", "model", "provider", "branch", "version"),
    *("stopReason", "agentType", "parentToolUseId", "statedUsd", "promptId"),
)
_TURNS: Final = """
SELECT t.id, t.message_id, t.rail, t.turn_index, t.parent, t.ts, m.name, p.name, b.name, v.name, r.name, a.name,
       t.parent_call, t.stated_usd, t.prompt_id,
       t.input, t.output, t.reasoning, t.cache_read, t.cache_create_5m, t.cache_create_1h
FROM (SELECT s.source, q.message_id FROM messages q JOIN sessions s ON s.id = q.session
      WHERE q.session = ?1 GROUP BY q.message_id) w
CROSS JOIN turns t ON t.source = w.source AND t.message_id = w.message_id
JOIN names m ON m.id = t.model LEFT JOIN names p ON p.id = t.provider LEFT JOIN names b ON b.id = t.branch
LEFT JOIN names v ON v.id = t.version LEFT JOIN names r ON r.id = t.stop_reason LEFT JOIN names a ON a.id = t.agent_type
WHERE t.id >= ?2 ORDER BY t.id
"""
_RECORDS: Final = """
SELECT max(position), length FROM messages WHERE session = ?1 GROUP BY rail, msg_idx, message_id, n, b
HAVING max(position) >= ?2 ORDER BY 1
"""
