"""Keeps the search index in step with the content, in the background: the one task that writes to it.

What is taken in is decided by looking, not by being told: a session whose content, prune or title is not what the
index holds of it is due. So a crash, a lost commit and a missing index all heal the same way. Being told which session
has just changed only makes it quick.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog

from burnd import memory
from burnd.content.recall import Recall
from burnd.errors import IndexDamaged, NotNow
from burnd.index.asking import TookTooLong
from burnd.index.change import Change, CursorChange
from burnd.recording.candidate import Batch
from burnd.recording.crash_guard import InProcessGuard
from burnd.recording.pipeline import Pipeline
from burnd.records import Prune, Session
from burnd.search import progress, warm
from burnd.search.lightness import Lightness
from burnd.search.progress import CURRENT, STATES, Current
from burnd.search.warm import Warm

if TYPE_CHECKING:
    from burnd.search.engine import Engine
    from burnd.search.folders import Folders
    from burnd.search.shelf import Shelf

T = TypeVar("T")
log = structlog.get_logger()

AT_ONCE: Final = 400  # messages between two looks at what else there is to do
SOON_S: Final = 0.3  # how long a message waits for others to be committed with it
# While a backlog is taken in, what was said long ago waits so long to be findable: every commit begins a new segment,
# which says again which words there are.
LATE_S: Final = 30.0
FRESH_MS: Final = 60_000  # somebody may be looking for what was said within this time
IDLE_S, LOOK_S = 15.0, 60.0
PATIENCE_S: Final = 5.0
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0


class SearchStatus(NamedTuple):
    """How search is doing: a word, how many sessions wait to be taken in, and a sentence where one is due."""

    state: Literal["starting", "ready", "catching-up", "rebuilding", "unavailable"]
    pending: int = 0
    detail: str = ""


class SearchIndexer:
    """Runs beside the pipeline, which tells it what landed. Everything it holds can be made again from content."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        is_reading: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.recall = Recall(pipeline.home.content)
        self.problem = "search is starting"  # why there is nothing to search in; empty when all is well
        self._has_begun = False
        self.is_missing = False  # there is no search on this platform
        self._pipeline = pipeline
        self._is_reading = is_reading  # whether much that was there before is being read, and more will land
        self._clock = clock
        self._lightness = Lightness(pipeline.home.search, is_reading, clock)
        self._thread = anyio.CapacityLimiter(1)
        self._bell = anyio.Event()
        self._calm = anyio.Event()
        self._took = anyio.Event()
        self._opened = anyio.Event()
        self._touched: dict[str, None] = {}
        self._in_hand = 0
        self._warm = Warm()
        self._serving: Shelf | None = None
        self._growing: Shelf | None = None  # takes the other's place when it is whole
        self._waiting_since: float | None = None
        self._fresh = False  # somebody may look for what landed
        self._hurry = False  # or for what was taken in
        self._damaged = False
        self._generation = pipeline.generation
        self._guard: InProcessGuard | None = None

    async def run(self) -> None:
        """Works until cancelled."""
        try:
            import burnd.search.engine  # noqa: F401, PLC0415 - there is no tantivy on some platforms
        except ImportError:
            self.problem, self.is_missing = "search needs the package `tantivy`, which is not installed", True
            self._has_begun = True
            log.warning("search.unavailable", reason="tantivy is not installed")
            await anyio.sleep_forever()
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._lightness.keep)
            await self._serve_always()

    async def _serve_always(self) -> None:
        """What goes wrong in the search index stays in it: it is opened again or made anew."""
        from burnd.search.engine import Unusable  # noqa: PLC0415 - needs tantivy

        failures = 0
        while True:
            begun = self._clock()
            try:
                await self._serve()
            except (Unusable, IndexDamaged, NotNow, TookTooLong, OSError) as error:
                failures = failures + 1 if self._clock() - begun < LAST_RETRY_S else 1
                self._damaged = self._damaged or (isinstance(error, Unusable) and failures > 1)
                log.warning("search.failed", error=type(error).__name__, failures=failures)
            finally:
                self.problem, self._has_begun = "the search index is being repaired", True
                with anyio.CancelScope(shield=True):
                    await self._let_go()
            await anyio.sleep(min(FIRST_RETRY_S * 2 ** max(failures - 1, 0), LAST_RETRY_S))

    async def kept_up(self) -> None:
        """Waits a little while there is more to take in than should be held in memory."""
        with anyio.move_on_after(PATIENCE_S):
            while self._warm.size > warm.MUCH:
                self._took = anyio.Event()
                await self._took.wait()

    def landed(self, change: Change) -> None:
        """Called by the pipeline after every batch: which sessions to look at, and their text while it is at hand."""
        told = {item.label.session_id for item in change.placed}
        told |= {e.session_id for item, _ in change.logged if isinstance(e := item.entry, Session | Prune)}
        told |= set(change.erased)
        if not told:
            return
        self._touched.update(dict.fromkeys(told))
        pruned = {item.entry.session_id for item, _ in change.logged if isinstance(item.entry, Prune)}
        if gone := pruned.union(change.erased):
            self._warm.forget(gone)
        if self._serving is not None:
            self._warm.keep(change.placed)
        if change.placed and self._pipeline.now() - change.placed[-1].label.ts_ms < FRESH_MS:
            self._fresh = True
        self._disturb()

    def status(self) -> SearchStatus:
        waiting, shelf = len(self._touched) + self._in_hand, self._serving
        if shelf is None:
            return SearchStatus("unavailable" if self._has_begun else "starting", waiting, self.problem)
        waiting = waiting + len(shelf.due) or len(shelf.moved)  # what is not committed cannot be found yet
        if self._growing is not None:
            return SearchStatus("rebuilding", waiting, "pruned words are being taken out of its files")
        return SearchStatus("catching-up" if shelf.due else "ready", waiting)

    @property
    def engine(self) -> Engine | None:
        """What to search in, when there is something to search in."""
        return self._serving.engine if self._serving is not None else None

    async def opened(self, within: float) -> Engine | None:
        """What to search in; where it is just being opened, that is waited for so many seconds."""
        self._lightness.searched()
        if self.engine is not None:
            return self.engine
        with anyio.move_on_after(0 if self.is_missing else within):
            await self._opened.wait()
        return self.engine

    def damaged(self) -> None:
        """Called by who found that the index cannot be searched: it is made anew."""
        self._damaged = True
        self._disturb()

    @property
    def passed_over(self) -> str:
        """A sentence about messages that cannot be searched, because they crashed the process repeatedly."""
        return self._guard.summary("message") if self._guard is not None else ""

    async def calm(self) -> None:
        """Returns when everything that has landed is findable, and nothing that was pruned is left in any file."""
        await self._calm.wait()

    def _disturb(self) -> None:
        """There is something to do."""
        if self._calm.is_set():
            self._calm = anyio.Event()
        self._bell.set()

    async def _serve(self) -> None:
        """From opening the index until it turns out to be damaged."""
        from burnd.search.folders import Folders  # noqa: PLC0415 - needs tantivy

        if self._guard is None:  # one for the life of the daemon, since it counts the crashes before
            self._guard = InProcessGuard(self._pipeline.home.index / "searching", self._pipeline.now())
        folders = Folders(self._pipeline.home.search, self._guard)
        recorded, states = await self._ask(lambda db: (progress.current(db), progress.states(db)))
        self._generation = self._pipeline.generation
        shelf = await self._in_thread(lambda: folders.open(None if self._damaged else recorded, states))
        self._damaged = False
        await self._look(shelf)
        shelf.doubtful = set(shelf.due) if shelf.is_ahead else set()
        self._serving, self.problem, self._has_begun = shelf, "", True
        self._opened.set()
        log.info("search.ready", due=len(shelf.due))
        while not self._damaged:
            for session_id in self._guard.due(self._pipeline.now()):
                for filled in filter(None, (self._serving, self._growing)):
                    filled.retry(session_id)
            await self._step(folders, self._serving)

    async def _step(self, folders: Folders, shelf: Shelf) -> None:
        """One piece of work, what is new before what is old; with nothing to do, rests."""
        if self._generation != self._pipeline.generation:
            await self._follow_new_index(shelf)
        if self._touched:
            await self._take_touched(shelf)
        elif shelf.due:
            await self._take(shelf, shelf.due)
        elif self._growing is not None:
            await self._grow(folders, shelf, self._growing)
        elif shelf.stained and not shelf.moved:
            self._growing = await self._in_thread(folders.fresh)
            await self._look(self._growing)
        else:
            await self._rest(shelf)
        if shelf is self._serving and shelf.moved and self._commit_in(shelf) <= 0:
            await self._commit(shelf)

    async def _look(self, shelf: Shelf) -> None:
        """Finds every session that the index is behind with."""
        shelf.due = await self._ask(lambda db: progress.due(db, shelf.progress))

    async def _take_touched(self, shelf: Shelf) -> None:
        some, self._touched = list(self._touched), {}
        fresh, self._fresh = self._fresh, False
        if self._growing is not None:
            self._growing.due = list(dict.fromkeys([*self._growing.due, *some]))
        self._in_hand = len(some)
        try:
            await self._take(shelf, some)
        finally:
            self._in_hand = 0
        self._hurry = self._hurry or fresh
        self._fresh = self._fresh or (fresh and bool(some))
        self._touched = dict.fromkeys(some) | self._touched

    async def _take(self, shelf: Shelf, session_ids: list[str]) -> None:
        """Takes in as much as is done at once; the sessions that are finished leave the list."""
        some = session_ids[:AT_ONCE]
        words = self._warm if shelf is self._serving else None
        landed = self._warm.landed if shelf is self._serving else lambda *_: ()
        plans, finished = await self._ask(
            lambda db: progress.plans(db, some, shelf.progress, AT_ONCE, shelf.needs_calls, landed)
        )
        self._lightness.writing()
        await self._in_thread(lambda: shelf.take_all(plans, self.recall, words))
        if words is not None:
            for plan in plans:
                words.covered(plan.standing.session_id, plan.after.covered)
        self._took.set()
        del session_ids[:finished]
        if shelf is self._serving and shelf.moved and self._waiting_since is None:
            self._waiting_since = self._clock()

    async def _grow(self, folders: Folders, shelf: Shelf, growing: Shelf) -> None:
        """Fills the index that will take the other's place; when it lacks nothing, it does."""
        if growing.due:
            await self._take(growing, growing.due)
            return
        await self._look(growing)
        if growing.due or self._touched:
            return
        current = await self._in_thread(growing.commit)
        growing.moved |= growing.progress.keys() | shelf.progress.keys()
        await self._remember(growing, current)
        self._serving, self._growing, self._waiting_since = growing, None, None
        await self._in_thread(shelf.retire)
        await self._in_thread(lambda: folders.keep_only(growing.name))
        log.info("search.rebuilt")

    def _commit_in(self, shelf: Shelf) -> float:
        """In how many seconds what was taken in is to be made findable: soon, but a backlog in few commits."""
        is_backlog = self._touched or shelf.due or self._is_reading()
        waits = LATE_S if is_backlog and not self._hurry else SOON_S
        return (self._waiting_since or 0.0) + waits - self._clock()

    async def _commit(self, shelf: Shelf) -> None:
        self._pipeline.check_home()
        self._hurry, self._waiting_since = False, None
        await self._remember(shelf, await self._in_thread(shelf.commit))
        if self._is_reading():
            await self._in_thread(memory.trim)

    async def _remember(self, shelf: Shelf, current: Current) -> None:
        """Says in the index database what the commit holds: until then a next start would take it in again."""
        moved, shelf.moved = shelf.moved, set()
        cursors = [CursorChange(CURRENT, "", msgspec.msgpack.encode(current))]
        for session_id in moved:
            state = shelf.progress.get(session_id)
            cursors.append(CursorChange(STATES, session_id, msgspec.msgpack.encode(state) if state else None))
        try:
            await self._pipeline.commit(Batch(cursors=cursors))
        except BaseException:
            shelf.moved |= moved
            raise

    async def _follow_new_index(self, shelf: Shelf) -> None:
        """The index database was made anew, and may have lost what it said of search: it is said again."""
        self._generation = self._pipeline.generation
        shelf.moved |= shelf.progress.keys()
        self._waiting_since = self._waiting_since or self._clock()
        await self._look(shelf)
        if self._growing is not None:
            await self._look(self._growing)

    async def _rest(self, shelf: Shelf) -> None:
        """Sleeps until something lands or a commit is due; after a while, lets go of the writer's memory."""
        if shelf.moved:
            await self._rings_within(min(max(self._commit_in(shelf), 0.0), SOON_S))
            return
        if not self._bell.is_set():
            self._calm.set()
        if not await self._rings_within(IDLE_S):
            self._warm.clear()
            self.recall.close()
            await self._put_down(shelf)
            await self._rings_within(LOOK_S)

    async def _rings_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._bell.wait()
        rung = self._bell.is_set()
        self._bell = anyio.Event()
        return rung

    async def _let_go(self) -> None:
        for shelf in (self._serving, self._growing):
            if shelf is not None:
                await self._put_down(shelf)
        self._serving = self._growing = self._waiting_since = None
        self._opened = anyio.Event()
        self._warm.clear()  # nobody takes from it now, and whoever brings a backlog waits until it is
        self.recall.close()

    async def _put_down(self, shelf: Shelf) -> None:
        await self._in_thread(shelf.put_down)
        self._lightness.written()

    async def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        return await self._pipeline.index.ask(question, within=LAST_RETRY_S)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._thread)
