"""Codex as a source: a tree of rollouts by day, and those that were archived."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

import anyio.to_thread

from burnd.harness.codex.compressed import read_compressed
from burnd.harness.codex.product import PRODUCT
from burnd.harness.codex.reader import COMPRESSED, CodexReader, place_of
from burnd.harness.codex.state import SOURCE, Place, load_state
from burnd.harness.codex.thread_names import ThreadNames
from burnd.harness.supervisor import SourceContext
from burnd.index.reader_packs import FilePacks
from burnd.logfiles.scanner import SUFFIX
from burnd.logfiles.tail import Chunk
from burnd.logfiles.transcript_tree import TranscriptTree
from burnd.logfiles.transcripts import Transcript, Transcripts
from burnd.recording.batch import Batch
from burnd.recording.source import Source


class CodexTranscripts(Transcripts):
    """Rollouts, read by `CodexReader`."""

    source: ClassVar[str] = SOURCE

    def place_of(self, relative: str) -> Place | None:
        return place_of(relative)

    def is_state(self, data: bytes) -> bool:
        return load_state(data) is not None

    def reader_of(self, transcript: Transcript, packs: FilePacks) -> CodexReader:  # noqa: ARG002
        return CodexReader(transcript.place, load_state(transcript.state))

    def chunk_of(self, transcript: Transcript, max_bytes: int) -> Chunk:
        if not transcript.path.endswith(COMPRESSED):
            return super().chunk_of(transcript, max_bytes)
        return read_compressed(transcript.path, transcript.cursor, root=transcript.root, max_bytes=max_bytes)


class Codex(TranscriptTree):
    """Rollouts below the folders that Codex is told to keep its things in."""

    transcripts: ClassVar[type[Transcripts]] = CodexTranscripts
    suffixes: ClassVar[tuple[str, ...]] = (SUFFIX, COMPRESSED)
    _names: ThreadNames

    async def begin(self) -> None:
        self._names = ThreadNames()

    async def news_beside(self) -> Batch | None:
        folders = dict.fromkeys(map(os.path.dirname, self.roots))
        await anyio.to_thread.run_sync(self._names.look, folders)
        return await self._names.batch(self.pipeline.index)

    def roots_below(self, folders: Sequence[str]) -> list[str]:
        return PRODUCT.logs_below(folders)


def make(context: SourceContext) -> Source:
    return Codex(context.logs(PRODUCT), context.pipeline)
