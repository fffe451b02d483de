"""What is particular to Claude Code's transcripts: how their paths read, and what stands in files beside them."""

from __future__ import annotations

import os
from typing import ClassVar

import msgspec

from burnd.harness.claude_code.place import Place, meta_path, place_of, with_meta
from burnd.harness.claude_code.reader import ClaudeReader
from burnd.harness.claude_code.state import Reading, SavedOutput, load_state
from burnd.index.reading import FileRows, pack_of
from burnd.logfiles.safe_open import below, small_file
from burnd.logfiles.transcripts import Transcript, Transcripts
from burnd.recording.candidate import SOURCE
from burnd.records import Content, ToolResult
from burnd.records.content import MAIN
from burnd.records.foreign_json import SafeDecoder
from burnd.records.times import to_iso

_LARGEST_META = 64 << 10
_LARGEST_OUTPUT = 64 << 20


class ClaudeTranscripts(Transcripts):
    """Transcripts of Claude Code, read by `ClaudeReader`."""

    source: ClassVar[str] = SOURCE

    def place_of(self, relative: str) -> Place | None:
        return place_of(relative)

    def is_state(self, data: bytes) -> bool:
        return load_state(data) is not None

    def reader_of(self, transcript: Transcript, rows: FileRows) -> ClaudeReader:
        state = load_state(transcript.state) if transcript.state else None
        return ClaudeReader(transcript.place, state, rows)

    def content_of(self, transcript: Transcript, reading: Reading) -> list[Content]:
        return [*_with_saved_outputs(transcript, reading), *_custom_title(transcript, reading)]

    def rows_of(self, reading: Reading) -> bytes:
        pack = pack_of(reading)
        reading.links, reading.prompts, reading.rails = {}, {}, {}
        return pack

    def look_beside(self, transcript: Transcript) -> None:
        """The file beside an agent's transcript may appear after it: what it says is taken up then."""
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
    """The content, with every result that was saved whole beside the transcript right after its preview."""
    whole = {output.message_id: output for output in reading.saved}
    if not whole:
        return reading.content
    content: list[Content] = []
    for record, following in zip(reading.content, [*reading.content[1:], None], strict=True):
        content.append(record)
        ends = following is None or following.message_id != record.message_id
        output = whole.get(record.message_id) if ends else None
        saved = _saved_output(transcript, output) if output is not None else None
        content += [saved] if saved is not None else []
    return content


def _custom_title(transcript: Transcript, reading: Reading) -> list[Content]:
    """The name a person gave a session, which some clients keep in a file beside its transcript."""
    place = transcript.place
    if place.session_id is None or place.rail_id is not None or not reading.content:
        return []
    path = os.path.join(transcript.path.removesuffix(".jsonl"), "custom-title.json")
    data = small_file(path, transcript.root, _LARGEST_META)
    if data is None:
        return []
    found = _titles.decode(data, 0)
    title = (found.custom_title or "").strip() if isinstance(found, CustomTitle) else ""
    if not title:
        return []
    return [
        Content(
            session_id=place.session_id,
            rail_id=MAIN,
            message_id="title:custom",
            n=BESIDE,
            b=0,
            ts=to_iso(os.stat(path, follow_symlinks=False).st_mtime_ns // 1_000_000),
            role="system",
            kind="title",
            text=title,
        )
    ]


class CustomTitle(msgspec.Struct, rename="camel"):
    """What `<session>/custom-title.json` says."""

    custom_title: str | None = None


_titles = SafeDecoder(CustomTitle)
# The number of a title that is in no line: behind all that are.
BESIDE = 1 << 20


def _saved_output(transcript: Transcript, output: SavedOutput) -> Content | None:
    """The whole of a result that the client saved beside the transcript, as a record of its own."""
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
