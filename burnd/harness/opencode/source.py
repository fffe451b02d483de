"""The source for opencode: finds its databases, polls them without disturbing it, records what is new."""

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

from burnd.harness.opencode.cursor import load_cursors
from burnd.harness.opencode.database import Signature, StaleRead, Unsupported, error_name, is_lock
from burnd.harness.opencode.follower import DatabaseChanges, DatabaseFollower, cursor_source
from burnd.harness.opencode.product import PRODUCT, announced_places, data_folder, named_databases, present_databases
from burnd.harness.opencode.reader import ReadOptions, read_options
from burnd.harness.opencode.session import SOURCE
from burnd.harness.supervisor import SourceContext
from burnd.index.change import CursorChange, FileChange
from burnd.index.keys import path_key
from burnd.logfiles.tail import LINES_SHOWN
from burnd.recording.candidate import Batch
from burnd.recording.crash_guard import CrashGuard
from burnd.recording.pipeline import Committer, Pipeline
from burnd.recording.source import Backfill, Progress, Source, State, Status, UnusedInAll
from burnd.records import Turn
from burnd.records.codec import decode
from burnd.tasks import next_tick

_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_QUICK_TRIES = 10
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 60.0
_DAMAGED_RETRY_S = 300.0
_CHANGED_RETRY_S = 2.0  # for a damaged database that has changed
_MANY_SESSIONS = 50  # more than live agents write at once
T = TypeVar("T")
log = structlog.get_logger()
_TURN_S = 0.5  # how long one database is read before the next one


class Pace(msgspec.Struct, frozen=True):
    tick: float = 0.1  # between two looks at the file system
    idle_tick: float = 1.0  # the same after `idle_after` without a change
    idle_after: float = 30.0
    discover: float = 5.0  # between two searches for databases
    scan: float = 2.0  # between two comparisons of all sessions, while something changes
    rest: float = 1.0  # without a change until the connection is closed
    doubt: float = 30.0  # between two scans even if the file system shows no change


class Problem(msgspec.Struct, frozen=True):
    """Why a database is not read, and the file's signature then.

    It is tried again at `until`, or from `on_change` on if the file changed, as by a restore.
    """

    state: State
    detail: str
    remedy: str = ""
    until: float = 0.0
    tries: int = 0
    on_change: float = float("inf")
    signature: Signature | None = None

    def is_over(self, now: float, signature: Signature) -> bool:
        """Whether to try again; another file in its place is always tried."""
        if self.signature is None or self.signature.identity != signature.identity:
            return True
        return now >= self.until or (now >= self.on_change and self.signature != signature)


class ScheduledDatabase:
    """A database and when to look at it again; `damage` concerns only some rows."""

    def __init__(self, follower: DatabaseFollower) -> None:
        self.follower = follower
        self.signature: Signature | None = None
        self.changed_at = float("-inf")
        self.scanned_at = float("-inf")
        self.looked_at = float("-inf")
        self.noticed_at: float | None = None
        self.needs_scan = True
        self.problem: Problem | None = None
        self.damage: Problem | None = None
        self.backfill = Backfill()

    @property
    def path(self) -> str:
        return self.follower.db.path

    @property
    def is_behind(self) -> bool:
        if self.problem is not None and self.problem.state == "degraded":
            return False
        return not self.follower.caught_up or len(self.follower.finder.waiting) > _MANY_SESSIONS

    @property
    def worst(self) -> Problem | None:
        problem = self.problem or self.damage
        if problem is not None or not self.follower.v2_tables:
            return problem
        tables = ", ".join(self.follower.v2_tables)
        detail = f"holds sessions in opencode's coming format ({tables}), which are NOT READ yet"
        return Problem("degraded", detail, "update burnd")

    def is_due(self, now: float, pace: Pace, signature: Signature) -> bool:
        if self.problem is not None:
            return self.problem.is_over(now, signature)
        if signature != self.signature or self.is_hot(now, pace) or now - self.looked_at >= pace.doubt:
            return True
        return self.is_scan_due(now, pace) or self.may_be_repaired(now, signature)

    def is_scan_due(self, now: float, pace: Pace) -> bool:
        return now - self.scanned_at >= (pace.scan if self.needs_scan else pace.doubt)

    def may_be_repaired(self, now: float, signature: Signature) -> bool:
        return self.damage is not None and self.damage.is_over(now, signature)

    def is_hot(self, now: float, pace: Pace) -> bool:
        return now - self.changed_at < pace.rest

    def pause(self, now: float, pace: Pace) -> float:
        if now - self.changed_at < pace.idle_after or self.follower.due is not None:
            return pace.tick
        until = self.problem.until - now if self.problem is not None else pace.idle_tick
        return min(pace.idle_tick, max(pace.tick, until))


def problem_of(error: Exception, before: Problem | None, now: float) -> Problem:
    if isinstance(error, Unsupported):
        remedy, until = "update burnd, if opencode is newer than it", now + _LAST_RETRY_S
        return Problem("degraded", f"unsupported opencode schema ({error})", remedy, until, 1, on_change=now)
    name = error_name(error)
    tries = before.tries + 1 if before is not None else 1
    # Most locks are short: try every second at first, then less often.
    until = now + min(_LAST_RETRY_S, _FIRST_RETRY_S * float(2 ** min(10, max(0, tries - _QUICK_TRIES))))
    if is_lock(error):
        return Problem("waiting", f"locked by another program ({name})", "", until, tries)
    if name.startswith(_DAMAGED):
        return damage_of(name, now)
    return Problem(
        "degraded",
        f"cannot be read ({name})",
        "check its rights and the disk",
        until,
        tries,
        on_change=now,
    )


def damage_of(name: str, now: float) -> Problem:
    """The problem of unreadable rows: tried again after a while, or soon after a change."""
    detail, remedy = f"reading one of its sessions failed ({name})", "report it"
    if name.startswith("SQLITE_"):
        detail = f"damaged ({name})"
        remedy = "restore it from a backup, or let opencode create it again; readable rows are recorded"
    return Problem("degraded", detail, remedy, now + _DAMAGED_RETRY_S, on_change=now + _CHANGED_RETRY_S)


class OpenCode:
    """Looks at every database in turn, in one task, and commits one batch at a time."""

    name = SOURCE

    def __init__(
        self,
        pipeline: Pipeline,
        folder: str,
        databases: Sequence[str] = (),
        options: ReadOptions | None = None,
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rewound = 0
        self._pipeline = pipeline
        self._committer = Committer(pipeline, SOURCE)
        self._folders = [folder]
        self._named = [*databases]
        self._options = options or ReadOptions()
        self._pace = pace or Pace()
        self._clock = clock
        self._guard = CrashGuard(pipeline.home.index / f"reading.{SOURCE}")
        self._databases: dict[str, ScheduledDatabase] = {}
        self._discover_at = float("-inf")
        self._generation = pipeline.generation
        self._flushes: list[tuple[str | None, anyio.Event]] = []
        self._wake = anyio.Event()
        self._thread = anyio.CapacityLimiter(1)
        self._has_settled_gone = False
        self._has_looked = False  # at every database
        self._logged_state: tuple[str, str] = ("", "")

    # What the daemon calls

    async def run(self) -> None:
        try:
            while True:
                await self.attend()
                self._wake = anyio.Event()
                if not self._flushes:
                    with anyio.move_on_after(self._pause(self._clock())):
                        await self._wake.wait()
        finally:
            self.close()

    def close(self) -> None:
        for one in self._databases.values():
            one.follower.close()
        self._guard.close()

    async def flush(self, session_id: str | None = None) -> str | None:
        """Records everything readable and settles open turns; returns the reason if a database is unreadable."""
        done = anyio.Event()
        self._flushes.append((session_id, done))
        self._wake.set()
        await done.wait()
        worst = self._worst()
        return f"{worst[0]}: {worst[1].detail}" if worst is not None else None

    def add_roots(self, folders: Sequence[str]) -> None:
        """Reads these too: databases, folders of databases, or values of XDG_DATA_HOME."""
        more, databases = announced_places(folders)
        self._folders += [folder for folder in more if folder not in self._folders]
        self._named += [path for path in databases if path not in self._named]
        self._discover_at = float("-inf")
        self._wake.set()

    @property
    def is_reading(self) -> bool:
        return any(one.is_behind for one in self._databases.values())

    def status(self) -> Status:
        state, detail, remedy = self._condition()
        followers = [one.follower for one in self._databases.values()]
        finders = [follower.finder for follower in followers]
        noticed = [one.noticed_at for one in self._databases.values() if one.noticed_at is not None]
        counts: Counter[str] = sum((follower.counts for follower in followers), Counter())
        unusable = [follower.unusable() for follower in followers]
        open_turns = sum(len(follower.open_turns) for follower in followers)
        return Status(
            self.name,
            state,
            detail,
            files=len(followers),
            pending=sum(len(finder.waiting) + len(finder.postponed) for finder in finders) + open_turns,
            lag=self._clock() - min(noticed) if noticed else 0.0,
            progress=self._progress(),
            blocked=self._committer.blocked or self._locked(),
            counts=dict(counts),
            unused=UnusedInAll(
                sum(one.count for one in unusable), 0, [row for one in unusable for row in one.lines][:LINES_SHOWN]
            ),
            remedy=remedy,
            has_looked=self._has_looked,
        )

    # One round

    async def attend(self) -> None:
        """Records what is new, settles what is quiet, and answers earlier flush requests."""
        if self._generation != self._pipeline.generation:
            await self._start_over()
        flushes, self._flushes = self._flushes, []
        if flushes or self._clock() >= self._discover_at:
            await self._discover()
        for one in list(self._databases.values()):
            await self._visit(one, forced=bool(flushes))
            if flushes and (one.signature is None or one.follower.finder.postponed):
                await self._visit(one, forced=True)  # a writer came in between: once more, now with its log
            now, follower = self._clock(), one.follower
            for session_id, _ in flushes:
                await self._record(follower, follower.settle(now, flush=True, session_id=session_id))
            if follower.due is not None and follower.due <= now:
                await self._record(follower, follower.settle(now))
        self._has_looked = True
        state, detail, _ = self._condition()
        if (state, detail) != self._logged_state:
            self._logged_state = (state, detail)
            write = log.warning if state == "degraded" else log.info
            write("source.state", source=self.name, state=state, detail=detail)
        for _, done in flushes:
            done.set()

    async def _discover(self) -> None:
        self._discover_at = next_tick(self._clock(), self._pace.discover)
        paths = await self._in_thread(lambda: present_databases(self._folders, self._named))
        gone = [path for path in self._databases if path not in paths]
        for path in gone:
            self._databases.pop(path).follower.close()
        for path in paths:
            if path not in self._databases:
                self._databases[path] = ScheduledDatabase(await self._follower(path))
        self._databases = {path: self._databases[path] for path in paths}
        followers = [one.follower for one in self._databases.values()]
        for n, follower in enumerate(followers):
            follower.precedence.earlier = followers[:n]
        if gone or not self._has_settled_gone:
            keys = {follower.key for follower in followers}
            orphans = [turn for path, turn in await self._open_turns() if path not in keys]
            if orphans:  # they were billed
                await self._committer.commit(Batch(orphans=orphans))
            self._has_settled_gone = True
        for session_id in self._guard.due(self._pipeline.now()):
            for follower in followers:
                follower.reread(session_id)

    async def _follower(self, path: str) -> DatabaseFollower:
        key = path_key(path)
        rows = await self._pipeline.index.rows("SELECT key, value FROM cursors WHERE source = ?", (cursor_source(key),))
        turns = {turn.message_id: turn for name, turn in await self._open_turns() if name == key}
        inline_bytes = self._pipeline.content.inline_bytes
        cursors = load_cursors(rows)
        return DatabaseFollower(path, self._options, cursors, turns, self._guard, self._folders, inline_bytes)

    async def _visit(self, one: ScheduledDatabase, *, forced: bool) -> None:
        now, follower = self._clock(), one.follower
        signature = follower.db.signature()
        if signature is None:
            return  # the next discovery closes it
        is_due = forced or one.is_due(now, self._pace, signature)
        try:
            if is_due:
                await self._look(one, signature, now, forced=forced)
            if follower.finder.is_behind and one.problem is None:
                await self._read(one, whole=forced)
            elif is_due:
                follower.caught_up = True
        except (FileNotFoundError, StaleRead):
            one.signature = None  # the next look sees what happened
        except (sqlite3.Error, Unsupported, OSError) as error:
            one.signature = signature
            problem = problem_of(error, one.problem, self._clock())
            one.problem = msgspec.structs.replace(problem, signature=signature)
        if follower.damage and one.damage is None:
            one.damage = msgspec.structs.replace(damage_of(follower.damage, self._clock()), signature=signature)
        if not follower.finder.waiting:
            one.noticed_at = None
        if follower.db.is_open and not one.is_hot(self._clock(), self._pace):
            await self._in_thread(follower.db.close)

    async def _look(self, one: ScheduledDatabase, signature: Signature, now: float, *, forced: bool) -> None:
        retry = one.may_be_repaired(now, signature) or (forced and one.damage is not None)
        if retry:
            one.follower.retry_unreadable()
            one.damage = None
        if signature != one.signature:
            one.noticed_at = one.noticed_at or now
            one.changed_at = now
            one.needs_scan = True
        scan = forced or retry or one.is_scan_due(now, self._pace)
        result = await self._in_thread(lambda: one.follower.look(scan=scan))
        one.signature, one.looked_at, one.problem = signature, now, None
        if result.changed:
            one.changed_at = now
        one.needs_scan = not scan and (one.needs_scan or result.changed)
        if scan:
            one.scanned_at = now
        if result.rewound:
            self.rewound += 1
            log.info("source.rewound", source=self.name, reason=result.rewound)

    async def _read(self, one: ScheduledDatabase, *, whole: bool) -> None:
        """Reads and records until no session waits, or the next database is due."""
        follower = one.follower
        if not one.backfill.since:
            size = one.signature.size + (one.signature.log or (0, 0, 0))[1] if one.signature is not None else 0
            one.backfill = Backfill(total=0 if follower.caught_up else size, since=self._clock())
        start = self._clock()
        follower.finder.resume_postponed()
        while whole or self._clock() - start < _TURN_S:
            now, wall_ms = self._clock(), self._pipeline.now()
            changes = await self._in_thread(lambda: follower.read(now, wall_ms))  # noqa: B023
            await self._record(follower, changes)
            is_done = not follower.finder.waiting
            one.backfill.done += changes.size
            one.backfill.log_progress(self._clock(), self.name, is_done=is_done)
            if is_done:
                one.backfill = Backfill()
                follower.caught_up = True
                break

    async def _start_over(self) -> None:
        """Reads everything again after the index, and with it the cursors, were lost."""
        self._generation = self._pipeline.generation
        sql = "SELECT source, key FROM cursors WHERE source LIKE ?"
        rows = await self._pipeline.index.rows(sql, (cursor_source("%"),))
        await self._committer.commit(Batch(cursors=[CursorChange(source, key, None) for source, key in rows]))
        for one in self._databases.values():
            one.follower.close()
        self._databases = {}
        self._discover_at = float("-inf")

    # Recording

    async def _record(self, follower: DatabaseFollower, changes: DatabaseChanges) -> None:
        cursors = follower.cursor_changes(changes)
        if changes.steps or changes.orphans or changes.content or changes.sessions or changes.agents or cursors:
            is_open = any(not step.candidate.settled for step in changes.steps)
            # Open turns belong to a file of the index: the database.
            file = FileChange(SOURCE, follower.key, b"", seen_ms=self._pipeline.now(), open=True)
            batch = Batch(
                entries=[*changes.sessions],
                encoded_records=changes.content,
                cursors=cursors,
                candidates=changes.steps,
                orphans=changes.orphans,
                agents=changes.agents,
                files=[file] if is_open else [],
                source=SOURCE,
                message_times=changes.message_times,
                copied=changes.copied,
            )
            try:
                await self._committer.commit(batch)
            except BaseException:
                follower.failed(changes)
                raise
        follower.committed(changes)

    async def _open_turns(self) -> list[tuple[str, Turn]]:
        sql = "SELECT f.path, o.record FROM open_turns o JOIN files f ON f.id = o.file WHERE f.source = ?"
        rows = await self._pipeline.index.rows(sql, (SOURCE,))
        return [(path, entry) for path, record in rows if isinstance(entry := decode(record), Turn)]

    # Status

    def _condition(self) -> tuple[State, str, str]:
        databases = self._databases.values()
        if self._committer.blocked:
            return "waiting", f"blocked: {self._committer.blocked}", self._committer.remedy
        if not self._has_looked and not any(one.follower.finder.waiting or one.worst for one in databases):
            return "waiting", "starting: looking for what there is", ""
        if not databases:
            return "absent", f"no database in {self._folders[0]}", ""
        if (worst := self._worst()) is not None:
            path, problem = worst
            return problem.state, f"{problem.detail}: {path}", problem.remedy
        detail = "polling " + ", ".join(one.path for one in databases)
        if skipped := [name for one in databases for name in one.follower.skipped()]:
            more = f" and {len(skipped) - 1:,} more" if len(skipped) > 1 else ""
            detail += f"; passes over {skipped[0]}{more}, since reading crashed repeatedly"
            return "polling", detail, "nothing: all other messages are recorded; please report it"
        return "polling", detail, ""

    def _worst(self) -> tuple[str, Problem] | None:
        problems = [(one.path, problem) for one in self._databases.values() if (problem := one.worst) is not None]
        return max(problems, key=lambda item: item[1].state == "degraded", default=None)

    def _progress(self) -> Progress | None:
        behind = [one for one in self._databases.values() if one.is_behind]
        fills = [one.backfill for one in behind if one.follower.finder.waiting and one.backfill.total]
        if not fills:
            return Progress(0, 0, 0.0) if behind else None
        done, total = sum(fill.done for fill in fills), sum(fill.total for fill in fills)
        seconds = max(0.001, self._clock() - min(fill.since for fill in fills))
        return Progress(min(done, total), total, done / seconds)

    def _locked(self) -> str:
        """The reason if other programs lock all unread databases, else empty."""
        behind = [one for one in self._databases.values() if one.is_behind]
        problems = [f"{one.path} is {one.problem.detail}" for one in behind if one.problem is not None]
        return "; ".join(problems) if len(problems) == len(behind) else ""

    def _pause(self, now: float) -> float:
        discovery = max(0.0, self._discover_at - now)
        return min([discovery, *(one.pause(now, self._pace) for one in self._databases.values())])

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._thread)


def make(context: SourceContext) -> Source:
    databases = named_databases(context.environ, context.user_home, context.settings.roots_of(PRODUCT))
    folder = data_folder(context.environ, context.user_home)
    options = read_options(context.settings, context.user_home)
    source = OpenCode(context.pipeline, folder, databases, options)
    source.add_roots(context.announced)
    return source
