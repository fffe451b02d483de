"""Rows of opencode's database, the JSON in their `data`, and the usage they state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from burnd.harness.tool_calls import release
from burnd.logfiles.log_reader import CUT, cut_reason
from burnd.records import Usage
from burnd.records.codec import hash_of
from burnd.records.foreign_json import Rejected, Repaired, SafeDecoder
from burnd.records.names import Name
from burnd.records.times import to_iso
from burnd.records.turn import token_count

Number = int | float | None

_LARGEST_USD: Final = 1e6
_NET_OUTPUT_SINCE: Final = (1, 3, 16)


class PartRow(NamedTuple):
    """A row of `part`. `size` is set if it was too large, so that long texts are cut."""

    id: str
    updated: int
    data: bytes
    size: int | None = None


class MessageRow(NamedTuple):
    """A row of `message` with its parts by id; `size` as for parts."""

    id: str
    created: int
    updated: int
    data: bytes
    parts: tuple[PartRow, ...] = ()
    size: int | None = None
    more_parts: tuple[int, int] = (0, 0)  # number and newest change of the parts that were not read


class MessageVersion(NamedTuple):
    """A message in its session's order. `digest` changes with it and its parts; 0 without parts."""

    id: str
    created: int
    updated: int
    digest: int = 0


class SessionRow(NamedTuple):
    """A row of `session`, with None for columns that an older schema lacks."""

    id: str
    created: int
    parent: str | None = None
    directory: str | None = None
    title: str | None = None
    version: str | None = None
    agent: str | None = None


class CacheTokens(msgspec.Struct, gc=False):
    read: Number = None
    write: Number = None


class OpencodeTokens(msgspec.Struct, gc=False):
    """The tokens of one step; early releases lack `total`."""

    total: Number = None
    input: Number = None
    output: Number = None
    reasoning: Number = None
    cache: CacheTokens | None = None


class Times(msgspec.Struct, gc=False):
    """Times of a message, a part or a call, in milliseconds since 1970."""

    created: Number = None
    completed: Number = None
    end: Number = None


class FailureData(msgspec.Struct, gc=False, rename="camel"):
    """Details of an error; only the status code is read, since the rest may quote the provider."""

    status_code: int | None = None


class Failure(msgspec.Struct, gc=False):
    name: Name | None = None
    data: FailureData | None = None


class MessageData(msgspec.Struct, gc=False):
    """`message.data` of either role. `summary` is an object on user rows, true on a compaction's response."""

    role: str | None = None
    time: Times | None = None
    agent: Name | None = None
    mode: Name | None = None  # the agent, in early releases
    parent: str | None = msgspec.field(default=None, name="parentID")
    model: Name | None = msgspec.field(default=None, name="modelID")
    provider: Name | None = msgspec.field(default=None, name="providerID")
    tokens: OpencodeTokens | None = None
    cost: Number = None
    finish: Name | None = None
    error: Failure | None = None
    summary: msgspec.Raw = msgspec.Raw(b"")


class ToolMetadata(msgspec.Struct, gc=False, rename="camel"):
    exit: int | None = None
    session_id: str | None = None
    output_path: str | None = None


class Attachment(msgspec.Struct, gc=False):
    mime: str | None = None
    filename: str | None = None
    url: str | None = None


class ToolState(msgspec.Struct, gc=False):
    status: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"")
    output: str | None = None
    error: str | None = None
    metadata: ToolMetadata | None = None
    time: Times | None = None
    attachments: list[Attachment] | None = None


class PartData(msgspec.Struct, gc=False):
    """`part.data`, the fields of all types together."""

    type: str | None = None
    text: str | None = None
    synthetic: bool | None = None
    ignored: bool | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"")
    tool: Name | None = None
    call_id: Name | None = msgspec.field(default=None, name="callID")
    state: ToolState | None = None
    tokens: OpencodeTokens | None = None
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
    id: str
    data: PartData


class UnusableRow(NamedTuple):
    """A row that was not used, or only in part: table and id, size, reason."""

    row: str
    size: int
    reason: str


class DecodedMessage(NamedTuple):
    data: MessageData
    parts: list[Part]
    unusable: list[UnusableRow]


# Turns and all blocks of content have the message's time.
iso: Final = lru_cache(maxsize=1024)(to_iso)

_messages: Final = SafeDecoder(MessageData)
_parts: Final = SafeDecoder(PartData)


def decode_message(row: MessageRow) -> DecodedMessage | Rejected:
    message = _messages.decode(row.data)
    if isinstance(message, Rejected):
        return message
    unusable: list[UnusableRow] = []
    if row.size is not None or isinstance(message, Repaired):
        unusable += _unusable(message, f"message {row.id}", row)
    if row.more_parts[0]:
        unusable.append(unusable_message(row, f"{row.more_parts[0]:,} of its parts are left out"))
    parts: list[Part] = []
    for part in row.parts:
        decoded = _parts.decode(part.data)
        if part.size is not None or not isinstance(decoded, PartData):
            unusable += _unusable(decoded, f"part {part.id}", part)
        if isinstance(decoded, PartData):
            parts.append(Part(part.id, decoded))
        elif isinstance(decoded, Repaired):
            parts.append(Part(part.id, decoded.value))
    return DecodedMessage(message.value if isinstance(message, Repaired) else message, parts, unusable)


def unusable_message(row: MessageRow, reason: str) -> UnusableRow:
    return UnusableRow(f"message {row.id}", len(row.data) if row.size is None else row.size, reason)


def _unusable(decoded: object, name: str, row: MessageRow | PartRow) -> list[UnusableRow]:
    reason = CUT["large"] if row.size is not None else None
    if isinstance(decoded, Rejected):
        reason = f"rejected {decoded.reason}"
    elif isinstance(decoded, Repaired):
        reason = cut_reason(decoded.what) or reason
    return [] if reason is None else [UnusableRow(name, len(row.data) if row.size is None else row.size, reason)]


def digest_of(values: Iterable[object]) -> int:
    """A 64-bit hash that is the same in every process."""
    return hash_of(msgspec.msgpack.encode(tuple(values)))


def milliseconds(value: Number) -> int | None:
    return int(value) if value is not None and 0 <= value < 1 << 53 else None


def message_usage(message: OpencodeTokens | None, steps: Sequence[OpencodeTokens], version: str | None = None) -> Usage:
    """The usage of a message: the larger of its own, which may lack steps, and the sum of its `step-finish` parts."""
    own = net_usage(message, version) if message is not None else Usage()
    if len(steps) == 1 and steps[0] == message:
        return own  # as in most messages
    total = Usage()
    for step in steps:
        total += net_usage(step, version)
    return max(own, total, key=total_tokens)


def message_cost(message: Number, steps: Sequence[Number]) -> float | None:
    """The stated cost in USD; None for 0, which opencode writes if it has no price."""
    own, *of_steps = (float(usd) if usd is not None and 0 < usd < _LARGEST_USD else 0.0 for usd in (message, *steps))
    return max(own, sum(of_steps)) or None


def net_usage(tokens: OpencodeTokens, version: str | None = None) -> Usage:
    """Converts tokens to disjoint counts. Before 1.3.16 `output` included the reasoning."""
    cache = tokens.cache or CacheTokens()
    fresh, output, reasoning = token_count(tokens.input), token_count(tokens.output), token_count(tokens.reasoning)
    cache_read, cache_write = token_count(cache.read), token_count(cache.write)
    if reasoning:
        if tokens.total is not None:
            is_gross = token_count(tokens.total) == fresh + output + cache_read + cache_write
        else:  # the first releases wrote no total
            numbers = release(version)
            is_gross = numbers is not None and numbers < _NET_OUTPUT_SINCE
        output = max(0, output - reasoning) if is_gross else output
    return Usage(input=fresh, output=output, reasoning=reasoning, cache_read=cache_read, cache_create_5m=cache_write)


def total_tokens(usage: Usage) -> int:
    return usage.context + usage.output + usage.reasoning
