"""A source of transcripts in a tree of folders: finds them, reads them as they grow, and settles what has gone quiet.

It knows lines of files and nothing of a harness: that is said in subclasses.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import ClassVar

import anyio
import structlog

from burnd.logfiles.pieces import Pieces
from burnd.logfiles.queue import Queue
from burnd.logfiles.saved import Saved
from burnd.logfiles.scanner import SUFFIX
from burnd.logfiles.transcript_gathering import Gatherer
from burnd.logfiles.transcript_scanning import Finder, Naming
from burnd.logfiles.transcript_settling import ALL_TAILS, IDLE_S, LOOK_AGAIN_S, Settler
from burnd.logfiles.transcripts import Piece, Transcripts, batch_of
from burnd.logfiles.watcher import Times
from burnd.recording.backfill import Backfill
from burnd.recording.batch import Batch
from burnd.recording.committing import Committer
from burnd.recording.pipeline import Pipeline
from burnd.recording.source import State, Status

log = structlog.get_logger()


class TranscriptTree:
    """One task watches, one reads. What is recorded goes through the pipeline, one batch at a time.

    A harness says in a subclass where its transcripts are and how they are read: the methods up to `roots_below`.
    """

    transcripts: ClassVar[type[Transcripts]]
    suffixes: ClassVar[tuple[str, ...]] = (SUFFIX,)  # how transcripts end
    beside: ClassVar[tuple[str, ...]] = ()  # how files end that stand beside transcripts and say more of them

    def __init__(
        self,
        named_roots: Sequence[str],
        pipeline: Pipeline,
        *,
        times: Times | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pipeline = pipeline
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._queue = Queue(clock)
        self._pieces = Pieces(self.transcripts, pipeline, clock)
        self._saved = Saved(pipeline, self.name, clock)
        naming = Naming(self.suffixes, self.beside, self.transcript_of)
        self._finder = Finder(named_roots, naming, self._queue, self._saved, self._pieces, times=times, clock=clock)
        self._gatherer = Gatherer(self._queue, self._finder, self._saved, self._pieces, self.counts, clock)
        self._settler = Settler(self._queue, self._pieces, self._saved, self._commit, clock)
        self._committer = Committer(pipeline, self.name)
        self._committed = anyio.Event()  # set while no batch is on its way to the disk
        self._committed.set()
        self._bell = anyio.Event()
        self._flushes: list[tuple[str | None, anyio.Event]] = []
        self._generation = pipeline.generation

    @property
    def name(self) -> str:
        return self.transcripts.source

    @property
    def roots(self) -> list[str]:
        """Every folder that is read, whether it is there or not."""
        return list(self._finder.named_roots)

    @property
    def backfill(self) -> Backfill:
        return self._finder.backfill

    def transcript_of(self, path: str) -> str:
        """The transcript that a file beside it is about; any other path is its own."""
        return path

    async def batch_of(self, pieces: list[Piece]) -> Batch:
        """What pieces say together, with what a harness may know beyond each of them."""
        return batch_of(pieces)

    async def begin(self) -> None:
        """Before anything is read, at the start and after the index was lost: learns what the index knows."""

    async def news_beside(self) -> Batch | None:
        """What is new in files that are about the whole tree; asked for whenever there is nothing to read."""
        return None

    def roots_below(self, folders: Sequence[str]) -> list[str]:
        """Where transcripts are in folders as the harness itself is told them."""
        raise NotImplementedError

    async def run(self) -> None:
        """Reads until cancelled."""
        try:
            async with self._finder.watcher, anyio.create_task_group() as tasks:
                await self._saved.load(self._pieces.known.is_usable)
                await self._retry_skipped()
                await self.begin()
                tasks.start_soon(self._finder.watch, self._ring)
                tasks.start_soon(self._work)
        finally:
            await self._pieces.close()

    async def flush(self, session_id: str | None = None) -> str | None:
        """Records everything readable and settles open turns; returns the reason if a log could not be read."""
        done = anyio.Event()
        self._flushes.append((session_id, done))
        self._ring()
        await done.wait()
        return self._failure()

    def add_roots(self, folders: Sequence[str]) -> None:
        """Reads below these folders as well, each as the harness itself is told it."""
        self._finder.add_roots(self.roots_below(folders))

    def status(self) -> Status:
        state, detail, remedy = self._condition()
        return Status(
            self.name,
            state,
            detail,
            self._finder.files,
            len(self._queue),
            self._queue.lag(),
            progress=self.backfill.progress(self._clock()) if self._queue.is_behind else None,
            counts={**self.counts, **self._finder.passed_over},
            unused=self._saved.unused(),
            left_alone=self._finder.left_alone,
            remedy=remedy,
            has_looked=self._finder.has_scanned,
            blocked=self._committer.blocked,
        )

    def _condition(self) -> tuple[State, str, str]:
        """How it goes: a word, a sentence, and what to do about it."""
        if self._committer.blocked:
            return "waiting", self._committer.blocked, "free some space; nothing is lost meanwhile"
        if (failure := self._failure()) is not None:
            return "degraded", failure, "see that it can be read; it is tried again"
        return self._finder.condition()

    def _failure(self) -> str | None:
        """The first log that cannot be read, with the reason and how many others there are."""
        failures = self._queue.failures
        if not failures:
            return None
        path, failure = next(iter(failures.items()))
        others = f" (and {len(failures) - 1:,} more)" if len(failures) > 1 else ""
        return f"{path}: {failure.reason}{others}"

    def _ring(self) -> None:
        self._bell.set()

    async def _work(self) -> None:
        """Reads what is waiting, commits it, settles what has gone quiet, and rests when there is nothing.

        One batch is committed while the next is read: a file has its next slot only after its last was committed.
        """
        await self._take_up_open_turns()
        async with anyio.create_task_group() as tasks:
            while True:
                pieces = await self._gatherer.gather(self._committed)
                await self._committed.wait()
                if pieces and self._settler.is_due:
                    await self._settler.settle_quiet()
                if pieces:
                    if not self._queue.has_live:
                        await self.pipeline.followed()
                    self._committed = anyio.Event()
                    tasks.start_soon(self._commit_then, pieces, self._committed.set)
                elif not len(self._queue):
                    await self._look_around()

    async def _commit_then(self, pieces: list[Piece], then: Callable[[], object]) -> None:
        await self._commit(pieces)
        then()

    async def _look_around(self) -> None:
        """With nothing to read: answers flushes, settles what is quiet, follows a new index, or rests."""
        await self._pieces.rest()
        if self._generation != self.pipeline.generation:
            await self._read_everything_again()
        elif self._flushes:
            await self._answer_flushes()
        else:
            if await self._retry_skipped():
                await self._finder.scan("skipped lines are tried again")
            await self._take_news()
            await self._settler.settle_quiet()
            if not await self._read_released():
                await self._rest()

    async def commit_beside(self, batch: Batch) -> None:
        """Commits a batch from other files than transcripts."""
        await self._committer.commit(batch)

    async def _read_released(self) -> bool:
        """Queues logs of sessions whose text was deferred until its origin was known; returns whether there are any."""
        sessions = await self.pipeline.released()
        for session_id in sessions:
            sql = "SELECT path FROM files WHERE source = ? AND (instr(path, ?) OR instr(path, ?))"
            found = await self.pipeline.index.rows(sql, (self.name, f"/{session_id}.", f"/{session_id}/"))
            await self._saved.drop([path for (path,) in found])
            for (path,) in found:
                self._pieces.known.forget(path)
                self._queue.add(path)
        return bool(sessions)

    async def _retry_skipped(self) -> bool:
        """Reads files with skipped lines again, after a day or an upgrade; returns whether there are any."""
        paths = self._pieces.guard.due(self.pipeline.now())
        for path in paths:
            self._pieces.known.forget(path)
        await self._saved.read_again(paths)
        return bool(paths)

    async def _take_news(self) -> None:
        if (news := await self.news_beside()) is not None:
            await self._committer.commit(news)

    async def _commit(self, pieces: list[Piece]) -> None:
        """Makes pieces durable; where there is no room, waits for it: nothing is lost, the cursor stays."""
        batch = await self.batch_of(pieces)
        for piece in pieces:
            if piece.rewound is not None:
                log.info("source.rewound", source=self.name, reason=piece.rewound)
            for reason, offset, size in piece.skipped:
                log.error("source.line_passed_over", source=self.name, reason=reason, offset=offset, size=size)
        try:
            await self._committer.commit(batch)
        except BaseException:
            for piece in pieces:
                self._pieces.known.forget(piece.path)  # its reader is ahead of what is durable
            raise
        for piece in pieces:
            self._note(piece)
            root = self._finder.root_of(piece.path)
            if piece.change.open and not piece.more and root is not None and piece.path not in self._pieces.known:
                await self._pieces.take_up(piece.path, root)  # it was read apart, and is looked after here
        self._pieces.known.trim(self._queue.is_out)

    def _note(self, piece: Piece) -> None:
        """A piece is durable: its file's slot is over."""
        self._count(piece)
        self._saved.note(piece.change)
        if (transcript := self._pieces.known.get(piece.path)) is not None:
            transcript.committed()
        if self._queue.is_out(piece.path):
            self._queue.done(piece.path, more=piece.more)
        self._finder.note_read(piece.path, piece.consumed)

    def _count(self, piece: Piece) -> None:
        counts = piece.reading.counts
        self.counts["lines"] += counts.lines
        self.counts["skipped lines"] += len(piece.skipped)
        if piece.is_unfinished:
            self.counts["unfinished lines"] += 1
        for name, number in counts.unknown.items():
            self.counts[f"unrecognised type={name}"] += number
        for name, number in counts.rejected.items():
            self.counts[f"rejected {name}"] += number

    async def _answer_flushes(self) -> None:
        """With nothing left to read after a scan, settles what the flushes asked for."""
        flushes, self._flushes = self._flushes, []
        await self._finder.scan("flush")
        self._queue.retry_failed()
        while pieces := await self._gatherer.gather(self._committed):
            await self._commit(pieces)
        if await self._read_released():
            while pieces := await self._gatherer.gather(self._committed):
                await self._commit(pieces)
        await self._settler.take_tails(ALL_TAILS)
        await self._settler.settle_sessions({session_id for session_id, _ in flushes})
        await self._take_news()
        for _, done in flushes:
            done.set()

    async def _rest(self) -> None:
        """Sleeps until something is dirty, or a failed file, an open turn or a quiet one is due."""
        dues = (self._queue.due(), self._saved.tails.next_due())
        waits = [due - self._clock() for due in dues if due is not None]
        if self._settler.waits:
            waits.append(LOOK_AGAIN_S)
        self._bell = anyio.Event()
        if len(self._queue) or self._flushes:
            return
        with anyio.move_on_after(max(0.01, min(waits, default=IDLE_S))):
            await self._bell.wait()

    async def _take_up_open_turns(self) -> None:
        """Files in which a message is open are looked after from the start, even if they never grow again."""
        for path, root in await self._saved.with_open_turns():
            await self._pieces.take_up(path, root)

    async def _read_everything_again(self) -> None:
        """When the index was made anew, everything is read again from its start; files that are gone stay as known.

        What is open is settled first: the line that told of it may not be there any more.
        """
        self._generation = self.pipeline.generation
        await self._settler.settle_sessions([None])
        await self._pieces.renew()
        await self._saved.forget()
        await self.begin()
        await self._finder.scan_anew("the index was made anew")
