"""Calls in opencode's `tool` parts: what they worked on, what came back, whom they started."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from burnd.classify.tools import kind
from burnd.harness.opencode.rows import Attachment, Opened, PartData, ToolMetadata, ToolState
from burnd.harness.tool_calls import (
    args_hash,
    decoded_size,
    edit_hash,
    first_word,
    host_of,
    inline_data,
    patch_hash,
    patched_files,
    short_hash,
    size,
    text_target,
    verb_of,
)
from burnd.records import Block, ToolCall
from burnd.records.foreign_json import Unpacked, unpack

TASK: Final = "task"
INVALID: Final = "invalid"
_NAMED_BY: Final = {
    "read": "filePath",
    "edit": "filePath",
    "write": "filePath",
    "multiedit": "filePath",
    "lsp": "filePath",
    "grep": "path",
    "glob": "path",
    "list": "path",
    TASK: "subagent_type",
    INVALID: "tool",
}
_FILE_TOOLS: Final = frozenset({"read", "edit", "write", "multiedit"})
_REPLACING: Final = frozenset({"edit", "multiedit"})
_PATCHES: Final = frozenset({"patch", "apply_patch"})
_ANSWERED: Final = {"completed", "error"}
# The user did not allow a call, or stopped it. A rule forbidding it is a failure like any other.
_REFUSAL: Final = re.compile(
    r"\s*(?:Error: )?(?:The user (?:rejected permission|dismissed this question)|User aborted the command)"
)


class Call(NamedTuple):
    """A call as the ledger keeps it, the files it names, its sizes, and the session it started.

    `input` are its arguments as JSON that any reader can open, `answer` what came back, if anything did.
    """

    call: ToolCall
    made: Block
    came_back: tuple[Block, ...]
    files: tuple[str, ...]
    child: str | None
    input: msgspec.Raw
    answer: str | None


def calls_in(opened: Opened) -> dict[int, Call]:
    """The calls of a message by the number of their part. Some models give two of them one id."""
    calls: dict[int, Call] = {}
    taken: set[str] = set()
    for n, (part_id, part) in enumerate(opened.parts):
        if part.type == "tool":
            call_id = part.call_id or ""
            calls[n] = call_of(part, part_id if call_id in taken else call_id)
            taken |= {call_id} - {""}
    return calls


def call_of(part: PartData, call_id: str) -> Call:
    """The call in a `tool` part. While it runs it has no answer; a command that failed is `completed` all the same."""
    name = part.tool or ""
    state = part.state or ToolState()
    value, opened = unpack(state.input) if state.input else Unpacked(None, state.input)
    given: dict[str, Any] = value if isinstance(value, dict) else {}
    files = _files_of(name, given)
    answer = _answer_of(state)
    target = _target_of(name, given, files)
    call = ToolCall(
        id=call_id,
        name=name,
        target=target,
        args_hash=args_hash(state.input, value) if state.input else None,
        edit_hash=_edit_hash(name, target, given),
        result_hash=short_hash(answer.encode()) if answer is not None else None,
        is_error=_has_failed(name, state) if answer is not None else None,
        is_refused=answer is not None and _has_failed(name, state) and _REFUSAL.match(answer) is not None,
    )
    return Call(
        call,
        made=Block(kind="call", bytes=len(state.input), call_id=call_id),
        came_back=_came_back(call_id, answer, state),
        files=files,
        child=state.metadata.session_id if name == TASK and state.metadata is not None else None,
        input=opened,
        answer=answer,
    )


def attached_block(file: Attachment, call_id: str | None = None) -> Block | None:
    """A file's weight, where its bytes are in the row; what is only named is shown to the model as text."""
    data = inline_data(file.url or "")
    if data is None:
        return None
    what = "image" if (file.mime or "").startswith("image/") else "file"
    return Block(kind=what, bytes=decoded_size(data), call_id=call_id)


def _answer_of(state: ToolState) -> str | None:
    if state.status not in _ANSWERED:
        return None
    return (state.error if state.status == "error" else state.output) or ""


def _has_failed(name: str, state: ToolState) -> bool:
    """An error, a call of a tool that does not exist, or a command that ended with an exit code other than zero."""
    if state.status == "error" or name == INVALID:
        return True
    code = (state.metadata or ToolMetadata()).exit
    return kind(name) == "shell" and code is not None and code != 0


def _came_back(call_id: str, answer: str | None, state: ToolState) -> tuple[Block, ...]:
    if answer is None:
        return ()
    files = [block for file in state.attachments or () if (block := attached_block(file, call_id)) is not None]
    return (Block(kind="result", bytes=size(answer), call_id=call_id), *files)


def _target_of(name: str, given: dict[str, Any], files: tuple[str, ...]) -> str | None:
    """A path, a command's verb, a host, an agent's type or a skill's name; what was searched for is content."""
    if kind(name) == "shell":
        return verb_of(given.get("command"))
    if name == "webfetch":
        return host_of(given.get("url"))
    if name == "skill":
        return first_word(given.get("name"))
    if name in _PATCHES:
        return files[0] if len(files) == 1 else None
    key = _NAMED_BY.get(name)
    return text_target(given.get(key)) if key else None


def _edit_hash(name: str, target: str | None, given: dict[str, Any]) -> str | None:
    if name in _PATCHES:
        return patch_hash(target, _patch_in(given))
    return edit_hash(target, given) if name in _REPLACING else None


def _patch_in(given: dict[str, Any]) -> Any:
    return given.get("patchText") or given.get("patch")


def _files_of(name: str, given: dict[str, Any]) -> tuple[str, ...]:
    if name in _PATCHES:
        return patched_files(_patch_in(given))
    path = text_target(given.get("filePath")) if name in _FILE_TOOLS else None
    return (path,) if path is not None else ()
