"""Opens Claude Code's transcripts for reading, with the files next to them: metadata, titles, saved tool output."""

from __future__ import annotations

import os
from typing import ClassVar

import msgspec

from burnd.harness.claude_code.content import title_record
from burnd.harness.claude_code.lines import ENDING, SOURCE, LogPath, meta_path, parse_path, with_meta
from burnd.harness.claude_code.reader import ClaudeReader
from burnd.harness.claude_code.state import Reading, SavedOutput, load_state
from burnd.index.reader_packs import FilePacks
from burnd.logfiles.safe_open import below, small_file
from burnd.logfiles.transcripts import Transcript, Transcripts
from burnd.records import Content, ToolResult
from burnd.records.foreign_json import SafeDecoder
from burnd.records.times import to_iso

_LARGEST_META = 64 << 10
_LARGEST_OUTPUT = 64 << 20
TITLE_N = 1 << 20  # the number of a title from its own file: after those from lines


class CustomTitle(msgspec.Struct, rename="camel"):
    """The content of `<session>/custom-title.json`."""

    custom_title: str | None = None


_titles = SafeDecoder(CustomTitle)


class ClaudeTranscripts(Transcripts):
    """Transcripts of Claude Code, read by `ClaudeReader`."""

    source: ClassVar[str] = SOURCE

    def place_of(self, relative: str) -> LogPath | None:
        return parse_path(relative)

    def is_state(self, data: bytes) -> bool:
        return load_state(data) is not None

    def reader_of(self, transcript: Transcript, packs: FilePacks) -> ClaudeReader:
        state = load_state(transcript.state) if transcript.state else None
        return ClaudeReader(transcript.place, state, packs)

    def content_of(self, transcript: Transcript, reading: Reading) -> list[Content]:
        return [*_with_saved_outputs(transcript, reading), *_custom_title(transcript, reading)]

    def look_beside(self, transcript: Transcript) -> None:
        """Read the meta file of an agent's transcript, which may appear after it."""
        if transcript.place.rail_id is None or transcript.place.meta is not None:
            return
        relative = meta_path(below(transcript.path, transcript.root))
        if relative is None:
            return
        data = small_file(os.path.join(transcript.root, relative), transcript.root, _LARGEST_META)
        if data is not None:
            transcript.place = with_meta(transcript.place, data)
            transcript.reader = None


def _with_saved_outputs(transcript: Transcript, reading: Reading) -> list[Content]:
    """The content of a reading, with every result that was saved in full right after its preview."""
    outputs = {output.message_id: output for output in reading.saved}
    if not outputs:
        return reading.content
    content: list[Content] = []
    for record, following in zip(reading.content, [*reading.content[1:], None], strict=True):
        content.append(record)
        is_last = following is None or following.message_id != record.message_id
        output = outputs.get(record.message_id) if is_last else None
        saved = _saved_output(transcript, output) if output is not None else None
        content += [saved] if saved is not None else []
    return content


def _saved_output(transcript: Transcript, output: SavedOutput) -> Content | None:
    """The record of a tool result that the client saved in a file of its own."""
    name, session = os.path.basename(output.name), output.session_id
    if not name or session != os.path.basename(session) or session in ("", ".", ".."):
        return None
    project = transcript.path.rpartition(f"/{session}/subagents/")[0] or os.path.dirname(transcript.path)
    path = os.path.join(project, session, "tool-results", name)
    data = small_file(path, transcript.root, _LARGEST_OUTPUT)
    if data is None:
        return None
    text = msgspec.json.encode(data.decode("utf-8", "replace"))
    return Content(
        session_id=output.session_id,
        rail_id=output.rail_id,
        message_id=output.message_id,
        n=1,
        b=0,
        ts=output.ts,
        role="tool_result",
        kind="tool_result",
        tool_result=ToolResult(tool_use_id=output.call_id, content=msgspec.Raw(text)),
    )


def _custom_title(transcript: Transcript, reading: Reading) -> list[Content]:
    """The title that a person gave a session, which some clients store in a file of its own."""
    place = transcript.place
    if place.session_id is None or place.rail_id is not None or not reading.content:
        return []
    path = os.path.join(transcript.path.removesuffix(ENDING), "custom-title.json")
    data = small_file(path, transcript.root, _LARGEST_META)
    stored = _titles.value(data) if data is not None else None
    title = (stored.custom_title or "").strip() if stored is not None else ""
    if not title:
        return []
    ts = to_iso(os.stat(path, follow_symlinks=False).st_mtime_ns // 1_000_000)
    return [title_record(place.session_id, "custom", "title", title, ts, TITLE_N)]
