"""Makes records for tests, with everything a test does not care about filled in."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from burnd.content.recall import Recall
from burnd.ledger.content import ContentStore, Placed, encode_records
from burnd.records import Content, Selector, Stamp, TimeRange, ToolCall, ToolResult, ToolUse, Turn, Usage
from burnd.records.times import to_iso

START_MS = 1_780_000_000_000


def examples(few: int) -> int:
    """Number of random examples of a test: forty times as many in the long run."""
    return few * 20 if os.environ.get("BURND_THOROUGH") else -(-few // 2)


def at(seconds: float) -> str:
    """The ISO time so many seconds after the tests' epoch."""
    return to_iso(START_MS + int(seconds * 1000))


def turn(message_id: str = "m1", **changes: Any) -> Turn:
    facts: dict[str, Any] = {
        "source": "claude-code",
        "session_id": "s1",
        "rail_id": "main",
        "message_id": message_id,
        "turn_index": 0,
        "ts": at(0),
        "model": "claude-sonnet-4-5",
        "usage": Usage(input=10, output=20, cache_read=300, cache_create_5m=40, cache_create_1h=5),
        "tool_calls": (ToolCall(id="c1", name="Read", target="/p/a.py", args_hash="aa", result_hash="bb"),),
    }
    return Turn(**facts | changes)


def text(message_id: str = "m1", words: str = "hello", **changes: Any) -> Content:
    facts: dict[str, Any] = {
        "session_id": "s1",
        "rail_id": "main",
        "message_id": message_id,
        "n": 0,
        "b": 0,
        "ts": at(0),
        "role": "assistant",
        "kind": "text",
        "text": words,
    }
    return Content(**facts | changes)


def tool_use(message_id: str = "m1", value: Any = None, **changes: Any) -> Content:
    use = ToolUse(id="c1", name="Read", input=msgspec.Raw(msgspec.json.encode(value)))
    return text(message_id, None, **{"kind": "tool_use", "tool_use": use} | changes)  # type: ignore[arg-type]


def tool_result(message_id: str = "r1", value: Any = None, **changes: Any) -> Content:
    result = ToolResult(tool_use_id="c1", content=msgspec.Raw(msgspec.json.encode(value)))
    facts = {"kind": "tool_result", "role": "tool_result", "tool_result": result}
    return text(message_id, None, **facts | changes)  # type: ignore[arg-type]


def stamp(
    seconds: float = 0, *, within: tuple[float, float] | None = None, removes: Iterable[str] = (), **keys: str
) -> Stamp:
    """A stamp for session `s1`, or for what `session`/`message` among the keys names."""
    span = TimeRange(from_ts=at(within[0]), to_ts=at(within[1])) if within else None
    message = keys.pop("message", None)
    session = keys.pop("session", None if message else "s1")
    return Stamp(
        ts=at(seconds),
        selector=Selector(session_id=session, message_id=message, range=span),
        enrichment=keys,
        removes=tuple(removes),
    )


def append_content(store: ContentStore, records: Iterable[Content], now_ms: int) -> list[Placed]:
    """Puts records into a content store as they are."""
    return store.append(encode_records(records, store.inline_bytes), now_ms)


def seeds(few: int, many: int) -> pytest.MarkDecorator:
    """A few random seeds in the default run, many in the long ones, which alone have to collect them."""
    is_long = {"BURND_THOROUGH", "BURND_TALLY"} & os.environ.keys()
    rest = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(few, many if is_long else few)]
    return pytest.mark.parametrize("seed", [*range(few), *rest])


def read_content(store: ContentStore, session_id: str, message_id: str | None = None) -> list[Content]:
    """The newest version of each record of a session, in order, with its large texts and files."""
    newest = {
        record.key: (position, length)
        for record, position, length, *_ in store.stored(session_id)
        if record.session_id == session_id and message_id in (None, record.message_id)
    }
    recall = Recall(store.sidecars.folder)
    with recall.opened(session_id) as sidecar:
        found = [sidecar.beginning(position, length, 1 << 40) for position, length in newest.values()]
    recall.close()
    return [one[0] for one in found if one is not None]
