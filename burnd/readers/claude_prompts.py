"""Tells what a person asked from what a harness said in their place, and weighs what reaches the model."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from burnd.readers import claude_lines
from burnd.readers.claude_lines import Attachment, Line, Piece
from burnd.readers.safe_json import Rejected, Repaired
from burnd.readers.weights import decoded_size, size
from burnd.records import Block

INTERRUPT: Final = "[Request interrupted by user"
TASK_NOTIFICATION: Final = "<task-notification>"
_HARNESS_TEXTS: Final = (
    TASK_NOTIFICATION,
    INTERRUPT,
    "<command-name>",
    "<command-message>",
    "<local-command-",
    "<bash-input>",
    "<bash-stdout>",
    "<bash-stderr>",
)
_NOTIFIED: Final = re.compile(r"<task-id>([^<]{1,200})</task-id>\s*<tool-use-id>([^<]{1,200})</tool-use-id>")
_HEAD: Final = 2048
# What earlier releases attached without showing it to the model. Later ones write down what they rendered.
_NOT_SHOWN: Final = frozenset(
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
_HOOKS_SHOWN: Final = frozenset({"SessionStart", "UserPromptSubmit"})
_FILES: Final = frozenset({"file", "edited_text_file", "compact_file_reference", "pdf_reference"})
ATTACHMENT_TYPES: Final = (
    _NOT_SHOWN
    | _FILES
    | {
        "agent_listing_delta",
        "auto_mode",
        "date",
        "deferred_tools_delta",
        "environment",
        "hook_additional_context",
        "hook_success",
        "model",
        "queued_command",
        "remote_session_change",
        "session_context",
        "skill_listing",
        "task_status",
    }
)


def text_of(content: str | list[Piece] | None) -> str:
    """The text a user line holds, its text blocks put together."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join([piece.text for piece in content if piece.text and piece.type == "text"])


def is_harness_text(line: Line, text: str) -> bool:
    """Whether the harness wrote this user line: caveats, notifications, echoes of commands, interrupts."""
    return bool(line.is_meta) or line.turn_origin == "task_notification" or text.startswith(_HARNESS_TEXTS)


def notified_agent(text: str) -> tuple[str, str] | None:
    """The (task, call) a task notification is about."""
    found = _NOTIFIED.search(text, 0, _HEAD) if text.startswith(TASK_NOTIFICATION) else None
    return (found[1], found[2]) if found else None


def attachment_of(line: Line) -> Attachment | None:
    found = claude_lines.attachments.decode(bytes(line.attachment))
    if isinstance(found, Rejected):
        return None
    return found.value if isinstance(found, Repaired) else found


def is_queued_prompt(attachment: Attachment, text: str) -> bool:
    """Whether a person typed this while the agent was busy. Earlier releases do not say who it is from."""
    if attachment.type != "queued_command" or not text:
        return False
    if attachment.origin is not None:
        return attachment.origin.kind == "human"
    return attachment.command_mode in (None, "prompt") and not text.startswith(_HARNESS_TEXTS)


def blocks_of(content: str | list[Piece] | None, kind: str) -> tuple[Block, ...]:
    """The blocks of a user line or a queued prompt that are no results: texts of this kind, images, files."""
    if isinstance(content, str):
        return (Block(kind=kind, bytes=size(content)),) if content else ()
    return tuple([block for piece in content or () if (block := _block(piece, kind)) is not None])


def _block(piece: Piece, kind: str) -> Block | None:
    if piece.type == "tool_result":
        return None
    if piece.text:
        return Block(kind=kind, bytes=size(piece.text))
    if piece.source is not None and piece.source.data:
        kind = "image" if piece.type == "image" else "file"
        return Block(kind=kind, bytes=decoded_size(piece.source.data))
    return None


def attached_blocks(line: Line, attachment: Attachment, *, is_prompt: bool) -> tuple[Block, ...]:
    """What an attachment put before the model, by kind and size; nothing where it showed it nothing."""
    kind = "prompt" if is_prompt else "file" if attachment.type in _FILES else "reminder"
    shown = _rendered_size(line.rendered) if line.rendered else _estimated_size(line, attachment)
    texts = (Block(kind=kind, bytes=shown),) if shown else ()
    images = [block for block in blocks_of(attachment.prompt, kind) if block.kind in ("image", "file")]
    return (*texts, *images)


def _rendered_size(raw: msgspec.Raw) -> int:
    try:
        rendered = claude_lines.rendered_texts.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return len(raw)
    return sum(size(text_of(one.content)) for one in rendered)


def _estimated_size(line: Line, attachment: Attachment) -> int:
    """The size of what a release that does not write down what it rendered is likely to have shown."""
    if line.rendered_role is not None or attachment.type in _NOT_SHOWN:
        return 0
    if attachment.type == "hook_success" and attachment.hook_event not in _HOOKS_SHOWN:
        return 0
    if attachment.prompt is not None:
        return size(text_of(attachment.prompt))
    return size(attached_text(attachment))


def attached_text(attachment: Attachment) -> str:
    """The text an attachment carries: a file's, a hook's, or the JSON of whatever else its content is."""
    raw = bytes(attachment.content)
    if not raw:
        return ""
    if raw.startswith(b'"'):
        return msgspec.json.decode(raw, type=str)
    found = claude_lines.file_contents.decode(raw)
    found = found.value if isinstance(found, Repaired) else found
    if not isinstance(found, Rejected) and found.file is not None and found.file.content is not None:
        return found.file.content
    return raw.decode("utf-8", "replace")
