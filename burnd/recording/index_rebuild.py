"""Brings the index in step with ledger and content: catches up, rebuilds it, or rebuilds it with a rewritten ledger.

Called only by the one writer, while nothing else is written.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import structlog

from burnd.errors import IndexDamaged, NotNow
from burnd.index import build, carrying
from burnd.index.change import Change
from burnd.index.rollup import refine
from burnd.ledger import files
from burnd.ledger.journal import Journal
from burnd.recording.stores import Stores
from burnd.records.codec import Entry

log = structlog.get_logger()


class IndexRebuild:
    """Repairs an index that is, or may be, behind or damaged."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def catch_up(self) -> None:
        """Indexes what a failed commit left durable, so that it is not written twice."""
        if self._stores.is_behind:
            self._stores.journal.check()
            await self._catch_up()

    async def reopen_ledger(self) -> None:
        """Opens the file that is at the ledger's path now, and catches up with it."""
        stores = self._stores
        stores.check_home()
        old, stores.journal = stores.journal, Journal(stores.home.ledger, stores.now())
        old.close()
        await self._catch_up()

    async def refine(self, report: build.Progress) -> None:
        """Recomputes all sums for prices that the present sums cannot tell apart."""
        await self.catch_up()
        await refine(self._stores.index, report)
        self._stores.drop_caches()

    async def rebuild(self) -> None:
        """Rebuilds the index, with the open turns of the one it replaces. May be cancelled until the swap."""
        stores = self._stores
        await self._rebuild(build.no_progress, await carrying.carried_over(stores.index, stores.journal))

    async def rebuild_damaged(self) -> None:
        """Rebuilds the index from ledger and content, with what only the damaged index has and can still be read."""
        stores = self._stores
        salvaged = await stores.in_thread(carrying.salvaged, stores.home.index_db, stores.journal)
        try:
            await self._rebuild(build.no_progress, salvaged)
        except IndexDamaged:  # by what was salvaged
            await self._rebuild(build.no_progress, Change())

    async def rewrite_ledger(self, change: Callable[[Entry], Entry], report: build.Progress) -> int:
        """Replaces the ledger by one with every entry changed, and the index with it; returns how many changed."""
        with anyio.CancelScope(shield=True):
            await self.catch_up()
        stores = self._stores
        total = stores.journal.end
        changed = await stores.in_thread(
            stores.journal.write_beside, change, lambda done: report(min(done, total), 2 * total)
        )
        if not changed:
            return 0
        rewritten = Journal(files.beside(stores.home.ledger), stores.now())
        try:
            carried = await carrying.carried_over(stores.index, stores.journal)
            carried.open = await stores.in_thread(carrying.changed_open, carried.open, change)
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
            await build.catch_up(stores.index, stores.journal, stores.content, lambda *_: stores.status.beat())
        except IndexDamaged:
            await self.rebuild_damaged()
        except OSError as error:
            if isinstance(later := files.as_storage_error(error, stores.home.root), NotNow):
                raise later from error
            raise
        stores.drop_caches()
        stores.is_behind = False

    async def _rebuild(self, report: build.Progress, carried: Change, *, rewritten: Journal | None = None) -> None:
        """Builds beside the index in use, which answers queries until the new one takes its place."""
        stores = self._stores
        stores.check_home()
        stores.is_behind = True
        with stores.status.shown(report) as shown:
            journal, prices = rewritten or stores.journal, stores.index.prices
            await build.build_beside(stores.home.index_db, journal, stores.content, shown, prices, carried)

        def swap() -> None:
            stores.check_home()
            if rewritten is not None:
                stores.journal.put_in_place()
            build.swap_in(stores.home.index_db)

        with anyio.CancelScope(shield=True):
            stores.generation += 1
            if rewritten is not None:
                await stores.index.disown()
            await stores.index.swap(swap)
            stores.drop_caches()
            stores.status.beat()
        stores.is_behind = False
        log.info("index.rebuilt")
