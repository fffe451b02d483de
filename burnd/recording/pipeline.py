"""The one writer: takes batches of records to content, ledger and index, in the order that survives a crash."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import anyio
import structlog

from burnd import unforeseen
from burnd.content.forgetting import outdated, pruned_by_mode
from burnd.errors import FileReplaced, IndexDamaged, NotNow
from burnd.index import build
from burnd.index.change import Change, CursorChange
from burnd.index.rollup import too_coarse
from burnd.index.store import IndexStore
from burnd.ledger.content import ContentStore, in_pieces
from burnd.ledger.journal import Journal, Logged
from burnd.ledger.keeping import Keeping
from burnd.ledger.lines import MAX_LINE
from burnd.ledger.retention import Pruned
from burnd.paths import Home
from burnd.pricing import PriceTable
from burnd.recording import dedupe
from burnd.recording.batch import Batch
from burnd.recording.dropping import ERASE, drop_content, due_erasures, erase_some, scrubbed
from burnd.recording.joiner import Joiner
from burnd.recording.projects import ProjectKeys
from burnd.recording.pulse import Pulse
from burnd.recording.renewing import Renewer
from burnd.recording.room import Room
from burnd.recording.steps import Steps
from burnd.recording.stores import Stores
from burnd.recording.withheld_text import DEFERRED, Ruling, TextPolicy
from burnd.records import Copy, Turn
from burnd.records.codec import Entry, Written, written

T = TypeVar("T")
Listener = Callable[[Change], None]
Pace = Callable[[], Awaitable[None]]
log = structlog.get_logger()


class Appended(NamedTuple):
    """What an append put into the ledger, and which turns it had said already but were shown as open."""

    logged: list[tuple[Logged, int]]
    closed: list[Turn]


class Pipeline:
    """Everything that is ever written goes through here, one batch at a time. Made by `open_pipeline`."""

    def __init__(self, stores: Stores, keeping: Keeping, room: Room) -> None:
        self.keeping = keeping
        self.room = room
        self._stores = stores
        self._renewer = Renewer(stores)
        self._policy = TextPolicy(stores.index, keeping)
        self._unrecorded: list[Entry] = []
        self._unerased: set[str] = set()
        self._projects = ProjectKeys()
        self._listeners: list[Listener] = []
        self._paces: list[Pace] = []
        self._one_at_a_time = anyio.Lock()
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
    def pulse(self) -> Pulse:
        return self._stores.pulse

    @property
    def generation(self) -> int:
        """How often the index was lost, and with it where the sources stood."""
        return self._stores.generation

    @property
    def writing(self) -> bool:
        """Whether something is being written just now."""
        return self._one_at_a_time.locked()

    def now(self) -> int:
        return self._stores.now()

    def check_home(self) -> None:
        """Raises HomeReplaced when what stands at the home's path may be another daemon's."""
        self._stores.check_home()

    def follow(self, listener: Listener, pace: Pace | None = None) -> None:
        """Tells `listener` from now on what was just made visible; `pace` returns when it has been followed."""
        self._listeners.append(listener)
        self._paces += [pace] if pace is not None else []

    async def followed(self) -> None:
        """Returns when those who follow have little left to do: who brings a backlog need not be far ahead of them."""
        for pace in self._paces:
            await pace()

    async def commit(self, batch: Batch) -> int:
        """Makes a batch durable and visible; returns how many lines the ledger grew by.

        Content, then ledger, then one index transaction with rows, cursors and ledger position: a crash
        between any two leaves work to be done again, never a claim that is not true. After a failure the
        same records may be committed again: what is durable already is known by its identity.
        """
        async with self._writing():
            return await self._healed(partial(self._commit, batch))

    async def prune_content(self, older_than_ms: int) -> Pruned:
        """Deletes the content of sessions whose newest record is older than that."""
        sidecars = self.content.sidecars
        planned = await outdated(self.index, sidecars, older_than_ms, self.now())
        async with self._writing():
            # A session that was written since the plan was made is not due any more.
            still = [s for s, sidecar in planned.items() if sidecars.size(s) == sidecar.size]
            await self._stores.in_thread(sidecars.remove_asides, self.now() - older_than_ms)
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
        async with self._one_at_a_time:
            with self.pulse.told(report) as told:
                return await self._renewer.rewrite(change, told)

    async def rebuild_index(self, report: build.Progress = build.no_progress) -> None:
        """Makes the index anew from ledger and content, and swaps it in. May be cancelled until then."""
        async with self._one_at_a_time:
            await self._renewer.rebuild(report)

    async def mend_index(self) -> None:
        """Makes the index anew if it was found damaged and that was not done meanwhile."""
        async with self._one_at_a_time:
            if not self.index.damaged.is_set():
                return
            log.error("index.damaged", reason="found while it was read")
            try:
                await self._renewer.rebuild(build.no_progress)
            except IndexDamaged:  # by what was carried over
                await self._renewer.rebuild_damaged()

    async def adopt_prices(self, prices: PriceTable) -> None:
        """Lets the index add up turns in such a way that these prices can be told from sums."""
        self.index.prices = prices
        if await too_coarse(self.index, prices):
            async with self._writing():
                with self.pulse.told(build.no_progress) as told:
                    await self._healed(partial(self._renewer.refine, told))

    async def derive(self, generation: int, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Writes into the index what was worked out from its `generation`; nothing where it is another by now."""
        async with self._writing():
            if self.generation != generation or self.index.closed:
                return None
            done = await self.index.transact(work)
            self.pulse.beat()
            return done

    async def empty_logs(self) -> None:
        """Brings what still stands in write-ahead logs into their databases, as far as nobody reads it there."""
        async with self._writing():
            await self._stores.in_thread(self.content.empty_log)
            await self.index.empty_log()

    async def close(self) -> None:
        """What is being written is brought to its end first: it could not be without the index."""
        with anyio.CancelScope(shield=True):
            async with self._one_at_a_time:
                self._is_closed = True
                await self._stores.close()

    @contextlib.asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        """One piece of writing at a time, brought to its end even when the daemon is told to stop."""
        async with self._one_at_a_time:
            if self._is_closed:
                raise NotNow("is being closed", str(self.home.root))
            self.check_home()
            with anyio.CancelScope(shield=True):
                yield

    async def _healed(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does a piece of writing; where ledger or index are not what they were, mends that and does it again."""
        try:
            return await work()
        except IndexDamaged as error:
            log.error("index.damaged", reason=error.what)
            await self._renewer.rebuild_damaged()
        except FileReplaced as error:
            log.error("ledger.replaced", reason=error.what)
            await self._renewer.reopen_ledger()
        return await work()

    async def _commit(self, batch: Batch) -> int:
        stores = self._stores
        await self._renewer.catch_up()
        for entry in batch.entries:
            self.keeping.learn(entry)
        if batch.content or batch.shelved or batch.files:
            self.room.check()
        joiner = Joiner(self.index, self.journal, self._projects)
        new_sessions = await self._projects.with_keys(await dedupe.new_sessions(self.index, batch.sessions))
        joined = await joiner.join(batch.held, batch.agents, new_sessions, [told.key for told in batch.steps])
        weighed = await Steps(self.index, self.journal).weigh(batch.steps, batch.agents)
        overheads = await joiner.greatest(batch.overheads)
        shelved = [*batch.shelved, *await stores.in_thread(self.content.shelve, batch.content)]
        copiers = {entry.session_id for entry in joined.entries if isinstance(entry, Copy)}
        origins = [*batch.origins, *weighed.origins]
        ruling = await self._policy.rule(batch, shelved, origins, copiers, self.now())
        new = await dedupe.new_content(stores, ruling.shelved)
        stores.is_behind = True
        placed = new.mark(await stores.in_thread(self.content.append_shelved, new.shelved, self.now()))
        # Kept until they are durable: the policy returns them only once.
        self._unrecorded += ruling.entries
        self._unerased |= ruling.erase
        entries = [*new_sessions, *batch.entries, *self._unrecorded, *joined.entries, *weighed.entries, *overheads]
        said = await self._append(entries)
        change = Change(placed=placed, cursors=batch.cursors, files=batch.files, agents=batch.agents)
        change.cursors = [*change.cursors, *due_erasures(self._unerased), *self._deferrals(ruling.deferred)]
        change.origins = [(one.session_id, one.origin) for one in batch.origins]
        change.logged, change.closed = said.logged, said.closed
        still_open = [*joined.open, *weighed.open]
        change.open = [open_turn._replace(turn=self.keeping.trimmed(open_turn.turn)) for open_turn in still_open]
        await self._apply(change)
        stores.is_behind = False
        self._unrecorded = []
        await self._erase(self._unerased)
        return len(said.logged)

    async def released(self) -> list[str]:
        """Sessions whose logs must be read again, because their copied text was deferred until its origin was known."""
        if not any(self._policy.deferred.values()):
            return []
        async with self._writing():
            done = await self._policy.released(self.now())
            if done:
                await self._stores.apply(Change(cursors=self._deferrals(done)))
        return [session_id for session_id in done if not self.keeping.is_private(session_id)]

    def _deferrals(self, session_ids: Iterable[str]) -> list[CursorChange]:
        since = self._policy.deferred
        return [CursorChange(DEFERRED, session_id, str(since[session_id]).encode()) for session_id in session_ids]

    async def load_deferred(self) -> None:
        """Loads the sessions whose text was deferred before a restart."""
        rows = await self.index.rows("SELECT key, value FROM cursors WHERE source = ?", (DEFERRED,))
        self._policy.deferred = {key: int(value) if value.isdigit() else 0 for key, value in rows}

    async def finish_erasures(self) -> None:
        """Erases withheld text that a crash left, or that sidecars may have after the index was rebuilt."""
        async with self._writing():
            due = await self._stores.index.rows("SELECT key FROM cursors WHERE source = ?", (ERASE,))
            sessions = {key for (key,) in due}
            if "" not in sessions:
                sessions |= await self._policy.doubtful()
            await self._erase(sessions - {""})
            if "" not in sessions and self._policy.has_limits():
                await self._stores.apply(Change(cursors=[CursorChange(ERASE, "", b"")]))

    async def _drop_content(self, session_ids: Sequence[str], up_to_ms: int) -> Pruned:
        await self._renewer.catch_up()
        entries: list[Entry] = []
        erase: set[str] = set()
        for some in in_pieces(session_ids):
            ruling = await self._policy.pruned(some, frozenset(session_ids))
            entries += ruling.entries
            erase |= ruling.erase
            self.pulse.beat()
        record = partial(self._record, Ruling([], entries, erase))
        pruned = await drop_content(self._stores, self.keeping, session_ids, up_to_ms, record)
        await self._erase(erase)
        return pruned

    async def _erase(self, session_ids: Iterable[str]) -> None:
        """Erases withheld text of these sessions from sidecars, the index and search."""
        erased: list[str] = []
        for session_id in sorted(session_ids):
            keeps = await self._policy.predicate(session_id)
            if await erase_some(self._stores, session_id, keeps, self._record_erasure):
                erased.append(session_id)
                self._tell(Change(erased=[session_id]))
            self.pulse.beat()
        if erased:
            await scrubbed(self._stores)
        if session_ids:
            await self._stores.apply(Change(cursors=[CursorChange(ERASE, one, None) for one in session_ids]))
            self._unerased = self._unerased.difference(session_ids)

    async def _record_erasure(self, session_id: str, is_all: bool) -> None:
        """Records a session's times before some of its text is erased; for a private session without text, a prune."""
        times = await self._policy.times(session_id)
        entries: list[Entry] = [times] if times is not None else []
        if is_all and self.keeping.is_private(session_id):
            entries.append(await pruned_by_mode(self.index, session_id))
        if entries:
            await self._apply(Change(logged=(await self._append(entries)).logged))
        for entry in entries:
            self.keeping.learn(entry)

    async def _record(self, ruling: Ruling, entries: Sequence[Entry]) -> None:
        logged = (await self._append([*ruling.entries, *entries])).logged
        await self._apply(Change(logged=logged, cursors=due_erasures(ruling.erase)))
        self._unerased |= ruling.erase
        for entry in ruling.entries:
            self.keeping.learn(entry)

    async def _append(self, entries: Sequence[Entry]) -> Appended:
        """Puts what is new of the entries into the ledger; returns where it stands, with its digest."""
        novel = await dedupe.new_entries(self.index, self.journal, self._readable(entries))
        positions = await self._stores.in_thread(self.journal.append, novel.lines)
        logged = [
            (Logged(position, len(line), entry), digest)
            for position, line, entry, digest in zip(positions, novel.lines, novel.entries, novel.digests, strict=True)
        ]
        return Appended(logged, novel.closed)

    def _readable(self, entries: Sequence[Entry]) -> list[Written]:
        """The entries as they will be read back. What could not be read back is counted and not written."""
        readable = []
        for entry in entries:
            item = written(self.keeping.trimmed(entry) if isinstance(entry, Turn) else entry)
            if item is None or len(item.line) > MAX_LINE:
                self.pulse.refused += 1
                log.warning("record.refused", kind=type(entry).__name__)
            else:
                readable.append(item)
        return readable

    async def _apply(self, change: Change) -> None:
        """Makes a change visible, or takes it out of the ledger again: what is refused must not be recorded."""
        try:
            await self._stores.apply(change)
        except Exception:
            if change.logged:
                await self._stores.in_thread(self.journal.take_back, change.logged[0][0].position)
            raise
        self._tell(change)

    def _tell(self, change: Change) -> None:
        for listener in self._listeners:
            try:
                listener(change)
            except Exception as error:  # noqa: BLE001 - it is recorded, whoever could not take the news
                log.error("listener.failed", error=unforeseen.kinds(error), where=unforeseen.place(error))
