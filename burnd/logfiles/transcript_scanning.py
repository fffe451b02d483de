"""Which transcripts there are and which have something to read: the watcher's hints and a scan's truth, into the queue.

It opens none of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import anyio
import structlog

from burnd.index.path_key import path_key
from burnd.logfiles.left_alone import left_alone
from burnd.logfiles.pieces import Pieces
from burnd.logfiles.queue import SLOT_BYTES, Queue
from burnd.logfiles.roots import present
from burnd.logfiles.safe_open import below
from burnd.logfiles.saved import Saved
from burnd.logfiles.scanner import Found, Scan, Scanner
from burnd.logfiles.watcher import Times, Watcher
from burnd.recording.backfill import Backfill
from burnd.recording.source import LeftAlone, State

log = structlog.get_logger()

_COARSE_MS = 2_000  # file systems write times down less exactly than this


class Naming(NamedTuple):
    """How a harness calls its files: transcripts, and those beside them that say more of them."""

    transcripts: tuple[str, ...]
    beside: tuple[str, ...]
    transcript_of: Callable[[str], str]  # the transcript that a file is, or is about

    @property
    def suffixes(self) -> tuple[str, ...]:
        return (*self.transcripts, *self.beside)


class Finder:
    """Fills the queue of one source. One task calls `watch`; who needs to know what is there now calls `scan`."""

    def __init__(
        self,
        named_roots: Sequence[str],
        naming: Naming,
        queue: Queue,
        saved: Saved,
        pieces: Pieces,
        *,
        times: Times | None,
        clock: Callable[[], float],
    ) -> None:
        self.named_roots = list(named_roots)
        self.watcher = Watcher(named_roots, suffix=naming.suffixes, times=times)
        self.backfill = Backfill()
        self._naming, self._queue, self._saved, self._pieces, self._clock = naming, queue, saved, pieces, clock
        self._scanner = Scanner(suffix=naming.suffixes)
        self._scanning = anyio.Lock()
        self._roots: dict[str, str] = {}
        self.has_scanned = False
        self._is_anew = True  # the next scan finds old files
        self._files = 0  # transcripts that the last scan counted; beside these are
        self._read_since: set[str] = set()
        self._others: set[str] = set()  # files that are named as transcripts are, and are none
        self.left_alone: list[LeftAlone] = []  # what the last scan did not look into

    @property
    def files(self) -> int:
        """How many transcripts there are."""
        return self._files + len(self._read_since)

    @property
    def passed_over(self) -> dict[str, int]:
        """What the last scan found and left alone, by reason."""
        found = {"no transcript": len(self._others), **{item.reason: item.count for item in self.left_alone}}
        return {f"passed over: {reason}": number for reason, number in found.items() if number}

    def condition(self) -> tuple[State, str, str]:
        """How it goes: a word, a sentence, and what to do about it."""
        watcher = self.watcher
        if not self.has_scanned and watcher.state in ("watching", "polling"):
            return "waiting", "starting: looking for what there is", ""
        return watcher.state, watcher.detail, watcher.remedy

    def add_roots(self, named: Sequence[str]) -> None:
        fresh = [root for root in named if root not in self.named_roots]
        self.named_roots += fresh
        self.watcher.add_roots(fresh)

    def root_of(self, path: str) -> str | None:
        """The root that a path is below; None where it is below none that is read."""
        if path not in self._roots:
            root = next((r.path for r in self.watcher.roots if path.startswith(r.path + "/")), None)
            if root is None:
                return None
            self._roots[path] = root
        return self._roots[path]

    async def watch(self, ring: Callable[[], None]) -> None:
        """Until cancelled; `ring` is called whenever the queue may have grown."""
        told = ""
        while True:
            dirty = await self.watcher.changes()
            if self.watcher.state != told:
                told = self.watcher.state
                log.info("source.state", source=self._pieces.source, state=told, detail=self.watcher.detail)
            for path in map(self._naming.transcript_of, dirty.paths):
                if self.root_of(path) is not None:
                    self._queue.add(path)
            if dirty.scan_all:
                await self.scan(dirty.reason)
            ring()

    async def scan(self, reason: str) -> None:
        """Looks at every file: the truth that events are only a hint of. What it found is queued when it returns.

        One at a time: a second scan sees nothing new in what the first has looked at and not yet queued.
        """
        async with self._scanning:
            await self._scan(reason)

    async def _scan(self, reason: str) -> None:
        naming = self._naming
        if not self.has_scanned:
            for path, looks in self._saved.looks():
                self._scanner.know(path, looks)
        scan, held = await self._pieces.in_thread(self._look)
        await self._forget_marred()
        self.watcher.scanned(directories=scan.directories, seconds=scan.seconds)
        transcripts = [found for found in scan.changed if found.path.endswith(naming.transcripts)]
        unread = [found for found in transcripts if self._saved.is_unread(found)]
        self._note_others(unread, scan)
        if scan.changed or scan.gone or not self.has_scanned:
            self._files = self._scanner.count(naming.transcripts) - len(self._others)
        self._read_since.clear()
        unread = [found for found in unread if found.path not in self._others]
        for path, root in await self._told_more(scan.changed):
            self._roots[path] = root  # which the watcher, that has perhaps just begun, need not know yet
            self._queue.add(path)
        left = sum(map(self._saved.left, unread))
        is_old = self._is_anew or left > SLOT_BYTES
        self.has_scanned, self._is_anew = True, False
        self._roots |= {found.path: found.root for found in unread}
        self.backfill.found(left, self._clock())
        self._queue.backfill(((found.path, found.mtime) for found in unread), is_old=is_old)
        for path in set(scan.gone) - held:
            self._queue.forget(path)
        for path in held:
            if not self._scanner.has_seen(path):
                self._queue.add(path)  # it was deleted, and no event need ever tell of its last lines
        log.debug("source.scanned", source=self._pieces.source, reason=reason, files=scan.files, unread=len(unread))

    def _look(self) -> tuple[Scan, set[str]]:
        """What a scan finds, and which files are held open."""
        scan = self._scanner.scan([root.path for root in present(self.named_roots)])
        return scan, set(self._pieces.known.held())

    def _note_others(self, unread: Sequence[Found], scan: Scan) -> None:
        """Remembers what is not read, so that it can be told."""
        place_of = self._pieces.known.place_of
        self._others.difference_update(scan.gone)
        self._others.update(one.path for one in unread if place_of(path_key(below(one.path, one.root))) is None)
        self.left_alone = list(left_alone(scan.refused, scan.places))

    async def _forget_marred(self) -> None:
        """Of logs that are gone nobody need be told which of their lines could not be used."""
        unseen = [path for path in self._saved.marred if not self._scanner.has_seen(path)]
        if not unseen:
            return
        for path in await self._pieces.in_thread(lambda: [one for one in unseen if not os.path.lexists(one)]):
            self._saved.marred.pop(path, None)

    async def _told_more(self, changed: Sequence[Found]) -> list[tuple[str, str]]:
        """Transcripts that may be done, and of which a file beside them says more: at the first scan, a newer one.

        Each with the root that it is below.
        """
        naming = self._naming
        beside = [one for one in changed if one.path.endswith(naming.beside)]
        told = [(naming.transcript_of(one.path), one.root, one.ctime_ns // 1_000_000) for one in beside]
        if self.has_scanned or not told:
            return [(path, root) for path, root, _ in told]
        seen = await self._saved.seen_ms()
        since = ((path, root, seen.get(path_key(path)), ctime_ms) for path, root, ctime_ms in told)
        return [
            (path, root)
            for path, root, seen_ms, ctime_ms in since
            if seen_ms is not None and ctime_ms + _COARSE_MS >= seen_ms
        ]

    def note_read(self, path: str, size: int) -> None:
        """So many bytes of a transcript are durable, which the last scan may not have seen."""
        if not self._scanner.has_seen(path):
            self._read_since.add(path)
        self.backfill.done += size
        is_done = not len(self._queue)
        self.backfill.tell(self._clock(), self._pieces.source, is_done=is_done, files=len(self._saved))
        if is_done:
            self.backfill = Backfill()

    async def scan_anew(self, reason: str) -> None:
        """Scans as if nothing had been seen before."""
        async with self._scanning:
            self._scanner = Scanner(suffix=self._naming.suffixes)
            self._others.clear()
            self._is_anew = True
            await self._scan(reason)
