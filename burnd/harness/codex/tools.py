"""Calls in Codex's rollouts: what they worked on, whether they failed, whom they started."""

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
_NAMED_BY: Final = {
    "read_file": "file_path",
    "view_image": "path",
    "list_dir": "dir_path",
    "grep_files": "path",
    SPAWN: "agent_type",
}
_MCP: Final = "mcp__"
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "powershell", "pwsh", "cmd"})
_EXITED: Final = re.compile(r"(?:^|\n)(?:Process exited with code|Exit code:) (-?\d+)\s*(?:\n|$)")
_REFUSED: Final = re.compile(
    r"unsupported call: |failed to parse function arguments|execution error: |tool call error: |exec_command failed"
    r"|apply_patch verification failed|failed in sandbox: |rejected by user|command timed out|collab spawn failed"
)
_HEAD: Final = 500
_LONGEST_PROGRAM: Final = 20_000
_CALLED: Final = re.compile(r"""\bcmd["']?\s*:\s*(?P<quote>["'`])(?P<command>.*?)(?<!\\)(?P=quote)""", re.DOTALL)


class Call(NamedTuple):
    """A call as the ledger keeps it, its arguments as JSON that any reader can open, and the files it names."""

    call: ToolCall
    input: msgspec.Raw
    size: int
    files: tuple[str, ...]


class Result(NamedTuple):
    """What came back: its text, its blocks by size, its images as addresses, and whether it tells of a failure."""

    text: str
    blocks: tuple[Block, ...]
    images: tuple[str, ...]
    hash: str
    failed: bool


def call_of(item: Item, name_of_line: str) -> Call:
    """The call in an item. Arguments are JSON in a text, a text as such, or an action."""
    name = _name_of(item)
    raw = item.arguments or item.input or item.action
    value = plain(raw)
    given = _opened(value) if item.arguments else value
    given = {"input": given} if isinstance(given, str) else given
    fields: dict[str, Any] = given if isinstance(given, dict) else {}
    command = _command_of(fields) if name != PROGRAM else _command_in(fields.get("input"))
    patch = _plain_program(fields.get("input")) if name in (PATCH, PROGRAM) else command
    files = patched_files(patch)
    if files and (name == PROGRAM or (command is not None and PATCH in command[:_HEAD])):
        name = PATCH  # some models ask a shell, or a program of theirs, to patch files
    target = _target_of(name, fields, command, files)
    call = ToolCall(
        id=item.call_id or item.id or name_of_line,
        name=name,
        target=target,
        args_hash=args_hash(raw, given) if raw else None,
        edit_hash=patch_hash(target, patch) if name == PATCH else None,
        # What runs at the provider is answered within the response.
        is_error=None if item.type in _ANSWERED_LATER or item.call_id else False,
    )
    kept = msgspec.Raw(msgspec.json.encode(given)) if raw else msgspec.Raw(b"null")
    return Call(call, kept, size(value) if isinstance(value, str) else len(raw), files)


_ANSWERED_LATER: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call"})


def searches_of(item: Item) -> int:
    """How many web searches a call stands for that are billed by the request; opening a page is none."""
    if item.type != "web_search_call":
        return 0
    action = plain(item.action)
    return int(not isinstance(action, dict) or action.get("type", "search") == "search")


def result_of(item: Item) -> Result:
    """A result is a text, pieces of text and images, or an object with either as its content."""
    value = plain(item.output)
    said_failed = isinstance(value, dict) and value.get("success") is False
    if isinstance(value, dict) and "content" in value:
        value = value["content"]
    pieces = _pieces_of(value)
    text = "".join(piece.text or "" for piece in pieces)
    images = tuple(piece.image_url for piece in pieces if piece.image_url)
    data = text.encode("utf-8", "replace")
    blocks = [Block(kind="result", bytes=len(data), call_id=item.call_id)]
    blocks += [image_block(url, item.call_id) for url in images]
    return Result(text, tuple(blocks), images, short_hash(data), said_failed or _tells_of_failure(text))


def image_block(url: str, call_id: str | None = None) -> Block:
    return Block(kind="image", bytes=decoded_size(inline_data(url) or ""), call_id=call_id)


def started_by(result: Result) -> str | None:
    """The thread of the agent that a call started, as its result names it."""
    value = _opened(result.text)
    agent = value.get("agent_id") if isinstance(value, dict) else None
    return agent if isinstance(agent, str) and agent else None


def _name_of(item: Item) -> str:
    """A server's tool is named with its server; other namespaces only say which release's tool it is."""
    name = item.name or _NAMES.get(item.type or "", item.type or "")
    space = item.namespace or ""
    if space.startswith(_MCP) and not name.startswith(_MCP):
        return f"{space.rstrip('_')}__{name}"
    # Early releases named a server's tool without saying that it is one's.
    return name if name.startswith(_MCP) or "__" not in name.strip("_") else _MCP + name


def _command_of(fields: dict[str, Any]) -> str | None:
    """The command as a person would type it: what a shell was started for, not the shell."""
    command = fields.get("cmd", fields.get("command"))
    if isinstance(command, str):
        return command
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return None
    program = command[0].rsplit("/", 1)[-1].removesuffix(".exe") if command else ""
    if len(command) > 2 and program in _SHELLS:
        return str(command[-1])
    return shlex.join(command)


def _command_in(program: Any) -> str | None:
    """The first command that a program asks a shell for."""
    found = _CALLED.search(program[:_LONGEST_PROGRAM]) if isinstance(program, str) else None
    return found["command"] if found else None


def _plain_program(text: Any) -> str | None:
    """The text with line ends where a program writes them as escapes."""
    return text.replace("\\n", "\n") if isinstance(text, str) else None


def _target_of(name: str, fields: dict[str, Any], command: str | None, files: tuple[str, ...]) -> str | None:
    """A path, a command's verb, a host or an agent's type; what was searched for is content."""
    what = kind(name)
    if what == "shell":
        return verb_of(command)
    if what == "edit":
        return files[0] if len(files) == 1 else None
    if what == "web":
        return host_of(fields.get("url"))
    key = _NAMED_BY.get(name)
    return text_target(fields.get(key)) if key else None


def _tells_of_failure(text: str) -> bool:
    """Whether a command ended with an exit code other than zero, or a call was not done at all."""
    head = text[:_HEAD]
    if found := _EXITED.search(head):
        return int(found[1]) != 0
    if head.startswith("{"):
        value = _opened(text)
        if isinstance(value, dict):
            metadata = value.get("metadata")
            code = metadata.get("exit_code") if isinstance(metadata, dict) else None
            return value.get("isError") is True or (isinstance(code, int) and code != 0)
    return _REFUSED.match(head) is not None


def _pieces_of(value: Any) -> list[Piece]:
    if isinstance(value, str):
        return [Piece(text=value)]
    if isinstance(value, list):
        return [piece for one in value if (piece := _piece(one)) is not None]
    return [] if value is None else [Piece(text=msgspec.json.encode(value).decode())]


def _piece(one: Any) -> Piece | None:
    if not isinstance(one, dict):
        return None
    text, url = one.get("text"), one.get("image_url")
    return Piece(text=text if isinstance(text, str) else None, image_url=url if isinstance(url, str) else None)


def _opened(value: Any) -> Any:
    """What a text says as JSON, or the text."""
    if not isinstance(value, str):
        return value
    found = plain(msgspec.Raw(value.encode("utf-8", "replace"))) if value[:1] in ("{", "[") else None
    return value if found is None else found
