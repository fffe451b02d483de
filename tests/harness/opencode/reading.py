"""Reads made-up rows of opencode's with the real reader, without any database."""

from __future__ import annotations

import json
from typing import Any

from burnd.harness.opencode.messages import OpencodeMessage, Response, UserMessage, calls_of, content_of, message_of
from burnd.harness.opencode.rows import DecodedMessage, MessageRow, PartRow, SessionRow, decode_message
from burnd.harness.opencode.session import Step, WalkState, walk
from burnd.records import Content
from burnd.records.foreign_json import Rejected
from tests.harness.opencode.data import BORN_MS, assistant, tokens

ROW = SessionRow("ses_one", BORN_MS, directory="/home/dev/app", agent="build", version="1.18.33")


def row(message_id: str, data: dict[str, Any], *parts: dict[str, Any], at: int = 1) -> MessageRow:
    rows = tuple(PartRow(f"{message_id}-p{n}", 0, json.dumps(part).encode()) for n, part in enumerate(parts))
    return MessageRow(message_id, BORN_MS + at, 0, json.dumps(data).encode(), rows)


def decoded(row: MessageRow) -> DecodedMessage:
    result = decode_message(row)
    assert not isinstance(result, Rejected)
    return result


def message(row: MessageRow, version: str | None = "1.18.33") -> OpencodeMessage:
    data = decoded(row)
    return message_of(row, data, calls_of(data), version)


def user(message_id: str, *parts: dict[str, Any], at: int = 1) -> OpencodeMessage:
    return message(row(message_id, {"role": "user", "agent": "build"}, *parts, at=at))


def step(message_id: str, parent: str, *parts: dict[str, Any], at: int = 2, **changes: Any) -> OpencodeMessage:
    """An answer that has ended."""
    ended = {"time": {"created": BORN_MS + at, "completed": BORN_MS + at + 5}, "tokens": tokens(input=10, output=5)}
    data = assistant(parent, BORN_MS + at) | ended | {"finish": "stop"} | changes
    return message(row(message_id, data, *parts, at=at))


def user_message(*parts: dict[str, Any]) -> UserMessage:
    found = user("u", *parts).user
    assert found is not None
    return found


def response(*parts: dict[str, Any], **changes: Any) -> Response:
    found = step("a", "u", *parts, **changes).response
    assert found is not None
    return found


def content(*parts: dict[str, Any], role: str = "assistant", reasoning: bool = True, **data: Any) -> list[Content]:
    one = row("m", {"role": role} | data, *parts)
    found = decoded(one)
    return content_of("ses_one", one, found, calls_of(found), reasoning=reasoning)


def walk_all(*messages: OpencodeMessage, session: SessionRow = ROW) -> list[Step]:
    """The steps of a session with these messages."""
    state, result = WalkState(), []
    for one in messages:
        state, found = walk(session, state, one)
        result += [found] if found is not None else []
    return result
