"""What a tool call worked on and what came back, as names, sizes and hashes: never as content."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from burnd.classify.shell import verb
from burnd.readers import claude_lines
from burnd.readers.claude_lines import Piece
from burnd.readers.safe_json import Rejected, Unpacked, unpack
from burnd.records import Block, ToolCall

DELEGATES: Final = frozenset({"Task", "Agent"})
_LONGEST_TARGET: Final = 1024
_SHORT_COMMAND: Final = 120
_HASH_DIGITS: Final = 16
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
_SKILLS: Final = frozenset({"Skill", "SlashCommand"})
_FAILED_EXIT: Final = re.compile(r"(?:Error: )?Exit code -?[1-9]")
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Arguments(NamedTuple):
    """A call with what else its arguments tell: its file, the text it hands to an agent.

    `input` are the arguments as JSON that any reader can open.
    """

    call: ToolCall
    file: str | None
    prompt: str | None
    input: msgspec.Raw


class Result(NamedTuple):
    """What came back from a call: its blocks by size, its text's hash, and whether that text tells of failure."""

    blocks: tuple[Block, ...]
    hash: str
    failed_exit: bool


def short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH_DIGITS]


def size(text: str) -> int:
    """The text's length in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def arguments_of(piece: Piece) -> Arguments:
    """The call in a `tool_use` block. Arguments that cannot be opened still have a hash of their bytes."""
    name, raw = piece.name or "", piece.input
    value, opened_input = unpack(raw) if raw else Unpacked(None, raw)
    given: dict[str, Any] = value if isinstance(value, dict) else {}
    target = target_of(name, given)
    call = ToolCall(
        id=piece.id or "",
        name=name,
        target=target,
        args_hash=short_hash(bytes(raw) if isinstance(value, Rejected) else _encode(value)) if raw else None,
    )
    prompt = given.get("prompt") if name in DELEGATES else None
    return Arguments(
        call,
        file=target if name in _FILE_TOOLS else None,
        prompt=prompt if isinstance(prompt, str) else None,
        input=opened_input,
    )


def target_of(name: str, given: dict[str, Any]) -> str | None:
    """A path, a command's verb, a host, an agent's type or a skill's name; what was searched for is content."""
    if name == "Bash":
        command = given.get("command")
        return _verb(command) if isinstance(command, str) else None
    if name == "WebFetch":
        return _host(given.get("url"))
    if name in _SKILLS:
        return _first_word(given.get("skill") or given.get("command"))
    key = _NAMED_BY.get(name)
    value = given.get(key) if key else None
    return value[:_LONGEST_TARGET] if isinstance(value, str) and value else None


def _verb(command: str) -> str:
    return _verb_of_short(command) if len(command) <= _SHORT_COMMAND else verb(command)


# Agents repeat their short commands all day.
_verb_of_short: Final = lru_cache(maxsize=1024)(verb)


def _host(url: Any) -> str | None:
    if not isinstance(url, str):
        return None
    try:
        host = urlsplit(url if "://" in url else f"//{url}").hostname
    except ValueError:
        return None
    return host[:_LONGEST_TARGET] if host else None


def _first_word(value: Any) -> str | None:
    words = value.split(maxsplit=1) if isinstance(value, str) else []
    return words[0][:_LONGEST_TARGET] if words else None


def result_of(call_id: str | None, raw: msgspec.Raw) -> Result:
    """Sizes and hash of a `tool_result` block's content, which is a text or a list of blocks."""
    content = opened(raw)
    if isinstance(content, str):
        data = content.encode()
        return Result((Block(kind="result", bytes=len(data), call_id=call_id),), short_hash(data), _exited(content))
    digest = hashlib.sha256()
    text_bytes, images = 0, []
    for piece in content:
        data = piece_bytes(piece)
        digest.update(data)
        if piece.source is not None and piece.source.data:
            images.append(Block(kind=_kind(piece), bytes=decoded_size(piece.source.data), call_id=call_id))
        else:
            text_bytes += len(data)
    blocks = [Block(kind="result", bytes=text_bytes, call_id=call_id)] if text_bytes or not images else []
    failed = bool(content) and _exited(content[0].text or "")
    return Result((*blocks, *images), digest.hexdigest()[:_HASH_DIGITS], failed)


def opened(raw: msgspec.Raw) -> str | list[Piece]:
    """A result's content; what has neither of the two known shapes is its own JSON text."""
    if not raw:
        return ""
    try:
        return claude_lines.pieces.decode(raw) or ""
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")


def piece_bytes(piece: Piece) -> bytes:
    """What a block within a result weighs: its text, an image's data, or else whatever it carries."""
    if piece.text is not None:
        return piece.text.encode()
    if piece.source is not None and piece.source.data:
        return piece.source.data.encode()
    return bytes(piece.content) or msgspec.json.encode({"type": piece.type, "name": piece.name})


def decoded_size(base64_text: str) -> int:
    """How many bytes a base64 text stands for."""
    length = len(base64_text)
    return length * 3 // 4 - base64_text.count("=", max(0, length - 2))


def _kind(piece: Piece) -> str:
    return "image" if piece.type == "image" else "file"


def _exited(text: str) -> bool:
    return _FAILED_EXIT.match(text) is not None
