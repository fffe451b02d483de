"""The ledger, content and index that the one writer has open, how far it has come, and the disk they are on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from burnd.errors import NoSpace
from burnd.index.apply import Applier
from burnd.index.build import Progress
from burnd.index.change import Change
from burnd.index.store import IndexStore
from burnd.ledger import files
from burnd.ledger.content import ContentStore
from burnd.ledger.journal import Journal
from burnd.paths import Home
from burnd.records.times import Clock

T = TypeVar("T")
_RESERVE_BYTES: Final = 20 << 20
_RESERVE_SHARE: Final = 50  # one part in fifty of a small disk


class WriterStatus:
    """Counters of the one writer since the start. Only the writer changes them."""

    def __init__(self) -> None:
        self.beats = 0  # grows with every step of work
        self.refused = 0  # records that could not have been read back, and were not written
        self.rebuilding: tuple[int, int] | None = None  # (done, total) of a rebuild in progress

    def beat(self) -> None:
        self.beats += 1

    @contextlib.contextmanager
    def shown(self, report: Progress) -> Iterator[Progress]:
        """Shows the progress of a rebuild in `rebuilding`, and passes it on to `report`."""

        def update(done: int, total: int) -> None:
            self.beat()
            self.rebuilding = (done, total)
            report(done, total)

        before, self.rebuilding = self.rebuilding, (0, 0)
        try:
            yield update
        finally:
            self.rebuilding = before


class DiskReserve:
    """The file system of a home; the last bytes on it are reserved for records without text."""

    def __init__(self, root: Path, reserve: int | None) -> None:
        self.reserve = reserve  # as set by the user; None for the default
        self._root = root

    def measure(self) -> tuple[int, int]:
        """Returns (free bytes, reserved bytes); (0, 0) if the system does not tell, so that writing finds out."""
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
                f"only {free} bytes are free and {reserve} are held in reserve",
                str(self._root),
                "free some space; nothing is lost meanwhile",
            )


def reserve_of(size: int, setting: int | None) -> int:
    """The bytes to reserve on a file system of this size."""
    return min(_RESERVE_BYTES, size // _RESERVE_SHARE) if setting is None else setting


class Stores:
    """Used by one task at a time. `is_behind` is set before a write, and cleared when the index shows all of it."""

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
        self.generation = 0  # how often the index was replaced, and the cursors of the sources with it
        self.is_behind = False
        self._applier = Applier(index)
        self._thread = anyio.CapacityLimiter(1)

    async def apply(self, change: Change) -> None:
        """Writes a change to the index, with the current end of the ledger."""
        change.ledger_end = self.journal.end
        change.ledger_anchor = self.journal.anchor(self.journal.end)
        await self._applier.apply(change)
        self.status.beat()

    def drop_caches(self) -> None:
        """Forgets what the applier cached, after the index was written without it."""
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
        self.content.close()
        self.journal.close()
