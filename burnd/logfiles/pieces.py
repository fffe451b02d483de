"""Reads one piece of one transcript off the event loop: in a thread, or in a child process.

A child reads a large backlog, and logs that an earlier process died over.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
import structlog

from burnd.index.path_key import path_key
from burnd.index.reader_packs import PackLost
from burnd.logfiles.backfill_process import Apart, Task, Wanted, unpacked
from burnd.logfiles.cursor import loaded
from burnd.logfiles.transcripts import Piece, Transcript, Transcripts
from burnd.recording.child_process import Failed, Gone, try_suspect
from burnd.recording.crash_guard import CrashGuard, Item
from burnd.recording.pipeline import Pipeline

T = TypeVar("T")
log = structlog.get_logger()

APART_FROM = 32 << 20  # bytes that are left: fewer are read before another process is well under way


class Pieces:
    """Reads transcripts of one harness, one at a time: what is at hand here, the rest wherever it is quicker."""

    def __init__(self, kind: type[Transcripts], pipeline: Pipeline, clock: Callable[[], float]) -> None:
        self._kind, self._pipeline, self._clock = kind, pipeline, clock
        self._thread = anyio.CapacityLimiter(1)
        self._apart: Apart | None = None
        self._trial: Apart | None = None
        self._asked: deque[str] = deque()  # paths that the other process was asked for and did not answer yet
        self._open()

    def _open(self) -> None:
        index_path = self._pipeline.home.index_db
        self.guard = CrashGuard(index_path.with_name(f"reading.{self.source}"))
        self.known = self._kind(index_path, self._pipeline.content.inline_bytes, self.guard)

    @property
    def source(self) -> str:
        return self._kind.source

    @property
    def is_apart(self) -> bool:
        """Whether another process reads beside this one."""
        return self._apart is not None

    async def begin(self, path: str, root: str, max_bytes: int, left: int, *, is_new: bool) -> None:
        """Lets the other process begin with a file that is read soon; nothing where it is read here.

        `left` is how much waits, in bytes: with little to read there is no other process. What was begun is to be
        read in the same order. Nothing is known yet of a file that `is_new`.
        """
        if self.guard.is_suspect(path_key(path)):
            return
        if path not in self._asked and path not in self.known and (self._apart is not None or left >= APART_FROM):
            home, inline_bytes = self._pipeline.home, self._pipeline.content.inline_bytes
            apart = self._apart = self._apart or Apart(self._kind, home.index_db, inline_bytes)
            saved = None if is_new else await self._saved(path)
            skipped = self.guard.skipped(path_key(path))
            wanted = Wanted(path, root, saved, max_bytes, self._clock(), self._pipeline.now())
            with contextlib.suppress(Gone):  # then it is read here
                await self.in_thread(lambda: apart.ask(wanted, skipped))
                self._asked.append(path)

    async def read(self, path: str, root: str, max_bytes: int) -> Piece | None:
        """What one turn at a file brings; None where it is no transcript."""
        if path in self._asked and self._apart is not None:
            self._asked.popleft()
            try:
                return await self.in_thread(self._apart.answer)
            except Gone as gone:
                self._asked.clear()
                log.warning("source.reader_gone", source=self._kind.source, crashed=gone.crashed)
                if gone.crashed:
                    self.guard.suspect(path_key(path))
            except Failed:
                pass  # tried again here, where it shows whether it was the index
        if self.guard.is_suspect(path_key(path)):
            return await self._try(path, root, "read", max_bytes)
        transcript = await self.find(path, root)
        if transcript is None:
            return None
        now, seen_ms = self._clock(), self._pipeline.now()
        return await self.in_thread(lambda: self.known.read(transcript, max_bytes, now, seen_ms))

    async def _try(self, path: str, root: str, task: Task, max_bytes: int = 0) -> Piece | None:
        """Runs a task in a child that acknowledges each item, again without the items that crash it.

        Raises OSError if the child was killed, or crashed outside of the items: it is tried again later.
        """
        key = path_key(path)
        self.known.forget(path)  # the child goes on from the state in the index
        saved = await self._saved(path)
        home, inline_bytes = self._pipeline.home, self._pipeline.content.inline_bytes
        trial = self._trial = self._trial or Apart(self._kind, home.index_db, inline_bytes, is_trial=True)
        now_ms = self._pipeline.now()
        wanted = Wanted(path, root, saved, max_bytes, self._clock(), now_ms, task)
        try:
            answer = await self.in_thread(partial(try_suspect, self.guard, trial, key, wanted, now_ms, self._log_crash))
        except FileNotFoundError:
            self.guard.clear(key)
            raise
        piece = unpacked(answer)
        if piece is None or _is_done(piece):
            self.guard.clear(key)
        return piece

    def _log_crash(self, item: Item, count: int) -> None:
        log.error("source.reader_crashed", source=self.source, item=item, count=count)

    async def find(self, path: str, root: str) -> Transcript | None:
        """The transcript at a path, ready to be read on here."""
        return self.known.get(path) or self.known.open(path, root, await self._saved(path))

    async def _saved(self, path: str) -> tuple[bytes, bytes] | None:
        """A file's cursor and its reader's state, as the index has them."""
        sql = "SELECT cursor, state FROM files WHERE source = ? AND path = ?"
        rows = await self._pipeline.index.rows(sql, (self._kind.source, path_key(path)))
        return (bytes(rows[0][0]), bytes(rows[0][1])) if rows else None

    async def take_up(self, path: str, root: str, changed_at: float | None = None) -> None:
        """Looks after a file in which something may still grow, though it may never be written to again."""
        transcript = await self.find(path, root)
        if transcript is not None:
            since = self._clock() if changed_at is None else changed_at
            await self.in_thread(lambda: self.known.load(transcript, since))

    async def drop(self, path: str, root: str) -> None:
        """Forgets what is in memory of a file that could not be read, but for what the index says is open in it."""
        dropped = self.known.get(path)
        self.known.forget(path)
        sql = "SELECT 1 FROM files WHERE source = ? AND path = ? AND open"
        if await self._pipeline.index.rows(sql, (self._kind.source, path_key(path))):
            await self.take_up(path, root, dropped.changed_at if dropped is not None else None)

    async def let_go(self, path: str, root: str) -> None:
        """A file is gone: what is open in it can still settle, from what the index has of it."""
        transcript = self.known.get(path)
        is_open = transcript is not None and bool(transcript.waiting_sessions)
        self.known.forget(path)
        if is_open:
            await self.take_up(path, root)

    async def tail_of(self, path: str, root: str, *, only_whole: bool) -> Piece | None:
        """The last line of a quiet file, if it is whole but for its newline; None if the file is not as it was.

        What is not whole is noted, unless `only_whole` is wanted. Raises Refused, or the OSError of a file that cannot
        be read just now.
        """
        if self.guard.is_suspect(path_key(path)):
            return await self._try(path, root, "whole tail" if only_whole else "tail")
        transcript = await self.find(path, root)
        if transcript is None:
            return None
        return await self.in_thread(
            lambda: self.known.take_tail(transcript, self._pipeline.now(), only_whole=only_whole)
        )

    async def settled(self, transcripts: Sequence[Transcript], *, answered_only: bool) -> list[Piece]:
        """What is open in transcripts, settled: all of it or only what has its answers."""
        now = self._pipeline.now()
        wanted = [t for t in transcripts if not answered_only or any(held.answered for held in t.open_candidates)]
        suspects = [t for t in wanted if self.guard.is_suspect(path_key(t.path))]
        some = [t for t in wanted if t not in suspects]

        def settle() -> list[Piece | None]:
            return [self.known.settle(transcript, now, answered_only=answered_only) for transcript in some]

        pieces = await self.in_thread(settle) if some else []
        for suspect in suspects:
            try:
                task: Task = "settle answered" if answered_only else "settle"
                pieces.append(await self._try(suspect.path, suspect.root, task))
            except OSError:
                await self.take_up(suspect.path, suspect.root)  # it is tried again
        return [piece for piece in pieces if piece is not None]

    async def rest(self) -> None:
        """Ends the child processes when nothing is left to read."""
        children = [child for child in (self._apart, self._trial) if child is not None]
        self._apart = self._trial = None
        self._asked.clear()
        for child in children:
            await self.in_thread(child.close)

    async def renew(self) -> None:
        """Begins again with another index."""
        await self.rest()
        self.known.close()
        self._open()

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.rest()
        self.known.close()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Blocking work, one piece at a time. Raises IndexDamaged if a pack of a reader is lost."""
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._thread)
        except PackLost as lost:
            error = lost.__cause__ if isinstance(lost.__cause__, Exception) else lost
            raise self._pipeline.index.failed(error) from lost


def _is_done(piece: Piece) -> bool:
    """Whether a file was read to its end and has no open turns."""
    cursor = loaded(piece.change.cursor) if piece.change.cursor is not None else None
    return not piece.more and not piece.change.open and not (cursor is not None and cursor.has_untried_tail)
