"""Claude Code as a source: a tree of transcripts, with files beside them and summaries in other sessions' files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import anyio

from burnd.harness.claude_code.processes import Registry
from burnd.harness.claude_code.product import PRODUCT
from burnd.harness.claude_code.titles import LeafTitles
from burnd.harness.claude_code.transcripts import ClaudeTranscripts
from burnd.harness.supervisor import SourceContext
from burnd.logfiles.scanner import SUFFIX
from burnd.logfiles.transcript_tree import TranscriptTree
from burnd.logfiles.transcripts import Piece, Transcripts
from burnd.recording.batch import Batch
from burnd.recording.source import Source

META = ".meta.json"
_REGISTRY_S = 2.0


class ClaudeCode(TranscriptTree):
    """Transcripts below every `projects` folder, in which titles may be told of lines in other files."""

    transcripts: ClassVar[type[Transcripts]] = ClaudeTranscripts
    beside: ClassVar[tuple[str, ...]] = (META,)
    _leaf_titles: LeafTitles
    _registry: Registry

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._registry = Registry()

    def transcript_of(self, path: str) -> str:
        return path.removesuffix(META) + SUFFIX if path.endswith(META) else path

    async def batch_of(self, pieces: list[Piece]) -> Batch:
        batch = await self._leaf_titles.batch_of(self.pipeline, pieces)
        if next(self.pipeline.keeping.private_sessions(), None) is not None:
            await self._registry.add_to(batch, self.roots, self.pipeline.now())
        return batch

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_registry)
            await super().run()
            tasks.cancel_scope.cancel()

    async def _follow_registry(self) -> None:
        """Checks regularly which session each client process works on, while there is a private session."""
        while True:
            await anyio.sleep(_REGISTRY_S)
            if next(self.pipeline.keeping.private_sessions(), None) is not None:
                batch = Batch()
                await self._registry.add_to(batch, self.roots, self.pipeline.now())
                if batch.cursors:
                    await self.commit_beside(batch)

    async def begin(self) -> None:
        self._leaf_titles = LeafTitles()
        await self._leaf_titles.load(self.pipeline.index)
        await self._registry.load(self.pipeline.index)

    def roots_below(self, folders: Sequence[str]) -> list[str]:
        return PRODUCT.logs_below(folders)


def make(context: SourceContext) -> Source:
    return ClaudeCode(context.logs(PRODUCT), context.pipeline)
