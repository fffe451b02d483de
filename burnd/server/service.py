"""What the methods of the socket may use: the pipeline, the sources, prices, content, and the way to stop it all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec

from burnd.attribution.explainer import Explainer
from burnd.clients.folders import Folders
from burnd.clients.spool import Spool
from burnd.errors import NotNow
from burnd.harness.supervisor import SourceSupervisor
from burnd.index.asking import DEADLINE_S
from burnd.instructions.files import Reader
from burnd.ledger.content import ContentStore
from burnd.ledger.files import taken_for_granted
from burnd.paths import Home
from burnd.queries.status import Counts
from burnd.queries.view import View
from burnd.quota import Quotas
from burnd.recording.pipeline import Pipeline
from burnd.recording.source import UNKNOWN, BackfillState, backfill_state
from burnd.records.times import Clock, wall_ms
from burnd.search.indexing import SearchIndexer
from burnd.server.feed import Feed
from burnd.server.prices import Prices
from burnd.settings.config import Settings
from burnd.tasks import BackgroundTask

T = TypeVar("T")
CONTENT_READERS = 2
_WAITING = "waiting"
_LOOK_S = 0.05


class Work(msgspec.Struct):
    """Something long that is being done to the index, and how far it has come."""

    what: str
    done: int = 0
    total: int = 0

    def tell(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def __str__(self) -> str:
        return f"{self.what} {100 * self.done // self.total} %" if self.total else self.what


class Visitors(msgspec.Struct):
    """Who came to the socket."""

    present: int = 0
    answering: int = 0  # requests under way
    served: int = 0  # requests answered so far
    turned_away: int = 0  # there were too many at once
    refused: int = 0  # they were not us


class Opened(NamedTuple):
    """What there is from the moment on at which everything can be asked."""

    pipeline: Pipeline
    spool: Spool
    quotas: Quotas
    search_indexer: SearchIndexer
    explainer: Explainer


class Service:
    """The running daemon as its clients see it. Before the pipeline is open, it says so and answers what it can."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        *,
        socket: str,
        environ: Mapping[str, str],
        now: Clock = wall_ms,
        check_home: Callable[[], None] = taken_for_granted,
    ) -> None:
        self.home = home
        self.check_home = check_home  # raises HomeReplaced
        self.settings = settings
        self.socket = socket
        self.environ = environ
        self.now = now
        self.started_ms = now()
        self.pid = os.getpid()
        self.stopping = anyio.Event()
        self.work = Work("opening")  # until it is open
        self.visitors = Visitors()
        self.counts = Counts()  # as last known
        self.notices: dict[str, str] = {}  # what is not as it should be, with what to do about it
        self.feed = Feed()
        self.folders = Folders()
        self.memory_files = Reader()
        self.sources: dict[str, SourceSupervisor] = {}
        self.background: list[BackgroundTask] = []  # what else the daemon does by itself
        self.roots: dict[str, list[str]] = {}  # that clients told of, by source
        self._prices = Prices(home.prices)
        self._opened: Opened | None = None
        self.appending = anyio.Lock()  # who adds messages to sessions, one after the other
        self._readers = anyio.CapacityLimiter(CONTENT_READERS)

    def open(self, pipeline: Pipeline, spool: Spool) -> None:
        """From now on everything can be asked."""
        indexer = SearchIndexer(pipeline, is_reading=self._is_reading)
        explainer = Explainer(pipeline, is_reading=self._is_reading, is_asked=self._is_asked)
        self._opened = Opened(pipeline, spool, Quotas(pipeline), indexer, explainer)
        pipeline.follow(self.feed.landed)
        pipeline.follow(indexer.landed, indexer.kept_up)
        pipeline.follow(explainer.landed)
        spool.on_roots = self.add_roots
        spool.is_reading = lambda: not self.backfill().done
        spool.is_growing = lambda: self.backfill().is_growing

    def _is_reading(self) -> bool:
        """Whether a source still reads in what was there before."""
        return any(kept.status().progress is not None for kept in self.sources.values())

    def backfill(self) -> BackfillState:
        """Whether all old logs are read, and the progress if not."""
        return backfill_state(kept.status() for kept in self.sources.values()) if self.is_open else UNKNOWN

    def _is_asked(self) -> bool:
        return self.visitors.answering > 0

    def opening(self, done: int, total: int) -> None:
        """How far the index has come that must be made anew, or caught up, before anything can be asked."""
        self.work = Work("rebuilding", done, total)

    def waiting(self, why: str) -> None:
        self.work = Work(f"{_WAITING}: {why}")

    def stop(self) -> None:
        self.stopping.set()

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    async def until_open(self) -> None:
        """Waits until all methods can be called. Raises NotNow if that needs the user, as with a full disk."""
        while not self.is_open:
            if self.work.what.startswith(_WAITING):
                raise self._not_open()
            await anyio.sleep(_LOOK_S)

    @property
    def opened(self) -> Opened:
        """Raises NotNow while the daemon is starting."""
        if self._opened is None:
            raise self._not_open()
        return self._opened

    def _not_open(self) -> NotNow:
        return NotNow(
            f"burnd is starting: {self.work}", "", "try again in a moment; see the progress with: burnctl status"
        )

    @property
    def pipeline(self) -> Pipeline:
        return self.opened.pipeline

    @property
    def spool(self) -> Spool:
        return self.opened.spool

    @property
    def quotas(self) -> Quotas:
        return self.opened.quotas

    @property
    def search_indexer(self) -> SearchIndexer:
        return self.opened.search_indexer

    @property
    def explainer(self) -> Explainer:
        return self.opened.explainer

    @property
    def prices(self) -> Prices:
        return self._prices

    async def ask(self, question: Callable[[View], T], within: float = DEADLINE_S, project: str | None = None) -> T:
        """Puts a question to one state of the index, in a worker thread; interrupted when nobody waits for it.

        Where it is about a project by its folder, that is looked at before.
        """
        folders = {project: await self.folders.resolve(project)} if project and os.path.isabs(project) else {}
        prices, now = self._prices.table, self.now()
        return await self.pipeline.index.ask(lambda db: question(View(db, prices, now, folders)), within)

    async def read_content(self, work: Callable[[ContentStore], T]) -> T:
        """Reads content in a worker thread, on a store opened for it: the pipeline's is for its own thread only.

        Not kept: what it remembers of packs would be wrong after the next prune.
        """
        return await anyio.to_thread.run_sync(partial(_read, self.home.content, work), limiter=self._readers)

    def add_roots(self, source: str, folders: list[str]) -> None:
        """Lets a source read below these folders as well, now and whenever it is started again."""
        known = self.roots.setdefault(source, [])
        new = [folder for folder in folders if folder not in known]
        known += new
        kept = self.sources.get(source)
        if new and kept is not None:
            kept.add_roots(new)


def _read(folder: Path, work: Callable[[ContentStore], T]) -> T:
    with contextlib.closing(ContentStore(folder)) as store:
        return work(store)
