"""The rows of opencode's database as they are handed over, and the shapes of the JSON in their `data`."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from burnd.logfiles.log_reader import CUT, cut_reason
from burnd.records.foreign_json import Rejected, Repaired, SafeDecoder
from burnd.records.names import Name
from burnd.records.times import to_iso

Number = int | float | None


class PartRow(NamedTuple):
    """A row of `part`; its message's rows are handed over in the order of their ids, as opencode reads them.

    `size` is set if the row was too large and its long texts are cut.
    """

    id: str
    updated: int
    data: bytes
    size: int | None = None


class MessageRow(NamedTuple):
    """A row of `message` with all its parts. `size` is set if it was too large and its long texts are cut."""

    id: str
    created: int
    updated: int
    data: bytes
    parts: tuple[PartRow, ...] = ()
    size: int | None = None
    more_parts: tuple[int, int] = (0, 0)  # the number of unread further parts, and when the newest of them changed


class SessionRow(NamedTuple):
    """What a row of `session` tells; what an older schema has no column for is None."""

    id: str
    created: int
    parent: str | None = None
    directory: str | None = None
    title: str | None = None
    version: str | None = None
    agent: str | None = None


class CacheTokens(msgspec.Struct):
    """Tokens read from and written to the provider's cache."""

    read: Number = None
    write: Number = None


class Tokens(msgspec.Struct):
    """What a step used. Early releases do not write `total`."""

    total: Number = None
    input: Number = None
    output: Number = None
    reasoning: Number = None
    cache: CacheTokens | None = None


class Times(msgspec.Struct):
    """Milliseconds since 1970; which of them are there depends on whose times they are."""

    created: Number = None
    completed: Number = None
    start: Number = None
    end: Number = None


class FailureData(msgspec.Struct, rename="camel"):
    """Of an error only its number is read: the rest may quote what a provider sent."""

    status_code: int | None = None


class Failure(msgspec.Struct):
    """Why a step ended without an answer."""

    name: Name | None = None
    data: FailureData | None = None


class Path(msgspec.Struct):
    """Where a step worked."""

    cwd: str | None = None


class MessageData(msgspec.Struct):
    """`message.data` of either role. `summary` is an object on user rows and true on a compaction's answer."""

    role: str | None = None
    time: Times | None = None
    agent: Name | None = None
    parent: str | None = msgspec.field(default=None, name="parentID")
    model: Name | None = msgspec.field(default=None, name="modelID")
    provider: Name | None = msgspec.field(default=None, name="providerID")
    path: Path | None = None
    tokens: Tokens | None = None
    cost: Number = None
    finish: Name | None = None
    error: Failure | None = None
    summary: msgspec.Raw = msgspec.Raw(b"")


class ToolMetadata(msgspec.Struct, rename="camel"):
    """What a tool says of its own run, as far as it matters; much of the rest repeats its output."""

    exit: int | None = None
    session_id: str | None = None
    output_path: str | None = None


class Attachment(msgspec.Struct):
    """A file part, on its own or within a tool's answer."""

    mime: str | None = None
    filename: str | None = None
    url: str | None = None


class ToolState(msgspec.Struct):
    """How far a call has come: pending, running, completed or error."""

    status: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"")
    output: str | None = None
    error: str | None = None
    metadata: ToolMetadata | None = None
    time: Times | None = None
    attachments: list[Attachment] | None = None


class PartData(msgspec.Struct):
    """`part.data` of every type; a field means what it means for that type."""

    type: str | None = None
    text: str | None = None
    synthetic: bool | None = None
    ignored: bool | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"")
    tool: Name | None = None
    call_id: Name | None = msgspec.field(default=None, name="callID")
    state: ToolState | None = None
    tokens: Tokens | None = None
    cost: Number = None
    hash: str | None = None
    files: list[str] | None = None
    mime: str | None = None
    filename: str | None = None
    url: str | None = None
    auto: bool | None = None
    prompt: str | None = None
    time: Times | None = None
    error: Failure | None = None


class Part(NamedTuple):
    """A part that could be read, and its row's id."""

    id: str
    data: PartData


class Unusable(NamedTuple):
    """A row that could not be used, or only in part: its table and id, its size, and the reason."""

    row: str
    size: int
    reason: str


class Opened(NamedTuple):
    """A message's JSON with its readable parts, and the rows that could not be used, or only in part."""

    data: MessageData
    parts: list[Part]
    unusable: list[Unusable]


# A message's time stands in its turn and in every block of its content.
iso: Final = lru_cache(maxsize=1024)(to_iso)

_messages: Final = SafeDecoder(MessageData)
_parts: Final = SafeDecoder(PartData)


def opened(row: MessageRow) -> Opened | Rejected:
    """What is in a message's row and its parts; Rejected where the message itself cannot be read."""
    message = _messages.decode(row.data)
    if isinstance(message, Rejected):
        return message
    data = message.value if isinstance(message, Repaired) else message
    unusable = _unusable(message, f"message {row.id}", row)
    if (left_out := row.more_parts[0]) > 0:
        unusable.append(Unusable(f"message {row.id}", len(row.data), f"{left_out:,} of its parts are left out"))
    parts: list[Part] = []
    for part in row.parts:
        found = _parts.decode(part.data)
        unusable += _unusable(found, f"part {part.id}", part)
        if not isinstance(found, Rejected):
            parts.append(Part(part.id, found.value if isinstance(found, Repaired) else found))
    return Opened(data, parts, unusable)


def _unusable(found: object, name: str, row: MessageRow | PartRow) -> list[Unusable]:
    """The reasons why a decoded row, or part of it, is not used."""
    reason = CUT["large"] if row.size is not None else None
    if isinstance(found, Rejected):
        reason = f"rejected {found.reason}"
    elif isinstance(found, Repaired):
        reason = cut_reason(found.what) or reason
    return [] if reason is None else [Unusable(name, len(row.data) if row.size is None else row.size, reason)]


def milliseconds(value: Number) -> int | None:
    """A time of the row's JSON as whole milliseconds."""
    return int(value) if value is not None and 0 <= value < 1 << 53 else None
