"""The one writer: commits batches to content, ledger and index, in an order that survives a crash."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Final, TypeVar

import anyio
import structlog

from burnd import errors
from burnd.errors import FileReplaced, IndexDamaged, NotNow
from burnd.index import build
from burnd.index.change import Change, CursorChange, IndexedRecord
from burnd.index.store import IndexStore
from burnd.index.sums import missing_tiers
from burnd.ledger.content import ContentStore, encode_records, in_pieces
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import no_home_check
from burnd.ledger.journal import Journal, Logged
from burnd.ledger.lines import MAX_LINE
from burnd.paths import Home
from burnd.pricing import PriceTable
from burnd.recording import dedupe
from burnd.recording.candidate import Batch, SeenSession
from burnd.recording.content_policy import DEFERRED, ContentPolicy
from burnd.recording.projects import ProjectKeys
from burnd.recording.retention import Pruned, drop_content, erase_records, outdated, pruned_by_mode, scrub
from burnd.recording.stores import DiskReserve, Recovery, Stores, WriterStatus
from burnd.recording.turn_builder import TurnBuilder
from burnd.records import Origin, Prune, Session, Turn
from burnd.records.codec import EncodedEntry, Entry, encoded
from burnd.records.times import Clock, to_iso, wall_ms

T = TypeVar("T")
Listener = Callable[[Change], None]
Backpressure = Callable[[], Awaitable[None]]
log = structlog.get_logger()
FIRST_RETRY_S, LAST_RETRY_S = 5.0, 60.0
_MOST_DESCRIBED: Final = 10_000
_ERASE: Final = "erase"  # cursor source of sessions with text to erase
_CHECKED: Final = ""  # its key in an index that was searched for such text


class Pipeline:
    """Every write goes through here, one batch at a time. Made by `open_pipeline`."""

    def __init__(self, stores: Stores, modes: ContentModes, disk: DiskReserve) -> None:
        self.modes = modes
        self.disk = disk
        self.now = stores.now
        self._stores = stores
        self._recovery = Recovery(stores)
        self._policy = ContentPolicy(modes)
        self._unrecorded: list[Entry] = []  # entries of the policy that are not durable yet
        self._unerased: set[str] = set()
        self._projects = ProjectKeys()
        self._described: set[SeenSession] = set()  # sessions that the ledger has a record of
        self._listeners: list[Listener] = []
        self._backpressure: list[Backpressure] = []
        self._lock = anyio.Lock()
        self._is_closed = False

    @property
    def home(self) -> Home:
        return self._stores.home

    @property
    def journal(self) -> Journal:
        return self._stores.journal

    @property
    def content(self) -> ContentStore:
        return self._stores.content

    @property
    def index(self) -> IndexStore:
        return self._stores.index

    @property
    def status(self) -> WriterStatus:
        return self._stores.status

    @property
    def generation(self) -> int:
        """How often the index, with the sources' cursors, was replaced."""
        return self._stores.generation

    @property
    def writing(self) -> bool:
        return self._lock.locked()

    def check_home(self) -> None:
        """Raises HomeReplaced if the home's path is not the folder that this process locked."""
        self._stores.check_home()

    def follow(self, listener: Listener, backpressure: Backpressure | None = None) -> None:
        """Calls `listener` after every change; `backpressure` returns when the listener has little left to do."""
        self._listeners.append(listener)
        if backpressure is not None:
            self._backpressure.append(backpressure)

    def unfollow(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    async def wait_for_listeners(self) -> None:
        """Waits for slow listeners, so that a backlog is not read far ahead of them."""
        for wait_for in self._backpressure:
            await wait_for()

    async def commit(self, batch: Batch) -> int:
        """Makes a batch durable and visible; returns the number of new ledger lines.

        Content, then ledger, then one index transaction with rows, cursors and ledger position: after a crash in
        between, work is repeated, and the index never shows what is not durable. The same records may be committed
        again: duplicates are recognised.
        """
        async with self._writing():
            return await self._with_repair(partial(self._commit, batch))

    async def prune_content(self, older_than_ms: int) -> Pruned:
        """Deletes the content of sessions whose newest record is older."""
        sidecars = self.content.sidecars
        planned = await outdated(self.index, sidecars, older_than_ms, self.now())
        async with self._writing():
            # A session that was written to meanwhile is not due any more.
            due = [s for s, sidecar in planned.items() if sidecars.size(s) == sidecar.size]
            await self._stores.in_thread(sidecars.remove_asides, self.now() - older_than_ms)
            return await self._with_repair(partial(self._drop_content, due, up_to_ms=0))

    async def forget(self, session_ids: Iterable[str]) -> Pruned:
        """Deletes the content of these sessions up to now; later text is recorded again."""
        async with self._writing():
            return await self._with_repair(partial(self._drop_content, list(session_ids), up_to_ms=self.now()))

    async def rewrite_ledger(self, change: Callable[[Entry], Entry], report: build.Progress = build.no_progress) -> int:
        """Rewrites the whole ledger with every entry changed; returns the number that changed.

        Copies unusable lines unchanged. Queries use the old index until the new ledger and index are swapped in; may be
        cancelled until then.
        """
        async with self._lock:
            with self.status.shown(report) as progress:
                return await self._recovery.rewrite_ledger(change, progress)

    async def rebuild_index(self) -> None:
        """Rebuilds the index from ledger and content; may be cancelled until it is swapped in."""
        async with self._lock:
            await self._recovery.rebuild()

    async def mend_index(self) -> None:
        """Rebuilds the index if it is damaged and was not rebuilt meanwhile."""
        async with self._lock:
            if not self.index.damaged.is_set():
                return
            log.error("index.damaged", reason="found while it was read")
            try:
                await self._recovery.rebuild()
            except IndexDamaged:  # the carried-over rows were damaged
                await self._recovery.rebuild_damaged()

    async def adopt_prices(self, prices: PriceTable) -> None:
        """Uses these prices from now on. Recomputes the sums if they split usage at other context sizes."""
        self.index.prices = prices
        if await missing_tiers(self.index, prices):
            async with self._writing():
                with self.status.shown(build.no_progress) as progress:
                    await self._with_repair(partial(self._recovery.refine, progress))

    async def write_derived(self, generation: int, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Runs `work` unless the index was replaced since `generation`; then returns None."""
        async with self._writing():
            if self.generation != generation or self.index.closed:
                return None
            result = await self.index.transact(work)
            self.status.heartbeat += 1
            return result

    async def empty_logs(self) -> None:
        """Checkpoints the write-ahead logs, as far as no query reads them."""
        async with self._writing():
            await self._stores.in_thread(self.content.empty_log)
            await self.index.empty_log()

    async def close(self) -> None:
        """Closes everything after the write in progress."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                self._is_closed = True
                await self._stores.close()

    @contextlib.asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        """Takes the lock, and shields the write from cancellation."""
        async with self._lock:
            if self._is_closed:
                raise NotNow("is being closed", str(self.home.root))
            self._stores.check_home()
            with anyio.CancelScope(shield=True):
                yield

    async def _with_repair(self, write: Callable[[], Awaitable[T]]) -> T:
        """Writes; if the index is damaged or the ledger was replaced, repairs that and writes again."""
        try:
            return await write()
        except IndexDamaged as error:
            log.error("index.damaged", reason=error.what)
            await self._recovery.rebuild_damaged()
        except FileReplaced as error:
            log.error("ledger.replaced", reason=error.what)
            self._described.clear()
            await self._recovery.reopen_ledger()
        return await write()

    async def _commit(self, batch: Batch) -> int:
        if self._stores.is_behind:
            await self._recovery.catch_up()
        if batch.content or batch.encoded_records or batch.files:
            self.disk.check()
        change = await self._stores.in_writer(partial(self._write, batch=batch))
        self._notify(change)
        if self._unerased:
            await self._erase(self._unerased)
        return len(change.logged)

    def _write(self, db: sqlite3.Connection, batch: Batch) -> Change:
        stores = self._stores
        for entry in batch.entries:
            self.modes.learn(entry)
        now_ms = stores.now()
        new_sessions: list[Session] = []
        if undescribed := batch.sessions - self._described:
            new_sessions = self._projects.with_keys(dedupe.new_sessions(db, undescribed))
        turns = TurnBuilder(db, stores.journal, self._projects).build(batch, new_sessions)
        has_sessions = any(isinstance(entry, Session) for entry in batch.entries)
        entries = self._projects.with_keys(batch.entries) if has_sessions else batch.entries
        entries = [*new_sessions, *entries]
        encoded_records = batch.encoded_records
        if batch.content:
            encoded_records = [*encoded_records, *encode_records(batch.content, stores.content.inline_bytes)]
        origins = [*batch.origins, *turns.origins]
        ruling = self._policy.rule(db, batch, encoded_records, origins, turns.copiers, now_ms)
        new = dedupe.new_content(db, stores.content, ruling.encoded_records)
        stores.is_behind = True
        writing: list[Future[None]] = []
        try:
            start = stores.disk_thread.submit
            placed = stores.content.append(
                new.encoded_records, now_ms, batch.packs, lambda work: writing.append(start(work))
            )
            if new.replacing:
                placed = [one._replace(is_replacement=dedupe.block_of(one.label) in new.replacing) for one in placed]
            self._unrecorded += ruling.entries
            self._unerased |= ruling.erase
            entries += [*self._unrecorded, *turns.entries]
            if batch.overheads:
                entries += dedupe.largest_overheads(db, stores.journal, batch.overheads)
            change, lines = self._encode(db, entries, turns.recorded)
            change.placed, change.files, change.agents = placed, batch.files, batch.agents
            change.cursors = [*batch.cursors]
            if self._unerased or ruling.deferred:
                change.cursors += [*_to_erase(self._unerased), *self._deferrals(ruling.deferred)]
            change.origins = [(one.session_id, one.origin) for one in batch.origins]
            change.open = turns.open
            if self.modes.has_off:
                change.open = [one._replace(turn=self.modes.trimmed(one.turn)) for one in turns.open]
            stores.write(db, change, lines, writing)
        finally:
            wait(writing)
        stores.is_behind = False
        self._unrecorded = []
        if len(self._described) > _MOST_DESCRIBED:
            self._described.clear()
        self._described |= batch.sessions
        return change

    def _encode(
        self,
        db: sqlite3.Connection,
        entries: Sequence[Entry],
        recorded: Mapping[tuple[str, str], IndexedRecord | None] = {},
    ) -> tuple[Change, list[bytes]]:
        """Returns a change with the entries that are new, and their lines.

        `recorded` are messages that were looked up in the index. In the result, `closed` are turns that the ledger has
        in the state that the index shows as open. An entry that could not be read back is counted and not written.
        """
        if not entries:
            return Change(), []
        journal = self._stores.journal
        readable: list[EncodedEntry] = []
        if self.modes.has_off:
            entries = [self.modes.trimmed(entry) if isinstance(entry, Turn) else entry for entry in entries]
        for entry in entries:
            item = encoded(entry)
            if item is None or len(item.line) > MAX_LINE:
                self.status.refused += 1
                log.warning("record.refused", kind=type(entry).__name__)
            else:
                readable.append(item)
        new, closed = dedupe.new_entries(db, journal, readable, recorded)
        lines = [line for line, _, _ in new]
        logged = [
            (Logged(position, len(line), entry), digest)
            for position, (line, entry, digest) in zip(journal.positions(lines), new, strict=True)
        ]
        return Change(logged=logged, closed=closed, recorded=recorded), lines

    async def _record(self, entries: Sequence[Entry], cursors: Sequence[CursorChange] = ()) -> None:
        def write(db: sqlite3.Connection) -> Change:
            change, lines = self._encode(db, entries)
            change.cursors, change.closed = list(cursors), []
            self._stores.write(db, change, lines)
            return change

        self._notify(await self._stores.in_writer(write))

    def _notify(self, change: Change) -> None:
        for listener in self._listeners:
            try:
                listener(change)
            except Exception as error:  # noqa: BLE001 - the change is recorded, whatever a listener does
                log.error("listener.failed", error=errors.error_types(error), where=errors.error_location(error))

    async def end_deferrals(self) -> list[str]:
        """Ends the deferrals of text that can be stored now; returns the sessions whose logs must be read again."""
        if not any(self._policy.deferred.values()):
            return []
        async with self._writing():
            released = await self._stores.in_writer(partial(self._policy.released, now_ms=self.now()))
            if released:
                await self._stores.apply(Change(cursors=self._deferrals(released)))
        return [session_id for session_id in released if not self.modes.is_private(session_id)]

    def _deferrals(self, session_ids: Iterable[str]) -> list[CursorChange]:
        since = self._policy.deferred
        return [CursorChange(DEFERRED, session_id, str(since[session_id]).encode()) for session_id in session_ids]

    async def resume(self) -> None:
        """Loads deferred sessions, and erases withheld text that a crash or a rebuilt index left."""
        rows = await self.index.rows("SELECT key, value FROM cursors WHERE source = ?", (DEFERRED,))
        self._policy.deferred = {key: int(value) if value.isdigit() else 0 for key, value in rows}
        async with self._writing():
            due = {key for (key,) in await self.index.rows("SELECT key FROM cursors WHERE source = ?", (_ERASE,))}
            is_new_index = _CHECKED not in due
            if is_new_index:
                due |= await self._stores.in_writer(self._policy.doubtful)
            await self._erase(due - {_CHECKED})
            if is_new_index and self.modes.has_limits:
                await self._stores.apply(Change(cursors=_to_erase([_CHECKED])))

    async def _drop_content(self, session_ids: Sequence[str], up_to_ms: int) -> Pruned:
        await self._recovery.catch_up()
        entries: list[Entry] = []
        erase: set[str] = set()
        for some in in_pieces(session_ids):
            ruling = await self._stores.in_writer(
                partial(self._policy.pruned, session_ids=some, going=frozenset(session_ids))
            )
            entries += ruling.entries
            erase |= ruling.erase
            self.status.heartbeat += 1

        async def record(last: Sequence[Entry]) -> None:
            await self._record([*entries, *last], _to_erase(erase))
            self._unerased |= erase
            for entry in entries:
                self.modes.learn(entry)

        pruned = await drop_content(self._stores, self.modes, session_ids, up_to_ms, record)
        await self._erase(erase)
        return pruned

    async def _erase(self, session_ids: Iterable[str]) -> None:
        """Erases withheld text of these sessions from sidecars, index and search."""
        has_erased = False
        for session_id in sorted(session_ids):
            keeps = await self._stores.in_writer(partial(self._policy.predicate, session_id=session_id))
            if await erase_records(self._stores, session_id, keeps, self._record_erasure):
                has_erased = True
                self._notify(Change(erased=[session_id]))
            self.status.heartbeat += 1
        if has_erased:
            await scrub(self._stores)
        if session_ids:
            await self._stores.apply(Change(cursors=[CursorChange(_ERASE, one, None) for one in session_ids]))
            self._unerased = self._unerased.difference(session_ids)

    async def _record_erasure(self, session_id: str, is_all: bool) -> None:
        """Records a session's times before text is erased, or a prune if it is private and has no text."""
        times = await self._stores.in_writer(partial(self._policy.times, session_id=session_id))
        entries: list[Entry] = [times] if times is not None else []
        if is_all and self.modes.is_private(session_id):
            entries.append(await pruned_by_mode(self.index, session_id))
        if entries:
            await self._record(entries)
        for entry in entries:
            self.modes.learn(entry)


class Committer:
    """Commits a source's batches; retries with back-off while writes are impossible.

    `blocked` is the reason, with its `remedy`. Nothing is lost: no cursor moves until the batch is durable.
    """

    def __init__(self, pipeline: Pipeline, source: str) -> None:
        self.blocked = self.remedy = ""
        self._pipeline, self._source = pipeline, source

    async def commit(self, batch: Batch) -> None:
        delay = FIRST_RETRY_S
        while True:
            try:
                await self._pipeline.commit(batch)
                break
            except NotNow as problem:
                self.blocked = ": ".join(filter(None, (problem.thing, problem.what)))
                self.remedy = problem.remedy
                log.warning("source.blocked", source=self._source, reason=problem.what)
            await anyio.sleep(delay)
            delay = min(delay * 2, LAST_RETRY_S)
        self.blocked = ""


def _to_erase(session_ids: Iterable[str]) -> list[CursorChange]:
    """Cursors that mark sessions with text to erase, so that a crash does not lose the task."""
    return [CursorChange(_ERASE, session_id, b"") for session_id in session_ids]


async def open_pipeline(
    home: Home,
    modes: ContentModes,
    *,
    inline_bytes: int,
    reserve: int | None = None,
    now: Clock = wall_ms,
    report: build.Progress = build.no_progress,
    check_home: Callable[[], None] = no_home_check,
) -> Pipeline:
    """Opens and repairs ledger, content and index. The caller has the home's lock, which `check_home` checks."""
    content = ContentStore(home.content, inline_bytes=inline_bytes)
    journal = Journal(home.ledger, now())
    if journal.torn:
        log.warning("ledger.recovered", torn_bytes=journal.torn)
    try:
        index = await build.open_current(home.index_db, journal, content, report)
    except BaseException:
        content.close()
        journal.close()
        raise
    stores = Stores(home, journal, content, index, now, check_home)
    pipeline = Pipeline(stores, modes, DiskReserve(home.root, reserve))
    try:
        try:
            await _load_modes(modes, index)
        except IndexDamaged:
            await pipeline.mend_index()
            await _load_modes(modes, index)
        await pipeline.resume()
    except BaseException:
        await pipeline.close()
        raise
    return pipeline


async def _load_modes(modes: ContentModes, index: IndexStore) -> None:
    rows = await index.rows(
        "SELECT session_id, content_mode, content_since, created_by, parent_session_id, pruned_up_to FROM sessions "
        "WHERE content_mode IS NOT NULL OR parent_session_id IS NOT NULL OR pruned_up_to IS NOT NULL"
    )
    for session_id, mode, since, created_by, parent, pruned in rows:
        record = Session(
            session_id=session_id,
            source="",
            content_mode=mode,
            content_since=to_iso(since) if since is not None else None,
            created_by=created_by,
            parent_session_id=parent,
        )
        modes.learn(record)
        if pruned is not None:
            modes.learn(Prune(session_id=session_id, up_to=to_iso(pruned)))
    for session_id, origin, repeats in await index.rows(
        "SELECT s.session_id, o.origin, o.repeats FROM origins o JOIN sessions s ON s.id = o.session"
    ):
        if repeats:
            modes.learn(Origin(session_id=session_id, origin=origin))
        modes.came_from(session_id, origin)
    modes.has_withheld = bool(await index.rows("SELECT 1 FROM withheld LIMIT 1"))
    by_mode = "SELECT DISTINCT s.session_id FROM withheld h JOIN sessions s ON s.id = h.session WHERE h.by_mode"
    modes.withholders = {session_id for (session_id,) in await index.rows(by_mode)}
