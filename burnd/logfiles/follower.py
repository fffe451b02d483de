"""Follows the logs of a source: picks a log, reads it, commits the result, and settles turns that are quiet.

One task reads live logs, settles and flushes. The other reads old and large logs, most of them in a child process. A
live line waits only for the commit in progress.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream

from burnd.index.change import Change
from burnd.index.keys import path_key
from burnd.logfiles.backfill_process import BackfillProcess, ReadRequest, Task, unpack_piece
from burnd.logfiles.finder import DueTail, Finder, Positions
from burnd.logfiles.log_reader import Log, LogFormat, Logs, Piece, batch_of, is_done
from burnd.logfiles.queue import Queue
from burnd.logfiles.scanner import Refused
from burnd.logfiles.tail import MAX_BYTES
from burnd.logfiles.watcher import Times
from burnd.recording.child_process import ChildProcess, Failed, Gone, try_suspect
from burnd.recording.crash_guard import CrashGuard, Item
from burnd.recording.pipeline import Committer, Pipeline
from burnd.recording.source import Backfill, Status

T = TypeVar("T")
log = structlog.get_logger()

BATCH_BYTES = 5 << 20
SMALL_BATCH_BYTES = 1 << 20  # of old logs, while there are live lines: 20 ms of the one writer
LIVE_FOR_S = 30.0
LIVE_BATCH_S, OLD_BATCH_S = 0.1, 2.0
CHILD_FROM_BYTES = 32 << 20  # unread: fewer are read before a child has started
LONG_LINE_BYTES = 2 << 20  # decoding a longer line here would delay all other tasks
QUIET_S = 10.0
IDLE_S = 600.0
SETTLE_EVERY_S = 1.0
SETTLED_AT_ONCE = 500  # logs
TAILS_AT_ONCE = 50  # opening them delays live logs
ALL_TAILS = 1 << 31


class _OldRead(NamedTuple):
    path: str
    root: str | None
    in_child: bool


class LogFollower:
    def __init__(
        self,
        log_format: LogFormat,
        named_roots: Sequence[str],
        pipeline: Pipeline,
        *,
        times: Times | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pipeline = pipeline
        self.format = log_format
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._queue = Queue(clock)
        self._positions = Positions(pipeline, log_format.source, clock)
        self._open_logs()
        self._finder = Finder(
            named_roots,
            log_format,
            self._queue,
            self._positions,
            self._open_paths,
            times=times,
            clock=clock,
        )
        self._committer = Committer(pipeline, self.name)
        self._commit_lock = anyio.Lock()
        self._take_lock = anyio.Lock()  # while locked, no old log is taken
        self._reading = anyio.CapacityLimiter(1)
        self._receiving = anyio.CapacityLimiter(1)
        self._child: BackfillProcess | None = None
        self._suspect_child: BackfillProcess | None = None
        self._prefetched: _OldRead | None = None  # the next log, if the child has it already
        self._wake_live, self._wake_old = anyio.Event(), anyio.Event()
        self._stop_waiting = anyio.Event()  # for listeners: a large log is to be read
        self._flushes: list[tuple[str | None, anyio.Event]] = []
        self._settle_at = 0.0
        self._live_at = -LIVE_FOR_S  # when a live log was last read
        self._generation = pipeline.generation
        self._waits_for_news = False

    def _open_logs(self) -> None:
        index_path = self.pipeline.home.index_db
        self.guard = CrashGuard(index_path.with_name(f"reading.{self.name}"))
        inline_bytes, stores_text = self.pipeline.content.inline_bytes, self.pipeline.modes.mode == "full"
        self.logs = Logs(self.format, index_path, self.guard, inline_bytes, stores_text=stores_text)

    def _open_paths(self) -> list[str]:
        return self.logs.files.paths()

    @property
    def name(self) -> str:
        return self.format.source

    @property
    def backfill(self) -> Backfill:
        return self._finder.backfill

    async def run(self) -> None:
        await self.format.begin(self.pipeline)  # before records come
        self.pipeline.follow(self._on_record)
        try:
            async with self._finder.watcher, anyio.create_task_group() as tasks:
                await self._positions.load(self.logs.is_usable)
                await self._retry_skipped()
                for path, root in await self._positions.with_open_turns():
                    await self._load(path, root)
                tasks.start_soon(self._finder.watch, self._wake)
                tasks.start_soon(self._follow_live)
                tasks.start_soon(self._follow_old)
        finally:
            self.pipeline.unfollow(self._on_record)
            await self._close_child()
            await self._close_suspect_child()
            self.logs.close()

    async def flush(self, session_id: str | None = None) -> str | None:
        """Records everything readable and settles open turns; returns the reason if a log could not be read."""
        done = anyio.Event()
        self._flushes.append((session_id, done))
        self._wake()
        await done.wait()
        return self._failure()

    def add_roots(self, folders: Sequence[str]) -> None:
        self._finder.add_roots(self.format.roots_below(folders))

    @property
    def is_reading(self) -> bool:
        return self._queue.is_behind

    def status(self) -> Status:
        state, detail, remedy = self._finder.condition()
        if self._committer.blocked:
            state, detail, remedy = "waiting", f"blocked: {self._committer.blocked}", self._committer.remedy
        elif (failure := self._failure()) is not None:
            state, detail, remedy = "degraded", failure, "see that it can be read; it is tried again"
        return Status(
            self.name,
            state,
            detail,
            self._finder.files,
            len(self._queue),
            self._queue.lag(),
            progress=self.backfill.progress(self._clock()) if self._queue.is_behind else None,
            counts={**self.counts, **self._finder.counts()},
            unused=self._positions.unused(),
            skipped=self._finder.skipped,
            remedy=remedy,
            has_looked=self._finder.has_scanned,
            blocked=self._committer.blocked,
        )

    def _failure(self) -> str | None:
        failures = self._queue.failures
        if not failures:
            return None
        path, failure = next(iter(failures.items()))
        others = f" (and {len(failures) - 1:,} more)" if len(failures) > 1 else ""
        return f"{path}: {failure.reason}{others}"

    def _wake(self) -> None:
        self._wake_live.set()
        if self._queue.large or self._queue.old:
            self._wake_old.set()

    # Live logs

    async def _follow_live(self) -> None:
        while True:
            self._wake_live = anyio.Event()
            await self._read_live()
            if self._generation != self.pipeline.generation:
                await self._read_everything_again()
            elif self._flushes:
                await self._answer_flushes()
            if not len(self._queue):
                if self._child is not None:
                    self._wake_old.set()  # it is closed
                if self._suspect_child is not None:
                    await self._close_suspect_child()
                if await self._retry_skipped():
                    await self._finder.scan("skipped lines are tried again")
                await self._take_news()
                await self._queue_released()
            await self._rest()

    async def _read_live(self) -> None:
        pieces: list[Piece] = []
        size, start = 0, self._clock()
        while size < BATCH_BYTES and self._clock() - start < LIVE_BATCH_S:
            path = self._queue.take()
            if path is None:
                break
            if self._belongs_in_child(path):
                self._queue.defer(path)
                self._stop_waiting.set()
                self._wake_old.set()
                continue
            piece = await self._guarded(path, self._finder.root_of(path), self._read_here)
            if piece is not None:
                pieces.append(piece)
                size += piece.consumed
        if pieces:
            self._live_at = start
            await self._commit(pieces)
        if self._clock() >= self._settle_at:
            await self._settle_quiet()

    def _belongs_in_child(self, path: str) -> bool:
        return path_key(path) in self.guard.suspected or self._positions.passed(path) >= LONG_LINE_BYTES

    async def _rest(self) -> None:
        """Sleeps until a log changes, or a retry, a last line, an open turn or news is due."""
        is_index_new = self._generation != self.pipeline.generation
        can_read_again = is_index_new and self._queue.has_only_live
        can_answer = not is_index_new and bool(self._flushes)
        if self._queue.live or can_read_again or can_answer:
            return
        tail_due = min((tail.due for tail in self._positions.tails.values()), default=None)
        dues = (self._queue.due(), None if tail_due is None else max(tail_due, self._settle_at))
        waits = [due - self._clock() for due in dues if due is not None]
        news_every = self.format.news_every() if not len(self._queue) else None
        self._waits_for_news = news_every is not None
        waits += [news_every] if news_every is not None else []
        if any(open_log.waiting_sessions for open_log in self.logs):
            waits.append(SETTLE_EVERY_S)
        with anyio.move_on_after(max(0.01, min(waits, default=IDLE_S))):
            await self._wake_live.wait()

    def _on_record(self, _change: Change) -> None:
        if not self._waits_for_news and self.format.news_every() is not None:
            self._wake_live.set()

    async def _take_news(self) -> None:
        if (batch := await self.format.news(self._finder.named_roots)) is not None:
            async with self._commit_lock:
                await self._committer.commit(batch)

    async def _answer_flushes(self) -> None:
        flushes, self._flushes = self._flushes, []
        await self._finder.scan("flush")
        self._queue.retry_failed()
        await self._read_all()
        if await self._queue_released():
            await self._read_all()
        await self._take_tails(ALL_TAILS)
        await self._settle_sessions({session_id for session_id, _ in flushes})
        await self._take_news()
        while self.format.news_every() == 0:
            await self._take_news()
        for _, done in flushes:
            done.set()

    async def _read_all(self) -> None:
        self._queue.begin_flush()
        while True:
            self._wake_live = anyio.Event()
            self._wake_old.set()
            await self._read_live()
            if not self._queue.is_flushing:
                return
            if not self._queue.live:
                await self._wake_live.wait()

    async def _queue_released(self) -> bool:
        """Queues logs of sessions whose deferred text can be stored now; returns whether there are any.

        No-op while old logs are being read.
        """
        async with self._take_lock:
            sessions = await self.pipeline.end_deferrals() if self._queue.has_only_live else []
            for session_id in sessions:
                paths = await self._positions.of_session(session_id)
                await self._positions.drop(paths)
                for path in paths:
                    self.logs.forget(path)
                    self._queue.add(path)
        return bool(sessions)

    async def _retry_skipped(self) -> bool:
        """Queues logs with skipped lines again, after a day or an upgrade."""
        if not (paths := self.guard.due(self.pipeline.now())):
            return False
        for path in paths:
            self.logs.forget(path)
        await self._positions.read_again(paths)
        return True

    async def _read_everything_again(self) -> None:
        """Reads every log from its start after the index was lost; deleted logs keep their positions.

        Settles what is open first, since its lines may be gone. No-op while old logs are being read.
        """
        async with self._take_lock:
            if not self._queue.has_only_live:
                return
            self._generation = self.pipeline.generation
            await self._settle_sessions([None])
            await self._close_suspect_child()
            self.logs.close()
            self._open_logs()
            await self._positions.read_again()
            await self.format.begin(self.pipeline)
            await self._finder.scan("the index was rebuilt", from_start=True)
        self._wake()

    # Large and old logs

    async def _follow_old(self) -> None:
        """Commits one batch while the next two are read, so that the child never waits for a slow commit."""
        to_commit, batches = anyio.create_memory_object_stream[list[Piece]](1)
        async with to_commit, batches, anyio.create_task_group() as tasks:
            tasks.start_soon(self._commit_old, batches)
            await self._wait_for_listeners()  # and the pass for early totals, which needs all cores
            while True:
                self._wake_old = anyio.Event()
                if pieces := await self._gather_old():
                    if all(self._queue.is_old(piece.path) for piece in pieces):
                        await self._wait_for_listeners()
                    await to_commit.send(pieces)
                elif not self._queue.has_old:
                    if not len(self._queue):
                        await self._close_child()
                    await self._wake_old.wait()

    async def _commit_old(self, batches: MemoryObjectReceiveStream[list[Piece]]) -> None:
        async for pieces in batches:
            while pieces:
                number, size = 1, pieces[0].consumed
                while number < len(pieces) and size + pieces[number].consumed <= self._old_batch_bytes:
                    size += pieces[number].consumed
                    number += 1
                await self._commit(pieces[:number])
                del pieces[:number]
            self._wake()
            if not len(self._queue):
                self._wake_old.set()  # the child is closed

    @property
    def _old_batch_bytes(self) -> int:
        """Live lines wait for the commit in progress, so it is small while there are any."""
        return SMALL_BATCH_BYTES if self._clock() - self._live_at < LIVE_FOR_S else BATCH_BYTES

    async def _wait_for_listeners(self) -> None:
        """Waits until the pipeline's listeners have little left to do, or a large log waits."""
        self._stop_waiting = anyio.Event()
        if self._queue.large:
            return
        async with anyio.create_task_group() as tasks:

            async def stop_waiting() -> None:
                await self._stop_waiting.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(stop_waiting)
            await self.pipeline.wait_for_listeners()
            tasks.cancel_scope.cancel()

    async def _gather_old(self) -> list[Piece]:
        pieces: list[Piece] = []
        size, start = 0, self._clock()
        while size < BATCH_BYTES and self._clock() - start < OLD_BATCH_S:
            async with self._take_lock:
                current = self._prefetched or await self._begin_old(None)
                self._prefetched = None
                if current is None:
                    break
                if current.in_child:
                    self._prefetched = await self._begin_old(current)
            read = self._read_in_child if current.in_child else self._read_here
            piece = await self._guarded(current.path, current.root, read)
            if piece is not None:
                pieces.append(piece)
                size += piece.consumed
            else:
                self._wake_live.set()  # a flush may be waiting for it
        return pieces

    async def _begin_old(self, current: _OldRead | None) -> _OldRead | None:
        """Takes the next large or old log, and sends it to the child if it is read there."""
        path = self._queue.take_old()
        if path is None:
            return None
        root = self._finder.root_of(path)
        if root is None or path_key(path) in self.guard.suspected:
            return _OldRead(path, root, in_child=False)
        if self._belongs_in_child(path):
            self.logs.forget(path)
        elif path in self.logs or (self._child is None and self.backfill.left < CHILD_FROM_BYTES):
            return _OldRead(path, root, in_child=False)
        if self._child is None:
            self._child = self._new_child(is_trial=False)
        saved = await self._positions.saved(path) if path in self._positions else None
        max_bytes = min(MAX_BYTES, self._old_batch_bytes)
        request = ReadRequest(path, root, saved, max_bytes, self._clock(), self.pipeline.now())
        try:
            await self._with_child(self._child, partial(self._child.send, request, self.guard.skipped(path_key(path))))
        except Gone as gone:
            self._child_gone(gone, current.path if current is not None else path)
            return _OldRead(path, root, in_child=False)
        return _OldRead(path, root, in_child=True)

    async def _read_in_child(self, path: str, root: str) -> Piece | None:
        assert self._child is not None  # noqa: S101 - it was sent a request
        try:
            return await self._with_child(self._child, self._child.receive_piece)
        except Gone as gone:
            self._child_gone(gone, path)
        except Failed:
            pass  # read here, to see whether the index is damaged
        return await self._read_here(path, root)

    def _child_gone(self, gone: Gone, path: str) -> None:
        """Marks the log as a suspect if the child crashed, and has the next one read here."""
        log.warning("source.reader_gone", source=self.name, crashed=gone.crashed)
        if gone.crashed:
            self.guard.suspect(path_key(path))
        if self._prefetched is not None:
            self._prefetched = self._prefetched._replace(in_child=False)

    # Reading

    async def _guarded(
        self, path: str, root: str | None, read: Callable[[str, str], Awaitable[Piece | None]]
    ) -> Piece | None:
        """Reads a log that was taken. A failure affects no other log; it is counted or retried."""
        try:
            piece = await read(path, root) if root is not None else None
        except FileNotFoundError:
            failure = None  # deleted; open turns still settle
        except Refused as refused:
            self.counts[refused.reason] += 1
            failure = None
        except OSError as error:
            failure = error.strerror or str(error)
        except Exception as error:  # noqa: BLE001 - one log must never stop the others; status shows it
            log.error("source.file_failed", source=self.name, error=type(error).__name__)
            failure = f"{type(error).__name__} while reading it"
        else:
            if piece is None:
                self._queue.done(path, more=False)
            return piece
        if root is not None:
            await self._reload(path, root)
        if failure is None:
            self._queue.done(path, more=False)
        else:
            self._queue.failed(path, failure)
        return None

    async def _read_here(self, path: str, root: str) -> Piece | None:
        if path_key(path) in self.guard.suspected:
            return await self._try_suspect(path, root, "read")
        open_log = await self._log(path, root)
        if open_log is None:
            return None
        return await self._in_thread(partial(self.logs.read, open_log, MAX_BYTES, self._clock(), self.pipeline.now()))

    async def _log(self, path: str, root: str) -> Log | None:
        return self.logs.get(path) or self.logs.open(path, root, await self._positions.saved(path))

    async def _try_suspect(self, path: str, root: str, task: Task) -> Piece | None:
        """Reads in a child that acknowledges each line. Raises OSError to try again."""
        key = path_key(path)
        self.logs.forget(path)  # the child starts from the state in the index
        saved, now_ms = await self._positions.saved(path), self.pipeline.now()
        child = self._suspect_child = self._suspect_child or self._new_child(is_trial=True)
        request = ReadRequest(path, root, saved, MAX_BYTES, self._clock(), now_ms, task)

        def log_crash(item: Item, count: int) -> None:
            log.error("source.reader_crashed", source=self.name, item=item, count=count)

        attempt = partial(try_suspect, self.guard, child, key, request, now_ms, log_crash)
        try:
            piece = unpack_piece(await self._with_child(child, attempt))
        except FileNotFoundError:
            self.guard.clear(key)
            raise
        if piece is None or is_done(piece):
            self.guard.clear(key)
        return piece

    async def _load(self, path: str, root: str, changed_at: float | None = None) -> None:
        """Loads the reader of a log with open turns, so that they settle even if the log never grows."""
        open_log = await self._log(path, root)
        if open_log is not None:
            await self._in_thread(
                partial(self.logs.load, open_log, self._clock() if changed_at is None else changed_at)
            )

    async def _reload(self, path: str, root: str) -> None:
        """Returns to the stored state of a log that could not be read, so that its open turns settle."""
        before = self.logs.get(path)
        self.logs.forget(path)
        if await self._positions.is_open(path):
            await self._load(path, root, before.changed_at if before is not None else None)

    async def _commit(self, pieces: list[Piece]) -> None:
        await self._record(pieces)
        for piece in pieces:
            self._finder.note_read(piece.path, piece.consumed)
            if piece.change.open and not piece.more and piece.path not in self.logs:
                await self._load(piece.path, piece.root)  # it was read in the child
            self._queue.done(piece.path, more=piece.more)
        self.logs.trim(self._queue.busy)

    async def _record(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if piece.rewound is not None:
                log.info("source.rewound", source=self.name, reason=piece.rewound)
            for reason, offset, size in piece.skipped:
                log.error("source.line_skipped", source=self.name, reason=reason, offset=offset, size=size)
        try:
            async with self._commit_lock:
                batch = batch_of(pieces)
                await self.format.add_to(batch, pieces, self._finder.named_roots)
                await self._committer.commit(batch)
        except BaseException:
            for piece in pieces:
                self.logs.forget(piece.path)  # its reader is ahead of the durable state
            raise
        for piece in pieces:
            change, counts = piece.change, piece.reading.counts
            self._positions.note(change.path, change.root, piece.cursor, change.seen_ms)
            self.counts["lines"] += counts.lines
            self.counts["skipped lines"] += len(piece.skipped)
            if piece.is_unfinished:
                self.counts["unfinished lines"] += 1
            for name, number in counts.unknown.items():
                self.counts[f"unrecognised type={name}"] += number
            for name, number in counts.rejected.items():
                self.counts[f"rejected {name}"] += number

    # Settling

    async def _settle_quiet(self) -> None:
        """Settles turns with all results after 10 s of quiet, others and requests after 10 minutes."""
        now = self._clock()
        self._settle_at = now + SETTLE_EVERY_S
        quiet_for = [
            (open_log, now - open_log.changed_at) for open_log in self.logs if open_log.path not in self._queue.busy
        ]
        quiet = [open_log for open_log, seconds in quiet_for if QUIET_S <= seconds < IDLE_S]
        idle = [open_log for open_log, seconds in quiet_for if seconds >= IDLE_S]
        with_results = [
            open_log
            for open_log in quiet
            if open_log.reader and any(one.answered for one in open_log.reader.open_candidates())
        ]
        if with_results:
            await self._settle(with_results, answered_only=True)
        if open_logs := [open_log for open_log in idle if open_log.waiting_sessions]:
            await self._settle(open_logs, answered_only=False)
        if self._positions.tails:
            await self._take_tails(TAILS_AT_ONCE)

    async def _settle_sessions(self, session_ids: Collection[str | None]) -> None:
        """None means all sessions."""
        waiting = {
            open_log: open_log.waiting_sessions for open_log in self.logs if open_log.path not in self._queue.busy
        }
        logs = [
            open_log
            for open_log, sessions in waiting.items()
            if sessions and (None in session_ids or sessions.intersection(session_ids))
        ]
        await self._settle(logs, answered_only=False)

    async def _settle(self, logs: list[Log], *, answered_only: bool) -> None:
        task: Task = "settle answered" if answered_only else "settle"
        for begin in range(0, len(logs), SETTLED_AT_ONCE):
            some = {open_log.path: open_log for open_log in logs[begin : begin + SETTLED_AT_ONCE]}
            quiet = {path: open_log for path, open_log in some.items() if self._queue.take_quiet(path)}
            suspects = {path: open_log for path, open_log in quiet.items() if path_key(path) in self.guard.suspected}
            here = [open_log for path, open_log in quiet.items() if path not in suspects]
            settle = partial(self.logs.settle, seen_ms=self.pipeline.now(), answered_only=answered_only)
            pieces = await self._in_thread(partial(list, map(settle, here)))
            for path, open_log in suspects.items():
                try:
                    pieces.append(await self._try_suspect(path, open_log.root, task))
                except OSError:
                    await self._load(path, open_log.root)  # it is tried again
            await self._record_quiet([piece for piece in pieces if piece is not None], list(quiet))

    async def _take_tails(self, most: int) -> None:
        due = self._positions.due_tails(most)
        for begin in range(0, len(due), TAILS_AT_ONCE):
            some = [one for one in due[begin : begin + TAILS_AT_ONCE] if self._queue.take_quiet(one.path)]
            pieces = [piece for one in some if (piece := await self._take_tail(one)) is not None]
            await self._record_quiet(pieces, [one.path for one in some])

    async def _take_tail(self, due: DueTail) -> Piece | None:
        path, root, is_last = due
        try:
            if path_key(path) in self.guard.suspected:
                piece = await self._try_suspect(path, root, "tail" if is_last else "whole tail")
            else:
                open_log = await self._log(path, root)
                take = partial(self.logs.take_tail, seen_ms=self.pipeline.now(), only_whole=not is_last)
                piece = await self._in_thread(partial(take, open_log)) if open_log is not None else None
        except (FileNotFoundError, Refused):
            piece = None
        except OSError:
            self._positions.retry_tail(path)
            return None
        if piece is None and is_last:
            self._positions.tails.pop(path, None)  # nothing to try, or more to read first
        elif piece is None:
            self._positions.retry_tail(path, at_last=True)
        return piece

    async def _record_quiet(self, pieces: list[Piece], paths: list[str]) -> None:
        if pieces:
            await self._record(pieces)
        for path in paths:
            self._queue.release(path)
        self.logs.trim(self._queue.busy)

    # Threads and child processes

    def _new_child(self, *, is_trial: bool) -> BackfillProcess:
        index_path, inline_bytes = self.pipeline.home.index_db, self.pipeline.content.inline_bytes
        return BackfillProcess(
            type(self.format), index_path, inline_bytes, stores_text=self.logs.stores_text, is_trial=is_trial
        )

    async def _with_child(self, child: ChildProcess, work: Callable[[], T]) -> T:
        """Runs blocking work with a child, which is killed if the task is cancelled."""
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._receiving, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            child.kill()
            raise

    async def _close_child(self) -> None:
        child, self._child = self._child, None
        await _close(child)

    async def _close_suspect_child(self) -> None:
        child, self._suspect_child = self._suspect_child, None
        await _close(child)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Raises IndexDamaged if a reader cannot look up recorded turns."""
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._reading)
        except sqlite3.Error as error:
            raise self.pipeline.index.failed(error) from error


async def _close(child: BackfillProcess | None) -> None:
    if child is not None:
        with anyio.CancelScope(shield=True):  # else a cancelled task would leave the process running
            await anyio.to_thread.run_sync(child.close)
