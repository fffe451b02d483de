"""Tool calls in Codex rollouts: targets, failures, refusals, and agents they start."""

from __future__ import annotations

import re
import shlex
from typing import Any, Final, NamedTuple

import msgspec

from burnd.classify.tools import kind
from burnd.harness.codex.lines import Item, Piece, plain
from burnd.harness.tool_calls import (
    args_hash,
    decoded_size,
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

SPAWN: Final = "spawn_agent"
PATCH: Final = "apply_patch"
PROGRAM: Final = "exec"  # newer models call tools from a program that they write
_NAMES: Final = {
    "local_shell_call": "local_shell",
    "web_search_call": "web_search",
    "image_generation_call": "image_generation",
    "tool_search_call": "tool_search",
}
_TARGET_ARGUMENTS: Final = {
    "read_file": "file_path",
    "view_image": "path",
    "list_dir": "dir_path",
    "grep_files": "path",
    SPAWN: "agent_type",
}
_WITH_RESULT: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_MCP: Final = "mcp__"
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "powershell", "pwsh", "cmd"})
_HEAD: Final = 500
_EXIT_CODE: Final = re.compile(r"(?:^|\n)(?:Process exited with code|Exit code:) (-?\d+)\s*(?:\n|$)")
_FAILURES: Final = (
    "unsupported call: ",
    "failed to parse function arguments",
    "execution error: ",
    "tool call error: ",
    "exec_command failed",
    "apply_patch verification failed",
    "failed in sandbox: ",
    "command timed out",
    "collab spawn failed",
)
# The user refused or stopped a call. A rule or the sandbox that forbids it is a failure like any other.
_REFUSAL: Final = re.compile(
    r"\s*(?:Wall time: [\d.]+ seconds\n)?(?:(?:\w+ ){0,3}rejected by user|aborted by user"
    r"|user (?:rejected|cancelled) MCP tool call"
    r"|exec_command failed for .*Rejected\(\\*\"rejected by user)",
    re.DOTALL,
)
_MAX_PROGRAM: Final = 20_000
_COMMAND: Final = re.compile(r"""\bcmd["']?\s*:\s*(?P<quote>["'`])(?P<command>.*?)(?<!\\)(?P=quote)""", re.DOTALL)


class CallDetails(NamedTuple):
    """A call with its arguments as valid JSON and their size in the log, the patched files and the command."""

    call: ToolCall
    input: msgspec.Raw
    size: int
    files: tuple[str, ...]
    command: str | None


class Result(NamedTuple):
    text: str
    blocks: tuple[Block, ...]
    images: tuple[str, ...]
    hash: str
    failed: bool

    @property
    def is_refusal(self) -> bool:
        return self.failed and _REFUSAL.match(self.text) is not None


def call_of(item: Item, line_id: str) -> CallDetails:
    """The call in an item. Its arguments are JSON in a text, a plain text, or an action object."""
    name = _name_of(item)
    raw = item.arguments or item.input or item.action
    value = plain(raw)
    arguments = _parsed(value) if item.arguments else value
    arguments = {"input": arguments} if isinstance(arguments, str) else arguments
    fields: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
    command = patch = _command_of(fields)
    if name in (PATCH, PROGRAM):
        text = fields.get("input")
        program = text if isinstance(text, str) else ""
        patch = program.replace("\\n", "\n")  # programs escape line ends
        if name == PROGRAM:
            command = command_in(program)
    files = patched_files(patch)
    if files and (name == PROGRAM or (command is not None and PATCH in command[:_HEAD])):
        name = PATCH  # some models patch files by a shell command or a program
    target = _target_of(name, fields, command, files)
    call = ToolCall(
        id=item.call_id or item.id or line_id,
        name=name,
        target=target,
        args_hash=args_hash(raw, arguments) if raw else None,
        edit_hash=patch_hash(target, patch) if name == PATCH else None,
        # The provider's own tools have their results within the response.
        is_error=None if item.type in _WITH_RESULT or item.call_id else False,
    )
    input_json = msgspec.Raw(msgspec.json.encode(arguments)) if raw else msgspec.Raw(b"null")
    return CallDetails(call, input_json, size(value) if isinstance(value, str) else len(raw), files, command)


def searches_of(item: Item) -> int:
    """The number of billed web searches; opening a page is not billed."""
    if item.type != "web_search_call":
        return 0
    action = plain(item.action)
    return int(not isinstance(action, dict) or action.get("type", "search") == "search")


def result_of(item: Item) -> Result:
    """The result in an item: a text, pieces of text and images, or an object with either as content."""
    value = plain(item.output)
    failed = isinstance(value, dict) and value.get("success") is False
    if isinstance(value, dict) and "content" in value:
        value = value["content"]
    pieces = _pieces_of(value)
    text = "".join(piece.text or "" for piece in pieces)
    images = tuple(piece.image_url for piece in pieces if piece.image_url)
    data = text.encode("utf-8", "replace")
    blocks = [Block(kind="result", bytes=len(data), call_id=item.call_id)]
    blocks += [image_block(url, item.call_id) for url in images]
    return Result(text, tuple(blocks), images, short_hash(data), failed or _is_failure(text))


def image_block(url: str, call_id: str | None = None) -> Block:
    return Block(kind="image", bytes=decoded_size(inline_data(url) or ""), call_id=call_id)


def started_agent(result: Result) -> str | None:
    value = _parsed(result.text)
    agent = value.get("agent_id") if isinstance(value, dict) else None
    return agent if isinstance(agent, str) and agent else None


def _name_of(item: Item) -> str:
    """The tool's name with its MCP server; other namespaces only give a release."""
    name = item.name or _NAMES.get(item.type or "", item.type or "")
    space = item.namespace or ""
    if space.startswith(_MCP) and not name.startswith(_MCP):
        return f"{space.rstrip('_')}__{name}"
    # Early releases wrote `server__tool` without the prefix.
    return name if name.startswith(_MCP) or "__" not in name.strip("_") else _MCP + name


def _command_of(fields: dict[str, Any]) -> str | None:
    command = fields.get("cmd", fields.get("command"))
    if isinstance(command, str):
        return command
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return None
    program = command[0].rsplit("/", 1)[-1].removesuffix(".exe") if command else ""
    if len(command) > 2 and program in _SHELLS:
        return str(command[-1])
    return shlex.join(command)


def command_in(program: str) -> str | None:
    match = _COMMAND.search(program[:_MAX_PROGRAM])
    return match["command"] if match else None


def _target_of(name: str, fields: dict[str, Any], command: str | None, files: tuple[str, ...]) -> str | None:
    """A path, a command's verb, a host or an agent's type; never search terms, which are content."""
    what = kind(name)
    if what == "shell":
        return verb_of(command)
    if what == "edit":
        return files[0] if len(files) == 1 else None
    if what == "web":
        return host_of(fields.get("url"))
    argument = _TARGET_ARGUMENTS.get(name)
    return text_target(fields.get(argument)) if argument else None


def _is_failure(text: str) -> bool:
    head = text[:_HEAD]
    if match := _EXIT_CODE.search(head):
        return int(match[1]) != 0
    if head.startswith("{"):
        value = _parsed(text)
        if isinstance(value, dict):
            metadata = value.get("metadata")
            code = metadata.get("exit_code") if isinstance(metadata, dict) else None
            return value.get("isError") is True or (isinstance(code, int) and code != 0)
    return head.startswith(_FAILURES) or _REFUSAL.match(text) is not None


def _pieces_of(value: Any) -> list[Piece]:
    if isinstance(value, str):
        return [Piece(text=value)]
    if not isinstance(value, list):
        return [] if value is None else [Piece(text=msgspec.json.encode(value).decode())]
    pairs = [(piece.get("text"), piece.get("image_url")) for piece in value if isinstance(piece, dict)]
    return [
        Piece(text=text if isinstance(text, str) else None, image_url=url if isinstance(url, str) else None)
        for text, url in pairs
    ]


def _parsed(value: Any) -> Any:
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    parsed = plain(msgspec.Raw(value.encode("utf-8", "replace")))
    return value if parsed is None else parsed
