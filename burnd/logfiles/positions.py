"""How far each log of a source was read, as the index has it, and which logs end with a line that is not used yet."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import anyio.to_thread

from burnd.index.change import FileChange
from burnd.index.path_key import is_there, path_key
from burnd.logfiles.logs import OLD_MS
from burnd.logfiles.scanner import FileEntry
from burnd.logfiles.tail import FATAL, FATAL_WORDS, LINES_SHOWN, TOO_LONG, UNFINISHED, Cursor, WaitingTails, load_cursor
from burnd.recording.batch import Batch
from burnd.recording.pipeline import Pipeline
from burnd.recording.source import UnusedInAll, UnusedLine
from burnd.records.times import DAY_MS

FORGET_AFTER_MS = DAY_MS
LOADED_AT_ONCE = 2500  # files: the memory that all of them take for a moment would never be given back
_FILES = (
    "SELECT id, path, root, cursor, CASE WHEN open THEN state END FROM files WHERE +source = ? AND id > ? "
    "ORDER BY id LIMIT ?"
)
_VANISHED = (
    "SELECT f.path FROM files f WHERE f.source = ? AND f.seen < ? "
    "AND NOT EXISTS (SELECT 1 FROM open_turns WHERE file = f.id)"
)


class _Position(NamedTuple):
    """All that is kept in memory of a cursor, since there may be very many."""

    offset: int
    passed: int  # bytes before it that belong to a line without its end
    fingerprint: int | None  # None if the log was not read to its end


class Positions:
    """How far each log of a source was read, as the index has it, and which end with a line that is not used yet."""

    def __init__(self, pipeline: Pipeline, source: str, clock: Callable[[], float]) -> None:
        self._pipeline, self._source, self._clock = pipeline, source, clock
        self._reset()

    def _reset(self) -> None:
        self._began_ms = self._pipeline.now()
        self.tails = WaitingTails()
        self._positions: dict[str, _Position] = {}
        self._flawed: dict[str, Cursor] = {}  # logs with unused lines that still exist

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, path: str) -> bool:
        return path_key(path) in self._positions

    async def load(self, is_usable: Callable[[bytes], bool]) -> None:
        """Loads the position of every log. Of one that was deleted it is dropped after a day; its turns stay.

        A log whose cursor cannot be used is read again, as is one with something open whose state is not usable.
        """
        self._reset()
        last, now = 0, self._pipeline.now()
        while rows := await self._pipeline.index.rows(_FILES, (self._source, last, LOADED_AT_ONCE)):
            for _, path, root, stored, state in rows:
                cursor = load_cursor(stored)
                if cursor is not None and (state is None or is_usable(state)):
                    self._keep(path, root, cursor, now, is_backlog=False)
            last = rows[-1][0]
        unseen = [path for (path,) in await self._rows(_VANISHED, now - FORGET_AFTER_MS)]
        present = await _present(unseen)
        await self.drop([path for path in unseen if path not in present])

    async def saved(self, path: str) -> tuple[bytes, bytes] | None:
        """A log's cursor and its reader's state."""
        rows = await self._rows("SELECT cursor, state FROM files WHERE source = ? AND path = ?", path_key(path))
        return (bytes(rows[0][0]), bytes(rows[0][1])) if rows else None

    async def is_open(self, path: str) -> bool:
        """Whether a log has open turns."""
        return bool(await self._rows("SELECT 1 FROM files WHERE source = ? AND path = ? AND open", path_key(path)))

    async def with_open_turns(self) -> list[tuple[str, str]]:
        """The logs that have open turns, with their roots."""
        return [
            (path, root) for path, root in await self._rows("SELECT path, root FROM files WHERE source = ? AND open")
        ]

    async def of_session(self, session_id: str) -> list[str]:
        """The logs of a session and its agents, by their paths."""
        sql = "SELECT path FROM files WHERE source = ? AND (instr(path, ?) OR instr(path, ?))"
        return [path for (path,) in await self._rows(sql, f"/{session_id}.", f"/{session_id}/")]

    async def seen_ms(self) -> dict[str, int]:
        """When each log was last read."""
        return dict(await self._rows("SELECT path, seen FROM files WHERE source = ?"))

    async def read_again(self, paths: Iterable[str] | None = None) -> None:
        """Drops the positions of these logs or all, so that they are read from the start if they still exist."""
        if paths is None:
            paths = [path for (path,) in await self._rows("SELECT path FROM files WHERE source = ?")]
            self._reset()
        await self.drop(sorted(await _present(paths)))

    async def drop(self, paths: list[str]) -> None:
        """Deletes the positions of these logs."""
        for path in paths:
            self._positions.pop(path, None)
            self._flawed.pop(path, None)
            self.tails.drop(path)
        if paths:
            await self._pipeline.commit(Batch(files=[FileChange(self._source, path, None) for path in paths]))

    def note(self, change: FileChange) -> None:
        """Takes over the new position of a log after it became durable."""
        if change.cursor is not None and (cursor := load_cursor(change.cursor)) is not None:
            before = self._positions.get(change.path)
            is_new = before is None or before.fingerprint is None
            is_backlog = is_new and cursor.ctime_ns // 1_000_000 < self._began_ms
            self._keep(change.path, change.root, cursor, change.seen_ms, is_backlog=is_backlog)

    def _keep(self, path: str, root: str, cursor: Cursor, seen_ms: int, *, is_backlog: bool) -> None:
        self._positions[path] = _Position(cursor.position, cursor.passed, cursor.fingerprint)
        if cursor.unused or cursor.unfinished:
            self._flawed[path] = cursor
        else:
            self._flawed.pop(path, None)
        if not cursor.has_untried_tail:
            self.tails.drop(path)
            return
        is_old = seen_ms - cursor.ctime_ns // 1_000_000 > OLD_MS
        self.tails.note(path, root, cursor, self._clock(), is_old=is_old, is_backlog=is_backlog)

    def fingerprints(self) -> Iterator[tuple[str, int]]:
        """The logs that were read to their ends, with their fingerprints."""
        return ((path, one.fingerprint) for path, one in self._positions.items() if one.fingerprint is not None)

    def passed(self, path: str) -> int:
        """The bytes that were seen of a log's last line, which has no newline yet."""
        position = self._positions.get(path_key(path))
        return position.passed if position is not None else 0

    def is_unread(self, entry: FileEntry) -> bool:
        position = self._positions.get(path_key(entry.path))
        return position is None or position.fingerprint != entry.fingerprint

    def unread_bytes(self, entry: FileEntry) -> int:
        position = self._positions.get(path_key(entry.path))
        return max(0, entry.size - (position.offset if position is not None else 0))

    async def drop_unused_of_deleted(self, has_seen: Callable[[str], bool]) -> None:
        """Forgets the unused lines of logs that were deleted."""
        unseen = [path for path in self._flawed if not has_seen(path)]
        if unseen:
            present = await anyio.to_thread.run_sync(lambda: set(filter(os.path.lexists, unseen)))
            for path in set(unseen) - present:
                self._flawed.pop(path, None)

    def unused(self) -> UnusedInAll:
        """Unused lines of all logs; of each log the first comes before the second of any other."""
        ranked = heapq.nsmallest(LINES_SHOWN, (item for flawed in self._flawed.items() for item in _ranked(*flawed)))
        unfinished = sum(cursor.unfinished for cursor in self._flawed.values())
        count = sum(one.count for cursor in self._flawed.values() for one in cursor.unused)
        return UnusedInAll(count + unfinished, unfinished, [UnusedLine(*line) for *_, line in ranked])

    async def _rows(self, sql: str, *values: Any) -> list[Any]:
        return list(await self._pipeline.index.rows(sql, (self._source, *values)))


async def _present(paths: Iterable[str]) -> set[str]:
    return await anyio.to_thread.run_sync(lambda: set(filter(is_there, paths)))


def _ranked(path: str, cursor: Cursor) -> Iterator[tuple[int, int, tuple[str, int, int, str]]]:
    """A log's unused lines: first those that were not even parsed, last the one that may still be completed."""
    for one in cursor.unused:
        for n, (offset, size) in enumerate(one.places):
            yield int(one.reason not in (TOO_LONG, FATAL, FATAL_WORDS)), n, (path, offset, size, one.reason)
    if cursor.unfinished:
        yield 2, 0, (path, cursor.offset, cursor.passed, UNFINISHED)
