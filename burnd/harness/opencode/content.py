"""Content records made from opencode's rows: one for each block, numbered by the part it stands in."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from burnd.harness.opencode.rows import (
    Attachment,
    MessageRow,
    Opened,
    PartData,
    SessionRow,
    ToolState,
    iso,
    milliseconds,
)
from burnd.harness.opencode.said import USER, is_summary
from burnd.harness.opencode.tools import Call
from burnd.harness.tool_calls import inline_data
from burnd.records import Content, File, ToolResult, ToolUse
from burnd.records.content import MAIN, Kind, Role

TITLE: Final = "title:opencode"
_NULL: Final = msgspec.Raw(b"null")
_DEFAULT_TITLE: Final = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_SAVED_OUTPUT: Final = 1 << 20  # the number of a whole output beside its preview: behind all blocks of a part
_PLAIN: Final = "application/octet-stream"


class SavedOutput(msgspec.Struct, frozen=True):
    """A result too long for its row: opencode keeps the whole of it for a week, in a file of this name."""

    name: str
    record: Content


class Page:
    """Takes down the blocks of one message, part by part."""

    def __init__(self, session_id: str, row: MessageRow) -> None:
        self.records: list[Content] = []
        self._session_id, self._message_id, self._ts = session_id, row.id, iso(row.created)
        self._part = self._block = 0

    def begin(self, part: int) -> None:
        self._part, self._block = part, 0

    def add(
        self,
        role: Role,
        kind: Kind,
        text: str | None = None,
        *,
        tool_use: ToolUse | None = None,
        tool_result: ToolResult | None = None,
        file: File | None = None,
        ended: int | None = None,
    ) -> Content:
        record = Content(
            session_id=self._session_id,
            rail_id=MAIN,
            message_id=self._message_id,
            n=self._part,
            b=self._block,
            ts=self._ts if ended is None else max(self._ts, iso(ended)),
            role=role,
            kind=kind,
            text=text,
            tool_use=tool_use,
            tool_result=tool_result,
            file=file,
        )
        self.records.append(record)
        self._block += 1
        return record


def content_of(
    session_id: str, row: MessageRow, opened: Opened, calls: Mapping[int, Call], *, reasoning: bool
) -> list[Content]:
    """What a message says, block by block; its thinking only where that is wanted."""
    page = Page(session_id, row)
    for n, (_, part) in enumerate(opened.parts):
        page.begin(n)
        if opened.data.role == USER:
            _keep_asked(page, part)
        elif part.type == "tool":
            _keep_call(page, calls[n], part.state or ToolState())
        elif part.type != "reasoning" or reasoning:
            _keep_said(page, part, "summary" if is_summary(opened.data) else "text")
    return page.records


def saved_outputs(records: list[Content], opened: Opened) -> Iterator[SavedOutput]:
    """Results that opencode cut in the row and kept whole in a file, as far as they were kept."""
    results = {record.n: record for record in records if record.tool_result is not None}
    for n, (_, part) in enumerate(opened.parts):
        metadata = part.state.metadata if part.type == "tool" and part.state is not None else None
        if metadata is not None and metadata.output_path and n in results:
            yield SavedOutput(metadata.output_path, results[n])


def whole_output(saved: SavedOutput, text: str) -> Content:
    """The whole of a result, as a record of its own beside the cut one."""
    result = saved.record.tool_result
    whole = ToolResult(
        tool_use_id=result.tool_use_id if result is not None else "",
        content=msgspec.Raw(msgspec.json.encode(text)),
    )
    return msgspec.structs.replace(saved.record, b=_SAVED_OUTPUT, tool_result=whole)


def title_of(session: SessionRow) -> Content | None:
    """A session's title, unless opencode has not found one yet."""
    if not session.title or _DEFAULT_TITLE.fullmatch(session.title):
        return None
    return Content(
        session_id=session.id,
        rail_id=MAIN,
        message_id=TITLE,
        n=0,
        b=0,
        ts=iso(session.created),
        role="system",
        kind="title",
        text=session.title,
    )


def _keep_asked(page: Page, part: PartData) -> None:
    role: Role = "system" if part.synthetic or part.ignored else "user"
    if part.type == "text" and part.text:
        page.add(role, "text", part.text)
    elif part.type == "subtask" and part.prompt:
        page.add("user", "text", part.prompt)
    elif part.type == "file":
        page.add(role, "file", file=_file(Attachment(mime=part.mime, filename=part.filename, url=part.url)))


def _keep_said(page: Page, part: PartData, kind: Kind) -> None:
    if part.type == "text" and part.text:
        page.add("assistant", kind, part.text)
    elif part.type == "reasoning" and part.text:
        page.add("assistant", "thinking", part.text)
    elif part.type == "patch" and part.files:
        page.add("assistant", "file", "\n".join(part.files), file=File(mime="text/x-patch", name=part.hash))
    elif part.type == "file":
        page.add("assistant", "file", file=_file(Attachment(mime=part.mime, filename=part.filename, url=part.url)))


def _keep_call(page: Page, found: Call, state: ToolState) -> None:
    """The call, then its answer without the files in it, then each of them."""
    call = found.call
    page.add("assistant", "tool_use", tool_use=ToolUse(id=call.id, name=call.name, input=found.input or _NULL))
    if found.answer is None:
        return
    result = ToolResult(
        tool_use_id=call.id, content=msgspec.Raw(msgspec.json.encode(found.answer)), is_error=call.is_error or None
    )
    ended = milliseconds(state.time.end) if state.time is not None else None
    page.add("tool_result", "tool_result", tool_result=result, ended=ended)
    for file in state.attachments or ():
        page.add("tool_result", "file", file=_file(file), ended=ended)


def _file(file: Attachment) -> File:
    """The file with its bytes, where they are in the row; a text that was only named stands there as text."""
    name = file.filename or (file.url if file.url and not file.url.startswith("data:") else None)
    data = inline_data(file.url or "")
    try:
        content = binascii.a2b_base64(data) if data else None
    except ValueError:
        content = None
    return File(mime=file.mime or _PLAIN, name=name, data=content)
