"""Codex as a source: its rollouts by day and those that were archived, followed by the log engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import ClassVar

import anyio.to_thread

from burnd.harness.codex.compressed import read_compressed
from burnd.harness.codex.product import PRODUCT
from burnd.harness.codex.reader import COMPRESSED, CodexReader, place_of
from burnd.harness.codex.state import SOURCE, Place, load_state
from burnd.harness.codex.thread_names import ThreadNames
from burnd.harness.supervisor import SourceContext
from burnd.index.reader_packs import FilePacks
from burnd.logfiles.follower import LogFollower
from burnd.logfiles.log_reader import LogFormat
from burnd.logfiles.logs import Log
from burnd.logfiles.scanner import SUFFIX
from burnd.logfiles.tail import Chunk, OpenFiles
from burnd.recording.batch import Batch
from burnd.recording.pipeline import Pipeline
from burnd.recording.source import Source


class CodexLogs(LogFormat):
    """Rollouts below the folders that Codex is configured with, read by `CodexReader`."""

    source: ClassVar[str] = SOURCE
    suffixes: ClassVar[tuple[str, ...]] = (SUFFIX, COMPRESSED)
    _pipeline: Pipeline
    _names: ThreadNames

    def roots_below(self, folders: Iterable[str]) -> list[str]:
        return PRODUCT.logs_below(folders)

    def place_of(self, relative: str) -> Place | None:
        return place_of(relative)

    def is_state(self, data: bytes) -> bool:
        return load_state(data) is not None

    def reader(self, log: Log, packs: FilePacks) -> CodexReader:  # noqa: ARG002
        return CodexReader(log.place, load_state(log.state))

    def chunk(self, log: Log, files: OpenFiles, max_bytes: int) -> Chunk:
        if not log.path.endswith(COMPRESSED):
            return super().chunk(log, files, max_bytes)
        return read_compressed(log.path, log.cursor, root=log.root, max_bytes=max_bytes)

    async def begin(self, pipeline: Pipeline) -> None:
        self._pipeline, self._names = pipeline, ThreadNames()

    async def news(self, roots: Sequence[str]) -> Batch | None:
        folders = dict.fromkeys(map(os.path.dirname, roots))
        await anyio.to_thread.run_sync(self._names.look, folders)
        return await self._names.batch(self._pipeline.index)


def make(context: SourceContext) -> Source:
    return LogFollower(CodexLogs(), context.logs(PRODUCT), context.pipeline)
