"""Exact totals seconds after the first start: an index of totals, in use until all old logs are read.

A child process (`pass_process`) runs the quick pass over all logs and writes an index of its turns beside the real one.
Old logs are read only after that. Until they are, reports that need totals alone are answered from this index; it also
takes every record that is newer than the pass, so it is exact at any moment, in any order of reading. Then it is
deleted. It is made again when the daemon starts before all old logs are read.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import anyio.to_thread
import msgspec
import structlog

from burnd.errors import IndexDamaged, StorageError
from burnd.harness.quick_pass import LogTask, PassRequest, Places, find_logs
from burnd.index.apply import Applier
from burnd.index.change import Change
from burnd.index.keys import copy_holder, copy_spans, path_key, selecting_copies
from burnd.index.store import IndexStore, keyed, open_index, set_meta
from burnd.pass_process import LEAST_BYTES, PassProcess
from burnd.paths import Home
from burnd.pricing import PriceTable
from burnd.recording.pipeline import Pipeline
from burnd.recording.source import Progress
from burnd.records import Compaction, Copy, Overhead, Quota, Request, Session, Stamp, Turn
from burnd.records.times import index_ms

log = structlog.get_logger()
_LONGEST_WAIT_S: Final = 120.0  # of old logs for the pass
_LOOK_S: Final = 0.2
_BATCH: Final = 2000
_META: Final = "early_totals"  # in the real index, until all old logs are read
_FILE: Final = "early-{}.db"


class LogPass:
    """The quick pass over the logs of some harnesses, in a child process; `progress` is None unless it runs."""

    progress: Progress | None = None

    def __init__(self, home: Home, places: Places, sources: Sequence[str], process: PassProcess | None = None) -> None:
        self._home, self._places, self._sources, self._process = home, places, sources, process

    def logs(self) -> list[LogTask]:
        """The logs that there are now."""
        return find_logs(self._places, self._sources)

    def stop(self) -> None:
        """Ends the child process."""
        if self._process is not None:
            self._process.stop()

    async def write(self, path: Path) -> bool:
        """Writes an index of totals; returns whether that succeeded."""
        request = PassRequest(str(self._home.root), str(path), list(self._sources), dict(self._places.announced))
        self._process = process = self._process or PassProcess(self._places.environ)
        self.progress, start = Progress(0, 0, 0.0), time.monotonic()

        def report(line: bytes) -> None:
            done, total = msgspec.json.decode(line, type=tuple[int, int])
            self.progress = Progress(done, total, done / max(time.monotonic() - start, 0.001))

        try:
            run = partial(process.run, msgspec.json.encode(request), report)
            code = await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
        finally:
            self.progress = None
        if code:
            log.warning("totals.failed", code=code)
        return not code


class EarlyTotals:
    """Follows the pipeline from the start of the daemon on, and ends when all old logs are read."""

    def __init__(
        self, pipeline: Pipeline, log_pass: LogPass, prices: Callable[[], PriceTable], is_read: Callable[[], bool]
    ) -> None:
        self._pipeline, self._log_pass, self._prices, self._is_read = pipeline, log_pass, prices, is_read
        self._passed = anyio.Event()  # old logs may be read
        self._is_collecting = True
        self._changes: list[Change] = []
        self._lock = anyio.Lock()
        self._totals: _TotalsIndex | None = None
        pipeline.follow(self._take, self._pace)

    @property
    def are_exact(self) -> bool:
        """Whether there is an index of totals now."""
        return self._totals is not None

    @property
    def progress(self) -> Progress | None:
        """The progress of the pass while it runs."""
        return self._log_pass.progress

    async def index(self) -> IndexStore | None:
        """The index of totals with all that is recorded; None if the real one is to be asked."""
        async with self._lock:
            return await self._updated()

    async def run(self) -> None:
        """Makes the index of totals if it is needed, and deletes it when all old logs are read."""
        folder = self._pipeline.home.index
        path = folder / _FILE.format(os.getpid())
        try:
            _remove_all(folder)
            if await self._is_needed():
                await self._mark("wanted")
                await self._make(path)
                self._passed.set()
                while not self._is_read():
                    await anyio.sleep(_LOOK_S)
                    await self.index()
                await self._mark("")
        except (IndexDamaged, StorageError, OSError) as error:
            log.warning("totals.failed", error=type(error).__name__)
        finally:
            self._log_pass.stop()
            self._is_collecting = False
            self._passed.set()
            self._pipeline.unfollow(self._take)
            with anyio.CancelScope(shield=True):
                async with self._lock:
                    totals, self._totals, self._changes = self._totals, None, []
                    if totals is not None:
                        await totals.store.close()
            _remove_all(folder)

    def _take(self, change: Change) -> None:
        """Collects the records of a change for the index of totals."""
        if self._is_collecting and (change.logged or change.open or change.closed):
            self._changes.append(Change(logged=change.logged, open=change.open, closed=change.closed))

    async def _pace(self) -> None:
        """Lets old logs wait for the pass: it takes a fraction of the time."""
        with anyio.move_on_after(_LONGEST_WAIT_S):
            await self._passed.wait()

    async def _is_needed(self) -> bool:
        """Whether many logs were never read. After a rebuild of the index, all turns are there without them."""
        index = self._pipeline.index
        if (await index.meta()).get(_META):
            return True
        tasks = await anyio.to_thread.run_sync(self._log_pass.logs)
        read = {row[0] for row in await index.rows(_READ)}
        unread = sum(task.size for task in tasks if not any(path_key(path) in read for path in task.paths))
        has_turns = bool(await index.rows("SELECT 1 FROM turns LIMIT 1"))
        return unread >= LEAST_BYTES and (bool(read) or not has_turns)

    async def _mark(self, value: str) -> None:
        await self._pipeline.derive(self._pipeline.generation, lambda db: set_meta(db, **{_META: value}))

    async def _make(self, path: Path) -> None:
        """Runs the pass, and adds what the ledger has beyond it."""
        start, end = anyio.current_time(), self._pipeline.journal.end
        if not await self._log_pass.write(path):
            self._is_collecting = False
            return
        totals = await _TotalsIndex.open(path, self._prices())
        lines = self._pipeline.journal.read(0, end)
        while batch := await anyio.to_thread.run_sync(lambda: [(line, 0) for line in islice(lines, _BATCH)]):
            await totals.add(Change(logged=batch))
        async with self._lock:
            self._totals = totals
            await self._updated()
        log.info("totals.ready", seconds=round(anyio.current_time() - start, 2))

    async def _updated(self) -> IndexStore | None:
        """The index with all that was collected. A failure ends its use."""
        if self._totals is None:
            return None
        changes, self._changes = self._changes, []
        for change in changes:
            await self._totals.add(change)
        return self._totals.store


class _TotalsIndex(NamedTuple):
    """The index of totals; it has sessions up to the number `last_session` and times up to `begun` from the pass."""

    store: IndexStore
    applier: Applier
    last_session: int
    begun: int

    @classmethod
    async def open(cls, path: Path, prices: PriceTable) -> _TotalsIndex:
        store = await open_index(path)
        store.prices = prices
        meta = await store.meta()
        return cls(store, Applier(store), int(meta["last_session"]), int(meta["begun"]))

    async def add(self, change: Change) -> None:
        """Adds what the pass did not see."""
        news = await self.store.transact(lambda db: self._news(db, change))
        if news.logged or news.open or news.closed:
            await self.applier.apply(news)

    def _news(self, db: sqlite3.Connection, change: Change) -> Change:
        entries = [line.entry for line, _ in change.logged]
        turns = [one for one in entries if isinstance(one, Turn | Copy)]
        in_index = _KnownTurns(db, [*turns, *(one.turn for one in change.open), *change.closed])
        sessions = {one.session_id for one in entries if isinstance(one, _OF_SESSIONS)}
        rows = keyed(db, "SELECT session_id, id FROM sessions WHERE session_id IN ({keys})", [(s,) for s in sessions])
        passed = {session_id for session_id, number in rows if number <= self.last_session}

        def is_new(entry: object) -> bool:
            if isinstance(entry, Turn):
                return in_index.is_new(entry)
            if isinstance(entry, Copy):
                return not in_index.is_passed(entry)
            if isinstance(entry, _OF_SESSIONS):
                is_late = not isinstance(entry, Session) and index_ms(entry.ts) >= self.begun
                return is_late or entry.session_id not in passed
            return isinstance(entry, Stamp | Quota)

        return Change(
            logged=[(line, digest) for line, digest in change.logged if is_new(line.entry)],
            open=[one for one in change.open if in_index.is_new(one.turn)],
            closed=[turn for turn in change.closed if in_index.is_new(turn)],
        )


class _Row(NamedTuple):
    tokens: int
    is_passed: bool  # as the pass found it


class _KnownTurns:
    """What the index of totals has of some messages."""

    def __init__(self, db: sqlite3.Connection, messages: Iterable[Turn | Copy]) -> None:
        keys = list(dict.fromkeys((one.source, one.message_id) for one in messages))
        rows = keyed(db, _KNOWN, keys)
        self._turns = {(source, name): _Row(tokens, bool(passed)) for source, name, tokens, passed in rows}
        others = [key for key in keys if key not in self._turns]
        copies = keyed(db, selecting_copies("f.key, f.length"), copy_spans(others))
        self._copies = {copy_holder(key)[0] for key, length in copies if not length}

    def is_new(self, turn: Turn) -> bool:
        """Whether the pass did not see a turn, or saw less of it."""
        key = (turn.source, turn.message_id)
        row = self._turns.get(key)
        if row is None:
            return key not in self._copies
        return not row.is_passed or sum(msgspec.structs.astuple(turn.usage)) > row.tokens

    def is_passed(self, copy: Copy) -> bool:
        key = (copy.source, copy.message_id)
        row = self._turns.get(key)
        return key in self._copies or (row is not None and row.is_passed)


def _remove_all(folder: Path) -> None:
    """Removes all indexes of totals. What cannot be removed now is removed at the next start."""
    with contextlib.suppress(OSError):
        for path in folder.glob(_FILE.format("*") + "*"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


_OF_SESSIONS = Session | Overhead | Request | Compaction
_READ = "SELECT path FROM files UNION SELECT substr(source, instr(source, ':') + 1) FROM cursors"
_KNOWN = """
WITH w(source, message_id) AS ({keys})
SELECT n.name, t.message_id, t.input + t.output + t.reasoning + t.cache_read + t.cache_create_5m + t.cache_create_1h,
       t.position IS NULL AND t.rev = 1 AND NOT t.open
FROM w CROSS JOIN names n ON n.name = w.source
CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id
"""
