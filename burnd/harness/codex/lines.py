"""The lines of Codex's rollouts as its releases wrote them, from bare items without times to numbered ones."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from burnd.records.foreign_json import Rejected, Repaired, SafeDecoder, unpack
from burnd.records.names import Name

T = TypeVar("T")

NOTHING: Final = msgspec.Raw()
MADE: Final = frozenset(
    {
        "reasoning",
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "web_search_call",
        "image_generation_call",
        "tool_search_call",
    }
)
CALLS: Final = MADE - {"reasoning"}
ANSWERS: Final = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
ITEMS: Final = MADE | ANSWERS | {"message", "agent_message", "ghost_snapshot", "compaction", "context_compaction"}


class Line(msgspec.Struct, gc=False):
    """A line's envelope. Early releases had none: the line is the item itself, or what is known of the session."""

    timestamp: str | float | None = None
    type: str | None = None
    payload: msgspec.Raw = NOTHING
    record_type: str | None = None


class Git(msgspec.Struct):
    """The repository a session was started in."""

    branch: Name | None = None
    repository_url: str | None = None


class Meta(msgspec.Struct):
    """What is known of a session when it begins; a fork's log repeats its parent's after its own."""

    id: Name | None = None
    session_id: Name | None = None
    model: Name | None = None
    timestamp: str | None = None
    cwd: str | None = None
    source: msgspec.Raw = NOTHING
    parent_thread_id: Name | None = None
    forked_from_id: Name | None = None
    agent_role: Name | None = None
    git: Git | None = None
    instructions: str | None = None
    base_instructions: msgspec.Raw = NOTHING


class Context(msgspec.Struct):
    """What a task is done with."""

    turn_id: Name | None = None
    model: Name | None = None


class Tokens(msgspec.Struct):
    """Counts as the provider tells them: the cached are among the input, the reasoning among the output."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_output_tokens: int | None = None
    total_tokens: int | None = None


class Info(msgspec.Struct):
    """What was used in the thread so far, and by the last response."""

    total_token_usage: Tokens | None = None
    last_token_usage: Tokens | None = None
    model: Name | None = None


class Window(msgspec.Struct):
    """How much of a plan's window is used."""

    used_percent: float | None = None
    window_minutes: int | None = None
    resets_at: float | None = None
    resets_in_seconds: float | None = None


class RateLimits(msgspec.Struct):
    """The windows of the account's plan, or of one limit beside it."""

    limit_id: str | None = None
    primary: Window | None = None
    secondary: Window | None = None


class ThreadSettings(msgspec.Struct):
    """What the next tasks will be done with."""

    model: Name | None = None
    service_tier: Name | msgspec.UnsetType | None = msgspec.UNSET


class Happening(msgspec.Struct):
    """An `event_msg`."""

    type: str | None = None
    turn_id: Name | None = None
    info: Info | None = None
    rate_limits: RateLimits | None = None
    reason: str | None = None
    thread_name: str | None = None
    num_turns: int | None = None
    thread_settings: ThreadSettings | None = None


class Metered(msgspec.Struct):
    """A `token_usage_record`: what one response used."""

    turn_id: Name | None = None
    usage: Tokens | None = None
    thread_token_usage: Tokens | None = None


class Passed(msgspec.Struct):
    """What newer releases note beside an item: of which kinds its pieces are."""

    content_item_kinds: list[str] | None = None


class Piece(msgspec.Struct):
    """A piece of a message, of a reasoning or of a result."""

    type: str | None = None
    text: str | None = None
    image_url: str | None = None


class Item(msgspec.Struct):
    """A `response_item`: what was given to the model or made by it."""

    type: str | None = None
    id: Name | None = None
    role: str | None = None
    content: str | list[Piece] | None = None
    summary: list[Piece] | None = None
    encrypted_content: str | None = None
    name: Name | None = None
    namespace: Name | None = None
    arguments: msgspec.Raw = NOTHING
    input: msgspec.Raw = NOTHING
    action: msgspec.Raw = NOTHING
    call_id: Name | None = None
    output: msgspec.Raw = NOTHING
    status: str | None = None
    passed: Passed | None = msgspec.field(name="internal_chat_message_metadata_passthrough", default=None)


# Codex puts this before the summary of a compaction.
_SUMMARY_BEGINS: Final = "Another language model started to solve this problem and produced a summary"


class Compacted(msgspec.Struct):
    """The context was replaced: by a summary in words, or by a history that may be sealed."""

    message: str | None = None
    replacement_history: msgspec.Raw = NOTHING


lines: Final = SafeDecoder(Line)
metas: Final = SafeDecoder(Meta)
contexts: Final = SafeDecoder(Context)
happenings: Final = SafeDecoder(Happening)
metered: Final = SafeDecoder(Metered)
items: Final = SafeDecoder(Item)
compactions: Final = SafeDecoder(Compacted)


def opened(decoder: SafeDecoder[T], data: bytes | msgspec.Raw) -> T | None:
    """A payload's value, mended where that can be done."""
    found = decoder.decode(bytes(data))
    if isinstance(found, Repaired):
        return found.value
    return None if isinstance(found, Rejected) else found


def plain(raw: msgspec.Raw) -> Any:
    """A raw part as plain objects; None where there is none or it cannot be opened."""
    value = unpack(raw).value if raw else None
    return None if isinstance(value, Rejected) else value


def summary_in(history: msgspec.Raw) -> str:
    """The summary in the last message of a replaced history; empty if it is encrypted."""
    if not history or _SUMMARY_BEGINS.encode() not in bytes(history):
        return ""
    value = plain(history)
    for item in reversed(value if isinstance(value, list) else []):
        content = item.get("content") if isinstance(item, dict) else None
        for piece in content if isinstance(content, list) else ():
            text = piece.get("text") if isinstance(piece, dict) else None
            if isinstance(text, str) and text.lstrip().startswith(_SUMMARY_BEGINS):
                return text
    return ""


def texts(content: str | list[Piece] | None) -> list[str]:
    """The texts of a message, piece by piece."""
    if isinstance(content, str):
        return [content]
    return [piece.text for piece in content or () if piece.text is not None]
