"""Content: one block of a conversation in a sidecar."""

from __future__ import annotations

from typing import Literal

import msgspec

from burnd.records.base import VERSION, Count, Record, always

Role = Literal["user", "assistant", "tool_result", "system"]
Kind = Literal["text", "thinking", "tool_use", "tool_result", "file", "title", "summary", "system_prompt"]
Loss = Literal["missing", "damaged"]


TITLE = "title:"  # prefix of the message ids of titles and summaries
NO_RAIL = ""
MAIN = "main"  # the rail of a session's own conversation
LONGEST_TITLE = 120


class BlobRef(Record, frozen=True, kw_only=True):
    """A reference to a blob by its hash. `lost` is the reason if it can no longer be read."""

    blob: str
    bytes: Count
    lost: Loss | None = None


class ToolUse(Record, frozen=True, kw_only=True):
    """`input` is any JSON value, or a reference to a blob."""

    id: str
    name: str
    input: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))


class ToolResult(Record, frozen=True, kw_only=True):
    """`content` is any JSON value, mostly a string, or a reference to a blob."""

    tool_use_id: str
    content: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    is_error: bool | None = None


class File(Record, frozen=True, kw_only=True):
    """An image or another attachment; on disk `data` is always a blob."""

    mime: str
    name: str | None = None
    data: bytes | BlobRef | None = None


class Content(Record, frozen=True, kw_only=True):
    """One block. Its identity in the session is (railId, messageId, n, b); the newest one counts.

    The first block of a log line has what `burnctl restore` needs: `line`, its id if it is not the message's; `parent`,
    the id of the line above if that is not the one before; and `context`, a JSON list of the lines before it without
    text.
    """

    v: int = always(VERSION)
    session_id: str
    rail_id: str
    message_id: str
    n: Count
    b: Count
    ts: str
    role: Role
    kind: Kind
    text: str | BlobRef | None = None
    tool_use: ToolUse | None = None
    tool_result: ToolResult | None = None
    file: File | None = None
    line: str | None = None
    parent: str | None = None
    context: str | BlobRef | None = None

    @property
    def key(self) -> tuple[str, str, int, int]:
        return (self.rail_id, self.message_id, self.n, self.b)


def title_record(
    session_id: str, message_id: str, text: str, ts: str, *, n: int = 0, kind: Kind = "title", rail_id: str = MAIN
) -> Content:
    """Of several with the same id, the highest `n` counts."""
    return Content(
        session_id=session_id,
        rail_id=rail_id,
        message_id=message_id,
        n=n,
        b=0,
        ts=ts,
        role="system",
        kind=kind,
        text=text,
    )


class Label(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A block without its text, for the index.

    `rail` is empty for titles of a harness. `title` is the part of a title or summary that lists show.
    """

    session_id: str
    rail: str
    message_id: str
    n: int
    b: int
    ts_ms: int
    role: str
    kind: str
    tool: str | None = None
    title: str | None = None
