"""The one writer: takes batches of records to content, ledger and index, in the order that survives a crash."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import structlog

from burnd.content.forgetting import farewells, outdated
from burnd.errors import FileReplaced, IndexDamaged, Locked, NoSpace, NotNow
from burnd.index import build
from burnd.index.apply import Applier
from burnd.index.change import Change
from burnd.index.rollup import refine, too_coarse
from burnd.index.store import IndexStore
from burnd.ledger import files
from burnd.ledger.content import ContentStore
from burnd.ledger.journal import Journal, Logged
from burnd.ledger.keeping import Keeping
from burnd.ledger.lines import MAX_LINE
from burnd.ledger.retention import Pruned
from burnd.paths import Home
from burnd.pricing import PriceTable
from burnd.recording import novelty
from burnd.recording.batch import Batch
from burnd.recording.joiner import Joiner
from burnd.recording.projects import ProjectKeys
from burnd.recording.steps import Steps
from burnd.records import Prune, Session, Turn
from burnd.records.codec import Entry, Written, written
from burnd.records.times import to_iso

Clock = Callable[[], int]
T = TypeVar("T")
log = structlog.get_logger()

RESERVE_BYTES = 20 << 20
RESERVE_SHARE = 50  # one part in fifty
DROPPED_AT_ONCE = 500  # sessions: what takes longer than a watchdog waits must show that it gets on


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Said(NamedTuple):
    """What an append put into the ledger, and which turns it had said already but were shown as open."""

    logged: list[tuple[Logged, int]]
    closed: list[Turn]


class Pipeline:
    """Everything that is ever written goes through here, one batch at a time. Made by `open_pipeline`."""

    def __init__(
        self,
        home: Home,
        journal: Journal,
        content: ContentStore,
        index: IndexStore,
        keeping: Keeping,
        *,
        reserve: int | None = None,
        now: Clock = wall_ms,
    ) -> None:
        self.home = home
        self.journal = journal
        self.content = content
        self.index = index
        self.keeping = keeping
        self.reserve = reserve
        self.now = now
        self.generation = 0  # how often the index was lost, and with it where the sources stood
        self.refused = 0  # records that could not have been read back, and so were not written
        self.beats = 0  # goes up with everything that was done: how others see that it gets on
        self.rebuilding: tuple[int, int] | None = None  # how far a rebuild has come, of how much
        self.listeners: list[Callable[[Change], None]] = []  # each is told what was just made visible
        self.paces: list[Callable[[], Awaitable[None]]] = []  # each returns when what landed has been followed
        self._applier = Applier(index)
        self._projects = ProjectKeys()
        self._one_at_a_time = anyio.Lock()
        self._thread = anyio.CapacityLimiter(1)
        self._behind = False
        self._is_closed = False

    async def commit(self, batch: Batch) -> int:
        """Makes a batch durable and visible; returns how many lines the ledger grew by.

        Content, then ledger, then one index transaction with rows, cursors and ledger position: a crash
        between any two leaves work to be done again, never a claim that is not true. After a failure the
        same records may be committed again: what is durable already is known by its identity.
        """
        async with self._writing():
            return await self._healed(partial(self._commit, batch))

    async def followed(self) -> None:
        """Returns when those who follow have little left to do: who brings a backlog need not be far ahead of them."""
        for pace in self.paces:
            await pace()

    async def prune_content(self, older_than_ms: int) -> Pruned:
        """Deletes the content of sessions whose newest record is older than that."""
        planned = await self._in_thread(outdated, self.content.sidecars, older_than_ms, self.now())
        async with self._writing():
            # A session that was written since the plan was made is not due any more.
            still = [s for s, sidecar in planned.items() if self.content.sidecars.size(s) == sidecar.size]
            return await self._healed(partial(self._drop_content, still, up_to_ms=0))

    async def forget(self, session_ids: Iterable[str]) -> Pruned:
        """Deletes the content of these sessions at once; what they say from now on is captured again."""
        async with self._writing():
            return await self._healed(partial(self._drop_content, list(session_ids), up_to_ms=self.now()))

    async def rewrite_ledger(self, change: Callable[[Entry], Entry], report: build.Progress = build.no_progress) -> int:
        """Replaces the whole ledger by one with every entry changed; returns how many were.

        Unusable lines stay as they are. Answers come from the old ledger's index until the new one and its
        index are whole; then both are put in place at once. May be cancelled until then.
        """
        async with self._one_at_a_time, self._told(report) as report:
            if self._behind:
                with anyio.CancelScope(shield=True):
                    await self._catch_up()
            total = self.journal.end
            changed = await self._in_thread(
                self.journal.write_beside, change, lambda done: report(min(done, total), 2 * total)
            )
            if changed:
                await self._take_rewritten(
                    change, lambda done, of: report(total + total * done // max(of, 1), 2 * total)
                )
            return changed

    async def _take_rewritten(self, change: Callable[[Entry], Entry], report: build.Progress) -> None:
        new = Journal(files.beside(self.home.ledger), self.now())
        try:
            carried = await build.carried_over(self.index)
            carried.open = await self._in_thread(build.changed_open, carried.open, change)
            await self._rebuild_index(report, carried, rewritten=new)
        finally:
            new.close()
            files.clear_replacement(self.home.ledger)

    async def rebuild_index(self, report: build.Progress = build.no_progress) -> None:
        """Makes the index anew from ledger and content, and swaps it in. May be cancelled until then."""
        async with self._one_at_a_time:
            await self._rebuild_index(report, await build.carried_over(self.index))

    async def derive(self, generation: int, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Writes into the index what was worked out from its `generation`; nothing where it is another by now."""
        async with self._writing():
            if self.generation != generation or self.index.closed:
                return None
            done = await self.index.transact(work)
            self.beats += 1
            return done

    async def adopt_prices(self, prices: PriceTable) -> None:
        """Lets the index add up turns in such a way that these prices can be told from sums."""
        self.index.prices = prices
        if await too_coarse(self.index, prices):
            async with self._writing(), self._told(build.no_progress) as told:
                await self._healed(partial(self._refine, told))

    async def _refine(self, report: build.Progress) -> None:
        if self._behind:
            await self._catch_up()
        await refine(self.index, report)
        self._applier = Applier(self.index)

    @contextlib.asynccontextmanager
    async def _told(self, report: build.Progress) -> AsyncIterator[build.Progress]:
        """The same progress, for everybody to see as long as it lasts."""

        def tell(done: int, total: int) -> None:
            self.beats += 1
            self.rebuilding = (done, total)
            report(done, total)

        before, self.rebuilding = self.rebuilding, (0, 0)
        try:
            yield tell
        finally:
            self.rebuilding = before

    @property
    def writing(self) -> bool:
        """Whether something is being written just now."""
        return self._one_at_a_time.locked()

    @contextlib.asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        """One piece of writing at a time, brought to its end even when the daemon is told to stop."""
        async with self._one_at_a_time:
            if self._is_closed:
                raise NotNow("is being closed", str(self.home.root))
            with anyio.CancelScope(shield=True):
                yield

    async def _rebuild_index(
        self, report: build.Progress, carried: Change, *, rewritten: Journal | None = None
    ) -> None:
        """Builds beside the index in use, which answers until the new one takes its place."""
        self._behind = True
        async with self._told(report) as told:
            journal, prices = rewritten or self.journal, self.index.prices
            await build.build_beside(self.home.index_db, journal, self.content, told, prices, carried)
        with anyio.CancelScope(shield=True):
            self.generation += 1
            if rewritten is not None:
                await self.index.disown()
            await self.index.swap(lambda: self._put_in_place(rewritten is not None))
            self._applier = Applier(self.index)
            self.beats += 1
        self._behind = False
        log.info("index.rebuilt")

    def _put_in_place(self, with_ledger: bool) -> None:
        if with_ledger:
            self.journal.put_in_place()
        build.swap_in(self.home.index_db)

    async def close(self) -> None:
        """What is being written is brought to its end first: it could not be without the index."""
        with anyio.CancelScope(shield=True):
            async with self._one_at_a_time:
                self._is_closed = True
                if not self.index.closed:
                    await self.index.close(clean=not self._behind)
                self.content.close()
                self.journal.close()

    async def _healed(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does a piece of writing; where ledger or index are not what they were, mends that and does it again."""
        try:
            return await work()
        except IndexDamaged as error:
            log.error("index.damaged", reason=error.what)
            await self._rebuild_index(build.no_progress, Change())
        except FileReplaced as error:
            log.error("ledger.replaced", reason=error.what)
            await self._reopen_ledger()
        return await work()

    async def _commit(self, batch: Batch) -> int:
        if self._behind:
            await self._catch_up()
        for entry in batch.entries:
            self.keeping.learn(entry)
        content = self.keeping.kept(batch.content)
        shelved = [item for item in batch.shelved if self.keeping.keeps(item.label.session_id, item.label.ts_ms)]
        if content or shelved or batch.files:
            self._check_room()
        joiner = Joiner(self.index, self.journal, self._projects)
        joined = await joiner.join(batch.held, batch.agents, [told.key for told in batch.steps])
        weighed = await Steps(self.index, self.journal).weigh(batch.steps, batch.agents)
        overheads = await joiner.greatest(batch.overheads)
        shelved += await self._in_thread(self.content.shelve, content)
        shelved = await novelty.not_kept(self.index, shelved)
        self._behind = True
        placed = await self._in_thread(self.content.append_shelved, shelved, self.now())
        new_sessions = await novelty.new_sessions(self.index, batch.sessions)
        said = await self._append([*new_sessions, *batch.entries, *joined.entries, *weighed.entries, *overheads])
        change = Change(placed=placed, cursors=batch.cursors, files=batch.files, agents=batch.agents)
        change.logged, change.closed = said.logged, said.closed
        still_open = [*joined.open, *weighed.open]
        change.open = [open_turn._replace(turn=self.keeping.trimmed(open_turn.turn)) for open_turn in still_open]
        await self._apply(change)
        self._behind = False
        return len(said.logged)

    async def _append(self, entries: Sequence[Entry]) -> Said:
        """Puts what is new of the entries into the ledger; returns where it stands, with its digest."""
        novel = await novelty.not_said(self.index, self.journal, self._readable(entries))
        positions = await self._in_thread(self.journal.append, novel.lines)
        logged = [
            (Logged(position, len(line), entry), digest)
            for position, line, entry, digest in zip(positions, novel.lines, novel.entries, novel.digests, strict=True)
        ]
        return Said(logged, novel.closed)

    def _readable(self, entries: Sequence[Entry]) -> list[Written]:
        """The entries as they will be read back. What could not be read back is counted and not written."""
        readable = []
        for entry in entries:
            item = written(self.keeping.trimmed(entry) if isinstance(entry, Turn) else entry)
            if item is None or len(item.line) > MAX_LINE:
                self.refused += 1
                log.warning("record.refused", kind=type(entry).__name__)
            else:
                readable.append(item)
        return readable

    async def _apply(self, change: Change) -> None:
        change.ledger_end = self.journal.end
        change.ledger_anchor = self.journal.anchor(self.journal.end)
        await self._applier.apply(change)
        self.beats += 1
        for listener in self.listeners:
            listener(change)

    async def _catch_up(self) -> None:
        """Takes what a failed commit left durable into the index, so that it is not written twice."""
        try:
            if self.index.closed:
                await self.index.swap(lambda: None)
            await build.catch_up(self.index, self.journal, self.content)
        except IndexDamaged:
            await self._rebuild_index(build.no_progress, Change())
        self._applier = Applier(self.index)
        self._behind = False

    async def _reopen_ledger(self) -> None:
        """Goes on with whatever stands at the ledger's path now; the index follows it."""
        self.journal.close()
        self.journal = Journal(self.home.ledger, self.now())
        await self._catch_up()

    async def _drop_content(self, session_ids: Sequence[str], up_to_ms: int) -> Pruned:
        """Says in the ledger what goes, then makes it go; the next start finishes what a crash cut short."""
        if self._behind:
            await self._catch_up()
        entries = await farewells(self.index, self.content.sidecars, session_ids, up_to_ms)
        self._behind = True
        await self._apply(Change(logged=(await self._append(entries)).logged))
        for entry in entries:
            self.keeping.learn(entry)
        present = [s for s in session_ids if self.content.sidecars.size(s)]
        freed = 0
        for begin in range(0, len(session_ids), DROPPED_AT_ONCE):
            freed += await self._in_thread(self.content.drop, session_ids[begin : begin + DROPPED_AT_ONCE])
            self.beats += 1
        freed += await self._in_thread(self.content.sweep)
        with contextlib.suppress(Locked):  # a long query still needs the log; closing the index cuts it as well
            await self.index.scrub()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(build.aside(self.home.index_db))
        self._behind = False
        return Pruned(len(present), freed)

    def room(self) -> tuple[int, int]:
        """(bytes that are free, bytes of them that are held in reserve)."""
        free, size = files.free_bytes(self.home.root)
        return free, min(RESERVE_BYTES, size // RESERVE_SHARE) if self.reserve is None else self.reserve

    def _check_room(self) -> None:
        free, reserve = self.room()
        if free < reserve:
            raise NoSpace(
                f"only {free} bytes are free and {reserve} are held in reserve",
                str(self.home.root),
                "free some space; nothing is lost meanwhile",
            )

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Blocking work, one piece at a time, off the event loop; the system's errors in our own words."""
        try:
            return await anyio.to_thread.run_sync(partial(work, *args), limiter=self._thread)
        except OSError as error:
            raise files.as_storage_error(error, self.home.root) from error


async def open_pipeline(
    home: Home,
    keeping: Keeping,
    *,
    inline_bytes: int,
    reserve: int | None = None,
    now: Clock = wall_ms,
    report: build.Progress = build.no_progress,
) -> Pipeline:
    """Opens ledger, content and index, mended and in step. The caller holds the home's lock."""
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
    pipeline = Pipeline(home, journal, content, index, keeping, reserve=reserve, now=now)
    try:
        await _teach(keeping, index)
    except BaseException:
        await pipeline.close()
        raise
    return pipeline


async def _teach(keeping: Keeping, index: IndexStore) -> None:
    rows = await index.rows(
        "SELECT session_id, content_mode, parent_session_id, pruned_up_to FROM sessions "
        "WHERE content_mode IS NOT NULL OR parent_session_id IS NOT NULL OR pruned_up_to IS NOT NULL"
    )
    for session_id, mode, parent, pruned in rows:
        keeping.learn(Session(session_id=session_id, source="", content_mode=mode, parent_session_id=parent))
        if pruned is not None:
            keeping.learn(Prune(session_id=session_id, up_to=to_iso(pruned)))
