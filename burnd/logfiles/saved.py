"""How far each file of a source was read, as the index has it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import anyio.to_thread
import msgspec

from burnd.index.change import FileChange
from burnd.index.path_key import is_there, path_key
from burnd.logfiles.cursor import Cursor, loaded, looks_of
from burnd.logfiles.scanner import Found
from burnd.logfiles.tails import Tails
from burnd.logfiles.transcripts import OLD_MS
from burnd.logfiles.unused import FATAL, FATAL_WORDS, LINES_SHOWN, TOO_LONG, UNFINISHED
from burnd.recording.batch import Batch
from burnd.recording.pipeline import Pipeline
from burnd.recording.source import UnusedInAll, UnusedLine
from burnd.records.times import DAY_MS

FORGET_AFTER_MS = DAY_MS
AT_ONCE = 2500  # files that are loaded: what all of them take for a moment would be kept for good
_FILES = (
    "SELECT id, path, root, cursor, CASE WHEN open THEN state END FROM files WHERE +source = ? AND id > ? "
    "ORDER BY id LIMIT ?"
)
_VANISHED = (
    "SELECT f.path FROM files f WHERE f.source = ? AND f.seen < ? "
    "AND NOT EXISTS (SELECT 1 FROM open_turns WHERE file = f.id)"
)


class Read(msgspec.Struct, frozen=True, gc=False):
    """All that is kept in memory of a cursor, as there may be very many: how far, and how the file looked then."""

    position: int
    looks: int | None  # None if it was not read to its end


class Saved:
    """The cursors of one source's files, and which of them end with a line that is not used yet."""

    def __init__(self, pipeline: Pipeline, source: str, clock: Callable[[], float]) -> None:
        self._pipeline, self._source, self._clock = pipeline, source, clock
        self._begin()

    def _begin(self) -> None:
        self._began_ms = self._pipeline.now()
        self.tails = Tails()
        self._read: dict[str, Read] = {}
        self.marred: dict[str, Cursor] = {}  # files with lines that were passed over, and that are still there

    def __len__(self) -> int:
        return len(self._read)

    def __contains__(self, path: str) -> bool:
        return path_key(path) in self._read

    async def load(self, is_usable: Callable[[bytes], bool]) -> None:
        """Where every file was read to. One that was deleted upstream leaves its turns; its cursor goes after a day.

        A file whose cursor cannot be used is read again, as is one with something open whose state is not `is_usable`.
        """
        self._begin()
        last, now = 0, self._pipeline.now()
        while rows := await self._pipeline.index.rows(_FILES, (self._source, last, AT_ONCE)):
            for _, path, root, stored, state in rows:
                cursor = loaded(stored)
                if cursor is not None and (state is None or is_usable(state)):
                    self._keep(path, root, cursor, now, is_found=False)
            last = rows[-1][0]
        before = now - FORGET_AFTER_MS
        old = await self._pipeline.index.rows(_VANISHED, (self._source, before))
        present = await anyio.to_thread.run_sync(_present, old)
        await self.drop([path for (path,) in old if path not in present])

    async def read_again(self, paths: Sequence[str]) -> None:
        """Resets these files, so that they are read again from the start if they still exist."""
        present = await anyio.to_thread.run_sync(_present, [(path,) for path in paths])
        await self.drop(sorted(present))

    async def forget(self) -> None:
        """Everything is to be read again from its start; files that are gone stay as known."""
        rows = await self._pipeline.index.rows("SELECT path FROM files WHERE source = ?", (self._source,))
        await self.drop(sorted(await anyio.to_thread.run_sync(_present, rows)))
        self._begin()

    async def with_open_turns(self) -> list[tuple[str, str]]:
        """The files, with their roots, in which a message is open."""
        sql = "SELECT path, root FROM files WHERE source = ? AND open"
        return [(path, root) for path, root in await self._pipeline.index.rows(sql, (self._source,))]

    async def seen_ms(self) -> dict[str, int]:
        """When each file was last read."""
        return dict(await self._pipeline.index.rows("SELECT path, seen FROM files WHERE source = ?", (self._source,)))

    def note(self, change: FileChange) -> None:
        """A file was read on, and that is durable."""
        if change.cursor is not None and (cursor := loaded(change.cursor)) is not None:
            before = self._read.get(change.path)
            is_new = before is None or before.looks is None
            is_found = is_new and cursor.ctime_ns // 1_000_000 < self._began_ms
            self._keep(change.path, change.root, cursor, change.seen_ms, is_found=is_found)

    def _keep(self, path: str, root: str, cursor: Cursor, seen_ms: int, *, is_found: bool) -> None:
        self._read[path] = Read(cursor.position, cursor.left)
        if cursor.unused or cursor.unfinished:
            self.marred[path] = cursor
        else:
            self.marred.pop(path, None)
        if not cursor.has_untried_tail:
            self.tails.drop(path)
            return
        is_old = seen_ms - cursor.ctime_ns // 1_000_000 > OLD_MS
        self.tails.note(path, root, cursor, self._clock(), is_old=is_old, is_found=is_found)

    def unused(self) -> UnusedInAll:
        """Lines that were passed over, in all files together: of every file the first before another's second."""
        marred = self.marred.items()
        ranked = heapq.nsmallest(LINES_SHOWN, (item for path, cursor in marred for item in _ranked(path, cursor)))
        count = sum(one.count for _, cursor in marred for one in cursor.unused)
        unfinished = sum(cursor.unfinished for _, cursor in marred)
        return UnusedInAll(count + unfinished, unfinished, [UnusedLine(*line) for *_, line in ranked])

    def looks(self) -> Iterator[tuple[str, int]]:
        """The files that were read to their ends, each with how it looked then."""
        return ((path, read.looks) for path, read in self._read.items() if read.looks is not None)

    def is_unread(self, found: Found) -> bool:
        read = self._read.get(path_key(found.path))
        return read is None or read.looks != looks_of(found.dev, found.ino, found.size, found.ctime_ns)

    def left(self, found: Found) -> int:
        """How many of its bytes were not read yet."""
        read = self._read.get(path_key(found.path))
        return max(0, found.size - (read.position if read is not None else 0))

    async def drop(self, paths: list[str]) -> None:
        """Deletes the cursors of these files, given by their keys."""
        for path in paths:
            self._read.pop(path, None)
            self.marred.pop(path, None)
            self.tails.drop(path)
        if paths:
            await self._pipeline.commit(Batch(files=[FileChange(self._source, path, None) for path in paths]))


def _present(rows: Iterable[Sequence[str]]) -> set[str]:
    return {path for (path,) in rows if is_there(path)}


def _ranked(path: str, cursor: Cursor) -> Iterator[tuple[int, int, tuple[str, int, int, str]]]:
    """A file's lines that were passed over: those first of which nothing is known, last those that may become whole."""
    for one in cursor.unused:
        for n, (offset, size) in enumerate(one.places):
            yield int(one.reason not in (TOO_LONG, FATAL, FATAL_WORDS)), n, (path, offset, size, one.reason)
    if cursor.unfinished:
        yield 2, 0, (path, cursor.offset, cursor.passed, UNFINISHED)
