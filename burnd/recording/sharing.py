"""Asks the index which sessions hold which messages: what tells a fork from the session it was made of.

One more turn costs a look at the one before it. Only where a session parts from another, or repeats it, is all of it
looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from burnd.index import copies
from burnd.index.store import IndexStore
from burnd.recording.ownership import SharedMessage
from burnd.records import Turn
from burnd.records.content import MAIN
from burnd.records.times import index_ms

Key = tuple[str, str]


async def held_by(
    index: IndexStore, sessions: frozenset[str], known: Mapping[Key, SharedMessage]
) -> dict[Key, SharedMessage]:
    """All messages of these sessions and of those they share any with; `known` is newer than the index."""
    found = await _messages_of(index, sessions, known)
    others = frozenset(session for message in found.values() for session in message.sessions) - sessions
    return found | await _messages_of(index, others, known)


async def parting(index: IndexStore, own: Mapping[str, Turn], told: Iterable[SharedMessage]) -> set[str]:
    """Of sessions that go on with these turns, each held by it alone, those that may just now part from others.

    `told` are the messages in hand that several may hold.
    """
    places = [(session, turn.turn_index - 1) for session, turn in own.items() if turn.turn_index]
    before = {row[0]: row[1:] for row in await index.keyed(_BEFORE, places)}
    copied = await _copies_of(index, [(source, message) for source, message, _ in before.values()])
    in_others = (one.sessions for one in told if len(one.sessions) > 1)
    parted = {session for sessions in in_others for session in sessions if session in own}
    for session, (source, message, ts) in before.items():
        if (source, message) in copied or ts > index_ms(own[session].ts):
            parted.add(session)
    # The one before is not its own: it may be a copy.
    others = [(session,) for session, _ in places if session not in before]
    return parted.union(*await index.keyed(_REPEATING, others))


async def _messages_of(
    index: IndexStore, sessions: frozenset[str], known: Mapping[Key, SharedMessage]
) -> dict[Key, SharedMessage]:
    wanted = [(session,) for session in sorted(sessions)]
    own = {(row[0], row[1]) for row in await index.keyed(_OWN, wanted)}
    copied = {copies.holder_of(key)[0] for (key,) in await index.keyed(_COPIED, wanted)}
    keys = sorted((own | copied) - known.keys())
    others = await _copies_of(index, keys)
    owners = await index.keyed(_OWNERS, keys)
    found = {
        (source, message): SharedMessage(ts, frozenset({session, *others.get((source, message), ())}))
        for source, message, ts, session in owners
    }
    return found | {key: message for key, message in known.items() if message.sessions & sessions}


async def _copies_of(index: IndexStore, keys: Iterable[Key]) -> dict[Key, set[str]]:
    """The sessions that hold copies of messages on their main rail."""
    found: defaultdict[Key, set[str]] = defaultdict(set)
    for (key,) in await index.keyed(_COPIES, copies.spans(keys)):
        message, session = copies.holder_of(key)
        found[message].add(session)
    return found


def shared_as(turn: Turn, holders: Iterable[tuple[str, str]]) -> SharedMessage:
    """A turn as it is held just now."""
    return SharedMessage(index_ms(turn.ts), frozenset(session for session, rail in holders if rail == MAIN))


_OWN = (
    "SELECT n.name, t.message_id FROM sessions s CROSS JOIN turns t ON t.session = s.id "
    f"JOIN names n ON n.id = t.source WHERE s.session_id IN ({{keys}}) AND t.rail = '{MAIN}'"
)
_OF_COPIES = (
    "FROM sessions s CROSS JOIN facts f ON f.session = s.id AND f.kind = 'copy' "
    f"WHERE s.session_id IN ({{keys}}) AND f.rail = '{MAIN}'"
)
_COPIED = f"SELECT f.key {_OF_COPIES}"
_REPEATING = f"SELECT DISTINCT s.session_id {_OF_COPIES}"
_COPIES = f"{copies.selecting('f.key')} WHERE f.rail = '{MAIN}'"
_OWNERS = (
    "WITH wanted(source, message_id) AS ({keys}) SELECT n.name, t.message_id, t.ts, s.session_id FROM wanted w "
    "CROSS JOIN names n ON n.name = w.source CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id "
    f"JOIN sessions s ON s.id = t.session WHERE t.rail = '{MAIN}'"
)
_BEFORE = (
    "WITH wanted(session_id, turn_index) AS ({keys}) SELECT w.session_id, n.name, t.message_id, t.ts FROM wanted w "
    "CROSS JOIN sessions s ON s.session_id = w.session_id "
    f"CROSS JOIN turns t ON t.session = s.id AND t.rail = '{MAIN}' AND t.turn_index = w.turn_index "
    "JOIN names n ON n.id = t.source"
)
