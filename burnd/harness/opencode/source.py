"""opencode as a source: finds its databases, polls them without disturbing it, and settles what has gone quiet."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog

from burnd.harness.opencode.database import Disturbed, Signature
from burnd.harness.opencode.follower import DatabaseFollower
from burnd.harness.opencode.product import PRODUCT, announced_places, data_folder, named_databases, present_databases
from burnd.harness.opencode.recording import Recorder
from burnd.harness.opencode.schedule import Pace, ScheduledDatabase, Trouble, damage, trouble_of
from burnd.harness.opencode.schema import Unsupported
from burnd.harness.opencode.session import SOURCE
from burnd.harness.opencode.session_state import DatabasePiece
from burnd.harness.opencode.wanted import Wanted, wanted_by
from burnd.harness.supervisor import SourceContext
from burnd.index.path_key import path_key
from burnd.logfiles.unused import LINES_SHOWN
from burnd.looking_again import next_look
from burnd.recording.backfill import Backfill
from burnd.recording.hazard import Hazard
from burnd.recording.pipeline import Pipeline
from burnd.recording.projects import ProjectKeys
from burnd.recording.source import Progress, Source, State, Status, UnusedInAll

T = TypeVar("T")
log = structlog.get_logger()

_TURN_S = 0.5


class OpenCode:
    """One task looks at every database in turn. What is recorded goes through the pipeline, one batch at a time."""

    name = SOURCE

    def __init__(
        self,
        pipeline: Pipeline,
        folder: str,
        named: Sequence[str] = (),
        wanted: Wanted | None = None,
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipeline = pipeline
        self._folders = [folder]
        self._named = [*named]
        self._wanted = wanted or Wanted()
        self._pace = pace or Pace()
        self._clock = clock
        self._databases: dict[str, ScheduledDatabase] = {}
        self._discover_at = float("-inf")
        self._generation = pipeline.generation
        self._projects = ProjectKeys()
        self._keys: dict[str, str | None] = {}
        self._flushes: list[tuple[str | None, anyio.Event]] = []
        self._bell = anyio.Event()
        self._thread = anyio.CapacityLimiter(1)
        self._recorder = Recorder(pipeline)
        self._hazard = Hazard(pipeline.home.index / f"reading.{SOURCE}")
        self._settled_before = False
        self._has_looked = False  # at every database there is
        self._told_state: tuple[str, str] = ("", "")
        self.rewound = 0

    async def run(self) -> None:
        """Reads until cancelled."""
        try:
            while True:
                await self.attend()
                await self._rest()
        finally:
            for one in self._databases.values():
                one.follower.db.rest()
            self._hazard.hold(())  # an end that was wanted is no death
            self._hazard.close()

    async def flush(self, session_id: str | None = None) -> str | None:
        """Records everything readable and settles open turns; returns the reason if a database could not be read."""
        done = anyio.Event()
        self._flushes.append((session_id, done))
        self._bell.set()
        await done.wait()
        worst = self._worst()
        return f"{worst[0]}: {worst[1].detail}" if worst is not None else None

    def add_roots(self, folders: Sequence[str]) -> None:
        """Reads these as well: databases, or folders as XDG_DATA_HOME would name them."""
        more, named = announced_places(folders)
        self._folders += [folder for folder in more if folder not in self._folders]
        self._named += [path for path in named if path not in self._named]
        self._discover_at = float("-inf")
        self._bell.set()

    async def attend(self) -> None:
        """One round: what is new is taken in, what has gone quiet is settled, and who asked for it is answered."""
        if self._generation != self._pipeline.generation:
            await self._begin_anew()
        flushes, self._flushes = self._flushes, []
        if flushes or self._clock() >= self._discover_at:
            await self._discover()
        for one in list(self._databases.values()):
            await self._visit(one, forced=bool(flushes))
            if flushes and (one.signature is None or one.follower.postponed):
                # A writer came in between, here or in another database: once more, now beside it.
                await self._visit(one, forced=True)
            await self._settle(one, [session_id for session_id, _ in flushes])
        self._has_looked = True
        self._tell_state()
        for _, done in flushes:
            done.set()

    def status(self) -> Status:
        state, detail, remedy = self._condition()
        followers = [one.follower for one in self._databases.values()]
        noticed = [one.noticed_at for one in self._databases.values() if one.noticed_at is not None]
        counts: Counter[str] = sum((follower.counts for follower in followers), Counter())
        return Status(
            self.name,
            state,
            detail,
            files=len(followers),
            pending=sum(follower.waiting + follower.postponed + len(follower.shown) for follower in followers),
            lag=self._clock() - min(noticed) if noticed else 0.0,
            progress=self._progress(),
            blocked=self._recorder.blocked or self._lock(),
            counts=dict(counts),
            unused=_together([follower.unused() for follower in followers]),
            remedy=remedy,
            has_looked=self._has_looked,
        )

    def _condition(self) -> tuple[State, str, str]:
        """How it goes: a word, a sentence, and what to do about it. The worst of several databases counts."""
        if self._recorder.blocked:
            return "waiting", self._recorder.blocked, "free some space; nothing is lost meanwhile"
        if not self._has_looked and not any(one.follower.waiting or one.wrong() for one in self._databases.values()):
            return "waiting", "starting: looking for what there is", ""
        if not self._databases:
            return "absent", f"no database in {self._folders[0]}", ""
        if (worst := self._worst()) is not None:
            path, trouble = worst
            return trouble.state, f"{trouble.detail}: {path}", trouble.remedy
        polled = "polling " + ", ".join(one.follower.db.path for one in self._databases.values())
        if told := self._hazard.told("message"):
            return "polling", f"{polled}; {told}", "nothing: all other messages are recorded; please report it"
        return "polling", polled, ""

    def _worst(self) -> tuple[str, Trouble] | None:
        """The database with the worst trouble, if any has trouble."""
        return max(
            ((one.follower.db.path, found) for one in self._databases.values() if (found := one.wrong()) is not None),
            key=lambda item: item[1].state == "degraded",
            default=None,
        )

    def _progress(self) -> Progress | None:
        behind = [one for one in self._databases.values() if one.is_behind]
        fills = [one.backfill for one in behind if one.follower.waiting and one.backfill.total]
        if not fills:
            return Progress(0, 0, 0.0) if behind else None
        done, total = sum(fill.done for fill in fills), sum(fill.total for fill in fills)
        seconds = max(0.001, self._clock() - min(fill.since for fill in fills))
        return Progress(min(done, total), total, done / seconds)

    def _lock(self) -> str:
        """The reason if other programs lock all databases that are not read yet, else empty."""
        behind = [one for one in self._databases.values() if one.is_behind]
        if not behind or any(one.trouble is None for one in behind):
            return ""
        return "; ".join(f"{one.follower.db.path} is {one.trouble.detail}" for one in behind if one.trouble is not None)

    async def _discover(self) -> None:
        """Finds databases that have come, and lets go of those that are gone. That there is none is normal."""
        self._discover_at = next_look(self._clock(), self._pace.discover)
        paths = await self._in_thread(lambda: present_databases(self._folders, self._named))
        gone = [path for path in self._databases if path not in paths]
        for path in gone:
            self._databases.pop(path).follower.db.rest()
        for path in paths:
            if path not in self._databases:
                self._databases[path] = ScheduledDatabase(await self._follower(path))
        self._databases = {path: self._databases[path] for path in paths}
        followers = [one.follower for one in self._databases.values()]
        for n, follower in enumerate(followers):
            follower.precedence.above = followers[:n]
        if gone or not self._settled_before:
            await self._recorder.settle_all_but({follower.key for follower in followers})
            self._settled_before = True

    async def _follower(self, path: str) -> DatabaseFollower:
        key = path_key(path)
        cursors, shown = await self._recorder.cursors(key), await self._recorder.shown(key)
        return DatabaseFollower(path, self._wanted, cursors, shown, self._hazard, self._folders)

    async def _visit(self, one: ScheduledDatabase, *, forced: bool) -> None:
        """Looks at a database if it is time, and takes in what is new."""
        now, follower = self._clock(), one.follower
        signature = follower.db.signature()
        if signature is None:
            return  # the next discovery lets go of it
        due = forced or one.is_due(now, self._pace, signature)
        try:
            if due:
                await self._look(one, signature, now, forced=forced)
            if follower.is_behind and one.trouble is None:
                await self._take_in(one, whole=forced)
            elif due:
                follower.caught_up = True
        except FileNotFoundError:
            one.signature = None
        except Disturbed:
            one.signature = None  # whatever it was, the next look sees it
        except (sqlite3.Error, Unsupported, OSError) as error:
            one.signature = signature
            trouble = trouble_of(error, one.trouble, self._clock())
            one.trouble = msgspec.structs.replace(trouble, signature=signature)
        if follower.damage and one.damage is None:
            one.damage = msgspec.structs.replace(damage(follower.damage, self._clock()), signature=signature)
        if not follower.waiting:
            one.noticed_at = None
        if follower.db.is_kept and not one.is_hot(self._clock(), self._pace):
            await self._in_thread(follower.db.rest)

    async def _look(self, one: ScheduledDatabase, signature: Signature, now: float, *, forced: bool) -> None:
        again = one.is_worth_a_try(now, signature) or (forced and one.damage is not None)
        if again:
            one.follower.try_again()
            one.damage = None
        if signature != one.signature:
            one.noticed_at = one.noticed_at or now
            one.changed_at = now
            one.unscanned = True
        scan = forced or again or one.wants_scan(now, self._pace)
        looked = await self._in_thread(lambda: one.follower.look(scan=scan))
        one.signature, one.looked_at, one.trouble = signature, now, None
        if looked.changed:
            one.changed_at = now
        one.unscanned = not scan and (one.unscanned or looked.changed)
        if scan:
            one.scanned_at = now
        if looked.rewound:
            self.rewound += 1
            log.info("source.rewound", source=self.name, reason=looked.rewound)

    async def _take_in(self, one: ScheduledDatabase, *, whole: bool) -> None:
        """Reads and records until nothing waits any more, or it is another database's turn."""
        follower = one.follower
        if not one.backfill.since:
            size = one.signature.size + (one.signature.log or (0, 0, 0))[1] if one.signature is not None else 0
            one.backfill = Backfill(total=0 if follower.caught_up else size, since=self._clock())
        begun = self._clock()
        follower.take_up_postponed()
        while whole or self._clock() - begun < _TURN_S:
            piece = await self._in_thread(lambda: follower.read(self._clock(), self._pipeline.now(), self._keys))
            await self._recorder.record(follower, piece)
            await self._learn_projects(follower.wanting)
            self._tell_progress(one, piece)
            if not follower.waiting:
                follower.caught_up = True
                break

    async def _learn_projects(self, folders: set[str]) -> None:
        if folders:
            await self._projects.learn(folders)
            self._keys |= {folder: self._projects.key(folder) for folder in folders}

    async def _settle(self, one: ScheduledDatabase, flushed: Sequence[str | None]) -> None:
        """Messages that are complete settle after 2 s of quiet, others after 10 minutes, all of them when asked to."""
        now, follower = self._clock(), one.follower
        for session_id in flushed:
            await self._recorder.record(follower, follower.settle(now, flush=True, session_id=session_id))
        if follower.due is not None and follower.due <= now:
            await self._recorder.record(follower, follower.settle(now))

    async def _begin_anew(self) -> None:
        """When the index was lost, so was how far each database was read: everything is read again."""
        self._generation = self._pipeline.generation
        await self._recorder.forget_cursors()
        for one in self._databases.values():
            one.follower.db.rest()
        self._databases = {}
        self._discover_at = float("-inf")

    async def _rest(self) -> None:
        self._bell = anyio.Event()
        if self._flushes:
            return
        with anyio.move_on_after(self._rests(self._clock())):
            await self._bell.wait()

    def _rests(self, now: float) -> float:
        """How long nobody needs to look: where there is no database, until it is time to see whether one has come."""
        discovery = max(0.0, self._discover_at - now)
        return min([discovery, *(one.rests(now, self._pace) for one in self._databases.values())])

    def _tell_state(self) -> None:
        """Says in the log when a state begins, not how long it lasts."""
        state, detail, _ = self._condition()
        if (state, detail) != self._told_state:
            self._told_state = (state, detail)
            tell = log.warning if state == "degraded" else log.info
            tell("source.state", source=self.name, state=state, detail=detail)

    def _tell_progress(self, one: ScheduledDatabase, piece: DatabasePiece) -> None:
        """While a lot is taken in, says now and then how far that is, and says when it is done."""
        backfill, now, is_done = one.backfill, self._clock(), not one.follower.waiting
        backfill.done += piece.size
        backfill.tell(now, self.name, is_done=is_done)
        if is_done:
            one.backfill = Backfill()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._thread)


def _together(found: Sequence[UnusedInAll]) -> UnusedInAll:
    """The unusable rows of all databases."""
    rows = [row for one in found for row in one.lines][:LINES_SHOWN]
    return UnusedInAll(sum(one.count for one in found), 0, rows)


def make(context: SourceContext) -> Source:
    named = named_databases(context.environ, context.user_home, context.settings.roots_of(PRODUCT))
    folder = data_folder(context.environ, context.user_home)
    source = OpenCode(context.pipeline, folder, named, wanted_by(context.settings, context.user_home))
    source.add_roots(context.announced)
    return source
