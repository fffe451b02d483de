"""Content records made from Claude Code lines: one for each block, numbered as it stands in its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from burnd.harness.claude_code.files import BYTES, Carried, attached_file, carried
from burnd.harness.claude_code.lines import Attachment, Piece
from burnd.harness.claude_code.memory import Memory, Spot
from burnd.harness.claude_code.prompts import HOOKS, attached_text, shown_text
from burnd.harness.claude_code.tools import MCP_CALL, called
from burnd.records import Content, File, ToolResult, ToolUse
from burnd.records.content import MAIN, Kind, Role
from burnd.records.foreign_json import unpack

CALLS: Final = frozenset({"tool_use", "server_tool_use", MCP_CALL})
_NULL: Final = msgspec.Raw(b"null")


class Page:
    """Takes down the blocks of one line, each as a record of its own."""

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

    def add_said(self, piece: Piece) -> None:
        """What a model said or asked for."""
        if piece.type in CALLS:
            use = ToolUse(id=piece.id or "", name=called(piece), input=piece.input or _NULL)
            self.add("assistant", "tool_use", tool_use=use)
        elif piece.thinking:
            self.add("assistant", "thinking", text=piece.thinking)
        elif piece.text:
            self.add("assistant", "text", text=piece.text)
        elif piece.tool_use_id is not None:
            self.add_result(piece)

    def add_given(self, piece: Piece, role: Role, kind: Kind) -> None:
        """What a model was given: a result, a file, or a text in this role."""
        if piece.type == "tool_result":
            self.add_result(piece)
        elif piece.text:
            self.add(role, kind, text=piece.text)
        else:
            for one in carried(piece):
                self.add_file(role, one)

    def add_file(self, role: Role, carried: Carried) -> None:
        """A file that has words or bytes; bytes that cannot be read are nothing to keep."""
        if (file := carried.file) is not None:
            self.add(role, "file", text=carried.words or None, file=file)

    def add_result(self, piece: Piece) -> None:
        """A result without the images in it, then each of them."""
        content, files = _opened_result(piece.content) if piece.content else (_NULL, ())
        result = ToolResult(tool_use_id=piece.tool_use_id or "", content=content, is_error=piece.is_error)
        self.add("tool_result", "tool_result", tool_result=result)
        for file in files:
            self.add("tool_result", "file", file=file)


def keep_message(memory: Memory, spot: Spot, message_id: str, n: int, pieces: Sequence[Piece]) -> None:
    """Keep what a model said in line `n` of its message."""
    if memory.keep_content:
        page = Page(memory, spot, message_id, n)
        for piece in pieces:
            page.add_said(piece)


def keep_user(memory: Memory, spot: Spot, content: str | list[Piece] | None, role: Role, kind: Kind) -> None:
    """Keep a user line: its texts in the given role and kind, its results and files as such."""
    if not memory.keep_content or not content:
        return
    page = Page(memory, spot, spot.name)
    if isinstance(content, str):
        page.add(role, kind, text=content)
        return
    for piece in content:
        page.add_given(piece, role, kind)


def keep_attachment(memory: Memory, spot: Spot, attachment: Attachment, *, is_prompt: bool) -> None:
    """Keep queued prompts, files, system prompts, and hook output that reached the model; other attachments repeat
    what is recorded elsewhere.
    """
    if not memory.keep_content:
        return
    if attachment.type == "queued_command":
        keep_user(memory, spot, attachment.prompt, "user" if is_prompt else "system", "text")
    elif attachment.type == "prompt_snapshot":
        page = Page(memory, spot, spot.name)
        for text in _system_prompt(attachment):
            page.add("system", "text", text=text)
    elif attachment.type in HOOKS and (text := shown_text(spot.line, attachment)):
        Page(memory, spot, spot.name).add("system", "text", text=text)
    elif attachment.type == "file":
        words = Carried("file", "text/plain", attachment.filename, words=attached_text(attachment))
        Page(memory, spot, spot.name).add_file("user", attached_file(attachment) or words)


def title(session_id: str, name: str, kind: Kind, text: str, ts: str, n: int) -> Content:
    """A title as content; its name tells which of the sources it is from, so that the best can be chosen.

    `n` counts how often it changed: each stands for itself, so that a file read again says nothing new.
    """
    return Content(
        session_id=session_id,
        rail_id=MAIN,
        message_id=f"title:{name}",
        n=n,
        b=0,
        ts=ts,
        role="system",
        kind=kind,
        text=text,
    )


def _opened_result(raw: msgspec.Raw) -> tuple[msgspec.Raw, Sequence[File]]:
    if bytes(memoryview(raw)[:1]) == b'"':
        return raw, ()
    value, opened = unpack(raw)
    files = list(_taken_out(value)) if isinstance(value, list) else []
    return (msgspec.Raw(msgspec.json.encode(value)) if files else opened), files


def _taken_out(blocks: list[Any]) -> Iterator[File]:
    """Take the bytes of images out of a result's blocks, where they would be kept as base64; words stay there."""
    for block in blocks:
        source = block.get("source") if isinstance(block, dict) else None
        if not isinstance(source, dict):
            continue
        if isinstance(inner := source.get("content"), list):
            yield from _taken_out(inner)
        file = _file_in(source)
        if file is not None:
            del source["data"]
            yield file


def _file_in(source: dict[str, Any]) -> File | None:
    data, media = source.get("data"), source.get("media_type")
    if not isinstance(data, str) or not data or source.get("type") == "text":
        return None
    return Carried("file", media if isinstance(media, str) else BYTES, None, base64=data).file


def _system_prompt(attachment: Attachment) -> Iterator[str]:
    """A snapshot's system prompt, then its tools as JSON."""
    prompt = attachment.system_prompt
    text = prompt if isinstance(prompt, str) else "\n\n".join(prompt or ())
    text = text or attached_text(attachment)
    if text:
        yield text
    if attachment.tools:
        yield bytes(attachment.tools).decode("utf-8", "replace")
