"""Source for Claude Code: transcripts, and files beside them with metadata, titles and tool output."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

import msgspec

from burnd.harness.claude_code.content import whole_contexts
from burnd.harness.claude_code.lines import ENDING, SOURCE, LogPath, meta_path, parse_path, with_meta
from burnd.harness.claude_code.product import PRODUCT
from burnd.harness.claude_code.reader import ClaudeReader
from burnd.harness.claude_code.state import ClaudeReading, SavedOutput, load_state
from burnd.logfiles.log_reader import Log, LogFormat, LogHistory, Piece
from burnd.logfiles.scanner import below, lines_of, small_file
from burnd.recording.candidate import Batch
from burnd.records import Content, ToolResult

if TYPE_CHECKING:
    from burnd.harness.claude_code.related_sessions import LeafTitles, LiveProcesses
    from burnd.harness.supervisor import SourceContext
    from burnd.recording.pipeline import Pipeline
    from burnd.recording.source import Source

META = ".meta.json"
_LARGEST_META = 64 << 10
_NEWS_EVERY_S = 2.0  # until a process's switch to another session is noticed
_LARGEST_OUTPUT = 64 << 20


class ClaudeLogs(LogFormat):
    """Transcripts below every `projects` folder, read by `ClaudeReader`.

    A child process imports this module too: import what needs an event loop where it is used.
    """

    source: ClassVar[str] = SOURCE
    beside: ClassVar[tuple[str, ...]] = (META,)
    _pipeline: Pipeline
    _leaf_titles: LeafTitles
    _processes: LiveProcesses

    def roots_below(self, folders: Iterable[str]) -> list[str]:
        return PRODUCT.logs_below(folders)

    def place_of(self, relative: str) -> LogPath | None:
        return parse_path(relative)

    def log_of(self, path: str) -> str:
        return path.removesuffix(META) + ENDING if path.endswith(META) else path

    def is_state(self, data: bytes) -> bool:
        return load_state(data) is not None

    def reader(self, log: Log, history: LogHistory) -> ClaudeReader:
        state = load_state(log.state) if log.state else None
        return ClaudeReader(log.place, state, history)

    def look_beside(self, log: Log) -> None:
        if log.place.rail_id is None or log.place.meta is not None:
            log.is_alone = True
            return
        relative = meta_path(below(log.path, log.root))
        if relative is None:
            return
        data = small_file(os.path.join(log.root, relative), log.root, _LARGEST_META)
        if data is not None:
            log.place = with_meta(log.place, data)
            log.reader = None

    def content(self, log: Log, reading: ClaudeReading) -> list[Content]:
        content = _with_saved_outputs(log, reading) if reading.saved else reading.content
        if any(record.context is not None for record in content):
            with lines_of(log.path, log.root, log.private) as line_at:
                content = list(whole_contexts(content, line_at))
        return content

    async def begin(self, pipeline: Pipeline) -> None:
        from burnd.harness.claude_code.related_sessions import LeafTitles, LiveProcesses  # noqa: PLC0415

        self._pipeline, self._leaf_titles, self._processes = pipeline, LeafTitles(), LiveProcesses()
        await self._leaf_titles.load(pipeline.index)
        await self._processes.load(pipeline.index)

    async def add_to(self, batch: Batch, pieces: Sequence[Piece], roots: Sequence[str]) -> None:
        if self._leaf_titles.summaries or any(cast("ClaudeReading", piece.reading).titles for piece in pieces):
            await self._leaf_titles.add_to(batch, pieces)
        if self._pipeline.modes.has_private:
            await self._processes.add_to(batch, roots, self._pipeline.now())

    def news_every(self) -> float | None:
        if self._leaf_titles.has_unsearched:
            return 0.0
        return _NEWS_EVERY_S if self._pipeline.modes.has_private else None

    async def news(self, roots: Sequence[str]) -> Batch | None:
        batch = await self._leaf_titles.search(self._pipeline.index) or Batch()
        if self._pipeline.modes.has_private:
            await self._processes.add_to(batch, roots, self._pipeline.now())
        return batch if batch.cursors or batch.content else None


def make(context: SourceContext) -> Source:
    from burnd.logfiles.follower import LogFollower  # noqa: PLC0415

    return LogFollower(ClaudeLogs(), context.logs(PRODUCT), context.pipeline)


def _with_saved_outputs(log: Log, reading: ClaudeReading) -> list[Content]:
    outputs = {output.message_id: output for output in reading.saved}
    content: list[Content] = []
    for record, following in zip(reading.content, [*reading.content[1:], None], strict=True):
        content.append(record)
        is_last = following is None or following.message_id != record.message_id
        output = outputs.get(record.message_id) if is_last else None
        saved = _saved_output(log, output) if output is not None else None
        content += [saved] if saved is not None else []
    return content


def _saved_output(log: Log, output: SavedOutput) -> Content | None:
    name, session = os.path.basename(output.name), output.session_id
    if not name or session != os.path.basename(session) or session in ("", ".", ".."):
        return None
    project = log.path.rpartition(f"/{session}/subagents/")[0] or os.path.dirname(log.path)
    path = os.path.join(project, session, "tool-results", name)
    data = small_file(path, log.root, _LARGEST_OUTPUT)
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
