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

from burnd.recording.batch import Batch
from burnd.recording.pipeline import Pipeline
from burnd.sources.backfill import Backfill
from burnd.sources.base import Progress, State, Status
from burnd.sources.committing import Committer
from burnd.sources.discover import SUFFIX, Scanner
from burnd.sources.pieces import Pieces
from burnd.sources.queue import Queue, Turn
from burnd.sources.roots import present
from burnd.sources.safe_open import Refused
from burnd.sources.saved import Saved
from burnd.sources.tail import MAX_LINE
from burnd.sources.transcripts import Piece, Transcript, Transcripts, batch_of
from burnd.sources.watch import Times, Watcher

log = structlog.get_logger()

BATCH_BYTES = 5 << 20
BATCH_SECONDS, BACKLOG_SECONDS = 0.1, 2.0
QUIET_S = 10.0
IDLE_S = 600.0
_LOOK_AGAIN_S = 1.0
SETTLED_AT_ONCE = 500  # transcripts
_FATAL = "the process died reading it, again and again"


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
        self._clock = clock
        self._named = named_roots
        self._bell = anyio.Event()
        self._watcher = Watcher(named_roots, suffix=(*self.suffixes, *self.beside), times=times)
        self._queue = Queue(clock)
        self._ahead: Turn | None = None
        self._scanner = Scanner(suffix=(*self.suffixes, *self.beside))
        self._pieces = Pieces(self.transcripts, pipeline, clock)
        self._roots: dict[str, str] = {}
        self._saved = Saved(pipeline, self.name)
        self._generation = pipeline.generation
        self._flushes: list[tuple[str | None, anyio.Event]] = []
        self._committer = Committer(pipeline, self.name)
        self._committed = anyio.Event()  # set while no batch is on its way to the disk
        self._committed.set()
        self._scanned = False
        self._settle_at = 0.0
        self.backfill = Backfill()
        self.counts: Counter[str] = Counter()
        self.files = 0  # as the last scan counted them; beside these are
        self._found_since: set[str] = set()

    @property
    def name(self) -> str:
        return self.transcripts.source

    @property
    def roots(self) -> list[str]:
        """Every folder that is read, whether it is there or not."""
        return list(self._named)

    def transcript_of(self, path: str) -> str:
        """The transcript that a file beside it is about; any other path is its own."""
        return path

    async def batch_of(self, pieces: list[Piece]) -> Batch:
        """Several pieces as one batch."""
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
            async with self._watcher, anyio.create_task_group() as tasks:
                await self._saved.load()
                await self.begin()
                tasks.start_soon(self._watch)
                tasks.start_soon(self._work)
        finally:
            await self._pieces.close()

    async def flush(self, session_id: str | None = None) -> None:
        """Returns when everything that is readable now is recorded, and what was open is settled."""
        done = anyio.Event()
        self._flushes.append((session_id, done))
        self._bell.set()
        await done.wait()

    def add_roots(self, folders: Sequence[str]) -> None:
        """Reads below these folders as well, each as the harness itself is told it."""
        named = [root for root in self.roots_below(folders) if root not in self._named]
        self._named = [*self._named, *named]
        self._watcher.add_roots(named)

    def status(self) -> Status:
        state, detail, remedy = self._condition()
        return Status(
            self.name,
            state,
            detail,
            self.files + len(self._found_since),
            len(self._queue),
            self._queue.lag(),
            progress=self._progress(),
            counts=dict(self.counts),
            remedy=remedy,
        )

    def _condition(self) -> tuple[State, str, str]:
        """How it goes: a word, a sentence, and what to do about it."""
        if self._committer.blocked:
            return "waiting", self._committer.blocked, "free some space; nothing is lost meanwhile"
        if failures := self._queue.failures:
            path, failure = next(iter(failures.items()))
            others = f" (and {len(failures) - 1:,} more)" if len(failures) > 1 else ""
            return "degraded", f"{path}: {failure.reason}{others}", "see that it can be read; it is tried again"
        if not self._scanned and self._watcher.state in ("watching", "polling"):
            return "waiting", "starting: looking for what there is", ""
        remedy = "raise fs.inotify.max_user_watches" if "inotify watch limit" in self._watcher.detail else ""
        return self._watcher.state, self._watcher.detail, remedy

    def _progress(self) -> Progress | None:
        return self.backfill.progress(self._clock()) if len(self._queue) else None

    async def _watch(self) -> None:
        told = ""
        while True:
            dirty = await self._watcher.changes()
            if self._watcher.state != told:
                told = self._watcher.state
                log.info("source.state", source=self.name, state=told, detail=self._watcher.detail)
            for path in map(self.transcript_of, dirty.paths):
                if self._root_of(path) is not None:
                    self._queue.add(path)
            if dirty.scan_all:
                await self._scan(dirty.reason)
            self._bell.set()

    async def _scan(self, reason: str) -> None:
        """Looks at every file: the truth that events are only a hint of."""
        roots = await self._pieces.in_thread(lambda: [root.path for root in present(self._named)])
        scan = await self._pieces.in_thread(lambda: self._scanner.scan(roots))
        self._watcher.scanned(directories=scan.directories, seconds=scan.seconds)
        self.files = self._scanner.count(self.suffixes)
        self._found_since.clear()
        unread = [
            found for found in scan.changed if found.path.endswith(self.suffixes) and self._saved.is_unread(found)
        ]
        if self._scanned:
            for found in scan.changed:
                if found.path.endswith(self.beside):  # it may say more of a transcript that is done
                    self._queue.add(self.transcript_of(found.path))
        self._scanned = True
        for found in unread:
            self._roots[found.path] = found.root
        self.backfill.total += sum(map(self._saved.left, unread))
        self.backfill.since = self.backfill.since or self._clock()
        self._queue.backfill((found.path, found.mtime) for found in unread)
        for path in scan.gone:
            self._queue.forget(path)
        log.debug("source.scanned", source=self.name, reason=reason, files=scan.files, unread=len(unread))

    def _root_of(self, path: str) -> str | None:
        if path not in self._roots:
            root = next((r.path for r in self._watcher.roots if path.startswith(r.path + "/")), None)
            if root is None:
                return None
            self._roots[path] = root
        return self._roots[path]

    async def _work(self) -> None:
        """Reads what is waiting, commits it, settles what has gone quiet, and rests when there is nothing.

        One batch is committed while the next is read: a file has its next turn only after its last was committed.
        """
        await self._take_up_open_turns()
        async with anyio.create_task_group() as tasks:
            while True:
                pieces = await self._gather()
                await self._committed.wait()
                if pieces and self._clock() >= self._settle_at:
                    await self._settle_quiet()
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
            await self._take_news()
            await self._settle_quiet()
            await self._rest()

    async def _take_news(self) -> None:
        if (news := await self.news_beside()) is not None:
            await self._committer.commit(news)

    async def _gather(self) -> list[Piece]:
        """Turns at files until there is a batch's worth, or a tenth of a second has passed, or nothing waits.

        While the batch before is on its way, this one can only wait for it, and so takes more: the busier it is, the
        larger are the batches. While only a backlog is read nobody waits for its lines, and large ones cost less.
        """
        pieces: dict[str, Piece] = {}
        size, begun = 0, self._clock()
        while size < BATCH_BYTES:
            patience = BATCH_SECONDS if self._queue.has_live else BACKLOG_SECONDS
            if self._clock() - begun >= patience and self._committed.is_set():
                break
            turn = await self._next_turn()
            if turn is None:
                break
            piece = await self._read(turn)
            if piece is None:
                continue
            pieces[turn.path] = piece
            size += piece.consumed
            if piece.more:
                break  # its next piece must find the rows of this one, so these are committed first
        return list(pieces.values())

    async def _next_turn(self) -> Turn | None:
        """Whose turn it is. The process that reads apart is given the file after it as well, so as never to wait."""
        turn, self._ahead = self._ahead or self._queue.take(), None
        if turn is None:
            return None
        await self._begin(turn)
        if self._pieces.is_apart and not self._queue.has_live:
            self._ahead = self._queue.take()
            if self._ahead is not None and self._ahead.path not in self._saved:
                await self._begin(self._ahead)
        return turn

    async def _begin(self, turn: Turn) -> None:
        if (root := self._root_of(turn.path)) is not None:
            left = self.backfill.total - self.backfill.done
            is_new = turn.path not in self._saved
            await self._pieces.begin(turn.path, root, turn.max_bytes, left, is_new=is_new)

    async def _read(self, turn: Turn) -> Piece | None:
        """One turn at one file. What cannot be read hurts only itself."""
        path, root = turn.path, self._root_of(turn.path)
        try:
            piece = await self._pieces.read(path, root, turn.max_bytes) if root is not None else None
        except FileNotFoundError:
            self._queue.done(path, more=False)
        except Refused as refused:
            self.counts[refused.reason] += 1
            self._queue.done(path, more=False)
        except OSError as error:
            self._queue.failed(path, error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 - one file must never stop the others; status shows it
            log.error("source.file_failed", source=self.name, error=type(error).__name__)
            self._queue.failed(path, f"{type(error).__name__} while reading it")
        else:
            if piece is None:
                self._queue.done(path, more=False)
            return piece
        self._pieces.known.forget(path)
        return None

    async def _commit(self, pieces: list[Piece]) -> None:
        """Makes pieces durable; where there is no room, waits for it: nothing is lost, the cursor stays."""
        batch = await self.batch_of(pieces)
        for piece in pieces:
            if piece.rewound is not None:
                log.info("source.rewound", source=self.name, reason=piece.rewound)
            for offset, size in piece.skipped:
                if size <= MAX_LINE:
                    log.error("source.line_passed_over", reason=_FATAL, offset=offset)
        try:
            await self._committer.commit(batch)
        except BaseException:
            for piece in pieces:
                self._pieces.known.forget(piece.path)  # its reader is ahead of what is durable
            raise
        for piece in pieces:
            self._note(piece)
            root = self._root_of(piece.path)
            if piece.change.open and not piece.more and root is not None and piece.path not in self._pieces.known:
                await self._pieces.take_up(piece.path, root)  # it was read apart, and is looked after here
        self._pieces.known.trim()

    def _note(self, piece: Piece) -> None:
        """A piece is durable: its file's turn is over."""
        counts = piece.reading.counts
        self.counts["lines"] += counts.lines
        self.counts["skipped lines"] += len(piece.skipped)
        if piece.is_unfinished:
            self.counts["unfinished lines"] += 1
        for name, number in counts.unknown.items():
            self.counts[f"unrecognised type={name}"] += number
        for name, number in counts.rejected.items():
            self.counts[f"rejected {name}"] += number
        self.backfill.done += piece.consumed
        if not self._scanner.has_seen(piece.path):
            self._found_since.add(piece.path)
        self._saved.note(piece.change)
        if (transcript := self._pieces.known.get(piece.path)) is not None:
            transcript.committed()
        if self._queue.is_out(piece.path):
            self._queue.done(piece.path, more=piece.more)
        is_done = not len(self._queue)
        self.backfill.tell(self._clock(), self.name, is_done=is_done, files=len(self._saved))
        if is_done:
            self.backfill = Backfill()

    async def _settle_quiet(self) -> None:
        """Turns whose calls are answered settle after 10 s of quiet, the others after 10 minutes."""
        now = self._clock()
        self._settle_at = now + _LOOK_AGAIN_S
        known = [(t, now - t.changed_at) for t in self._pieces.known.live() if not self._queue.is_out(t.path)]
        quiet = [t for t, seconds in known if QUIET_S <= seconds < IDLE_S]
        idle = [t for t, seconds in known if seconds >= IDLE_S]
        await self._settle([t for t in quiet if t.open_holdings], answered_only=True)
        await self._settle([t for t in idle if t.open_holdings], answered_only=False)
        for transcript in idle:
            if not transcript.has_untried_tail:
                continue
            if pieces := await self._pieces.tail_of(transcript):
                await self._commit(pieces)
            else:
                self.counts["unfinished lines"] += 1

    async def _settle(self, transcripts: list[Transcript], *, answered_only: bool) -> None:
        for begin in range(0, len(transcripts), SETTLED_AT_ONCE):
            some = transcripts[begin : begin + SETTLED_AT_ONCE]
            if pieces := await self._pieces.settled(some, answered_only=answered_only):
                await self._commit(pieces)

    async def _answer_flushes(self) -> None:
        """With nothing left to read after a scan, settles what the flushes asked for."""
        flushes, self._flushes = self._flushes, []
        await self._scan("flush")
        self._queue.retry_failed()
        while pieces := await self._gather():
            await self._commit(pieces)
        everything = any(session_id is None for session_id, _ in flushes)
        sessions = {session_id for session_id, _ in flushes}
        held_by = {t: {held.session_id for held in t.open_holdings} for t in self._pieces.known.live()}
        wanted = [t for t, holders in held_by.items() if holders and (everything or holders & sessions)]
        await self._settle(wanted, answered_only=False)
        await self._take_news()
        for _, done in flushes:
            done.set()

    async def _rest(self) -> None:
        """Sleeps until something is dirty, or a failed file, an open turn or a quiet one is due."""
        due = self._queue.due()
        waits = [due - self._clock()] if due is not None else []
        if any(transcript.open_holdings for transcript in self._pieces.known.live()):
            waits.append(_LOOK_AGAIN_S)
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
        """When the index was made anew, everything is read again from its start; files that are gone stay as known."""
        self._generation = self.pipeline.generation
        await self._pieces.renew()
        self._scanner = Scanner(suffix=(*self.suffixes, *self.beside))
        await self._saved.forget()
        await self.begin()
        await self._scan("the index was made anew")
