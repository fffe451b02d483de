"""Line shapes of Codex rollouts, from the bare items of early releases to numbered ones, and token arithmetic.

Codex counts tokens for a whole thread and repeats the sum: a response used what the sum grew by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from burnd.records import Usage
from burnd.records.foreign_json import Rejected, SafeDecoder, unpack
from burnd.records.names import Name
from burnd.records.turn import token_count

EMPTY: Final = msgspec.Raw()
CALLS: Final = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "web_search_call",
        "image_generation_call",
        "tool_search_call",
    }
)
OUTPUTS: Final = CALLS | {"reasoning"}  # made by the model, like messages of the role "assistant"
RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
ITEMS: Final = OUTPUTS | RESULTS | {"message", "agent_message", "ghost_snapshot", "compaction", "context_compaction"}
_SUMMARY_PREFIX: Final = "Another language model started to solve this problem and produced a summary"


class CodexLine(msgspec.Struct, gc=False):
    """A line's envelope. In early releases the line is the item or the metadata itself."""

    timestamp: str | float | None = None
    type: str | None = None
    payload: msgspec.Raw = EMPTY
    record_type: str | None = None

    def unwrap(self, raw: bytes) -> tuple[str, bytes]:
        if self.payload != EMPTY:
            return self.type or "", bytes(self.payload)
        if self.type in ITEMS:
            return "response_item", raw
        if self.type is None and self.record_type is None:
            return "session_meta", raw
        return self.type or self.record_type or "", raw


class Git(msgspec.Struct):
    branch: Name | None = None
    repository_url: str | None = None


class CodexMeta(msgspec.Struct):
    """`session_meta`, the first line of a rollout; a fork has its parent's after its own."""

    id: Name | None = None
    session_id: Name | None = None
    model: Name | None = None
    timestamp: str | None = None
    cwd: str | None = None
    source: msgspec.Raw = EMPTY
    parent_thread_id: Name | None = None
    forked_from_id: Name | None = None
    agent_role: Name | None = None
    git: Git | None = None
    cli_version: Name | None = None
    instructions: str | None = None
    base_instructions: msgspec.Raw = EMPTY


class TaskContext(msgspec.Struct):
    turn_id: Name | None = None
    model: Name | None = None


class CodexTokens(msgspec.Struct):
    """The provider's counts: cached tokens are part of the input, reasoning of the output."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_output_tokens: int | None = None
    total_tokens: int | None = None


class TokenInfo(msgspec.Struct):
    total_token_usage: CodexTokens | None = None
    last_token_usage: CodexTokens | None = None
    model: Name | None = None


class LimitWindow(msgspec.Struct):
    used_percent: float | None = None
    window_minutes: int | None = None
    resets_at: float | None = None
    resets_in_seconds: float | None = None


class RateLimits(msgspec.Struct):
    limit_id: str | None = None
    primary: LimitWindow | None = None
    secondary: LimitWindow | None = None


class ThreadSettings(msgspec.Struct):
    model: Name | None = None
    service_tier: Name | msgspec.UnsetType | None = msgspec.UNSET


class EventMessage(msgspec.Struct):
    """`event_msg`: an event beside the conversation, such as a `token_count`."""

    type: str | None = None
    turn_id: Name | None = None
    info: TokenInfo | None = None
    rate_limits: RateLimits | None = None
    thread_name: str | None = None
    num_turns: int | None = None
    thread_settings: ThreadSettings | None = None


class UsageRecord(msgspec.Struct):
    turn_id: Name | None = None
    usage: CodexTokens | None = None
    thread_token_usage: CodexTokens | None = None


class ItemMetadata(msgspec.Struct):
    content_item_kinds: list[str] | None = None


class Piece(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    image_url: str | None = None


class Item(msgspec.Struct):
    """`response_item`: input to the model or output of it."""

    type: str | None = None
    id: Name | None = None
    role: str | None = None
    content: str | list[Piece] | None = None
    summary: list[Piece] | None = None
    encrypted_content: str | None = None
    name: Name | None = None
    namespace: Name | None = None
    arguments: msgspec.Raw = EMPTY
    input: msgspec.Raw = EMPTY
    action: msgspec.Raw = EMPTY
    call_id: Name | None = None
    output: msgspec.Raw = EMPTY
    metadata: ItemMetadata | None = msgspec.field(name="internal_chat_message_metadata_passthrough", default=None)


class Compacted(msgspec.Struct):
    """`compacted`: the context was replaced by a summary, or by a history that may be encrypted."""

    message: str | None = None
    replacement_history: msgspec.Raw = EMPTY


lines: Final = SafeDecoder(CodexLine)
metas: Final = SafeDecoder(CodexMeta)
task_contexts: Final = SafeDecoder(TaskContext)
event_messages: Final = SafeDecoder(EventMessage)
usage_records: Final = SafeDecoder(UsageRecord)
items: Final = SafeDecoder(Item)
compactions: Final = SafeDecoder(Compacted)


def plain(raw: msgspec.Raw) -> Any:
    value = unpack(raw).value if raw else None
    return None if isinstance(value, Rejected) else value


def texts(content: str | list[Piece] | None) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [piece.text for piece in content or () if piece.text is not None]


def summary_in(history: msgspec.Raw) -> str:
    """The summary in the last message of a replaced history; empty if it is encrypted."""
    if not history or _SUMMARY_PREFIX.encode() not in bytes(history):
        return ""
    value = plain(history)
    for item in reversed(value if isinstance(value, list) else []):
        content = item.get("content") if isinstance(item, dict) else None
        for piece in content if isinstance(content, list) else ():
            text = piece.get("text") if isinstance(piece, dict) else None
            if isinstance(text, str) and text.lstrip().startswith(_SUMMARY_PREFIX):
                return text
    return ""


class TokenSum(NamedTuple):
    """Tokens as Codex counts them: `cached` and `written` are part of `input`, `reasoning` of `output`.

    `all` is the stated total; it identifies a repeated sum whose parts are missing.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0
    all: int = 0

    @property
    def is_zero(self) -> bool:
        return not self.input and not self.output

    def since(self, before: TokenSum) -> TokenSum:
        return TokenSum(*(max(0, now - then) for now, then in zip(self, before, strict=True)))

    def continues(self, before: TokenSum, last: TokenSum) -> bool:
        """Whether this is the sum `before` plus one response's usage `last`, part by part."""
        return all(now == then + more for now, then, more in zip(self[:-1], before, last, strict=False))

    def usage(self) -> Usage:
        return Usage.disjoint(
            self.input, self.output, cached=self.cached, written=self.written, reasoning=self.reasoning
        )


ZERO: Final = TokenSum()


class Unmetered(NamedTuple):
    """A response's usage and thread sum from a `token_usage_record` that no `token_count` covers yet."""

    used: TokenSum
    thread: TokenSum | None = None

    def is_counted_by(self, total: TokenSum | None, last: TokenSum | None) -> bool:
        pairs = ((self.thread, total), (self.used, last))
        return any(one is not None and other is not None and one[:-1] == other[:-1] for one, other in pairs)


def totals_of(tokens: CodexTokens | None) -> TokenSum | None:
    if tokens is None:
        return None
    cached = tokens.cached_input_tokens
    counts = (
        tokens.input_tokens,
        tokens.cache_read_input_tokens if cached is None else cached,
        tokens.cache_write_input_tokens,
        tokens.output_tokens,
        tokens.reasoning_output_tokens,
        tokens.total_tokens,
    )
    return TokenSum(*map(token_count, counts))


def used_since(sums: Sequence[TokenSum], total: TokenSum | None, last: TokenSum | None) -> TokenSum:
    """The usage since the newest earlier sum; `last` is Codex's count for the newest response.

    `last` is right if the sum continues a recent one, if there is no earlier sum (a fork continues its parent's), or if
    it fell (it restarts when a context overflowed). Otherwise `last` or some lines are missing, and the growth of the
    sum is right.
    """
    if total is None or total.is_zero:
        return last or ZERO
    if last is not None and any(total.continues(before, last) for before in sums):
        return last
    before = sums[-1] if sums else ZERO
    if before.is_zero or total.input < before.input or total.output < before.output:
        return total if last is None else last
    return total.since(before)
