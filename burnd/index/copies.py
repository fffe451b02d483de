"""How the copies of a message are found among all facts: by what their keys begin with."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


def selecting(columns: str) -> str:
    """A statement for columns of the copies `f` of messages; its keys are their `spans`."""
    return (
        f"WITH wanted(low, high) AS ({{keys}}) SELECT {columns} FROM wanted w "
        "CROSS JOIN facts f ON f.kind = 'copy' AND f.key > w.low AND f.key < w.high"
    )


def spans(messages: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Between which keys the copies of these (source, messageId) stand.

    A copy's key is [source, messageId, session, rail] as JSON: those of a message share their beginning.
    """
    begins = [msgspec.json.encode(message).decode()[:-1] + "," for message in messages]
    return [(begin, begin + "\U0010ffff") for begin in begins]


def key_of(source: str, message_id: str, session_id: str, rail_id: str) -> str:
    """The key of the copy that a rail has of a message."""
    return msgspec.json.encode((source, message_id, session_id, rail_id)).decode()


def holder_of(key: str) -> tuple[tuple[str, str], str]:
    """The message that a copy's key is of, and the session that holds it."""
    source, message_id, session_id, _ = msgspec.json.decode(key, type=tuple[str, str, str, str])
    return (source, message_id), session_id
