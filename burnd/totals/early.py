"""Exact totals seconds after the first start, from an index of totals that is used until all old logs are read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
import structlog

from burnd.errors import IndexDamaged, StorageError
from burnd.harness.quick_pass import LogSettings, LogTask, find_logs
from burnd.index.change import Change
from burnd.index.keys import path_key
from burnd.index.store import IndexStore, set_meta
from burnd.paths import Home
from burnd.pricing import PriceTable
from burnd.recording.pipeline import Pipeline
from burnd.totals.child import LEAST_BYTES, PassProcess
from burnd.totals.index import PassRequest, TotalsIndex

log = structlog.get_logger()
_LONGEST_WAIT_S: Final = 120.0  # of old logs for the pass
_LOOK_S: Final = 0.2
_BATCH: Final = 2000
_META: Final = "early_totals"  # in the real index, until all old logs are read
_FILE: Final = "early-{}.db"


class LogPass:
    """The quick pass over the logs of some harnesses, in a child process."""

    def __init__(
        self, home: Home, log_settings: LogSettings, sources: Sequence[str], process: PassProcess | None = None
    ) -> None:
        self._home, self._log_settings, self._sources, self._process = home, log_settings, sources, process

    @property
    def progress(self) -> tuple[int, int] | None:
        """The bytes that are done, and all, while it runs."""
        return self._process.progress if self._process is not None else None

    def logs(self) -> list[LogTask]:
        return find_logs(self._log_settings, self._sources)

    async def write(self, path: Path) -> bool:
        """Writes an index of totals; returns whether that succeeded."""
        request = PassRequest(str(self._home.root), str(path), list(self._sources), dict(self._log_settings.announced))
        self._process = process = self._process or PassProcess(self._log_settings.environ)
        run = partial(process.run, msgspec.json.encode(request))
        if code := await anyio.to_thread.run_sync(run, abandon_on_cancel=True):
            log.warning("totals.failed", code=code)
        return not code

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


class EarlyTotals:
    """Follows the pipeline from the start of the daemon on, and ends when all old logs are read.

    A child process runs the quick pass over all logs and writes an index of its turns beside the real one. Old logs are
    read only after that. Until they are, reports that need totals alone are answered from this index; it also takes
    every record that is newer than the pass, so it is exact at any moment, in any order of reading. If the daemon
    starts before all old logs are read, it is made again.
    """

    def __init__(
        self, pipeline: Pipeline, log_pass: LogPass, prices: Callable[[], PriceTable], is_read: Callable[[], bool]
    ) -> None:
        self.are_exact = False  # whether there is an index of totals now
        self._pipeline, self._log_pass, self._prices, self._is_read = pipeline, log_pass, prices, is_read
        self._passed = anyio.Event()  # old logs may be read
        self._is_collecting = True
        self._changes: list[Change] = []
        self._lock = anyio.Lock()
        self._totals: TotalsIndex | None = None
        pipeline.follow(self._take, self._pace)

    @property
    def progress(self) -> tuple[int, int] | None:
        """The bytes that the pass has read, and all, while it runs."""
        return self._log_pass.progress

    async def run(self) -> None:
        """Makes the index of totals if it is needed, and deletes it when all old logs are read."""
        folder = self._pipeline.home.index
        try:
            _remove_all(folder)
            if await self._is_needed():
                await self._mark("wanted")
                async with anyio.create_task_group() as making:
                    making.start_soon(self._make, folder / _FILE.format(os.getpid()))
                    while not self._is_read():
                        await anyio.sleep(_LOOK_S)
                        await self.index()
                    making.cancel_scope.cancel()
                await self._mark("")
        except (IndexDamaged, StorageError, OSError) as error:
            log.warning("totals.failed", error=type(error).__name__)
        finally:
            self._log_pass.stop()
            self._pipeline.unfollow(self._take)
            self._end_use()
            self._passed.set()
            with anyio.CancelScope(shield=True):
                async with self._lock:
                    if self._totals is not None:
                        await self._totals.store.close()
            _remove_all(folder)

    async def index(self) -> IndexStore | None:
        """The index of totals with all that is recorded; None if the real one is to be asked."""
        async with self._lock:
            if not self.are_exact or self._totals is None:
                return None
            try:
                with anyio.CancelScope(shield=True):  # a client that disconnects must not lose a change
                    while self._changes:
                        await self._totals.add(self._changes.pop(0))
            except (IndexDamaged, StorageError) as error:
                self.abandon(error)
                return None
            return self._totals.store

    def abandon(self, error: Exception) -> None:
        """Ends the use of the index after a failure: totals are partial until all old logs are read."""
        if self.are_exact:
            log.warning("totals.failed", error=type(error).__name__)
            self._end_use()

    def _end_use(self) -> None:
        self.are_exact = self._is_collecting = False
        self._changes = []

    def _take(self, change: Change) -> None:
        """Collects the records of a change for the index of totals."""
        if not self._is_collecting:
            return
        if self._totals is None:
            news: Change | None = Change(logged=change.logged, open=change.open, closed=change.closed)
        else:
            news = self._totals.filtered(change)
        if news is not None:
            self._changes.append(news)

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
        await self._pipeline.write_derived(self._pipeline.generation, lambda db: set_meta(db, **{_META: value}))

    async def _make(self, path: Path) -> None:
        """Runs the pass, and adds what the ledger has beyond it. Old logs may be read afterwards."""
        start, end = anyio.current_time(), self._pipeline.journal.end
        try:
            if await self._log_pass.write(path):
                totals = await TotalsIndex.open(path, self._prices())
                for change in self._changes:
                    totals.filtered(change)  # notes their messages
                self._totals = totals
                lines = self._pipeline.journal.read(0, end)
                while batch := await anyio.to_thread.run_sync(lambda: [(line, 0) for line in islice(lines, _BATCH)]):
                    await self._totals.add(Change(logged=batch))
                self.are_exact = True
                await self.index()
                log.info("totals.ready", seconds=round(anyio.current_time() - start, 2))
                await self._totals.load_passed()
        except (IndexDamaged, StorageError, OSError) as error:
            log.warning("totals.failed", error=type(error).__name__)
        if not self.are_exact:
            self._end_use()
        self._passed.set()


def _remove_all(folder: Path) -> None:
    """Removes all indexes of totals. What cannot be removed now is removed at the next start."""
    with contextlib.suppress(OSError):
        for path in folder.glob(_FILE.format("*") + "*"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


_READ = "SELECT path FROM files UNION SELECT substr(source, instr(source, ':') + 1) FROM cursors"
