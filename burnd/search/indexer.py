"""Keeps the search index up to date with the content, in the background.

A session is due if the index's coverage of it differs from what is recorded. So a crash, a missing and a damaged index
are handled alike: what is not covered is indexed from content.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import anyio
import structlog

from burnd import memory
from burnd.content.recall import Recall
from burnd.index.change import Change
from burnd.recording.background import BackgroundFollower
from burnd.recording.pipeline import Pipeline
from burnd.records import Prune, Session
from burnd.search import backlog
from burnd.search.page_limit import PageLimit

if TYPE_CHECKING:
    from burnd.search.filler import IndexFiller, RecentWords
    from burnd.search.index import Folders, SearchIndex

log = structlog.get_logger()

SESSIONS_AT_ONCE: Final = 400
MESSAGES_AT_ONCE: Final = 400  # between two looks at what else there is to do
RECENT_CHARS: Final = 2 << 20  # with more recent text in memory, it is indexed before a commit is due
SOON_S: Final = 0.8  # a live message waits so long for others to be committed with it
# Between commits of live messages: each takes 15 ms of CPU, and every eighth one merges segments.
LIVE_COMMIT_S: Final = 1.8
# Between commits of a backlog: each begins a segment, which lists all of its words again.
BACKLOG_COMMIT_S: Final = 10.0
LIVE_MS: Final = 60_000  # a message that is not older is live
IDLE_S: Final = 15.0  # until the writer is closed
RECHECK_S: Final = 60.0  # between looks at sessions to retry
LONGEST_WAIT_S: Final = 5.0  # of recording for the words in memory


class SearchStatus(NamedTuple):
    """The state of search, the number of sessions that are not indexed yet, and the reason if it is unavailable."""

    state: Literal["starting", "ready", "catching-up", "rebuilding", "unavailable"]
    pending: int = 0
    detail: str = ""


class SearchIndexer(BackgroundFollower):
    """The one task that writes the search index."""

    task, note, item = "search", "searching", "message"

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        is_reading: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(pipeline, is_reading=is_reading, clock=clock)
        self.recall = Recall(pipeline.home.content)
        self.problem = "search is starting"  # why there is no index to search; empty if there is one
        self.is_missing = False  # tantivy is not installed
        self._has_begun = False
        self._pages = PageLimit(pipeline.home.search, is_reading, clock)
        self._progress = anyio.Event()  # set when messages were indexed
        self._opened = anyio.Event()
        self._touched: dict[str, None] = {}
        self._taking = 0
        self._recent: RecentWords | None = None
        self._folders: Folders | None = None
        self._fillers: list[IndexFiller] = []
        self._serving: IndexFiller | None = None
        self._replacement: IndexFiller | None = None
        self._changed_at: float | None = None
        self._committed_at = float("-inf")
        self._has_unindexed_live = False
        self._has_uncommitted_live = False
        self._has_uncommitted_old = False
        self._read_at = float("-inf")  # when old logs were last being read
        self._is_damaged = False

    async def run(self) -> None:
        try:
            from burnd.search.filler import RecentWords  # noqa: PLC0415 - needs tantivy
            from burnd.search.index import Folders, Unusable  # noqa: PLC0415
        except ImportError:
            self.problem, self.is_missing = "search needs the package `tantivy`, which is not installed", True
            self._has_begun = True
            log.warning("search.unavailable", reason="tantivy is not installed")
            await anyio.sleep_forever()
            return
        self._recent = RecentWords()
        self._folders = Folders(self._pipeline.home.search)
        self.retried = (*BackgroundFollower.retried, Unusable)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pages.keep)
            await super().run()

    async def _failed(self, error: Exception, failures: int) -> None:
        """Closes the index, to be opened again; one that fails twice is rebuilt."""
        self._is_damaged = self._is_damaged or (not isinstance(error, BackgroundFollower.retried) and failures > 1)
        await self._close()

    async def wait_until_caught_up(self) -> None:
        """Slows recording down while too many words are in memory."""
        with anyio.move_on_after(LONGEST_WAIT_S):
            while self._recent is not None and self._recent.size > self._recent.MUCH:
                self._progress = anyio.Event()
                await self._progress.wait()

    def on_change(self, change: Change) -> None:
        """Adds the words of a batch to those in memory, and its sessions to those to look at."""
        pruned = {item.entry.session_id for item, _ in change.logged if isinstance(item.entry, Prune)}
        named = {item.entry.session_id for item, _ in change.logged if isinstance(item.entry, Session)}
        touched = pruned | named | set(change.erased) | {item.label.session_id for item in change.placed}
        if not touched:
            return
        self._touched.update(dict.fromkeys(touched))
        if self._recent is not None:
            self._recent.drop_sessions(pruned.union(change.erased))
            if self._serving is not None:
                self._recent.add(change.placed)
        if change.placed and self._pipeline.now() - change.placed[-1].label.ts_ms < LIVE_MS:
            self._has_uncommitted_live = self._has_unindexed_live = True
        self._has_uncommitted_old = self._has_uncommitted_old or self._clock() - self._read_at < LIVE_COMMIT_S
        if self._changed_at is None:
            self._changed_at = self._clock()
        self.wake()

    def status(self) -> SearchStatus:
        waiting, filler = len(self._touched) + self._taking, self._serving
        if filler is None:
            return SearchStatus("unavailable" if self._has_begun else "starting", waiting, self.problem)
        waiting += len(filler.due)
        if not waiting:
            waiting = filler.index.uncommitted
        if self._replacement is not None:
            return SearchStatus("rebuilding", waiting, "pruned words are being removed from its files")
        return SearchStatus("catching-up" if filler.due else "ready", waiting)

    @property
    def index(self) -> SearchIndex | None:
        return self._serving.index if self._serving is not None else None

    async def wait_open(self, within: float) -> SearchIndex | None:
        """The index to search; waits so many seconds for one that is being opened."""
        self._pages.searched()
        if self.index is not None:
            return self.index
        with anyio.move_on_after(0 if self.is_missing else within):
            await self._opened.wait()
        return self.index

    def report_damage(self) -> None:
        """Rebuilds the index: a search failed."""
        self._is_damaged = True
        self.wake()

    async def _work(self) -> None:
        """One piece of work: new messages when a commit is due or there are many, then the backlog, then a rebuild."""
        filler = await self._current()
        is_much = self._recent is not None and self._recent.size > RECENT_CHARS
        if self._touched and (is_much or self._commit_in(filler) <= 0):
            await self._take_touched(filler)
        elif filler.due:
            await self._take(filler, filler.due)
        elif self._replacement is not None:
            await self._build(self._replacement)
        elif filler.index.has_erased and not filler.index.uncommitted:
            self._replacement = await self._filler_of(await self._in_thread(self._known_folders.create))
        else:
            await self._sleep(filler)
        is_uncommitted = filler is self._serving and filler.index.uncommitted > 0
        if is_uncommitted and not self._has_unindexed_live and self._commit_in(filler) <= 0:
            await self._commit(filler)

    async def _current(self) -> IndexFiller:
        if self._is_damaged:
            await self._close()
        if self._serving is None:
            self._serving = await self._open()
        for session_id in self._guard.due(self._pipeline.now()) if self._guard is not None else ():
            for filler in self._fillers:
                filler.retry(session_id)
        if self._generation != self._pipeline.generation:
            self._generation = self._pipeline.generation
            for filler in self._fillers:
                await self._find_due(filler)
        return self._serving

    async def _open(self) -> IndexFiller:
        self._generation = self._pipeline.generation
        index = await self._in_thread(lambda: self._known_folders.open(rebuild=self._is_damaged))
        self._is_damaged = False
        filler = await self._filler_of(index)
        for session_id in self._guard.suspects() if self._guard is not None else ():
            filler.retry(session_id)
        self.problem, self._has_begun = "", True
        self._opened.set()
        log.info("search.ready", due=len(filler.due))
        return filler

    @property
    def _known_folders(self) -> Folders:
        assert self._folders is not None  # noqa: S101 - set before the first piece of work
        return self._folders

    async def _filler_of(self, index: SearchIndex) -> IndexFiller:
        from burnd.search.filler import IndexFiller  # noqa: PLC0415 - needs tantivy

        assert self._guard is not None  # noqa: S101 - set for as long as it runs
        filler = IndexFiller(index, self._guard, self._fillers)
        await self._find_due(filler)
        return filler

    async def _find_due(self, filler: IndexFiller) -> None:
        filler.due = await self._ask(lambda db: backlog.pending_sessions(db, filler.index))

    async def _take_touched(self, filler: IndexFiller) -> None:
        some, self._touched = list(self._touched), {}
        had_new, self._has_unindexed_live = self._has_unindexed_live, False
        if self._replacement is not None:
            self._replacement.due = list(dict.fromkeys([*self._replacement.due, *some]))
        self._taking = len(some)
        try:
            await self._take(filler, some)
        finally:
            self._taking = 0
        self._has_unindexed_live = self._has_unindexed_live or (had_new and bool(some))
        self._touched = dict.fromkeys(some) | self._touched

    async def _take(self, filler: IndexFiller, session_ids: list[str]) -> None:
        """Indexes some of these sessions, and removes those that are finished from the list."""
        some = session_ids[:SESSIONS_AT_ONCE]
        recent = self._recent if filler is self._serving else None
        between = recent.between if recent is not None else lambda *_: ()
        plans, finished = await self._ask(
            lambda db: backlog.plans(db, some, filler.index.coverage, MESSAGES_AT_ONCE, filler.needs_calls, between)
        )
        self._pages.writing()
        filler.index.is_backlog = self._is_reading() or bool(filler.due)
        await self._in_thread(lambda: filler.take_all(plans, self.recall))
        if recent is not None:
            for plan in plans:
                recent.drop(plan.session.session_id, plan.after.covered)
        self._progress.set()
        del session_ids[:finished]
        if filler is self._serving and self._changed_at is None and filler.index.uncommitted:
            self._changed_at = self._clock()
        elif filler is self._serving and not self._touched and not filler.index.uncommitted:
            self._changed_at = None

    async def _build(self, filler: IndexFiller) -> None:
        if filler.due:
            await self._take(filler, filler.due)
            return
        await self._find_due(filler)
        if filler.due or self._touched or self._serving is None:
            return
        await self._in_thread(filler.commit)
        before, self._serving = self._serving, filler
        self._replacement = self._changed_at = None
        await self._in_thread(before.retire)
        await self._in_thread(lambda: self._known_folders.remove_others(filler.index))
        log.info("search.rebuilt")

    def _commit_in(self, filler: IndexFiller) -> float:
        """Seconds until a commit is due: soon for live messages, late in a backlog, at once at its end."""
        if self._waiters and not filler.due:
            return 0.0
        changed_at, is_reading = self._changed_at or 0.0, self._is_reading()
        self._read_at = self._clock() if is_reading else self._read_at
        if not self._has_uncommitted_live and (filler.due or is_reading):
            return changed_at + BACKLOG_COMMIT_S - self._clock()
        if self._has_uncommitted_old:
            return 0.0
        return max(changed_at + SOON_S, self._committed_at + LIVE_COMMIT_S) - self._clock()

    async def _commit(self, filler: IndexFiller) -> None:
        self._pipeline.check_home()
        self._has_uncommitted_live, self._changed_at = False, None
        self._has_uncommitted_old = self._has_uncommitted_old and bool(self._touched)
        await self._in_thread(filler.commit)
        self._committed_at = self._clock()
        if self._is_reading():
            await self._in_thread(memory.trim)

    async def _sleep(self, filler: IndexFiller) -> None:
        """Sleeps until a change or a due commit; closes the writer after `IDLE_S`."""
        if filler.index.uncommitted or self._touched:
            await self._woken_within(min(max(self._commit_in(filler), 0.0), SOON_S))
            return
        self._rest()
        if not await self._woken_within(IDLE_S):
            if self._recent is not None:
                self._recent.clear()
            self.recall.close()
            await self._in_thread(filler.close_writer)
            self._pages.written()
            await self._woken_within(RECHECK_S)

    async def _close(self) -> None:
        self.problem, self._has_begun = "the search index is being repaired", True
        for filler in list(self._fillers):
            await self._in_thread(filler.retire)
        self._pages.written()
        self._serving = self._replacement = self._changed_at = None
        self._opened = anyio.Event()
        if self._recent is not None:
            self._recent.clear()  # a backlog would wait for it
        self.recall.close()
