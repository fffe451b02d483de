"""Finds logs with something to read, by events and scans, and tracks how far each was read. Opens no log."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import structlog

from burnd.index.change import FileChange
from burnd.index.keys import is_there, path_key
from burnd.logfiles.log_reader import OLD_MS, LogFormat
from burnd.logfiles.queue import Queue
from burnd.logfiles.scanner import EXPLANATIONS, FileEntry, Scan, Scanner, below, present
from burnd.logfiles.tail import (
    FATAL,
    FATAL_WORDS,
    LINES_SHOWN,
    MAX_BYTES,
    TAIL_QUIET_S,
    TOO_LONG,
    UNFINISHED,
    Cursor,
    load_cursor,
)
from burnd.logfiles.watcher import Times, Watcher
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.recording.source import Backfill, SkippedFiles, State, UnusedInAll, UnusedLine
from burnd.records.times import DAY_MS

FORGET_AFTER_MS = DAY_MS
LOADED_AT_ONCE = 2500  # files: memory for all of them at once would never be given back
_FILES = (
    "SELECT id, path, root, cursor, CASE WHEN open THEN state END FROM files WHERE +source = ? AND id > ? "
    "ORDER BY id LIMIT ?"
)
_VANISHED = (
    "SELECT f.path FROM files f WHERE f.source = ? AND f.seen < ? "
    "AND NOT EXISTS (SELECT 1 FROM open_turns WHERE file = f.id)"
)


class _Position(NamedTuple):
    """The part of a cursor that stays in memory, since there may be very many."""

    offset: int
    passed: int  # bytes behind it of a line without a newline
    fingerprint: int | None  # None if the log was not read to its end


class WaitingTail(NamedTuple):
    """A last line without a newline, tried when `due`, since its writer may have died; if incomplete then, again at
    `last`.
    """

    root: str
    position: int
    due: float
    last: float


class DueTail(NamedTuple):
    path: str
    root: str
    is_last: bool


class Positions:
    def __init__(self, pipeline: Pipeline, source: str, clock: Callable[[], float]) -> None:
        self._pipeline, self._source, self._clock = pipeline, source, clock
        self._reset()

    def _reset(self) -> None:
        self._began_ms = self._pipeline.now()
        self.tails: dict[str, WaitingTail] = {}  # logs that end without a newline
        self._positions: dict[str, _Position] = {}
        self._flawed: dict[str, Cursor] = {}  # logs with unused lines that still exist

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, path: str) -> bool:
        return path_key(path) in self._positions

    async def load(self, is_usable: Callable[[bytes], bool]) -> None:
        """Drops deleted logs after a day, and reads a log again if its cursor or the state of its open turns is
        unusable.
        """
        self._reset()
        last, now = 0, self._pipeline.now()
        while rows := await self._pipeline.index.rows(_FILES, (self._source, last, LOADED_AT_ONCE)):
            for _, path, root, stored, state in rows:
                cursor = load_cursor(stored)
                if cursor is not None and (state is None or is_usable(state)):
                    self.note(path, root, cursor, now, is_new=False)
            last = rows[-1][0]
        unseen = [path for (path,) in await self._rows(_VANISHED, now - FORGET_AFTER_MS)]
        present = await _present(unseen)
        await self.drop([path for path in unseen if path not in present])

    async def saved(self, path: str) -> tuple[bytes, bytes] | None:
        rows = await self._rows("SELECT cursor, state FROM files WHERE source = ? AND path = ?", path_key(path))
        return (bytes(rows[0][0]), bytes(rows[0][1])) if rows else None

    async def is_open(self, path: str) -> bool:
        return bool(await self._rows("SELECT 1 FROM files WHERE source = ? AND path = ? AND open", path_key(path)))

    async def with_open_turns(self) -> list[tuple[str, str]]:
        return [
            (path, root) for path, root in await self._rows("SELECT path, root FROM files WHERE source = ? AND open")
        ]

    async def of_session(self, session_id: str) -> list[str]:
        sql = "SELECT path FROM files WHERE source = ? AND (instr(path, ?) OR instr(path, ?))"
        return [path for (path,) in await self._rows(sql, f"/{session_id}.", f"/{session_id}/")]

    async def seen_ms(self) -> dict[str, int]:
        return dict(await self._rows("SELECT path, seen FROM files WHERE source = ?"))

    async def read_again(self, paths: Iterable[str] | None = None) -> None:
        if paths is None:
            paths = [path for (path,) in await self._rows("SELECT path FROM files WHERE source = ?")]
            self._reset()
        await self.drop(sorted(await _present(paths)))

    async def drop(self, paths: list[str]) -> None:
        for path in paths:
            self._positions.pop(path, None)
            self._flawed.pop(path, None)
            self.tails.pop(path, None)
        if paths:
            await self._pipeline.commit(Batch(files=[FileChange(self._source, path, None) for path in paths]))

    def note(self, path: str, root: str, cursor: Cursor, seen_ms: int, *, is_new: bool = True) -> None:
        """Takes a durable cursor; `is_new` if the log was just read.

        A last line without a newline is tried at once if the log was written before this process started, since some
        tools leave the newline out, and for the last time if that was long ago.
        """
        before = self._positions.get(path)
        self._positions[path] = _Position(cursor.position, cursor.passed, cursor.fingerprint)
        if cursor.unused or cursor.unfinished:
            self._flawed[path] = cursor
        else:
            self._flawed.pop(path, None)
        if not cursor.has_untried_tail:
            self.tails.pop(path, None)
        elif path not in self.tails or self.tails[path].position != cursor.position:
            now, changed_ms = self._clock(), cursor.ctime_ns // 1_000_000
            last = now if seen_ms - changed_ms > OLD_MS else now + TAIL_QUIET_S
            is_first = is_new and (before is None or before.fingerprint is None)
            due = now if is_first and changed_ms < self._began_ms else last
            self.tails[path] = WaitingTail(root, cursor.position, due, last)

    def due_tails(self, most: int) -> list[DueTail]:
        now = self._clock()
        due = [(path, tail) for path, tail in self.tails.items() if tail.due <= now]
        return [DueTail(path, tail.root, tail.last <= now) for path, tail in due[:most]]

    def retry_tail(self, path: str, *, at_last: bool = False) -> None:
        tail, later = self.tails[path], self._clock() + TAIL_QUIET_S
        self.tails[path] = tail._replace(due=tail.last) if at_last else tail._replace(due=later, last=later)

    def fingerprints(self) -> Iterator[tuple[str, int]]:
        return ((path, one.fingerprint) for path, one in self._positions.items() if one.fingerprint is not None)

    def passed(self, path: str) -> int:
        position = self._positions.get(path_key(path))
        return position.passed if position is not None else 0

    def is_unread(self, entry: FileEntry) -> bool:
        position = self._positions.get(path_key(entry.path))
        return position is None or position.fingerprint != entry.fingerprint

    def unread_bytes(self, entry: FileEntry) -> int:
        position = self._positions.get(path_key(entry.path))
        return max(0, entry.size - (position.offset if position is not None else 0))

    async def drop_unused_of_deleted(self, has_seen: Callable[[str], bool]) -> None:
        unseen = [path for path in self._flawed if not has_seen(path)]
        if unseen:
            present = await anyio.to_thread.run_sync(lambda: set(filter(os.path.lexists, unseen)))
            for path in set(unseen) - present:
                self._flawed.pop(path, None)

    def unused(self) -> UnusedInAll:
        """Unused lines of all logs: the first of each log before the second of any."""
        ranked = heapq.nsmallest(LINES_SHOWN, (item for flawed in self._flawed.items() for item in _ranked(*flawed)))
        unfinished = sum(cursor.unfinished for cursor in self._flawed.values())
        count = sum(one.count for cursor in self._flawed.values() for one in cursor.unused)
        return UnusedInAll(count + unfinished, unfinished, [UnusedLine(*line) for *_, line in ranked])

    async def _rows(self, sql: str, *values: Any) -> list[Any]:
        return list(await self._pipeline.index.rows(sql, (self._source, *values)))


async def _present(paths: Iterable[str]) -> set[str]:
    return await anyio.to_thread.run_sync(lambda: set(filter(is_there, paths)))


def _ranked(path: str, cursor: Cursor) -> Iterator[tuple[int, int, tuple[str, int, int, str]]]:
    """Unparsed lines first, one that may still be completed last."""
    for one in cursor.unused:
        for n, (offset, size) in enumerate(one.places):
            yield int(one.reason not in (TOO_LONG, FATAL, FATAL_WORDS)), n, (path, offset, size, one.reason)
    if cursor.unfinished:
        yield 2, 0, (path, cursor.offset, cursor.passed, UNFINISHED)


log = structlog.get_logger()

_COARSE_MS = 2_000  # file system times are less exact than this


class Finder:
    """Fills the queue of one source."""

    def __init__(
        self,
        named_roots: Sequence[str],
        log_format: LogFormat,
        queue: Queue,
        positions: Positions,
        open_paths: Callable[[], list[str]],
        *,
        times: Times | None,
        clock: Callable[[], float],
    ) -> None:
        """`open_paths` lists logs with open descriptors, readable after they were deleted."""
        self.named_roots = list(named_roots)
        self._suffixes = (*log_format.suffixes, *log_format.beside)
        self.watcher = Watcher(named_roots, suffix=self._suffixes, times=times)
        self.backfill = Backfill()
        self._format, self._queue, self._positions, self._open_paths = log_format, queue, positions, open_paths
        self._clock = clock
        self._scanner = Scanner(suffix=self._suffixes)
        self._scanning = anyio.Lock()
        self._roots: dict[str, str] = {}
        self.has_scanned = False
        self._is_first = True  # the next scan finds old files
        self._files = 0  # logs that the last scan counted
        self._read_since: set[str] = set()  # logs read since, which that scan did not see
        self._others: set[str] = set()  # files that are named like logs but are not logs
        self.skipped: list[SkippedFiles] = []  # what the last scan skipped

    @property
    def files(self) -> int:
        return self._files + len(self._read_since)

    def counts(self) -> dict[str, int]:
        skipped = {"no transcript": len(self._others), **{item.reason: item.count for item in self.skipped}}
        return {f"passed over: {reason}": number for reason, number in skipped.items() if number}

    def condition(self) -> tuple[State, str, str]:
        watch = self.watcher.watch
        if not self.has_scanned and watch.state in ("watching", "polling"):
            return "waiting", "starting: looking for what there is", ""
        return watch.state, watch.detail, watch.remedy

    def add_roots(self, named: Sequence[str]) -> None:
        fresh = [root for root in named if root not in self.named_roots]
        self.named_roots += fresh
        self.watcher.add_roots(fresh)

    def root_of(self, path: str) -> str | None:
        if path not in self._roots:
            root = next((r.path for r in self.watcher.watch.roots if path.startswith(r.path + "/")), None)
            if root is None:
                return None
            self._roots[path] = root
        return self._roots[path]

    async def watch(self, on_change: Callable[[], None]) -> None:
        last_state = ""
        while True:
            changes = await self.watcher.changes()
            for changed in changes.paths:
                path = self._format.log_of(changed) if changed.endswith(self._format.beside) else changed
                if self.root_of(path) is not None:
                    self._queue.add(path)
            if changes.scan_all:  # a new state requests a scan
                if (state := self.watcher.watch.state) != last_state:
                    last_state, detail = state, self.watcher.watch.detail
                    log.info("source.state", source=self._format.source, state=state, detail=detail)
                await self.scan(changes.reason)
            on_change()

    async def scan(self, reason: str, *, from_start: bool = False) -> None:
        """Queues every log that changed; with `from_start`, all.

        One scan at a time: a second one would miss what the first has noticed and not queued yet.
        """
        async with self._scanning:
            if from_start:
                self._scanner = Scanner(suffix=self._suffixes)
                self._others.clear()
                self._is_first = True
            await self._scan(reason)

    async def _scan(self, reason: str) -> None:
        if not self.has_scanned:
            for path, fingerprint in self._positions.fingerprints():
                self._scanner.know(path, fingerprint)
        scan = await anyio.to_thread.run_sync(
            lambda: self._scanner.scan([root.path for root in present(self.named_roots)])
        )
        open_paths = set(self._open_paths())
        await self._positions.drop_unused_of_deleted(self._scanner.has_seen)
        self.watcher.scanned(directories=scan.tally.directories, seconds=scan.seconds)
        logs = [entry for entry in scan.changed if entry.path.endswith(self._format.suffixes)]
        unread = [entry for entry in logs if self._positions.is_unread(entry)]
        self._note_skipped(unread, scan)
        if scan.changed or scan.gone or not self.has_scanned:
            self._files = self._scanner.count(self._format.suffixes) - len(self._others)
        self._read_since.clear()
        unread = [entry for entry in unread if entry.path not in self._others]
        for path, root in await self._with_changed_beside(scan.changed):
            self._roots[path] = root  # the watcher may not have noticed yet
            self._queue.add(path)
        unread_bytes = sum(map(self._positions.unread_bytes, unread))
        is_old = self._is_first or unread_bytes > MAX_BYTES
        self.has_scanned, self._is_first = True, False
        self._roots |= {entry.path: entry.root for entry in unread}
        self.backfill.found(unread_bytes, self._clock())
        if is_old:
            self._queue.backfill((entry.path, entry.mtime) for entry in unread)
        else:
            for entry in unread:  # written since the last scan: live lines
                self._queue.add(entry.path)
        for path in set(scan.gone) - open_paths:
            self._queue.forget(path)
        for path in open_paths:
            if not self._scanner.has_seen(path):
                self._queue.add(path)  # deleted: its last lines need not have caused an event
        log.debug("source.scanned", source=self._format.source, reason=reason, files=scan.files, unread=len(unread))

    def _note_skipped(self, unread: Sequence[FileEntry], scan: Scan) -> None:
        place_of = self._format.place_of
        self._others.difference_update(scan.gone)
        self._others.update(one.path for one in unread if place_of(path_key(below(one.path, one.root))) is None)
        self.skipped = [
            SkippedFiles(reason, why, count, tuple(map(path_key, scan.tally.places[reason])), remedy, is_normal)
            for reason, count in scan.tally.refused.items()
            for why, remedy, is_normal in [EXPLANATIONS[reason]]
        ]

    async def _with_changed_beside(self, changed: Sequence[FileEntry]) -> list[tuple[str, str]]:
        beside = [entry for entry in changed if entry.path.endswith(self._format.beside)]
        logs = [(self._format.log_of(entry.path), entry.root, entry.ctime_ns // 1_000_000) for entry in beside]
        if self.has_scanned or not logs:
            return [(path, root) for path, root, _ in logs]
        read_ms = await self._positions.seen_ms()
        since = ((path, root, read_ms.get(path_key(path)), ctime_ms) for path, root, ctime_ms in logs)
        return [
            (path, root)
            for path, root, seen_ms, ctime_ms in since
            if seen_ms is not None and ctime_ms + _COARSE_MS >= seen_ms
        ]

    def note_read(self, path: str, size: int) -> None:
        if not self._scanner.has_seen(path):
            self._read_since.add(path)
        self.backfill.done += size
        is_done = not len(self._queue)
        self.backfill.log_progress(self._clock(), self._format.source, is_done=is_done, files=len(self._positions))
        if is_done:
            self.backfill = Backfill()
