"""Finds the logs that have something to read: hints of the watcher and the result of scans, into the queue.

Opens no log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread
import structlog

from burnd.index.path_key import path_key
from burnd.logfiles.log_reader import LogFormat
from burnd.logfiles.positions import Positions
from burnd.logfiles.queue import Queue
from burnd.logfiles.scanner import EXPLANATIONS, FileEntry, Scan, Scanner, below, present
from burnd.logfiles.tail import MAX_BYTES
from burnd.logfiles.watcher import Times, Watcher
from burnd.recording.source import Backfill, SkippedFiles, State

log = structlog.get_logger()

_COARSE_MS = 2_000  # the times of file systems are less exact than this


class Finder:
    """Fills the queue of one source. One task calls `watch`; `scan` returns when everything changed is queued."""

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
        """`open_paths` are the logs whose descriptors are open, so that they can be read after they were deleted."""
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
        self._read_since: set[str] = set()  # logs read since that scan, which did not see them
        self._others: set[str] = set()  # files that are named like logs and are none
        self.skipped: list[SkippedFiles] = []  # what the last scan skipped

    @property
    def files(self) -> int:
        """The number of logs."""
        return self._files + len(self._read_since)

    def counts(self) -> dict[str, int]:
        """The number of files that the last scan skipped, by reason."""
        skipped = {"no transcript": len(self._others), **{item.reason: item.count for item in self.skipped}}
        return {f"passed over: {reason}": number for reason, number in skipped.items() if number}

    def condition(self) -> tuple[State, str, str]:
        """The state of the watcher for `status`: a word, a sentence, and what to do about it."""
        watcher = self.watcher
        if not self.has_scanned and watcher.state in ("watching", "polling"):
            return "waiting", "starting: looking for what there is", ""
        return watcher.state, watcher.detail, watcher.remedy

    def add_roots(self, named: Sequence[str]) -> None:
        fresh = [root for root in named if root not in self.named_roots]
        self.named_roots += fresh
        self.watcher.add_roots(fresh)

    def root_of(self, path: str) -> str | None:
        """The root that a path is below; None if it is below none."""
        if path not in self._roots:
            root = next((r.path for r in self.watcher.roots if path.startswith(r.path + "/")), None)
            if root is None:
                return None
            self._roots[path] = root
        return self._roots[path]

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Queues changed logs until cancelled; `on_change` is called whenever the queue may have grown."""
        last_state = ""
        while True:
            changes = await self.watcher.changes()
            if self.watcher.state != last_state:
                last_state = self.watcher.state
                log.info("source.state", source=self._format.source, state=last_state, detail=self.watcher.detail)
            for path in map(self._format.log_of, changes.paths):
                if self.root_of(path) is not None:
                    self._queue.add(path)
            if changes.scan_all:
                await self.scan(changes.reason)
            on_change()

    async def scan(self, reason: str, *, from_start: bool = False) -> None:
        """Looks at every file and queues what changed.

        With `from_start`, as if nothing had been seen before. One scan at a time: a second one sees nothing new in what
        the first has looked at and not yet queued.
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
        scan, open_paths = await anyio.to_thread.run_sync(self._look)
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
            self._roots[path] = root  # the watcher may not know it yet
            self._queue.add(path)
        unread_bytes = sum(map(self._positions.unread_bytes, unread))
        is_old = self._is_first or unread_bytes > MAX_BYTES
        self.has_scanned, self._is_first = True, False
        self._roots |= {entry.path: entry.root for entry in unread}
        self.backfill.found(unread_bytes, self._clock())
        if is_old:
            self._queue.backfill((entry.path, entry.mtime) for entry in unread)
        else:
            for entry in unread:  # written since the last scan: live lines, as an event would have shown
                self._queue.add(entry.path)
        for path in set(scan.gone) - open_paths:
            self._queue.forget(path)
        for path in open_paths:
            if not self._scanner.has_seen(path):
                self._queue.add(path)  # deleted: there need not be an event for its last lines
        log.debug("source.scanned", source=self._format.source, reason=reason, files=scan.files, unread=len(unread))

    def _look(self) -> tuple[Scan, set[str]]:
        scan = self._scanner.scan([root.path for root in present(self.named_roots)])
        return scan, set(self._open_paths())

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
        """Logs with a changed file beside them, and their roots; at first, if that changed since they were read."""
        beside = [entry for entry in changed if entry.path.endswith(self._format.beside)]
        logs = [(self._format.log_of(entry.path), entry.root, entry.ctime_ns // 1_000_000) for entry in beside]
        if self.has_scanned or not logs:
            return [(path, root) for path, root, _ in logs]
        seen = await self._positions.seen_ms()
        since = ((path, root, seen.get(path_key(path)), ctime_ms) for path, root, ctime_ms in logs)
        return [
            (path, root)
            for path, root, seen_ms, ctime_ms in since
            if seen_ms is not None and ctime_ms + _COARSE_MS >= seen_ms
        ]

    def note_read(self, path: str, size: int) -> None:
        """Counts the bytes of a log that are recorded; the last scan may not have seen the log."""
        if not self._scanner.has_seen(path):
            self._read_since.add(path)
        self.backfill.done += size
        is_done = not len(self._queue)
        self.backfill.log_progress(self._clock(), self._format.source, is_done=is_done, files=len(self._positions))
        if is_done:
            self.backfill = Backfill()
