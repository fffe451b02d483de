"""Reads made-up rows of opencode's with the real reader, without any database."""

from __future__ import annotations

import json
from typing import Any

from burnd.harness.opencode.content import content_of
from burnd.harness.opencode.rows import MessageRow, PartRow, SessionRow, opened
from burnd.harness.opencode.said import Answered, Asked, Said, said_of
from burnd.harness.opencode.session import Place, Step, Walked, walk
from burnd.harness.opencode.tools import calls_in
from burnd.records import Content
from burnd.records.foreign_json import Rejected
from tests.harness.opencode.data import BORN_MS, assistant, tokens

PLACE = Place(SessionRow("ses_one", BORN_MS, directory="/home/dev/app", agent="build", version="1.18.33"))


def row(message_id: str, data: dict[str, Any], *parts: dict[str, Any], at: int = 1) -> MessageRow:
    found = tuple(PartRow(f"{message_id}-p{n}", 0, json.dumps(part).encode()) for n, part in enumerate(parts))
    return MessageRow(message_id, BORN_MS + at, 0, json.dumps(data).encode(), found)


def said(message: MessageRow, version: str | None = "1.18.33") -> Said:
    found = opened(message)
    assert not isinstance(found, Rejected)
    return said_of(message, found, calls_in(found), version)


def user(message_id: str, *parts: dict[str, Any], at: int = 1) -> Said:
    return said(row(message_id, {"role": "user", "agent": "build"}, *parts, at=at))


def step(message_id: str, parent: str, *parts: dict[str, Any], at: int = 2, **changes: Any) -> Said:
    """An answer that has ended."""
    ended = {"time": {"created": BORN_MS + at, "completed": BORN_MS + at + 5}, "tokens": tokens(input=10, output=5)}
    return said(row(message_id, assistant(parent, BORN_MS + at) | ended | {"finish": "stop"} | changes, *parts, at=at))


def asked(*parts: dict[str, Any]) -> Asked:
    found = user("u", *parts).asked
    assert found is not None
    return found


def answered(*parts: dict[str, Any], **changes: Any) -> Answered:
    found = step("a", "u", *parts, **changes).answered
    assert found is not None
    return found


def content(*parts: dict[str, Any], role: str = "assistant", reasoning: bool = True, **data: Any) -> list[Content]:
    message = row("m", {"role": role} | data, *parts)
    found = opened(message)
    assert not isinstance(found, Rejected)
    return content_of("ses_one", message, found, calls_in(found), reasoning=reasoning)


def walked(*messages: Said, place: Place = PLACE) -> list[Step]:
    """The steps of a session with these messages."""
    state, steps = Walked(), []
    for message in messages:
        state, found = walk(place, state, message)
        steps += [found] if found is not None else []
    return steps
