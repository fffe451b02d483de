"""What was there before messages are added to a session: which of them it has, where its rails end, what led there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from burnd.classify.keywords import prompt_words
from burnd.content.recall import Reading, Recall
from burnd.harness.api.messages import Given
from burnd.harness.api.usage import API_SOURCES
from burnd.harness.claude_code.tools import result_of
from burnd.harness.tool_calls import size
from burnd.index.apply import fact_key
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.ledger.fold import identity
from burnd.queries.sessions import Known, exactly
from burnd.queries.view import NoSession, View
from burnd.records import Block, Content, Event
from burnd.records.session import MESSAGE
from burnd.records.times import to_iso

_LOOKED_BACK = 200  # records before a turn that are looked at for what led to it


class Led(NamedTuple):
    """What a rail's next turn is an answer to: blocks since the last one, and the prompt with its classes of words."""

    entered: tuple[Block, ...] = ()
    prompt_id: str | None = None
    words: tuple[str, ...] = ()


class Before(NamedTuple):
    """A session as it is, as far as the messages to be added have to do with it."""

    known: Known
    given: list[Given]  # those messages, by the ids they are recorded under
    times: dict[str, str]  # of those messages that it has
    told: set[str]  # those of them that were no turns
    next_index: dict[str, int]  # by rail
    led: dict[str, Led]  # by rail


def before(view: View, recall: Recall, session_id: str, given: Sequence[Given]) -> Before:
    """Raises Missing when there is no such session."""
    known = exactly(view, session_id)
    if known is None:
        raise NoSession(f"there is no session {session_id[:80]!r}", "sessions.new makes one")
    given = _as_recorded(view, known, given)
    ids = [(one.id,) for one in given]
    said = view.keyed(_SAID.format(row=known.row, keys="{keys}"), ids)
    told = view.keyed(_TOLD, [(one.id, fact_key(identity(message(known.session_id, one, "")))) for one in given])
    turns = view.keyed(_TURNS.format(row=known.row, keys="{keys}"), ids)
    rails = {one.rail for one in given}
    return Before(
        known,
        given,
        times={id_: to_iso(ts) for id_, ts in [*said, *turns, *told]},
        told={id_ for id_, _ in told},
        next_index={rail: _next_index(view, known, rail) for rail in rails},
        led={rail: _led(view, recall, known, rail) for rail in rails},
    )


def _as_recorded(view: View, known: Known, given: Sequence[Given]) -> list[Given]:
    """The ledger knows a turn by its id alone: one that another session has taken gets this session's put behind it."""
    ids = [(one.id,) for one in given if one.is_turn]
    taken = {id_ for (id_,) in view.keyed(_TAKEN.format(row=known.row, keys="{keys}"), ids)}
    own = {id_: f"{id_}@{known.session_id}" for id_ in taken}
    return [msgspec.structs.replace(one, id=own.get(one.id, one.id)) for one in given]


def message(session_id: str, given: Given, ts: str) -> Event:
    """That there was this message: what it is known by where its content is not kept, or not any more."""
    return Event(source="", session_id=session_id, rail_id=given.rail, id=f"@{given.id}", ts=ts, name=MESSAGE)


def _next_index(view: View, known: Known, rail: str) -> int:
    ((last,),) = view.rows("SELECT max(turn_index) FROM turns WHERE session = ? AND rail = ?", (known.row, rail))
    return 0 if last is None else last + 1


def _led(view: View, recall: Recall, known: Known, rail: str) -> Led:
    """From what is kept of the rail's end: everything after its last answer."""
    since: list[tuple[Any, ...]] = []
    answered, prompt = False, None
    for row in view.db.execute(_END, (known.row, rail, _LOOKED_BACK)):
        answered = answered or row[1] == "assistant"
        if not answered:
            since.append(row)
        if row[1] == "user":
            prompt = prompt or row
        if answered and prompt is not None:
            break
    with recall.opened(known.session_id) as reading:
        blocks = [_block(reading, row) for row in reversed(since)]
        record = reading.record(*prompt[2:]) if prompt is not None else None
    words = prompt_words(record.text) if record is not None and isinstance(record.text, str) else ()
    return Led(tuple(block for block in blocks if block is not None), prompt[0] if prompt is not None else None, words)


def _block(reading: Reading, row: tuple[Any, ...]) -> Block | None:
    record = reading.record(*row[2:])
    return None if record is None else _weighed(record)


def _weighed(record: Content) -> Block | None:
    if record.tool_result is not None:
        result = record.tool_result
        return result_of(result.tool_use_id, result.content).blocks[0]
    if isinstance(record.text, str) and record.text:
        kind = {"user": "prompt", "tool_result": "result"}.get(record.role, "reminder")
        return Block(kind=kind, bytes=size(record.text))
    return None


# A program may add to one session for months: none of these takes longer the more there is in it.
_SAID = f"""
WITH wanted(id) AS ({{keys}}) SELECT w.id, min(m.ts) FROM wanted w
CROSS JOIN {MESSAGES_BY_ID} ON m.session = {{row}} AND {is_message("w.id")} GROUP BY 1
"""
_TOLD = """
WITH wanted(id, key) AS ({keys}) SELECT w.id, f.ts FROM wanted w
CROSS JOIN facts f ON f.kind = 'event' AND f.key = w.key
"""
_OF_AN_API = f"WHERE n.name IN ({', '.join(map(repr, API_SOURCES))})"
_TURNS = f"""
WITH wanted(id) AS ({{keys}}) SELECT w.id, t.ts FROM wanted w CROSS JOIN names n
CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.id AND +t.session = {{row}} {_OF_AN_API}
"""
_TAKEN = f"""
WITH wanted(id) AS ({{keys}}) SELECT w.id FROM wanted w CROSS JOIN names n
CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.id AND +t.session <> {{row}} {_OF_AN_API}
"""
_END = """
SELECT message_id, role, position, length FROM messages
WHERE session = ? AND rail = ? ORDER BY msg_idx DESC, n DESC, b DESC LIMIT ?
"""
