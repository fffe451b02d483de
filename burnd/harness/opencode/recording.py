"""Where what was read of opencode's databases goes, and what is known of them from before: pipeline and index."""

from __future__ import annotations

from collections.abc import Collection

from burnd.harness.opencode.cursor import Cursors, loaded, source_key
from burnd.harness.opencode.follower import DatabaseFollower
from burnd.harness.opencode.session import SOURCE
from burnd.harness.opencode.session_state import DatabasePiece
from burnd.index.change import CursorChange, FileChange
from burnd.recording.batch import Batch, Told
from burnd.recording.committing import Committer
from burnd.recording.pipeline import Pipeline
from burnd.records import Turn
from burnd.records.codec import decode

_SHOWN = "SELECT f.path, o.record FROM open_turns o JOIN files f ON f.id = o.file WHERE f.source = ?"


class Recorder:
    """Commits pieces one at a time; `blocked` says why it has to wait, while it has to."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._committer = Committer(pipeline, SOURCE)
        self._pipeline = pipeline

    @property
    def blocked(self) -> str:
        return self._committer.blocked

    async def record(self, follower: DatabaseFollower, piece: DatabasePiece) -> None:
        """Makes a piece durable, with how far its database was read."""
        changes = follower.changes(piece)
        if piece.steps or piece.content or piece.sessions or piece.agents or changes:
            batch = Batch(
                entries=[*piece.sessions],
                content=piece.content,
                cursors=changes,
                steps=piece.steps,
                agents=piece.agents,
                files=self._file(follower, piece),
                source=SOURCE,
                made_at=piece.made_at,
                copied=piece.copied,
            )
            try:
                await self._committer.commit(batch, follower.put_aside)
            except BaseException:
                follower.failed(piece)
                raise
        follower.committed(piece)

    async def settle_all_but(self, keys: Collection[str]) -> None:
        """Turns that were open in databases which are gone: what was seen of them stands."""
        rows = await self._pipeline.index.rows(_SHOWN, (SOURCE,))
        left = [(path, decode(record)) for path, record in rows if path not in keys]
        steps = [Told(turn, True, path) for path, turn in left if isinstance(turn, Turn)]
        if steps:
            await self._committer.commit(Batch(steps=steps))

    async def forget_cursors(self) -> None:
        """Everything is to be read again, from the beginning of every database."""
        rows = await self._pipeline.index.rows(
            "SELECT source, key FROM cursors WHERE source LIKE ?", (source_key(SOURCE, "%"),)
        )
        await self._committer.commit(Batch(cursors=[CursorChange(source, key, None) for source, key in rows]))

    async def cursors(self, key: str) -> Cursors:
        """How far a database was read."""
        rows = await self._pipeline.index.rows(
            "SELECT key, value FROM cursors WHERE source = ?", (source_key(SOURCE, key),)
        )
        return loaded(rows)

    async def shown(self, key: str) -> dict[str, Turn]:
        """The turns of a database that the index shows as open."""
        rows = await self._pipeline.index.rows(_SHOWN + " AND f.path = ?", (SOURCE, key))
        turns = [entry for _, record in rows if isinstance(entry := decode(record), Turn)]
        return {turn.message_id: turn for turn in turns}

    def _file(self, follower: DatabaseFollower, piece: DatabasePiece) -> list[FileChange]:
        """Turns that are shown as open belong to a file of the index's: the database."""
        if all(told.settled for told in piece.steps):
            return []
        return [FileChange(SOURCE, follower.key, b"", seen_ms=self._pipeline.now(), open=True)]
