"""Content blocks: the calls, results, files and texts in them, as sizes and hashes for turns and as content records."""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from burnd.harness.claude_code import lines as claude_lines
from burnd.harness.claude_code.lines import Attachment, ContentBlock, Line, Source, result_content
from burnd.harness.claude_code.memory import Memory, Spot
from burnd.harness.claude_code.product import PRODUCT
from burnd.harness.tool_calls import (
    HASH_DIGITS,
    args_hash,
    decoded_size,
    edit_hash,
    first_word,
    host_of,
    short_hash,
    size,
    text_target,
    verb_of,
)
from burnd.records import Block, Content, File, ToolCall, ToolResult, ToolUse
from burnd.records.content import Kind, Role
from burnd.records.foreign_json import Unpacked, unpack

DELEGATES: Final = frozenset({"Task", "Agent"})
_MCP_CALL: Final = "mcp_tool_use"
CALLS: Final = frozenset({"tool_use", "server_tool_use", _MCP_CALL})
_TARGETS: Final = {
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
_FILE_TOOLS: Final = frozenset(name for name, key in _TARGETS.items() if key in ("file_path", "notebook_path"))
_REPLACING: Final = frozenset({"Edit", "MultiEdit"})
_SKILLS: Final = frozenset({"Skill", "SlashCommand"})
_FAILED_EXIT: Final = re.compile(PRODUCT.failed_shell)
# The user did not allow a call, or stopped it. A rule or a hook forbidding it is a failure like any other.
_REFUSAL: Final = re.compile(
    r"\s*(?:Error: )?(?:<tool_use_error>)?(?:"
    r"The user doesn.t want to (?:proceed with this tool use|take this action)"
    r"|\[Request interrupted by user"
    r"|User (?:rejected tool use|declined to answer|chose to stay in plan mode)"
    r"|The agent proposed a plan that was rejected by the user)"
)

_NULL: Final = msgspec.Raw(b"null")
_BYTES: Final = "application/octet-stream"
_TEXT: Final = "text/plain"
_MEDIA_TYPES: Final = {"pdf": "application/pdf", "image": "image/png"}

# Attachments that earlier releases did not show to the model. Later ones log the rendered text.
NOT_SHOWN: Final = frozenset(
    {
        "already_read_file",
        "command_permissions",
        "dynamic_skill",
        "hook_cancelled",
        "hook_error_during_execution",
        "hook_non_blocking_error",
        "prompt_snapshot",
        "structured_output",
    }
)
_HOOK_EVENTS_SHOWN: Final = frozenset({"SessionStart", "UserPromptSubmit"})
HOOKS: Final = frozenset(
    {
        "hook_additional_context",
        "hook_blocking_error",
        "hook_stopped_continuation",
        "hook_success",
        "hook_system_message",
    }
)


class Call(NamedTuple):
    """A tool call, its file, the prompt it hands to an agent, and its arguments as JSON that can be decoded."""

    call: ToolCall
    file: str | None
    prompt: str | None
    input: msgspec.Raw


class Result(NamedTuple):
    """The blocks of a tool result by size, and the hash of its text.

    `failed_exit` and `is_refusal` say whether the text reports a failed command or a user who refused the call.
    """

    blocks: tuple[Block, ...]
    hash: str
    failed_exit: bool
    is_refusal: bool


class EmbeddedFile(NamedTuple):
    """A file in a content block, as text or as base64; `kind` is the kind of its block in a turn."""

    kind: str
    mime: str
    name: str | None
    base64: str = ""
    text: str = ""

    @property
    def size(self) -> int:
        return decoded_size(self.base64) if self.base64 else size(self.text)

    @property
    def file(self) -> File | None:
        """The file with its bytes, without its text; None if the base64 cannot be decoded."""
        try:
            data = binascii.a2b_base64(self.base64) if self.base64 else None
        except ValueError:
            return None
        return File(mime=self.mime, name=self.name, data=data)


def parse_call(block: ContentBlock) -> Call:
    """The call in a `tool_use` block. Arguments that cannot be decoded are hashed as bytes."""
    name, raw = tool_name(block), block.input
    value, readable_input = unpack(raw) if raw else Unpacked(None, raw)
    arguments: dict[str, Any] = value if isinstance(value, dict) else {}
    target = target_of(name, arguments)
    call = ToolCall(
        id=block.id or "",
        name=name,
        target=target,
        args_hash=args_hash(raw, value) if raw else None,
        edit_hash=edit_hash(target, arguments) if name in _REPLACING else None,
    )
    prompt = arguments.get("prompt") if name in DELEGATES else None
    return Call(
        call,
        file=target if name in _FILE_TOOLS else None,
        prompt=prompt if isinstance(prompt, str) else None,
        input=readable_input,
    )


def tool_name(block: ContentBlock) -> str:
    """The name of a called tool; a tool that the provider called at an MCP server is named as the client would."""
    if block.type == _MCP_CALL and block.server_name:
        return f"mcp__{block.server_name}__{block.name or ''}"
    return block.name or ""


def target_of(name: str, arguments: dict[str, Any]) -> str | None:
    """A path, a command's verb, a host, an agent's type or a skill's name; search terms are content, not targets."""
    if name == "Bash":
        return verb_of(arguments.get("command"))
    if name == "WebFetch":
        return host_of(arguments.get("url"))
    if name in _SKILLS:
        return first_word(arguments.get("skill") or arguments.get("command") or arguments.get("name"))
    key = _TARGETS.get(name)
    return text_target(arguments.get(key)) if key else None


def result_of(call_id: str | None, raw: msgspec.Raw) -> Result:
    """Sizes and hash of the content of a `tool_result` block, which is a text or a list of blocks."""
    content = result_content(raw)
    if isinstance(content, str):
        data = content.encode()
        block = Block(kind="result", bytes=len(data), call_id=call_id)
        return Result((block,), short_hash(data), _FAILED_EXIT.match(content) is not None, is_refusal(content))
    digest = hashlib.sha256()
    text_bytes, images = 0, []
    for block_ in content:
        files = embedded_files(block_)
        if block_.text is not None:
            data = block_.text.encode()
        elif files:
            data = "".join(file.text or file.base64 for file in files).encode()
        else:
            data = bytes(block_.content) or msgspec.json.encode({"type": block_.type, "name": block_.name})
        digest.update(data)
        images += [Block(kind=file.kind, bytes=file.size, call_id=call_id) for file in files if file.base64]
        text_bytes += sum(size(file.text) for file in files) if files else len(data)
    blocks = [Block(kind="result", bytes=text_bytes, call_id=call_id)] if text_bytes or not images else []
    text = (content[0].text if content else None) or ""
    hash_ = digest.hexdigest()[:HASH_DIGITS]
    return Result((*blocks, *images), hash_, _FAILED_EXIT.match(text) is not None, is_refusal(text))


def is_refusal(text: str) -> bool:
    """Whether a result reports that the user refused or interrupted the call."""
    return _REFUSAL.match(text) is not None


def has_failed(name: str, is_error: bool | None, result: Result) -> bool:
    """Whether a call failed: it is marked as an error, or its command ended with an exit code other than zero."""
    return bool(is_error) or (result.failed_exit and name == "Bash")


def embedded_files(block: ContentBlock) -> list[EmbeddedFile]:
    """The files in a block: one, or those that a document is composed of."""
    source = block.source
    if isinstance(source, Source) and source.type == "content":
        return _composed_files(block.title, source.content)
    if block.type == "search_result":
        return _composed_files(block.title or (source if isinstance(source, str) else None), block.content)
    return _single_file(block)


def _single_file(block: ContentBlock) -> list[EmbeddedFile]:
    source = block.source
    if not isinstance(source, Source) or not source.data:
        return []
    if source.type == "text":
        return [EmbeddedFile("file", source.media_type or _TEXT, block.title, text=source.data)]
    kind = "image" if block.type == "image" else "file"
    return [EmbeddedFile(kind, source.media_type or _BYTES, block.title, base64=source.data)]


def _composed_files(name: str | None, raw: msgspec.Raw) -> list[EmbeddedFile]:
    content = result_content(raw)
    blocks = [ContentBlock(type="text", text=content)] if isinstance(content, str) else content
    text = "\n".join(block.text for block in blocks if block.text)
    files = [EmbeddedFile("file", _TEXT, name, text=text)] if text else []
    return files + [file for block in blocks for file in _single_file(block)]


def attached_file(attachment: Attachment) -> EmbeddedFile | None:
    """An image or a document that was attached with its bytes."""
    content = claude_lines.file_contents.value(attachment.content) if b'"base64"' in bytes(attachment.content) else None
    if content is None or content.file is None or not content.file.base64:
        return None
    mime = content.file.type or _MEDIA_TYPES.get(content.type or "", _BYTES)
    kind = "image" if mime.startswith("image/") else "file"
    return EmbeddedFile(kind, mime, attachment.filename, base64=content.file.base64)


def text_of(content: str | list[ContentBlock] | None) -> str:
    """The text of a user line, its text blocks joined."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join([block.text for block in content if block.text and block.type == "text"])


def shown_text(line: Line, attachment: Attachment) -> str:
    """The text that an attachment showed to the model: the rendered text in its line, or a guess for releases that do
    not log it.
    """
    if line.rendered:
        return _rendered_text(line.rendered)
    if line.rendered_role is not None or attachment.type in NOT_SHOWN:
        return ""
    if attachment.type == "hook_success" and attachment.hook_event not in _HOOK_EVENTS_SHOWN:
        return ""
    if attachment.prompt is not None:
        return text_of(attachment.prompt)
    error = attachment.blocking_error
    if error is not None:
        return error if isinstance(error, str) else error.blocking_error or ""
    return attached_text(attachment)


def _rendered_text(raw: msgspec.Raw) -> str:
    try:
        rendered = claude_lines.rendered_texts.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")
    return "\n".join(filter(None, [text_of(one.content) for one in rendered]))


def attached_text(attachment: Attachment) -> str:
    """The text of an attachment: of a file, of a hook, or the JSON of any other content that is not base64."""
    raw = bytes(attachment.content)
    if not raw:
        return ""
    if raw.startswith(b'"'):
        return msgspec.json.decode(raw, type=str)
    if attachment.type in HOOKS and raw.startswith(b"["):
        try:
            return "\n".join(msgspec.json.decode(raw, type=list[str]))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return raw.decode("utf-8", "replace")
    content = claude_lines.file_contents.value(raw)
    body = content.file if content is not None else None
    if body is not None and (body.content is not None or body.base64):
        return body.content or ""
    return raw.decode("utf-8", "replace")


class Records:
    """Adds the content records of one line, one for each block."""

    def __init__(self, memory: Memory, spot: Spot, message_id: str, n: int = 0) -> None:
        self._records = memory.out.content
        self._session_id, self._rail_id = memory.session_id, spot.rail.id
        self._message_id, self._n, self._ts = message_id, n, spot.ts
        self._next = 0
        if memory.is_copied(spot):
            memory.out.copied.append(message_id)

    def add(
        self,
        role: Role,
        kind: Kind,
        text: str | None = None,
        *,
        tool_use: ToolUse | None = None,
        tool_result: ToolResult | None = None,
        file: File | None = None,
    ) -> None:
        self._records.append(
            Content(
                session_id=self._session_id,
                rail_id=self._rail_id,
                message_id=self._message_id,
                n=self._n,
                b=self._next,
                ts=self._ts,
                role=role,
                kind=kind,
                text=text,
                tool_use=tool_use,
                tool_result=tool_result,
                file=file,
            )
        )
        self._next += 1

    def add_output(self, block: ContentBlock) -> None:
        """Add a block that a model wrote."""
        if block.type in CALLS:
            use = ToolUse(id=block.id or "", name=tool_name(block), input=block.input or _NULL)
            self.add("assistant", "tool_use", tool_use=use)
        elif block.thinking:
            self.add("assistant", "thinking", text=block.thinking)
        elif block.text:
            self.add("assistant", "text", text=block.text)
        elif block.tool_use_id is not None:
            self.add_result(block)

    def add_input(self, block: ContentBlock, role: Role, kind: Kind) -> None:
        """Add a block that a model received: a result, a file, or a text in this role."""
        if block.type == "tool_result":
            self.add_result(block)
        elif block.text:
            self.add(role, kind, text=block.text)
        else:
            for file in embedded_files(block):
                self.add_file(role, file)

    def add_file(self, role: Role, embedded: EmbeddedFile) -> None:
        """Add a file, unless its bytes cannot be decoded."""
        if (file := embedded.file) is not None:
            self.add(role, "file", text=embedded.text or None, file=file)

    def add_result(self, block: ContentBlock) -> None:
        """Add a result without its images, then each image."""
        content, files = _without_files(block.content) if block.content else (_NULL, ())
        result = ToolResult(tool_use_id=block.tool_use_id or "", content=content, is_error=block.is_error)
        self.add("tool_result", "tool_result", tool_result=result)
        for file in files:
            self.add("tool_result", "file", file=file)


def record_message(memory: Memory, spot: Spot, message_id: str, n: int, blocks: Sequence[ContentBlock]) -> None:
    """Record the blocks in line `n` of a model's message."""
    records = Records(memory, spot, message_id, n)
    for block in blocks:
        records.add_output(block)


def record_user(
    memory: Memory, spot: Spot, content: str | list[ContentBlock] | None, role: Role, kind: Kind = "text"
) -> None:
    """Record a user line: its texts in the given role and kind, its results and files as such."""
    if not content:
        return
    records = Records(memory, spot, spot.name)
    if isinstance(content, str):
        records.add(role, kind, text=content)
        return
    for block in content:
        records.add_input(block, role, kind)


def record_attachment(memory: Memory, spot: Spot, attachment: Attachment, *, is_prompt: bool) -> None:
    """Record queued prompts, files, system prompts, and hook output that reached the model; other attachments repeat
    what is recorded elsewhere.
    """
    if attachment.type == "queued_command":
        record_user(memory, spot, attachment.prompt, "user" if is_prompt else "system")
    elif attachment.type == "prompt_snapshot":
        prompt = attachment.system_prompt
        text = prompt if isinstance(prompt, str) else "\n\n".join(prompt or ())
        tools = bytes(attachment.tools).decode("utf-8", "replace")
        records = Records(memory, spot, spot.name)
        for part in filter(None, (text or attached_text(attachment), tools)):
            records.add("system", "text", text=part)
    elif attachment.type in HOOKS and (text := shown_text(spot.line, attachment)):
        Records(memory, spot, spot.name).add("system", "text", text=text)
    elif attachment.type == "file":
        text_file = EmbeddedFile("file", _TEXT, attachment.filename, text=attached_text(attachment))
        Records(memory, spot, spot.name).add_file("user", attached_file(attachment) or text_file)


def _without_files(raw: msgspec.Raw) -> tuple[msgspec.Raw, Sequence[File]]:
    """The content of a result with the bytes of its images removed, and these images."""
    if bytes(memoryview(raw)[:1]) == b'"':
        return raw, ()
    value, readable = unpack(raw)
    files = list(_remove_files(value)) if isinstance(value, list) else []
    return (msgspec.Raw(msgspec.json.encode(value)) if files else readable), files


def _remove_files(blocks: list[Any]) -> Iterator[File]:
    for block in blocks:
        source = block.get("source") if isinstance(block, dict) else None
        if not isinstance(source, dict):
            continue
        if isinstance(inner := source.get("content"), list):
            yield from _remove_files(inner)
        data, mime = source.get("data"), source.get("media_type")
        if not isinstance(data, str) or not data or source.get("type") == "text":
            continue
        file = EmbeddedFile("file", mime if isinstance(mime, str) else _BYTES, None, base64=data).file
        if file is not None:
            del source["data"]
            yield file
