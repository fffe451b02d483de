"""Reads transcripts into a home step by step, with restarts where a test wants them and without a clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from burnd.attribution.explainer import Explainer
from burnd.harness.claude_code.related_sessions import LeafTitles
from burnd.harness.claude_code.source import ClaudeLogs
from burnd.harness.codex.source import CodexLogs
from burnd.index.keys import path_key
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import HomeLock, prepare_home
from burnd.logfiles.log_reader import Log, LogFormat, Logs, Piece, batch_of
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.crash_guard import Acknowledger
from burnd.recording.pipeline import Pipeline, open_pipeline
from burnd.records.codec import encode_content
from tests.dump import causes_dump, index_dump, ledger_dump
from tests.make import START_MS, read_content


class Rig:
    """A home and a tree of transcripts. `read` does what the source does when a file is dirty."""

    kind: ClassVar[type[LogFormat]] = ClaudeLogs

    def __init__(self, home: Path, projects: Path) -> None:
        self.home = Home(home)
        self.projects = projects
        self.pipeline: Pipeline
        self._logs: Logs

    async def open(self) -> None:
        prepare_home(self.home.root)
        self._lock = HomeLock(self.home.lock)
        pipeline = await open_pipeline(
            self.home, ContentModes("full"), inline_bytes=1024, reserve=0, now=lambda: START_MS + 10**10
        )
        await self.open_source(pipeline)

    async def open_source(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._logs = self._open_logs()
        await self._begin()

    def _open_logs(self) -> Logs:
        return Logs(self.kind(), self.home.index_db, Acknowledger(None, frozenset()))

    def close_source(self) -> None:
        self._logs.close()

    async def close(self) -> None:
        self.close_source()
        await self.pipeline.close()
        self._lock.release()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def read(self, *paths: Path, max_bytes: int = 4 << 20, pieces_at_once: int = 1) -> None:
        """Reads files to their ends, in this order, several to a batch."""
        waiting: list[Piece] = []
        for path in paths:
            while (piece := await self._piece(path, max_bytes)) is not None:
                waiting.append(piece)
                if piece.more or len(waiting) >= pieces_at_once:
                    await self._commit(waiting)
                    waiting = []
                if not piece.more:
                    break
        await self._commit(waiting)
        await self.search_titles()

    async def in_hand(self, *paths: Path) -> list[Piece]:
        """The unrecorded result of one read of each of these files."""
        return [piece for path in paths if (piece := await self._piece(path, 4 << 20)) is not None]

    def drop_readers(self) -> None:
        """Frees all readers, as if no file had been read since the start."""
        self._logs.close()
        self._logs = self._open_logs()

    async def flush(self) -> None:
        """Settles everything that is open, in whatever file; files that are not in memory are brought back."""
        rows = await self.pipeline.index.rows("SELECT path FROM files WHERE source = ? AND open", (self.kind.source,))
        pieces = []
        for (path,) in rows:
            log = await self._log(Path(path))
            assert log is not None
            piece = self._logs.settle(log, 0, answered_only=False)
            pieces += [piece] if piece is not None else []
        await self._commit(pieces)

    async def outcome(self) -> dict[str, Any]:
        """Ledger, content and index in a form that two ways of reading can be compared by."""
        sessions = sorted(row[0] for row in await self.pipeline.index.rows("SELECT session_id FROM sessions"))
        content = {s: [encode_content(c) for c in read_content(self.pipeline.content, s)] for s in sessions}
        await Explainer(self.pipeline).catch_up()
        index = await index_dump(self.pipeline.index, places=False) | await causes_dump(self.pipeline.index)
        return {"ledger": ledger_dump(self.pipeline.journal), "content": content, "index": index}

    def files(self) -> list[Path]:
        return sorted(path for path in self.projects.rglob("*.jsonl"))

    async def _piece(self, path: Path, max_bytes: int) -> Piece | None:
        log = await self._log(path)
        if log is None:
            return None
        return self._logs.read(log, max_bytes, 0.0, 0)

    async def _log(self, path: Path) -> Log | None:
        known = self._logs.get(str(path))
        if known is not None:
            return known
        rows = await self.pipeline.index.rows(
            "SELECT cursor, state FROM files WHERE source = ? AND path = ?", (self.kind.source, path_key(str(path)))
        )
        saved = (bytes(rows[0][0]), bytes(rows[0][1])) if rows else None
        return self._logs.open(str(path), str(self.projects), saved)

    async def _commit(self, pieces: Iterable[Piece]) -> None:
        pieces = list(pieces)
        if not pieces:
            return
        await self.pipeline.commit(await self._batch_of(pieces))

    async def _begin(self) -> None:
        self.leaf_titles = LeafTitles()
        await self.leaf_titles.load(self.pipeline.index)

    async def search_titles(self) -> None:
        while self.leaf_titles.has_unsearched:
            if (batch := await self.leaf_titles.search(self.pipeline.index)) is not None:
                await self.pipeline.commit(batch)

    async def _batch_of(self, pieces: Sequence[Piece]) -> Batch:
        batch = batch_of(pieces)
        await self.leaf_titles.add_to(batch, pieces)
        return batch


class CodexRig(Rig):
    """The same over a tree of Codex's rollouts."""

    kind = CodexLogs

    async def _begin(self) -> None:
        pass

    async def search_titles(self) -> None:
        pass

    async def _batch_of(self, pieces: Sequence[Piece]) -> Batch:
        return batch_of(pieces)
