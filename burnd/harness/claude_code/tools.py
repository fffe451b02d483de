"""What a tool call worked on and what came back, as names, sizes and hashes: never as content."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, NamedTuple

import msgspec

from burnd.harness.claude_code.files import Carried, carried
from burnd.harness.claude_code.lines import Piece, opened
from burnd.harness.tool_calls import (
    HASH_DIGITS,
    args_hash,
    edit_hash,
    first_word,
    host_of,
    short_hash,
    size,
    text_target,
    verb_of,
)
from burnd.records import Block, ToolCall
from burnd.records.foreign_json import Unpacked, unpack

MCP_CALL: Final = "mcp_tool_use"
DELEGATES: Final = frozenset({"Task", "Agent"})
_NAMED_BY: Final = {
    "Read": "file_path",
    "Edit": "file_path",
    "Write": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "NotebookRead": "notebook_path",
    "Grep": "path",
    "Glob": "path",
    "LS": "path",
    "Task": "subagent_type",
    "Agent": "subagent_type",
}
_FILE_TOOLS: Final = frozenset(name for name, key in _NAMED_BY.items() if key in ("file_path", "notebook_path"))
_REPLACING: Final = frozenset({"Edit", "MultiEdit"})
_SKILLS: Final = frozenset({"Skill", "SlashCommand"})
_FAILED_EXIT: Final = re.compile(r"(?:Error: )?Exit code -?[1-9]")
# The user did not allow a call, or stopped it. A rule or a hook forbidding it is a failure like any other.
_REFUSAL: Final = re.compile(
    r"\s*(?:Error: )?(?:<tool_use_error>)?(?:"
    r"The user doesn.t want to (?:proceed with this tool use|take this action)"
    r"|\[Request interrupted by user"
    r"|User (?:rejected tool use|declined to answer|chose to stay in plan mode)"
    r"|The agent proposed a plan that was rejected by the user)"
)


class Arguments(NamedTuple):
    """A call with what else its arguments tell: its file, the text it hands to an agent.

    `input` are the arguments as JSON that any reader can open.
    """

    call: ToolCall
    file: str | None
    prompt: str | None
    input: msgspec.Raw


class Result(NamedTuple):
    """What came back from a call: its blocks by size, its text's hash, and whether that text tells of failure.

    `is_refusal` says that it tells of a person who did not let the call happen.
    """

    blocks: tuple[Block, ...]
    hash: str
    failed_exit: bool
    is_refusal: bool


def arguments_of(piece: Piece) -> Arguments:
    """The call in a `tool_use` block. Arguments that cannot be opened still have a hash of their bytes."""
    name, raw = called(piece), piece.input
    value, opened_input = unpack(raw) if raw else Unpacked(None, raw)
    given: dict[str, Any] = value if isinstance(value, dict) else {}
    target = target_of(name, given)
    call = ToolCall(
        id=piece.id or "",
        name=name,
        target=target,
        args_hash=args_hash(raw, value) if raw else None,
        edit_hash=edit_hash(target, given) if name in _REPLACING else None,
    )
    prompt = given.get("prompt") if name in DELEGATES else None
    return Arguments(
        call,
        file=target if name in _FILE_TOOLS else None,
        prompt=prompt if isinstance(prompt, str) else None,
        input=opened_input,
    )


def called(piece: Piece) -> str:
    """A tool's name; one that the provider called at an MCP server is named as a client would name it."""
    if piece.type == MCP_CALL and piece.server_name:
        return f"mcp__{piece.server_name}__{piece.name or ''}"
    return piece.name or ""


def target_of(name: str, given: dict[str, Any]) -> str | None:
    """A path, a command's verb, a host, an agent's type or a skill's name; what was searched for is content."""
    if name == "Bash":
        return verb_of(given.get("command"))
    if name == "WebFetch":
        return host_of(given.get("url"))
    if name in _SKILLS:
        return first_word(given.get("skill") or given.get("command") or given.get("name"))
    key = _NAMED_BY.get(name)
    return text_target(given.get(key)) if key else None


def result_of(call_id: str | None, raw: msgspec.Raw) -> Result:
    """Sizes and hash of a `tool_result` block's content, which is a text or a list of blocks."""
    content = opened(raw)
    if isinstance(content, str):
        data = content.encode()
        block = Block(kind="result", bytes=len(data), call_id=call_id)
        return Result((block,), short_hash(data), _exited(content), is_refusal(content))
    digest = hashlib.sha256()
    text_bytes, images = 0, []
    for piece in content:
        files = carried(piece)
        data = _bytes_of(piece, files)
        digest.update(data)
        images += [Block(kind=file.kind, bytes=file.size, call_id=call_id) for file in files if file.base64]
        text_bytes += sum(size(file.words) for file in files) if files else len(data)
    blocks = [Block(kind="result", bytes=text_bytes, call_id=call_id)] if text_bytes or not images else []
    said = (content[0].text if content else None) or ""
    return Result((*blocks, *images), digest.hexdigest()[:HASH_DIGITS], _exited(said), is_refusal(said))


def has_failed(name: str, is_error: bool | None, result: Result) -> bool:
    """Whether a call failed: its harness says so, or its command ended with an exit code other than zero."""
    return bool(is_error) or (result.failed_exit and name == "Bash")


def _bytes_of(piece: Piece, files: list[Carried]) -> bytes:
    """What tells a block within a result from another: its text, its files, or else whatever it carries."""
    if piece.text is not None:
        return piece.text.encode()
    if files:
        return "".join(file.words or file.base64 for file in files).encode()
    return bytes(piece.content) or msgspec.json.encode({"type": piece.type, "name": piece.name})


def _exited(text: str) -> bool:
    return _FAILED_EXIT.match(text) is not None


def is_refusal(text: str) -> bool:
    """Whether a result reports that the user refused or interrupted the call."""
    return _REFUSAL.match(text) is not None
