"""What a program that calls models itself says of a message: content to keep, and the turn that it was. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from burnd.classify.keywords import prompt_words
from burnd.harness.claude_code.content import CALLS
from burnd.harness.claude_code.files import carried
from burnd.harness.claude_code.lines import Piece
from burnd.harness.claude_code.tools import Result, arguments_of, called, result_of
from burnd.harness.claude_code.usage import Bill
from burnd.harness.tool_calls import size
from burnd.recording.candidate import Candidate, LineKey, turn_of, with_iterations
from burnd.records import Block, Content, ToolCall, ToolResult, ToolUse, Turn
from burnd.records.base import camel
from burnd.records.content import MAIN, Kind, Role

_NULL: Final = msgspec.Raw(b"null")
_SILENCE: Final = Piece(type="text", text="")
_ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "tool": "tool_result", "system": "system"}
_pieces: msgspec.json.Decoder[str | list[Piece]] = msgspec.json.Decoder(str | list[Piece])


class NotContent(ValueError):
    """Raised when a message's content is neither a text nor a list of blocks."""


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=camel):
    """One message as it is handed over. An answer with a `model` is a turn, with what its `usage` says.

    `content` is a text, or blocks as Anthropic's API has them: text, thinking, tool_use, tool_result, image, document.
    """

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


class Came(NamedTuple):
    """What came back from a call."""

    call_id: str
    hash: str
    failed: bool
    is_refused: bool


class Read(NamedTuple):
    """A message read: its records, what it puts before the model or what it made, its calls and what came back."""

    given: Given
    ts: str
    content: list[Content]
    blocks: tuple[Block, ...]
    calls: tuple[ToolCall, ...] = ()
    files: tuple[str, ...] = ()
    came: tuple[Came, ...] = ()
    words: tuple[str, ...] = ()


def read(session_id: str, given: Given, ts: str) -> Read:
    """A message taken apart. Raises NotContent."""
    pieces = _opened(given)
    # A message in which nothing is said is one all the same: it can be read, and what comes next follows on it.
    kept = [(b, piece) for b, piece in enumerate(pieces) if _kind_of(given.role, piece) is not None] or [(0, _SILENCE)]
    content = [_record(session_id, given, ts, b, piece) for b, piece in kept]
    blocks = tuple(block for piece in pieces if (block := _block(given.role, piece)) is not None)
    asked = [arguments_of(piece) for piece in pieces if piece.type in CALLS]
    answered = [(piece, result_of(piece.tool_use_id, piece.content)) for piece in pieces if piece.type == "tool_result"]
    text = "\n".join(piece.text for piece in pieces if piece.text)
    return Read(
        given,
        ts,
        content,
        blocks,
        calls=tuple(one.call for one in asked),
        files=tuple(dict.fromkeys(one.file for one in asked if one.file)),
        came=tuple(_came(piece, found) for piece, found in answered),
        words=prompt_words(text) if given.role == "user" else (),
    )


def _came(piece: Piece, found: Result) -> Came:
    failed = bool(piece.is_error)
    return Came(piece.tool_use_id or "", found.hash, failed, is_refused=failed and found.is_refusal)


class Setting(NamedTuple):
    """Where a turn stands: its session and project, its number along its rail, and what led to it."""

    session_id: str
    source: str
    turn_index: int
    project: str | None = None
    project_key: str | None = None
    entered: tuple[Block, ...] = ()
    prompt_id: str | None = None
    words: tuple[str, ...] = ()


def turns(read: Read, bill: Bill, setting: Setting) -> list[Turn]:
    """The turn that an answer was, and those that were billed beside it."""
    given = read.given
    candidate = Candidate(
        message_id=given.id,
        session_id=setting.session_id,
        rail_id=given.rail,
        turn_index=setting.turn_index,
        ts=read.ts,
        source=setting.source,
        settled=True,
        rank=0,
        usage=bill.usage,
        model=given.model or "",
        stop_reason=given.stop_reason,
        speed=bill.speed,
        service_tier=bill.service_tier,
        inference_geo=bill.inference_geo,
        server_tools=bill.server_tools,
        apart=bill.apart,
        best=LineKey() if given.usage is None else LineKey(0),
        final=True,
        calls=read.calls,
        entered=setting.entered,
        made=read.blocks,
        files=read.files,
        project=setting.project,
        prompt_id=setting.prompt_id,
        prompt_words=setting.words,
    )
    beyond = {"basis": None, "provider": given.provider, "project_key": setting.project_key}
    return [msgspec.structs.replace(turn_of(one), **beyond) for one in with_iterations(candidate)]


def answered(turn: Turn, came: Sequence[Came]) -> Turn:
    """The turn with what its calls brought back; the same turn when it was known already."""
    found = {one.call_id: one for one in came}
    calls = tuple(
        msgspec.structs.replace(call, result_hash=one.hash, is_error=one.failed, is_refused=one.is_refused)
        if (one := found.get(call.id)) is not None
        else call
        for call in turn.tool_calls
    )
    return turn if calls == turn.tool_calls else msgspec.structs.replace(turn, tool_calls=calls)


def as_first_said(read: Read, old: Turn | None) -> Read:
    """An answer that is said again says what it said first: only its bill may be another."""
    if old is None or not old.made:
        return read
    return read._replace(blocks=old.made, calls=old.tool_calls, files=old.files_touched)


def _opened(given: Given) -> list[Piece]:
    data = bytes(given.content)
    if data == b"null":
        return []
    try:
        content = _pieces.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        reason = str(error)[:200]
        raise NotContent(f"content is a text or a list of blocks: {reason}") from None
    if isinstance(content, str):
        return [Piece(type="text", text=content)] if content else []
    return content


def _record(session_id: str, given: Given, ts: str, b: int, piece: Piece) -> Content:
    kind, role = _kind_of(given.role, piece) or "text", _ROLES[given.role]
    use = result = text = file = None
    if kind == "tool_use":
        use = ToolUse(id=piece.id or "", name=called(piece), input=piece.input or _NULL)
    elif kind == "tool_result":
        role, call_id = "tool_result", piece.tool_use_id or ""
        result = ToolResult(tool_use_id=call_id, content=piece.content or _NULL, is_error=piece.is_error)
    elif kind == "file":
        found = carried(piece)[0]
        file, text = found.file, found.words or None
    else:
        text = piece.thinking or piece.text
    return Content(
        session_id=session_id,
        rail_id=given.rail,
        message_id=given.id,
        n=0,
        b=b,
        ts=ts,
        role=role,
        kind=kind,
        text=text,
        tool_use=use,
        tool_result=result,
        file=file,
    )


def _kind_of(role: str, piece: Piece) -> Kind | None:
    """None for a block that nothing is kept of."""
    if piece.type in CALLS:
        return "tool_use"
    if piece.type == "tool_result":
        return "tool_result"
    if piece.thinking:
        return "thinking"
    if piece.text:
        return "system_prompt" if role == "system" else "text"
    return "file" if carried(piece) else None


def _block(role: str, piece: Piece) -> Block | None:
    """A block by its kind and size, as turns keep it."""
    if piece.type in CALLS:
        return Block(kind="call", bytes=len(piece.input), call_id=piece.id)
    if piece.type == "tool_result":
        return Block(kind="result", bytes=len(piece.content), call_id=piece.tool_use_id)
    if piece.thinking:
        return Block(kind="thinking", bytes=size(piece.thinking))
    if piece.text:
        kind = {"assistant": "text", "user": "prompt", "tool": "result"}.get(role, "reminder")
        return Block(kind=kind, bytes=size(piece.text))
    return None
