"""Converts pushed messages to content and turns, and providers' usage objects to disjoint counts. Pure.

Anthropic counts input without cached tokens. OpenAI and Gemini include tokens read from the cache, OpenAI also those
written. OpenAI includes reasoning in the output, Gemini does not, nor do some services with OpenAI's format: their
total exceeds input plus output. Gemini's Python SDK has names in snake case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import msgspec

from burnd.classify.keywords import prompt_words
from burnd.harness.anthropic import (
    CALLS,
    Bill,
    ContentBlock,
    UsageObject,
    bill_of,
    embedded_files,
    parse_call,
    result_of,
    tool_name,
)
from burnd.harness.api.product import SOURCES
from burnd.harness.tool_calls import size
from burnd.recording.candidate import Candidate, LineKey, turn_of, with_iterations
from burnd.records import Block, Content, ToolCall, ToolResult, ToolUse, Turn, Usage
from burnd.records.base import camel
from burnd.records.content import MAIN, Kind, Role
from burnd.records.turn import token_count

if TYPE_CHECKING:
    ApiSource = Literal["anthropic-api", "openai-api", "gemini-api"]
else:
    ApiSource = Literal[SOURCES]
API_SOURCES: Final = cast("tuple[ApiSource, ...]", SOURCES)

_NULL: Final = msgspec.Raw(b"null")
_EMPTY_TEXT: Final = ContentBlock(type="text", text="")
_ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "tool": "tool_result", "system": "system"}
_TEXT_BLOCKS: Final = {"assistant": "text", "user": "prompt", "tool": "result"}
_pieces: msgspec.json.Decoder[str | list[ContentBlock]] = msgspec.json.Decoder(str | list[ContentBlock])

_ANTHROPIC_CACHE: Final = {"cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"}
_OPENAI_ONLY: Final = {"prompt_tokens", "input_tokens_details", "input_token_details", "total_tokens"}
_GEMINI_INPUT: Final = ("promptTokenCount", "prompt_token_count", "total_input_tokens", "totalInputTokens")
_GEMINI_OUTPUT: Final = (
    *("candidatesTokenCount", "candidates_token_count", "responseTokenCount", "response_token_count"),
    *("total_output_tokens", "totalOutputTokens"),
)
_GEMINI_CACHED: Final = (
    *("cachedContentTokenCount", "cached_content_token_count"),
    *("total_cached_tokens", "totalCachedTokens"),
)
_GEMINI_THOUGHTS: Final = ("thoughtsTokenCount", "thoughts_token_count", "total_thought_tokens", "totalThoughtTokens")
_GEMINI_TOOL_USE: Final = (
    *("toolUsePromptTokenCount", "tool_use_prompt_token_count"),
    *("total_tool_use_tokens", "totalToolUseTokens"),
)
_MAX_COUNT: Final = 1 << 40


class InvalidContent(ValueError):
    """Raised when a message's content is neither a text nor a list of blocks."""


class InvalidUsage(ValueError):
    """Raised when an object is not a usage object of the given provider."""


class PushedMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=camel):
    """A pushed message; an assistant's with a `model` is a turn. `content` is a text or blocks of Anthropic's API."""

    id: str
    role: Literal["user", "assistant", "tool", "system"] = "assistant"
    ts: str | None = None
    rail: str = MAIN
    content: msgspec.Raw = _NULL
    model: str | None = None
    provider: str | None = None
    usage: dict[str, Any] | None = None
    stop_reason: str | None = None

    @property
    def is_turn(self) -> bool:
        return self.role == "assistant" and self.model is not None


class CallOutcome(NamedTuple):
    call_id: str
    hash: str
    failed: bool
    is_refused: bool


class ParsedMessage(NamedTuple):
    message: PushedMessage
    ts: str
    content: list[Content]
    blocks: tuple[Block, ...]
    calls: tuple[ToolCall, ...] = ()
    files: tuple[str, ...] = ()
    outcomes: tuple[CallOutcome, ...] = ()
    words: tuple[str, ...] = ()


def parse(session_id: str, message: PushedMessage, ts: str) -> ParsedMessage:
    pieces = _decode(message)
    # Store a message without content as an empty text, so that it can be read and the next one follows it.
    stored = [(b, one) for b, one in enumerate(pieces) if _kind_of(message.role, one) is not None] or [(0, _EMPTY_TEXT)]
    calls = [parse_call(piece) for piece in pieces if piece.type in CALLS]
    text = "\n".join(piece.text for piece in pieces if piece.text)
    return ParsedMessage(
        message,
        ts,
        [_record(session_id, message, ts, b, piece) for b, piece in stored],
        tuple(block for piece in pieces if (block := _block(message.role, piece)) is not None),
        calls=tuple(one.call for one in calls),
        files=tuple(dict.fromkeys(one.file for one in calls if one.file)),
        outcomes=tuple(_outcome(piece) for piece in pieces if piece.type == "tool_result"),
        words=prompt_words(text) if message.role == "user" else (),
    )


def _decode(message: PushedMessage) -> list[ContentBlock]:
    data = bytes(message.content)
    if data == b"null":
        return []
    try:
        content = _pieces.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        reason = str(error)[:200]
        raise InvalidContent(f"content is a text or a list of blocks: {reason}") from None
    if isinstance(content, str):
        return [ContentBlock(type="text", text=content)] if content else []
    return content


def _outcome(piece: ContentBlock) -> CallOutcome:
    result, failed = result_of(piece.tool_use_id, piece.content), bool(piece.is_error)
    return CallOutcome(piece.tool_use_id or "", result.hash, failed, is_refused=failed and result.is_refusal)


def _record(session_id: str, message: PushedMessage, ts: str, b: int, piece: ContentBlock) -> Content:
    kind, role = _kind_of(message.role, piece) or "text", _ROLES[message.role]
    part: dict[str, Any] = {}
    if kind == "tool_use":
        part["tool_use"] = ToolUse(id=piece.id or "", name=tool_name(piece), input=piece.input or _NULL)
    elif kind == "tool_result":
        role, call_id = "tool_result", piece.tool_use_id or ""
        content = piece.content or _NULL
        part["tool_result"] = ToolResult(tool_use_id=call_id, content=content, is_error=piece.is_error)
    elif kind == "file":
        file = embedded_files(piece)[0]
        part |= {"file": file.file, "text": file.text or None}
    else:
        part["text"] = piece.thinking or piece.text
    return Content(
        session_id=session_id,
        rail_id=message.rail,
        message_id=message.id,
        n=0,
        b=b,
        ts=ts,
        role=role,
        kind=kind,
        **part,
    )


def _kind_of(role: str, piece: ContentBlock) -> Kind | None:
    if piece.type in CALLS:
        return "tool_use"
    if piece.type == "tool_result":
        return "tool_result"
    if piece.thinking:
        return "thinking"
    if piece.text:
        return "system_prompt" if role == "system" else "text"
    return "file" if embedded_files(piece) else None


def _block(role: str, piece: ContentBlock) -> Block | None:
    if piece.type in CALLS:
        return Block(kind="call", bytes=len(piece.input), call_id=piece.id)
    if piece.type == "tool_result":
        return Block(kind="result", bytes=len(piece.content), call_id=piece.tool_use_id)
    if piece.thinking:
        return Block(kind="thinking", bytes=size(piece.thinking))
    if piece.text:
        return Block(kind=_TEXT_BLOCKS.get(role, "reminder"), bytes=size(piece.text))
    return None


class TurnContext(NamedTuple):
    session_id: str
    source: str
    turn_index: int
    project: str | None = None
    project_key: str | None = None
    agent: str | None = None
    entered: tuple[Block, ...] = ()
    prompt_id: str | None = None
    words: tuple[str, ...] = ()


def turns_of(parsed: ParsedMessage, bill: Bill, context: TurnContext) -> list[Turn]:
    message = parsed.message
    candidate = Candidate(
        message_id=message.id,
        session_id=context.session_id,
        rail_id=message.rail,
        turn_index=context.turn_index,
        ts=parsed.ts,
        source=context.source,
        settled=True,
        rank=0,
        usage=bill.usage,
        model=message.model or "",
        stop_reason=message.stop_reason,
        speed=bill.speed,
        service_tier=bill.service_tier,
        inference_geo=bill.inference_geo,
        server_tools=bill.server_tools,
        billed_calls=bill.billed_calls,
        best=LineKey() if message.usage is None else LineKey(0),
        final=True,
        calls=parsed.calls,
        entered=context.entered,
        made=parsed.blocks,
        files=parsed.files,
        agent=context.agent,
        project=context.project,
        prompt_id=context.prompt_id,
        prompt_words=context.words,
    )
    fields = {"basis": None, "provider": message.provider, "project_key": context.project_key}
    return [msgspec.structs.replace(turn_of(one), **fields) for one in with_iterations(candidate)]


def with_outcomes(turn: Turn, outcomes: Sequence[CallOutcome]) -> Turn:
    by_call = {one.call_id: one for one in outcomes}
    calls = tuple(
        msgspec.structs.replace(call, result_hash=one.hash, is_error=one.failed, is_refused=one.is_refused)
        if (one := by_call.get(call.id)) is not None
        else call
        for call in turn.tool_calls
    )
    return turn if calls == turn.tool_calls else msgspec.structs.replace(turn, tool_calls=calls)


def bill(source: ApiSource, usage: Mapping[str, Any]) -> Bill:
    """Converts a provider's usage object. Raises InvalidUsage, also if another provider's would be misread."""
    owner = source_of(usage)
    # OpenAI's newer form has the same names as Anthropic's without cache counts.
    is_ambiguous = owner == "anthropic-api" and not usage.keys() & _ANTHROPIC_CACHE
    if owner not in (None, source) and not (is_ambiguous and source == "openai-api"):
        raise InvalidUsage(f"this is a usage object of {owner}, not of {source}")
    _check_counts(usage)
    if source == "anthropic-api":
        return _anthropic(usage)
    return Bill(_openai(usage) if source == "openai-api" else _gemini(usage))


def source_of(usage: Mapping[str, Any]) -> ApiSource | None:
    """The provider of a usage object, by its keys; None if it is ambiguous."""
    if not usage.keys().isdisjoint(_GEMINI_INPUT):
        return "gemini-api"
    if usage.keys() & _OPENAI_ONLY:
        return "openai-api"
    return "anthropic-api" if "input_tokens" in usage else None


def _check_counts(usage: Mapping[str, Any]) -> None:
    for name, value in usage.items():
        if isinstance(value, Mapping):
            _check_counts(value)
        elif isinstance(value, int | float) and not 0 <= value <= _MAX_COUNT:
            raise InvalidUsage(f"{name} is not a token count: {str(value)[:40]}")


def _anthropic(usage: Mapping[str, Any]) -> Bill:
    try:
        line = msgspec.convert(usage, UsageObject)
    except msgspec.ValidationError as error:
        raise InvalidUsage(f"the usage object is not one of Anthropic's: {error}") from None
    if line.input_tokens is None and line.output_tokens is None:
        raise InvalidUsage("Anthropic's usage object has input_tokens and output_tokens")
    return bill_of(line)


def _openai(usage: Mapping[str, Any]) -> Usage:
    """The forms of chat completions (`prompt_tokens`), and of responses and realtime sessions (`input_tokens`)."""
    input_, output = (
        _number(usage, "prompt_tokens", "input_tokens"),
        _number(usage, "completion_tokens", "output_tokens"),
    )
    if input_ is None and output is None:
        raise InvalidUsage(
            "OpenAI's usage object has prompt_tokens and completion_tokens, or input_tokens and output_tokens"
        )
    input_details = _details(usage, "prompt_tokens_details", "input_tokens_details", "input_token_details")
    output_details = _details(usage, "completion_tokens_details", "output_tokens_details", "output_token_details")
    cached = token_count(_number(input_details, "cached_tokens"))
    written = token_count(_number(input_details, "cache_write_tokens"))
    reasoning = token_count(_number(output_details, "reasoning_tokens"))
    rest = max(0, token_count(_number(usage, "total_tokens")) - token_count(input_) - token_count(output))
    if input_ is None or output is None:  # then the rest of the total is the missing one
        input_, output = rest if input_ is None else input_, rest if output is None else output
    else:
        output, reasoning = output + rest, max(reasoning, rest)
    return Usage.disjoint(input_, output, cached=cached, written=written, reasoning=reasoning)


def _gemini(usage: Mapping[str, Any]) -> Usage:
    """The forms of generated content, live sessions and interactions; tool prompts are billed as input too."""
    input_, output = _number(usage, *_GEMINI_INPUT), _number(usage, *_GEMINI_OUTPUT)
    if input_ is None and output is None:
        raise InvalidUsage(
            "Gemini's usage object has promptTokenCount and candidatesTokenCount, or total_input_tokens and "
            "total_output_tokens"
        )
    names = (_GEMINI_CACHED, _GEMINI_THOUGHTS, _GEMINI_TOOL_USE)
    cached, thoughts, tool_use = (token_count(_number(usage, *one)) for one in names)
    return Usage.disjoint(
        token_count(input_) + tool_use, token_count(output) + thoughts, cached=cached, reasoning=thoughts
    )


def _number(usage: Mapping[str, Any], *names: str) -> int | None:
    name = next((name for name in names if usage.get(name) is not None), None)
    if name is None:
        return None
    value = usage[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidUsage(f"{name} is a whole number, not {str(value)[:40]!r}")
    return value


def _details(usage: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((usage[name] for name in names if isinstance(usage.get(name), Mapping)), {})
