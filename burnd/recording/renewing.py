"""Brings the index in step with ledger and content again: catches up, builds it anew, or with a ledger rewritten.

Called by the one writer alone, while nothing else is written.
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


class Renewer:
    """What is done when the index is not, or may not be, what it should be."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def catch_up(self) -> None:
        """Takes what a failed piece of writing left durable into the index, so that it is not written twice."""
        if self._stores.is_behind:
            self._stores.journal.check()
            await self._catch_up()

    async def reopen_ledger(self) -> None:
        """Goes on with whatever stands at the ledger's path now; the index follows it."""
        stores = self._stores
        stores.check_home()
        old, stores.journal = stores.journal, Journal(stores.home.ledger, stores.now())
        old.close()
        await self._catch_up()

    async def refine(self, report: build.Progress) -> None:
        """Adds up all turns anew, for prices that sums do not tell apart yet."""
        await self.catch_up()
        await refine(self._stores.index, report)
        self._stores.forget_rows()

    async def rebuild(self, report: build.Progress) -> None:
        """Makes the index anew, with the open turns of the one it replaces. May be cancelled until that is replaced."""
        stores = self._stores
        await self._rebuild(report, await carrying.carried_over(stores.index, stores.journal))

    async def rebuild_damaged(self) -> None:
        """Makes the index anew from ledger and content, and what can be saved of it that neither has."""
        stores = self._stores
        saved = await stores.in_thread(carrying.salvaged, stores.home.index_db, stores.journal)
        try:
            await self._rebuild(build.no_progress, saved)
        except IndexDamaged:  # by what was saved
            await self._rebuild(build.no_progress, Change())

    async def rewrite(self, change: Callable[[Entry], Entry], report: build.Progress) -> int:
        """Replaces the ledger by one with every entry changed, and the index with it; returns how many were."""
        with anyio.CancelScope(shield=True):
            await self.catch_up()
        stores = self._stores
        total = stores.journal.end
        changed = await stores.in_thread(
            stores.journal.write_beside, change, lambda done: report(min(done, total), 2 * total)
        )
        if changed:
            await self._take_rewritten(change, lambda done, of: report(total + total * done // max(of, 1), 2 * total))
        return changed

    async def _take_rewritten(self, change: Callable[[Entry], Entry], report: build.Progress) -> None:
        stores = self._stores
        new = Journal(files.beside(stores.home.ledger), stores.now())
        try:
            carried = await carrying.carried_over(stores.index, stores.journal)
            carried.open = await stores.in_thread(carrying.changed_open, carried.open, change)
            await self._rebuild(report, carried, rewritten=new)
        finally:
            new.close()
            files.clear_replacement(stores.home.ledger)

    async def _catch_up(self) -> None:
        stores = self._stores
        try:
            if stores.index.closed:
                await stores.index.swap(lambda: None)
            await build.catch_up(stores.index, stores.journal, stores.content, lambda *_: stores.pulse.beat())
        except IndexDamaged:
            await self.rebuild_damaged()
        except OSError as error:
            if isinstance(later := files.as_storage_error(error, stores.home.root), NotNow):
                raise later from error
            raise
        stores.forget_rows()
        stores.is_behind = False

    async def _rebuild(self, report: build.Progress, carried: Change, *, rewritten: Journal | None = None) -> None:
        """Builds beside the index in use, which answers until the new one takes its place."""
        stores = self._stores
        stores.check_home()
        stores.is_behind = True
        with stores.pulse.told(report) as told:
            journal, prices = rewritten or stores.journal, stores.index.prices
            await build.build_beside(stores.home.index_db, journal, stores.content, told, prices, carried)
        with anyio.CancelScope(shield=True):
            stores.generation += 1
            if rewritten is not None:
                await stores.index.disown()
            await stores.index.swap(lambda: self._put_in_place(rewritten is not None))
            stores.forget_rows()
            stores.pulse.beat()
        stores.is_behind = False
        log.info("index.rebuilt")

    def _put_in_place(self, with_ledger: bool) -> None:
        self._stores.check_home()
        if with_ledger:
            self._stores.journal.put_in_place()
        build.swap_in(self._stores.home.index_db)
