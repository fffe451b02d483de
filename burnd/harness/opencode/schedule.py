"""Decides when to check a database for changes, and when to retry after a problem."""

from __future__ import annotations

import msgspec

from burnd.harness.opencode.database import Signature, Unsupported, error_name, is_lock
from burnd.harness.opencode.follower import DatabaseFollower
from burnd.recording.source import Backfill, State

_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_QUICK_TRIES = 10
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 60.0
_DAMAGED_RETRY_S = 300.0
_CHANGED_RETRY_S = 2.0  # for a damaged database that has changed
_MANY_SESSIONS = 50  # more than live agents write at once


class Pace(msgspec.Struct, frozen=True):
    """Intervals in seconds."""

    tick: float = 0.1  # between two looks at the file system
    idle_tick: float = 1.0  # the same after `idle_after` without a change
    idle_after: float = 30.0
    discover: float = 5.0  # between two searches for databases
    scan: float = 2.0  # between two comparisons of all sessions, while something changes
    rest: float = 1.0  # without a change until the connection is closed
    doubt: float = 30.0  # between two scans even if the file system shows no change


class Problem(msgspec.Struct, frozen=True):
    """Why a database is not read, and what the file looked like then.

    It is tried again at `until`, or from `on_change` on if the file has changed: it may have been restored.
    """

    state: State
    detail: str
    remedy: str = ""
    until: float = 0.0
    tries: int = 0
    on_change: float = float("inf")
    signature: Signature | None = None

    def is_over(self, now: float, signature: Signature) -> bool:
        """Whether to try again. Another file in its place is always tried."""
        if self.signature is None or self.signature.identity != signature.identity:
            return True
        return now >= self.until or (now >= self.on_change and self.signature != signature)


class ScheduledDatabase:
    """A database and when to look at it again. `problem` concerns all of it, `damage` only some rows."""

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
        """Whether sums are incomplete: readable rows are unread, or many sessions wait."""
        if self.problem is not None and self.problem.state == "degraded":
            return False
        return not self.follower.caught_up or len(self.follower.finder.waiting) > _MANY_SESSIONS

    @property
    def worst(self) -> Problem | None:
        """What is wrong with the database, if anything."""
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
        """Whether it changed so recently that the connection is kept."""
        return now - self.changed_at < pace.rest

    def pause(self, now: float, pace: Pace) -> float:
        """How long to wait before the next look."""
        if now - self.changed_at < pace.idle_after or self.follower.due is not None:
            return pace.tick
        until = self.problem.until - now if self.problem is not None else pace.idle_tick
        return min(pace.idle_tick, max(pace.tick, until))


def problem_of(error: Exception, before: Problem | None, now: float) -> Problem:
    """The problem behind an error; `before` counts the tries so far."""
    if isinstance(error, Unsupported):
        remedy, until = "update burnd, if opencode is newer than it", now + _LAST_RETRY_S
        return Problem("degraded", f"unsupported opencode schema ({error})", remedy, until, 1, on_change=now)
    name = error_name(error)
    tries = before.tries + 1 if before is not None else 1
    # A lock is mostly short: try every second at first, then ever less often.
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
