"""Converts one decoded message to its facts (`OpencodeMessage`), tool calls and content records. Pure.

Each message is converted alone; `session` puts them in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from burnd.classify.keywords import prompt_words
from burnd.classify.tools import kind as tool_kind
from burnd.harness.opencode.restore import SAVED_OUTPUT
from burnd.harness.opencode.rows import (
    Attachment,
    DecodedMessage,
    Failure,
    MessageData,
    MessageRow,
    Part,
    PartData,
    SessionRow,
    ToolState,
    iso,
    message_cost,
    message_usage,
    milliseconds,
)
from burnd.harness.restore import HOLE, cut_texts
from burnd.harness.tool_calls import (
    args_hash,
    creates_pull_request,
    decoded_size,
    edit_hash,
    first_word,
    host_of,
    inline_bytes,
    inline_data,
    patch_hash,
    patched_files,
    pull_request_in,
    short_hash,
    size,
    text_target,
    verb_of,
)
from burnd.records import Block, Content, File, ToolCall, ToolResult, ToolUse, Usage
from burnd.records.content import MAIN, Kind, Role, title_record
from burnd.records.foreign_json import Unpacked, plain, unpack

TITLE: Final = "title:opencode"
_USER: Final = "user"
_ASSISTANT: Final = "assistant"
_LARGEST_STATUS: Final = 999
_OUTPUT_PARTS: Final = ("text", "reasoning", "tool")
_DEFAULT_TITLE: Final = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_NULL: Final = msgspec.Raw(b"null")
# Sorted: opencode's own import changes the order of keys.
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
_LONG_TEXT: Final = 64  # characters from which on a text is replaced by a number in the context
_LONGEST_TEXT: Final = 16 << 10  # characters of other texts there: previews, patches, signatures

_TASK: Final = "task"
_INVALID: Final = "invalid"
_TARGET_ARGUMENTS: Final = {
    "read": "filePath",
    "edit": "filePath",
    "write": "filePath",
    "multiedit": "filePath",
    "lsp": "filePath",
    "grep": "path",
    "glob": "path",
    "list": "path",
    _TASK: "subagent_type",
    _INVALID: "tool",
}
_FILE_TOOLS: Final = frozenset({"read", "edit", "write", "multiedit"})
_REPLACING_TOOLS: Final = frozenset({"edit", "multiedit"})
_PATCH_TOOLS: Final = frozenset({"patch", "apply_patch"})
# The user refused or stopped a call. A rule that forbids it is a failure like any other.
_REFUSAL: Final = re.compile(
    r"\s*(?:Error: )?(?:The user (?:rejected permission|dismissed this question)|User aborted the command)"
)


class UserMessage(msgspec.Struct, frozen=True, gc=False):
    """A user row. `trigger` is set if it requests a compaction; `text_hash` identifies a repeated prompt."""

    blocks: tuple[Block, ...] = ()
    is_human: bool = False
    words: tuple[str, ...] = ()
    text_hash: str | None = None
    trigger: str | None = None


class Response(msgspec.Struct, frozen=True, gc=False):
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
    output: tuple[Block, ...] = ()
    results: tuple[Block, ...] = ()
    files: tuple[str, ...] = ()
    children: tuple[tuple[str, str], ...] = ()  # (call, session that it started)
    retries: tuple[tuple[str, int | None, int | None], ...] = ()  # (part, time, status) of failed attempts
    has_output: bool = False  # the model started to answer, even if only with an empty part
    pull_request: str | None = None

    @property
    def text_bytes(self) -> int:
        return sum(block.bytes for block in self.output if block.kind == "text")


class OpencodeMessage(msgspec.Struct, frozen=True, gc=False):
    """The facts of one message: neither user nor response if its row is invalid or of an unknown role."""

    id: str
    created: int
    agent: str | None = None
    has_parts: bool = False
    user: UserMessage | None = None
    response: Response | None = None

    @property
    def is_complete(self) -> bool:
        """Whether opencode has completed it, so that only a late addition may follow."""
        return self.has_parts if self.response is None else self.response.completed is not None

    @property
    def is_unfinished(self) -> bool:
        response = self.response
        return response is not None and (
            response.completed is None or any(call.is_error is None for call in response.calls)
        )


class OpencodeCall(NamedTuple):
    call: ToolCall
    block: Block
    results: tuple[Block, ...]
    files: tuple[str, ...]
    child: str | None
    input: msgspec.Raw
    answer: str | None
    pull_request: str | None = None


# Facts


def message_of(
    row: MessageRow, decoded: DecodedMessage, calls: Mapping[int, OpencodeCall], version: str | None = None
) -> OpencodeMessage:
    """The facts of a message; `version` is the release that created its session."""
    data, parts = decoded.data, decoded.parts
    return OpencodeMessage(
        id=row.id,
        created=row.created,
        agent=data.agent or data.mode,
        has_parts=bool(parts),
        user=_user_message(parts) if data.role == _USER else None,
        response=_response(data, parts, calls, version) if data.role == _ASSISTANT else None,
    )


def _user_message(parts: Sequence[Part]) -> UserMessage:
    blocks: list[Block] = []
    texts: list[str] = []
    is_human, trigger = False, None
    for _, part in parts:
        by_person = not part.synthetic and not part.ignored
        if part.type == "compaction" and trigger is None:
            trigger = "auto" if part.auto else "manual"
        is_human = is_human or (by_person and part.type in ("text", "file", "agent"))
        if part.type == "text" and part.text and not part.ignored:
            blocks.append(Block(kind="reminder" if part.synthetic else "prompt", bytes=size(part.text)))
            texts += [part.text] if by_person else []
        elif part.type == "file" and (block := attached_block(_attachment(part))) is not None:
            blocks.append(block)
    text = "\n".join(texts)
    return UserMessage(
        blocks=tuple(blocks),
        is_human=is_human,
        words=prompt_words(text),
        text_hash=short_hash(text.encode()) if text else None,
        trigger=trigger,
    )


def _response(
    data: MessageData, parts: Sequence[Part], calls: Mapping[int, OpencodeCall], version: str | None
) -> Response:
    steps: list[PartData] = []
    output: list[Block] = []
    changed: list[str] = []
    retries: list[tuple[str, int | None, int | None]] = []
    has_output = False
    for n, (part_id, part) in enumerate(parts):
        kind = part.type
        has_output = has_output or kind in _OUTPUT_PARTS
        if kind == "step-finish":
            steps.append(part)
        elif kind == "tool":
            output.append(calls[n].block)
        elif kind == "text" and part.text and not part.ignored:
            output.append(Block(kind="text", bytes=size(part.text)))
        elif kind == "reasoning" and (part.text or part.metadata):
            output.append(Block(kind="thinking", bytes=size(part.text) if part.text else len(part.metadata)))
        elif kind == "patch":
            changed += part.files or ()
        elif kind == "retry":
            failed_at = milliseconds(part.time.created) if part.time is not None else None
            retries.append((part_id, failed_at, _status(part.error)))
    error = data.error
    return Response(
        parent=data.parent,
        model=data.model or "",
        provider=data.provider,
        usage=message_usage(data.tokens, [step.tokens for step in steps if step.tokens is not None], version),
        cost_usd=message_cost(data.cost, [step.cost for step in steps]),
        completed=milliseconds(data.time.completed) if data.time is not None else None,
        finish=data.finish,
        error=(error.name or "UnknownError") if error is not None else None,
        status=_status(error),
        is_summary=_is_summary(data),
        calls=tuple([call.call for call in calls.values()]),
        output=tuple(output),
        has_output=has_output,
        results=tuple([block for call in calls.values() for block in call.results]),
        files=tuple(dict.fromkeys([*[path for call in calls.values() for path in call.files], *changed])),
        children=tuple([(call.call.id, call.child) for call in calls.values() if call.child]),
        retries=tuple(retries),
        pull_request=next((call.pull_request for call in calls.values() if call.pull_request), None),
    )


def _is_summary(data: MessageData) -> bool:
    """Whether this is a compaction's response. On user rows `summary` is an object."""
    return data.role == _ASSISTANT and bytes(data.summary) == b"true"


def _status(error: Failure | None) -> int | None:
    code = error.data.status_code if error is not None and error.data is not None else None
    return code if code is not None and 0 <= code <= _LARGEST_STATUS else None


# Tool calls


def calls_of(decoded: DecodedMessage) -> dict[int, OpencodeCall]:
    """The calls of a message by part number; a repeated call id is replaced by the part's id."""
    calls: dict[int, OpencodeCall] = {}
    ids: set[str] = set()
    for n, (part_id, part) in enumerate(decoded.parts):
        if part.type == "tool":
            call_id = part.call_id or ""
            calls[n] = call_of(part, part_id if call_id in ids else call_id)
            ids |= {call_id} - {""}
    return calls


def call_of(part: PartData, call_id: str) -> OpencodeCall:
    name = part.tool or ""
    state = part.state or ToolState()
    value, well_formed = unpack(state.input) if state.input else Unpacked(None, state.input)
    arguments: dict[str, Any] = value if isinstance(value, dict) else {}
    patch = arguments.get("patchText") or arguments.get("patch") if name in _PATCH_TOOLS else None
    path = text_target(arguments.get("filePath")) if name in _FILE_TOOLS else None
    files = patched_files(patch) if name in _PATCH_TOOLS else (path,) if path is not None else ()
    answer = state.error or "" if state.status == "error" else None
    if state.status == "completed":
        answer = state.output or ""
    # opencode calls a command with a nonzero exit code `completed`.
    exit_code = state.metadata.exit if tool_kind(name) == "shell" and state.metadata is not None else None
    has_failed = state.status == "error" or name == _INVALID or bool(exit_code)
    target = _target(name, arguments, files)
    change = edit_hash(target, arguments) if name in _REPLACING_TOOLS else None
    call = ToolCall(
        id=call_id,
        name=name,
        target=target,
        args_hash=args_hash(state.input, value) if state.input else None,
        edit_hash=patch_hash(target, patch) if name in _PATCH_TOOLS else change,
        result_hash=short_hash(answer.encode()) if answer is not None else None,
        is_error=has_failed if answer is not None else None,
        is_refused=answer is not None and has_failed and _REFUSAL.match(answer) is not None,
    )
    results: list[Block] = []
    if answer is not None:
        attached = [attached_block(file, call_id) for file in state.attachments or ()]
        results = [Block(kind="result", bytes=size(answer), call_id=call_id), *filter(None, attached)]
    return OpencodeCall(
        call,
        block=Block(kind="call", bytes=len(state.input), call_id=call_id),
        results=tuple(results),
        files=files,
        child=state.metadata.session_id if name == _TASK and state.metadata is not None else None,
        input=well_formed,
        answer=answer,
        pull_request=pull_request_in(answer or "") if creates_pull_request(arguments.get("command")) else None,
    )


def attached_block(file: Attachment, call_id: str | None = None) -> Block | None:
    data = inline_data(file.url or "")
    if data is None:
        return None
    is_image = (file.mime or "").startswith("image/")
    return Block(kind="image" if is_image else "file", bytes=decoded_size(data), call_id=call_id)


def _attachment(part: PartData) -> Attachment:
    return Attachment(mime=part.mime, filename=part.filename, url=part.url)


def _target(name: str, arguments: dict[str, Any], files: tuple[str, ...]) -> str | None:
    """A path, a command's verb, a host, an agent's type or a skill's name; never a search pattern, which is content."""
    if tool_kind(name) == "shell":
        return verb_of(arguments.get("command"))
    if name == "webfetch":
        return host_of(arguments.get("url"))
    if name == "skill":
        return first_word(arguments.get("name"))
    if name in _PATCH_TOOLS:
        return files[0] if len(files) == 1 else None
    key = _TARGET_ARGUMENTS.get(name)
    return text_target(arguments.get(key)) if key else None


# Content


_ContentBlock = tuple[Role, Kind, str, dict[str, Any]]  # of a record: role, kind, its text in the row, its fields


def content_of(
    session_id: str,
    row: MessageRow,
    decoded: DecodedMessage,
    calls: Mapping[int, OpencodeCall],
    *,
    reasoning: bool = True,
) -> list[Content]:
    """The content of a message, numbered by part and block; `reasoning` includes thinking."""
    records: list[Content] = []
    numbers: dict[str, int | str] = {}  # of records, by their texts
    inputs: dict[str, str] = {}  # numbers of the records of calls, by part
    at = iso(row.created)
    text_kind: Kind = "summary" if _is_summary(decoded.data) else "text"
    for n, (part_id, part) in enumerate(decoded.parts):
        blocks: Iterable[_ContentBlock]
        if part.type == "reasoning" and not reasoning:
            continue
        if decoded.data.role == _USER:
            blocks = _user_content(part)
        elif part.type == "tool":
            blocks = _call_content(calls[n], part.state or ToolState(), at)
            inputs[part_id] = f"{n}.0"
        else:
            blocks = _output_content(part, text_kind)
        for b, (role, kind, text, fields) in enumerate(blocks):
            if len(text) >= _LONG_TEXT:
                numbers[text] = f"{n}.{b}"
            fields.setdefault("ts", at)
            records.append(
                Content(
                    session_id=session_id,
                    rail_id=MAIN,
                    message_id=row.id,
                    n=n,
                    b=b,
                    role=role,
                    kind=kind,
                    **fields,
                )
            )
    if records and (context := _context(row, numbers, inputs, reasoning=reasoning)) is not None:
        records[0] = msgspec.structs.replace(records[0], context=context)
    return records


def _context(
    row: MessageRow, numbers: Mapping[str, int | str], inputs: Mapping[str, str], *, reasoning: bool
) -> str | None:
    """The JSON of a message's rows for `restore`, with numbers in place of what records have; None if it was cut."""
    if row.size is not None or row.more_parts[0]:
        return None
    info = plain(row.data)
    if not isinstance(info, dict):
        return None
    if isinstance(info.get("summary"), dict):
        del info["summary"]  # the changed files, which opencode adds later
    cut_texts(info, numbers, _LONG_TEXT, _LONGEST_TEXT)
    parts: list[dict[str, Any]] = []
    for part in row.parts:
        data = plain(part.data)
        if part.size is not None or not isinstance(data, dict):
            return None
        if data.get("type") == "reasoning" and not reasoning:
            continue
        if part.id in inputs and isinstance(state := data.get("state"), dict):
            state["input"] = {HOLE: inputs[part.id]}
        cut_texts(data, numbers, _LONG_TEXT, _LONGEST_TEXT)
        data.setdefault("id", part.id)
        parts.append(data)
    return _encode_sorted({"info": info, "parts": parts}).decode()


def _user_content(part: PartData) -> Iterator[_ContentBlock]:
    role: Role = "system" if part.synthetic or part.ignored else "user"
    if part.type == "text" and part.text:
        yield role, "text", part.text, {"text": part.text}
    elif part.type == "subtask" and part.prompt:
        yield "user", "text", part.prompt, {"text": part.prompt}
    elif part.type == "file":
        yield _file_content(role, _attachment(part))


def _output_content(part: PartData, text_kind: Kind) -> Iterator[_ContentBlock]:
    if part.type == "text" and part.text:
        yield "assistant", text_kind, part.text, {"text": part.text}
    elif part.type == "reasoning" and part.text:
        yield "assistant", "thinking", part.text, {"text": part.text}
    elif part.type == "patch" and part.files:
        names = "\n".join(part.files)
        yield "assistant", "file", "", {"text": names, "file": File(mime="text/x-patch", name=part.hash)}
    elif part.type == "file":
        yield _file_content("assistant", _attachment(part))


def _call_content(parsed: OpencodeCall, state: ToolState, at: str) -> Iterator[_ContentBlock]:
    """The call, its result, then each file attached to the result."""
    call, answer = parsed.call, parsed.answer
    yield "assistant", "tool_use", "", {"tool_use": ToolUse(id=call.id, name=call.name, input=parsed.input or _NULL)}
    if answer is None:
        return
    ended = milliseconds(state.time.end) if state.time is not None else None
    ts = {"ts": at if ended is None else max(at, iso(ended))}
    text = msgspec.Raw(msgspec.json.encode(answer))
    result = ToolResult(tool_use_id=call.id, content=text, is_error=call.is_error or None)
    yield "tool_result", "tool_result", answer, {"tool_result": result, **ts}
    for file in state.attachments or ():
        role, kind, url, fields = _file_content("tool_result", file)
        yield role, kind, url, fields | ts


def _file_content(role: Role, file: Attachment) -> _ContentBlock:
    url = file.url or ""
    name = file.filename or (url if url and not url.startswith("data:") else None)
    data = inline_bytes(url)
    record = File(mime=file.mime or "application/octet-stream", name=name, data=data)
    return role, "file", url if data is not None else "", {"file": record}


def saved_outputs(records: Sequence[Content], decoded: DecodedMessage) -> Iterator[tuple[str, Content]]:
    """Results that are cut in the row, each with the path of the whole output, which opencode keeps for a week."""
    results = {record.n: record for record in records if record.tool_result is not None}
    for n, (_, part) in enumerate(decoded.parts):
        metadata = part.state.metadata if part.type == "tool" and part.state is not None else None
        if metadata is not None and metadata.output_path and n in results:
            yield metadata.output_path, results[n]


def whole_output(record: Content, text: str) -> Content:
    cut = record.tool_result
    whole = ToolResult(
        tool_use_id=cut.tool_use_id if cut is not None else "", content=msgspec.Raw(msgspec.json.encode(text))
    )
    return msgspec.structs.replace(record, b=SAVED_OUTPUT, tool_result=whole)


def title_of(session: SessionRow) -> Content | None:
    if not session.title or _DEFAULT_TITLE.fullmatch(session.title):
        return None
    return title_record(session.id, TITLE, session.title, iso(session.created))
