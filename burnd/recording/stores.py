"""The writer's open ledger, content and index: status, disk reserve, catching up and rebuilding the index."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
import structlog

from burnd.errors import IndexDamaged, NoSpace, NotNow
from burnd.index import build
from burnd.index.apply import Applier
from burnd.index.build import Progress
from burnd.index.change import Change
from burnd.index.store import IndexStore
from burnd.index.sums import refine
from burnd.ledger import files
from burnd.ledger.content import ContentStore
from burnd.ledger.journal import Journal
from burnd.paths import Home
from burnd.records.codec import Entry
from burnd.records.times import Clock

T = TypeVar("T")
_RESERVE_BYTES: Final = 20 << 20
_RESERVE_SHARE: Final = 50  # one part in fifty of a small disk


class WriterStatus:
    """Counters of the one writer since the start; only it changes them."""

    def __init__(self) -> None:
        self.heartbeat = 0  # grows with every step of work
        self.refused = 0  # records that could not be read back and were not written
        self.rebuilding: tuple[int, int] | None = None  # (done, total) of a rebuild in progress

    def progressed(self, _done: int, _total: int) -> None:
        self.heartbeat += 1

    @contextlib.contextmanager
    def shown(self, report: Progress) -> Iterator[Progress]:
        """Shows the progress of a rebuild in `rebuilding`, and passes it to `report`."""

        def update(done: int, total: int) -> None:
            self.heartbeat += 1
            self.rebuilding = (done, total)
            report(done, total)

        before, self.rebuilding = self.rebuilding, (0, 0)
        try:
            yield update
        finally:
            self.rebuilding = before


class DiskReserve:
    """The file system of a home; its last bytes are reserved for records without text."""

    def __init__(self, root: Path, reserve: int | None) -> None:
        self.reserve = reserve  # as set by the user; None for the default
        self._root = root

    def measure(self) -> tuple[int, int]:
        """Returns (free, reserved) bytes; (0, 0) if unknown."""
        try:
            free, size = files.free_bytes(self._root)
        except OSError:
            return 0, 0
        return free, reserve_of(size, self.reserve)

    def check(self) -> None:
        """Raises NoSpace if only the reserve is left."""
        free, reserve = self.measure()
        if free < reserve:
            raise NoSpace(
                f"only {free / 1e6:,.0f} MB are free, and {reserve / 1e6:,.0f} MB are reserved",
                str(self._root),
                "free some space; nothing is lost meanwhile",
            )


def reserve_of(size: int, setting: int | None) -> int:
    return min(_RESERVE_BYTES, size // _RESERVE_SHARE) if setting is None else setting


class Stores:
    """Used by one task at a time. If it `is_behind`, ledger or content may have more than the index."""

    def __init__(
        self,
        home: Home,
        journal: Journal,
        content: ContentStore,
        index: IndexStore,
        now: Clock,
        check_home: Callable[[], None],
    ) -> None:
        self.home = home
        self.check_home = check_home
        self.journal = journal
        self.content = content
        self.index = index
        self.now = now
        self.status = WriterStatus()
        self.generation = 0  # how often the index, with the sources' cursors, was replaced
        self.is_behind = False
        self._applier = Applier(index)
        self._thread = anyio.CapacityLimiter(1)
        # Stores content: its sync may take longer than all other work on a batch.
        self.disk_thread = ThreadPoolExecutor(1, "disk")

    async def apply(self, change: Change) -> None:
        await self.in_writer(lambda db: self.write(db, change))

    def write(
        self,
        db: sqlite3.Connection,
        change: Change,
        lines: Sequence[bytes] = (),
        content: Sequence[Future[None]] = (),
    ) -> None:
        """Writes a change to the index, and its lines to the ledger once its content is stored, before the index
        commits. If that fails, neither has any of it. For the writer's thread.
        """
        journal = self.journal
        start = journal.end

        def append_lines() -> None:
            for one in content:
                one.result()
            journal.append(lines)
            change.ledger_end, change.ledger_anchor = journal.end_and_anchor()

        try:
            self._applier.write(db, change, append_lines)
        except Exception:
            if journal.end > start:
                journal.take_back(start)
            raise
        self.status.heartbeat += 1

    async def in_writer(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs work in the thread of the index's writer. Raises StorageError instead of OSError."""
        try:
            return await self.index.in_writer(work)
        except OSError as error:
            raise files.as_storage_error(error, self.home.root) from error

    def drop_caches(self) -> None:
        """Clears the applier's caches after the index was written without it."""
        self._applier = Applier(self.index)

    async def in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Runs blocking work in a thread, one piece at a time. Raises StorageError instead of OSError."""
        try:
            return await anyio.to_thread.run_sync(partial(work, *args), limiter=self._thread)
        except OSError as error:
            raise files.as_storage_error(error, self.home.root) from error

    async def close(self) -> None:
        if not self.index.closed:
            await self.index.close(clean=not self.is_behind)
        self.disk_thread.shutdown()
        self.content.close()
        self.journal.close()


log = structlog.get_logger()


class Recovery:
    """Catches up, rebuilds the index, or reopens and rewrites the ledger."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def catch_up(self) -> None:
        """Indexes what a failed commit left durable, so that it is not written twice."""
        if self._stores.is_behind:
            self._stores.journal.check()
            await self._catch_up()

    async def reopen_ledger(self) -> None:
        """Opens the file now at the ledger's path, and catches up with it."""
        stores = self._stores
        stores.check_home()
        old, stores.journal = stores.journal, Journal(stores.home.ledger, stores.now())
        old.close()
        await self._catch_up()

    async def refine(self, report: build.Progress) -> None:
        """Recomputes all sums, for prices that split usage at other context sizes."""
        await self.catch_up()
        await refine(self._stores.index, report)
        self._stores.drop_caches()

    async def rebuild(self) -> None:
        """Rebuilds the index, with the open turns of the old one. May be cancelled until the swap."""
        stores = self._stores
        await self._rebuild(build.no_progress, await build.carried_over(stores.index, stores.journal))

    async def rebuild_damaged(self) -> None:
        """Rebuilds the index from ledger and content, with what only the damaged one has and can still be read."""
        stores = self._stores
        salvaged = await stores.in_thread(build.salvage, stores.home.index_db, stores.journal)
        try:
            await self._rebuild(build.no_progress, salvaged)
        except IndexDamaged:  # the salvaged rows were damaged
            await self._rebuild(build.no_progress, Change())

    async def rewrite_ledger(self, change: Callable[[Entry], Entry], report: build.Progress) -> int:
        """Rewrites the ledger with every entry changed, and the index; returns the number that changed."""
        with anyio.CancelScope(shield=True):
            await self.catch_up()
        stores = self._stores
        total = stores.journal.end
        changed = await stores.in_thread(
            stores.journal.write_replacement, change, lambda done: report(min(done, total), 2 * total)
        )
        if not changed:
            return 0
        rewritten = Journal(files.replacement_path(stores.home.ledger), stores.now())
        try:
            carried = await build.carried_over(stores.index, stores.journal)
            carried.open = await stores.in_thread(build.changed_open, carried.open, change)
            second_half = lambda done, of: report(total + total * done // max(of, 1), 2 * total)  # noqa: E731
            await self._rebuild(second_half, carried, rewritten=rewritten)
        finally:
            rewritten.close()
            files.clear_replacement(stores.home.ledger)
        return changed

    async def _catch_up(self) -> None:
        stores = self._stores
        try:
            if stores.index.closed:
                await stores.index.swap(lambda: None)
            await build.catch_up(stores.index, stores.journal, stores.content, stores.status.progressed)
        except IndexDamaged:
            await self.rebuild_damaged()
        except OSError as error:
            if isinstance(later := files.as_storage_error(error, stores.home.root), NotNow):
                raise later from error
            raise
        stores.drop_caches()
        stores.is_behind = False

    async def _rebuild(self, report: build.Progress, carried: Change, *, rewritten: Journal | None = None) -> None:
        """Builds beside the index in use, which answers queries until the swap."""
        stores = self._stores
        stores.check_home()
        stores.is_behind = True
        with stores.status.shown(report) as progress:
            journal, prices = rewritten or stores.journal, stores.index.prices
            await build.build_beside(stores.home.index_db, journal, stores.content, progress, prices, carried)

        def swap() -> None:
            stores.check_home()
            if rewritten is not None:
                stores.journal.commit_replacement()
            build.swap_in(stores.home.index_db)

        with anyio.CancelScope(shield=True):
            stores.generation += 1
            if rewritten is not None:
                await stores.index.disown()
            await stores.index.swap(swap)
            stores.drop_caches()
            stores.status.heartbeat += 1
        stores.is_behind = False
        log.info("index.rebuilt")
