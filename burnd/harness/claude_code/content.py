"""Content records of a transcript's lines, and the texts and files that attachments show to the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from burnd.harness.anthropic import (
    ANY_BYTES,
    PLAIN_TEXT,
    ContentBlock,
    EmbeddedFile,
    embedded_files,
    text_of,
)
from burnd.harness.claude_code import lines as claude_lines
from burnd.harness.claude_code.lines import Attachment, ClaudeLine
from burnd.harness.claude_code.memory import Memory, Spot
from burnd.harness.claude_code.state import ContextLine
from burnd.records import Content, File, ToolResult
from burnd.records.content import Kind, Role
from burnd.records.foreign_json import unpack

NULL: Final = msgspec.Raw(b"null")
_MEDIA_TYPES: Final = {"pdf": "application/pdf", "image": "image/png"}

# Attachments that earlier releases did not show to the model; later ones log the rendered text.
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
_SHOWN_SYSTEM: Final = frozenset({"compact_boundary", "local_command"})
_LONGEST_LINE: Final = 256 << 10  # bytes of a line that is stored whole for `restore`
_MOST_LINES: Final = 64  # without a record between them
_MOST_WAITING: Final = 512 << 10  # bytes of these lines
_HEAD: Final = 400  # bytes in which a line states its type
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


def attached_file(attachment: Attachment) -> EmbeddedFile | None:
    content = claude_lines.file_contents.value(attachment.content) if b'"base64"' in bytes(attachment.content) else None
    if content is None or content.file is None or not content.file.base64:
        return None
    mime = content.file.type or _MEDIA_TYPES.get(content.type or "", ANY_BYTES)
    kind = "image" if mime.startswith("image/") else "file"
    return EmbeddedFile(kind, mime, attachment.filename, base64=content.file.base64)


def shown_text(line: ClaudeLine, attachment: Attachment) -> str:
    """The text that an attachment showed to the model, from its line, or a guess if the release does not log it."""
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


def record_result(memory: Memory, spot: Spot, message_id: str, n: int, b: int, block: ContentBlock) -> int:
    """Records a result and the files in it; returns the number of the next block."""
    content, files = _without_files(block.content) if block.content else (NULL, ())
    result = ToolResult(tool_use_id=block.tool_use_id or "", content=content, is_error=block.is_error)
    memory.record(spot, message_id, b, "tool_result", "tool_result", n=n, result=result)
    for number, file in enumerate(files, b + 1):
        memory.record(spot, message_id, number, "tool_result", "file", n=n, file=file)
    return b + 1 + len(files)


def record_user(
    memory: Memory, spot: Spot, content: str | list[ContentBlock] | None, role: Role, kind: Kind = "text"
) -> None:
    """Records a user line: texts in the given role and kind, results and files as such."""
    if not content:
        return
    if spot.is_copied:
        memory.out.copied.append(spot.name)
    if isinstance(content, str):
        memory.record(spot, spot.name, 0, role, kind, content)
        return
    b = 0
    for block in content:
        if block.type == "tool_result":
            b = record_result(memory, spot, spot.name, 0, b, block)
        elif block.text:
            memory.record(spot, spot.name, b, role, kind, block.text)
            b += 1
        else:
            b = _record_files(memory, spot, role, embedded_files(block), b)


def _record_files(memory: Memory, spot: Spot, role: Role, files: Iterable[EmbeddedFile], b: int = 0) -> int:
    for embedded in files:
        if (file := embedded.file) is not None:
            memory.record(spot, spot.name, b, role, "file", embedded.text or None, file=file)
            b += 1
    return b


def record_attachment(memory: Memory, spot: Spot, attachment: Attachment, *, is_prompt: bool) -> None:
    """Records queued prompts, files, system prompts, and hook output that reached the model.

    Other attachments repeat what is recorded elsewhere.
    """
    if attachment.type == "queued_command":
        record_user(memory, spot, attachment.prompt, "user" if is_prompt else "system")
        return
    texts: list[str] = []
    if attachment.type == "prompt_snapshot":
        prompt = attachment.system_prompt
        text = prompt if isinstance(prompt, str) else "\n\n".join(prompt or ())
        texts = [text or attached_text(attachment), bytes(attachment.tools).decode("utf-8", "replace")]
    elif attachment.type in HOOKS and (text := shown_text(spot.line, attachment)):
        texts = [text]
    if attachment.type != "file" and not texts:
        return
    if spot.is_copied:
        memory.out.copied.append(spot.name)
    for b, text in enumerate(filter(None, texts)):
        memory.record(spot, spot.name, b, "system", "text", text)
    if attachment.type == "file":
        text_file = EmbeddedFile("file", PLAIN_TEXT, attachment.filename, text=attached_text(attachment))
        _record_files(memory, spot, "user", [attached_file(attachment) or text_file])


def is_shown(line: ClaudeLine) -> bool:
    """Whether the client would send the line to the model although no record may have its text."""
    if line.type == "system":
        return line.subtype in _SHOWN_SYSTEM
    return line.type == "attachment" or (line.message is not None and line.message.model == claude_lines.SYNTHETIC)


def add_context(memory: Memory, spot: Spot, data: bytes, *, is_whole: bool) -> None:
    """Adds a line to the context of the next record: whole, as `whole_contexts` reads it, or as a link between its
    neighbours.
    """
    line, context = spot.line, memory.state.context
    if line.uuid is None:
        return
    parent = line.parent_uuid if isinstance(line.parent_uuid, str) else None
    if is_whole and len(data) <= _LONGEST_LINE and b'"prompt_snapshot"' not in data[:_HEAD]:
        context.append(ContextLine(line.uuid, parent, (spot.offset, len(data)), spot.is_copied))
    else:
        context.append(ContextLine(line.uuid, parent))


def limit_context(memory: Memory) -> None:
    context = memory.state.context
    while len(context) > _MOST_LINES or sum(one.at[1] for one in context if one.at) > _MOST_WAITING:
        del context[0]


def whole_contexts(content: Iterable[Content], line_at: Callable[[int, int], bytes]) -> Iterator[Content]:
    """The records, with the text of the lines in their contexts. `line_at` reads a line of the log, as far as it is."""
    for record in content:
        if not isinstance(record.context, str) or '"at":' not in record.context:
            yield record
            continue
        lines: list[str] = []
        for one in msgspec.json.decode(record.context, type=list[ContextLine]):
            data = line_at(*one.at) if one.at is not None else b""
            stated = claude_lines.lines.value(data) if data else None
            if stated is not None and stated.uuid == one.uuid:
                lines.append(data.decode("utf-8", "replace"))
            elif one.at is None or one.uuid not in (record.line, record.message_id):
                lines.append(msgspec.json.encode(ContextLine(one.uuid, one.parent_uuid)).decode())
        yield msgspec.structs.replace(record, context=f"[{','.join(lines)}]" if lines else None)


def _without_files(raw: msgspec.Raw) -> tuple[msgspec.Raw, Sequence[File]]:
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
        file = EmbeddedFile("file", mime if isinstance(mime, str) else ANY_BYTES, None, base64=data).file
        if file is not None:
            del source["data"]
            yield file
