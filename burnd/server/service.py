"""The running daemon as its clients see it: settings, prices, the feed of turns, queries of the index."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog

from burnd.attribution.explainer import Explainer
from burnd.clients.folders import Folders
from burnd.clients.spool import Spool
from burnd.content.recall import Recall
from burnd.errors import ConfigError, IndexDamaged, NotNow
from burnd.harness.product import Product
from burnd.harness.supervisor import SourceSupervisor
from burnd.index.change import Change
from burnd.index.query_pool import DEADLINE_S
from burnd.instructions import Reader
from burnd.ledger.files import no_home_check
from burnd.limits import Guard, Quotas
from burnd.lost_logs import LogFolders, LostLogs
from burnd.paths import Home, user_home
from burnd.pricing import PriceFileError, PriceTable
from burnd.queries.status import Counts
from burnd.queries.view import View
from burnd.recording.pipeline import Pipeline
from burnd.recording.source import UNKNOWN, BackfillState, backfill_state
from burnd.records import Turn
from burnd.records.times import Clock, wall_ms
from burnd.search.indexer import SearchIndexer
from burnd.settings.config import Settings, reload
from burnd.settings.machine import machine_id
from burnd.tasks import BackgroundTask
from burnd.totals.early import EarlyTotals

T = TypeVar("T")
log = structlog.get_logger()
CONTENT_READERS = 2
QUEUE = 1000  # turns that wait for a client that tails
_LOOK_S = 0.05
_Fingerprint = tuple[int, int, int] | None


class TurnEvent(NamedTuple):
    turn: Turn
    open: bool


class Notice(NamedTuple):
    fields: dict[str, Any]


class Follower:
    """The queue of one client that tails. When it is full, the oldest events are dropped and counted."""

    def __init__(self, is_wanted: Callable[[Turn], bool]) -> None:
        self._is_wanted = is_wanted
        self._queue: deque[TurnEvent | Notice] = deque(maxlen=QUEUE)
        self._missed = 0
        self._ready = anyio.Event()

    def push(self, events: Iterable[TurnEvent | Notice]) -> None:
        for event in events:
            if isinstance(event, Notice) or self._is_wanted(event.turn):
                self._missed += len(self._queue) == QUEUE
                self._queue.append(event)
        if self._queue:
            self._ready.set()

    async def take(self) -> tuple[list[TurnEvent | Notice], int]:
        """Waits for events; returns them and the number dropped before them."""
        await self._ready.wait()
        self._ready = anyio.Event()
        events, missed = list(self._queue), self._missed
        self._queue.clear()
        self._missed = 0
        return events, missed


class Feed:
    """Passes recorded turns to all followers without waiting for them."""

    def __init__(self) -> None:
        self._followers: list[Follower] = []

    @contextmanager
    def following(self, is_wanted: Callable[[Turn], bool]) -> Iterator[Follower]:
        follower = Follower(is_wanted)
        self._followers.append(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)

    def announce(self, fields: dict[str, Any]) -> None:
        for follower in self._followers:
            follower.push([Notice(fields)])

    def publish(self, change: Change) -> None:
        """Called by the pipeline after every batch, so it must be quick."""
        if not self._followers:
            return
        entries = (logged.entry for logged, _ in change.logged)
        events = [TurnEvent(entry, False) for entry in entries if isinstance(entry, Turn)]
        events += [TurnEvent(turn, False) for turn in change.closed]
        events += [TurnEvent(item.turn, True) for item in change.open]
        for follower in self._followers:
            follower.push(events)


class LivePrices:
    """Reads the price table again when the user's file changes. If that fails, the last good table stays."""

    def __init__(self, user_file: Path) -> None:
        self._file = user_file
        self._fingerprint: _Fingerprint = None
        self._table: PriceTable | None = None

    @property
    def problem(self) -> str:
        return self.table.problem

    @property
    def table(self) -> PriceTable:
        fingerprint = _fingerprint_of(self._file)
        if self._table is None or fingerprint != self._fingerprint:
            self._fingerprint = fingerprint
            try:
                self._table = PriceTable.load(None if fingerprint is None else str(self._file))
            except PriceFileError as error:
                log.warning("prices.unusable", reason="the user's price file cannot be used")
                used = "its last valid version" if self._table else "the list shipped with burnd alone"
                self._table = self._table or PriceTable.load()
                self._table.problem = f"{error}; until then {used} is used"
        return self._table


class LiveSettings:
    """Reads the settings again when their file changes, except those that need a restart.

    While the file cannot be used, the last good settings stay.
    """

    def __init__(self, home: Home, environ: Mapping[str, str], settings: Settings) -> None:
        self.problem = ""
        self._home, self._environ = home, environ
        self._settings = settings
        self._fingerprints = self._look()

    @property
    def current(self) -> Settings:
        fingerprints = self._look()
        if fingerprints != self._fingerprints:
            self._fingerprints = fingerprints
            try:
                self._settings = reload(self._settings, self._home, self._environ)
            except ConfigError as error:
                self.problem = f"{error}; until then the settings before are used"
                log.warning("settings.unusable", reason="config.toml cannot be used")
            else:
                self.problem = ""
                log.info("settings.reloaded")
        return self._settings

    def _look(self) -> tuple[_Fingerprint, _Fingerprint]:
        return _fingerprint_of(self._home.config), _fingerprint_of(self._home.older_config)


def _fingerprint_of(path: Path) -> _Fingerprint:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


class Work(msgspec.Struct):
    what: str
    done: int = 0
    total: int = 0
    is_blocked: bool = False  # until the user acts

    def report(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def __str__(self) -> str:
        return f"{self.what} {100 * self.done // self.total}%" if self.total else self.what


class Clients(msgspec.Struct):
    connected: int = 0
    answering: int = 0  # requests
    served: int = 0  # requests
    turned_away: int = 0  # too many clients at once
    refused: int = 0  # clients of other users


class OpenParts(NamedTuple):
    """The parts that exist once the storage is open."""

    pipeline: Pipeline
    spool: Spool
    quotas: Quotas
    search_indexer: SearchIndexer
    explainer: Explainer
    lost_logs: LostLogs


class Service:
    """State and parts of the daemon. Until the pipeline is open, methods that need it raise NotNow."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        *,
        socket: str,
        environ: Mapping[str, str],
        now: Clock = wall_ms,
        check_home: Callable[[], None] = no_home_check,
    ) -> None:
        self.home = home
        self.check_home = check_home  # raises HomeReplaced
        self.socket = socket
        self.environ = environ
        self.now = now
        self.started_ms = now()
        self.pid = os.getpid()
        self.stopping = anyio.Event()
        self.work = Work("opening")
        self.clients = Clients()
        self.counts = Counts()
        self.notices: dict[str, str] = {}  # problems, with their remedies
        self.feed = Feed()
        self.folders = Folders()
        self.memory_files = Reader()
        self.sources: dict[str, SourceSupervisor] = {}
        self.early_totals: EarlyTotals | None = None
        self.background: list[BackgroundTask] = []
        self.roots: dict[str, list[str]] = {}  # announced by clients, by source
        self.prices = LivePrices(home.prices)
        self.guard = Guard(home.guard, now)
        self._machine: str | None = None
        self._naming = anyio.Lock()
        self.appending = anyio.Lock()  # one `sessions.append` at a time
        self._settings = LiveSettings(home, environ, settings)
        self._opened: OpenParts | None = None
        self._readers = anyio.CapacityLimiter(CONTENT_READERS)

    @property
    def settings(self) -> Settings:
        return self._settings.current

    @property
    def settings_problem(self) -> str:
        return self._settings.problem

    async def machine(self) -> str | None:
        """None while it cannot be stored."""
        if own_id := self.settings.values["machine.id"]:
            return str(own_id)
        async with self._naming:
            if self._machine is None:
                self._machine = await anyio.to_thread.run_sync(machine_id, self.home.machine)
            return self._machine

    def open(self, pipeline: Pipeline, spool: Spool) -> None:
        indexer = SearchIndexer(pipeline, is_reading=self._is_reading)
        explainer = Explainer(pipeline, is_reading=self._is_reading, is_asked=lambda: self.clients.answering > 0)
        lost_logs = LostLogs(pipeline, self.ask, self._log_folders)
        self._opened = OpenParts(pipeline, spool, Quotas(pipeline), indexer, explainer, lost_logs)
        pipeline.follow(self.feed.publish)
        pipeline.follow(indexer.on_change, indexer.wait_until_caught_up)
        pipeline.follow(explainer.on_change)
        spool.on_roots = self.add_roots
        spool.is_reading = lambda: not self.backfill().done
        spool.is_growing = lambda: self.backfill().is_growing

    def _log_folders(self, product: Product) -> LogFolders:
        extra = [*self.settings.roots_of(product), *self.roots.get(product.source, ())]
        user = str(user_home(self.environ))
        return LogFolders(product, product.logs(self.environ, user, extra), product.homes(self.environ, user, extra))

    def _is_reading(self) -> bool:
        return any(source.is_reading for source in self.sources.values())

    def backfill(self) -> BackfillState:
        return backfill_state(source.status() for source in self.sources.values()) if self.is_open else UNKNOWN

    def opening(self, done: int, total: int) -> None:
        self.work = Work("rebuilding", done, total)

    def waiting(self, why: str) -> None:
        self.work = Work(f"waiting: {why}", is_blocked=True)

    def stop(self) -> None:
        self.stopping.set()

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    async def until_open(self) -> None:
        """Raises NotNow if that needs the user, as with a full disk."""
        while not self.is_open:
            if self.work.is_blocked:
                raise self._not_open()
            await anyio.sleep(_LOOK_S)

    @property
    def opened(self) -> OpenParts:
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
    def lost_logs(self) -> LostLogs:
        return self.opened.lost_logs

    @property
    def has_totals(self) -> bool:
        """Whether totals are exact although old logs are still being read."""
        return self.early_totals is not None and self.early_totals.are_exact

    async def ask(
        self,
        question: Callable[[View], T],
        within: float = DEADLINE_S,
        project: str | None = None,
        *,
        totals: bool = False,
        urgent: bool = False,
    ) -> T:
        """Runs a query on one state of the index, in a worker thread; cancelling interrupts it.

        `totals` may be answered by the index of totals. An urgent query does not wait for long ones.
        """
        folders = {project: await self.folders.resolve(project)} if project and os.path.isabs(project) else {}
        prices, now = self.prices.table, self.now()
        ask = lambda db: question(View(db, prices, now, folders))  # noqa: E731
        if totals and self.early_totals is not None and (early := await self.early_totals.index()) is not None:
            try:
                return await early.ask(ask, within, urgent=urgent)
            except IndexDamaged as error:  # or closed, since all old logs are read
                self.early_totals.abandon(error)
        return await self.pipeline.index.ask(ask, within, urgent=urgent)

    async def read_content(self, work: Callable[[Recall], T]) -> T:
        return await anyio.to_thread.run_sync(work, self.opened.search_indexer.recall, limiter=self._readers)

    def add_roots(self, source: str, folders: list[str]) -> None:
        """Survives a restart of the source."""
        roots = self.roots.setdefault(source, [])
        new = [folder for folder in folders if folder not in roots]
        roots += new
        supervisor = self.sources.get(source)
        if new and supervisor is not None:
            supervisor.add_roots(new)
