"""Claude Code as a source: a tree of transcripts, with files beside them and summaries in other sessions' files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from burnd.pipeline import Batch
from burnd.sources.claude_transcripts import ClaudeTranscripts
from burnd.sources.discover import SUFFIX
from burnd.sources.leaf_titles import LeafTitles
from burnd.sources.roots import transcripts_below
from burnd.sources.transcript_tree import TranscriptTree
from burnd.sources.transcripts import Piece, Transcripts

META = ".meta.json"


class ClaudeCode(TranscriptTree):
    """Transcripts below every `projects` folder, in which titles may be told of lines in other files."""

    transcripts: ClassVar[type[Transcripts]] = ClaudeTranscripts
    beside: ClassVar[tuple[str, ...]] = (META,)
    _leaf_titles: LeafTitles

    def transcript_of(self, path: str) -> str:
        return path.removesuffix(META) + SUFFIX if path.endswith(META) else path

    async def batch_of(self, pieces: list[Piece]) -> Batch:
        return await self._leaf_titles.batch_of(self.pipeline, pieces)

    async def begin(self) -> None:
        self._leaf_titles = LeafTitles()
        await self._leaf_titles.load(self.pipeline.index)

    def roots_below(self, folders: Sequence[str]) -> list[str]:
        return transcripts_below(folders)
