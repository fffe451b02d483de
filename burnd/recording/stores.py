"""Ledger, content and index as the one writer has them open, and whether the index may lack what the others have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from burnd.index.apply import Applier
from burnd.index.change import Change
from burnd.index.store import IndexStore
from burnd.ledger import files
from burnd.ledger.content import ContentStore
from burnd.ledger.journal import Journal
from burnd.paths import Home
from burnd.recording.pulse import Pulse
from burnd.records.times import Clock

T = TypeVar("T")


class Stores:
    """Used by one task at a time. `is_behind` is set before anything is written and cleared when all of it is shown."""

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
        self.pulse = Pulse()
        self.generation = 0  # how often the index was lost, and with it where the sources stood
        self.is_behind = False
        self._applier = Applier(index)
        self._thread = anyio.CapacityLimiter(1)

    async def apply(self, change: Change) -> None:
        """Makes a change visible, with the ledger's end as it is now."""
        change.ledger_end = self.journal.end
        change.ledger_anchor = self.journal.anchor(self.journal.end)
        await self._applier.apply(change)
        self.pulse.beat()

    def forget_rows(self) -> None:
        """The index was written past the applier: what that remembers of it may be wrong."""
        self._applier = Applier(self.index)

    async def in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Blocking work, one piece at a time, off the event loop; the system's errors in our own words."""
        try:
            return await anyio.to_thread.run_sync(partial(work, *args), limiter=self._thread)
        except OSError as error:
            raise files.as_storage_error(error, self.home.root) from error

    async def close(self) -> None:
        if not self.index.closed:
            await self.index.close(clean=not self.is_behind)
        self.content.close()
        self.journal.close()
