"""What one message of opencode's says by itself, whatever stands before or after it in its session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from burnd.classify.keywords import prompt_words
from burnd.harness.opencode.rows import (
    Attachment,
    FailureData,
    MessageData,
    MessageRow,
    Opened,
    Part,
    PartData,
    milliseconds,
)
from burnd.harness.opencode.tools import Call, attached_block
from burnd.harness.opencode.usage import cost_of, usage_of
from burnd.harness.tool_calls import short_hash, size
from burnd.records import Block, ToolCall, Usage

USER: Final = "user"
ASSISTANT: Final = "assistant"
_LARGEST_STATUS: Final = 999
_OUTPUT: Final = ("text", "reasoning", "tool")


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A user row: what it puts before the model, and whether a person wrote any of it.

    `trigger` is there when the row asks for a compaction. `text_hash` tells a prompt that is said again.
    """

    blocks: tuple[Block, ...] = ()
    human: bool = False
    words: tuple[str, ...] = ()
    text_hash: str | None = None
    trigger: str | None = None


class Answered(msgspec.Struct, frozen=True, gc=False):
    """An assistant row, one step of a model: what it used, what it made, and what its calls brought back."""

    parent: str | None = None
    model: str = ""
    provider: str | None = None
    usage: Usage = Usage()
    cost_usd: float | None = None
    completed: int | None = None
    finish: str | None = None
    error: str | None = None
    status: int | None = None
    is_summary: bool = False
    calls: tuple[ToolCall, ...] = ()
    made: tuple[Block, ...] = ()
    came_back: tuple[Block, ...] = ()
    files: tuple[str, ...] = ()
    children: tuple[tuple[str, str], ...] = ()  # (call, the session it started)
    retries: tuple[tuple[str, int | None, int | None], ...] = ()  # (part, when, status) of attempts that failed
    has_output: bool = False  # the model had started to answer, even if only with an empty part

    @property
    def said_bytes(self) -> int:
        return sum(block.bytes for block in self.made if block.kind == "text")


class Said(msgspec.Struct, frozen=True, gc=False):
    """One message: who speaks, when, and what that comes to. A row of an unknown role is neither."""

    id: str
    created: int
    agent: str | None = None
    has_parts: bool = False
    asked: Asked | None = None
    answered: Answered | None = None

    @property
    def is_complete(self) -> bool:
        """Whether opencode is done with it, so that only a late addition may still come."""
        return self.has_parts if self.answered is None else self.answered.completed is not None

    @property
    def is_unfinished(self) -> bool:
        """Whether it is an answer of which more may come, however late: its end, or what one of its calls brings."""
        answer = self.answered
        return answer is not None and (answer.completed is None or any(call.is_error is None for call in answer.calls))


def said_of(row: MessageRow, opened: Opened, calls: Mapping[int, Call], version: str | None) -> Said:
    """What a row says, in a session that this release of opencode began."""
    data, parts = opened.data, opened.parts
    return Said(
        id=row.id,
        created=row.created,
        agent=data.agent,
        has_parts=bool(parts),
        asked=_asked(parts) if data.role == USER else None,
        answered=_answered(data, parts, calls, version) if data.role == ASSISTANT else None,
    )


def is_human(part: PartData) -> bool:
    """Whether a person put this part of a user row there: text, a file or the mention of an agent."""
    return part.type in ("text", "file", "agent") and not part.synthetic and not part.ignored


def is_summary(data: MessageData) -> bool:
    """Whether an answer is a compaction's. On user rows the same field is an object, about something else."""
    return data.role == ASSISTANT and bytes(data.summary) == b"true"


def _asked(parts: Sequence[Part]) -> Asked:
    human = [part.data for part in parts if is_human(part.data)]
    text = "\n".join(part.text for part in human if part.type == "text" and part.text)
    compaction = next((part.data for part in parts if part.data.type == "compaction"), None)
    return Asked(
        blocks=tuple(block for part in parts if (block := _entering(part.data)) is not None),
        human=bool(human),
        words=prompt_words(text),
        text_hash=short_hash(text.encode()) if text else None,
        trigger=None if compaction is None else "auto" if compaction.auto else "manual",
    )


def _entering(part: PartData) -> Block | None:
    if part.type == "file":
        return attached_block(Attachment(mime=part.mime, url=part.url))
    if part.type != "text" or not part.text or part.ignored:
        return None
    return Block(kind="reminder" if part.synthetic else "prompt", bytes=size(part.text))


def _answered(data: MessageData, parts: Sequence[Part], by_part: Mapping[int, Call], version: str | None) -> Answered:
    calls = list(by_part.values())
    steps = [part.data.tokens for part in parts if part.data.type == "step-finish" and part.data.tokens is not None]
    error = data.error
    return Answered(
        parent=data.parent,
        model=data.model or "",
        provider=data.provider,
        usage=usage_of(data.tokens, steps, version),
        cost_usd=cost_of(data.cost, [part.data.cost for part in parts if part.data.type == "step-finish"]),
        completed=milliseconds(data.time.completed) if data.time is not None else None,
        finish=data.finish,
        error=(error.name or "UnknownError") if error is not None else None,
        status=_status(error.data) if error is not None else None,
        is_summary=is_summary(data),
        calls=tuple(call.call for call in calls),
        made=_made(parts, by_part),
        has_output=any(part.data.type in _OUTPUT for part in parts),
        came_back=tuple(block for call in calls for block in call.came_back),
        files=_files(parts, calls),
        children=tuple((call.call.id, call.child) for call in calls if call.child),
        retries=tuple(_retry(part) for part in parts if part.data.type == "retry"),
    )


def _status(data: FailureData | None) -> int | None:
    code = data.status_code if data is not None else None
    return code if code is not None and 0 <= code <= _LARGEST_STATUS else None


def _made(parts: Sequence[Part], calls: Mapping[int, Call]) -> tuple[Block, ...]:
    """The blocks of output in their order. Thinking that is hidden is as long as what stands for it."""
    blocks: list[Block] = []
    for n, (_, part) in enumerate(parts):
        if part.type == "tool":
            blocks.append(calls[n].made)
        elif part.type == "text" and part.text and not part.ignored:
            blocks.append(Block(kind="text", bytes=size(part.text)))
        elif part.type == "reasoning" and (part.text or part.metadata):
            blocks.append(Block(kind="thinking", bytes=size(part.text) if part.text else len(part.metadata)))
    return tuple(blocks)


def _files(parts: Sequence[Part], calls: Sequence[Call]) -> tuple[str, ...]:
    """The files its calls name, then those that a snapshot found changed."""
    named = [path for call in calls for path in call.files]
    changed = [path for part in parts if part.data.type == "patch" for path in part.data.files or ()]
    return tuple(dict.fromkeys([*named, *changed]))


def _retry(part: Part) -> tuple[str, int | None, int | None]:
    when = milliseconds(part.data.time.created) if part.data.time is not None else None
    return (part.id, when, _status(part.data.error.data) if part.data.error is not None else None)
