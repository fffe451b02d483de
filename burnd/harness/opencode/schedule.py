"""A database of opencode's and when to look at it: how often, after what trouble, and how far a first reading is."""

from __future__ import annotations

import sqlite3

import msgspec

from burnd.harness.opencode.database import Signature
from burnd.harness.opencode.follower import DatabaseFollower
from burnd.harness.opencode.queries import error_name, is_lock
from burnd.harness.opencode.schema import Unsupported
from burnd.recording.backfill import Backfill
from burnd.recording.source import State

_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_PATIENT_TRIES = 10
_FIRST_S, _LAST_S = 1.0, 60.0
_DAMAGED_S = 300.0
MANY_SESSIONS = 50  # more than live agents write at once
_CHANGED_S = 2.0  # the pause before a changed database is tried again


class Pace(msgspec.Struct, frozen=True):
    """How often what is looked at, in seconds."""

    tick: float = 0.1  # is anything new, by the file system's word
    idle_tick: float = 1.0  # the same when nothing was for a while
    idle_after: float = 30.0
    discover: float = 5.0  # are there other databases
    scan: float = 2.0  # between two looks at every session, while something changes
    rest: float = 1.0  # without a change until the connection is given up
    doubt: float = 30.0  # between two looks though the file system says that nothing changed


class Trouble(msgspec.Struct, frozen=True):
    """Why a database is not polled; `signature` is what the file looked like then.

    It is tried again at `until`, or from `on_change` on if the file has changed: it may have been restored.
    """

    state: State
    detail: str
    remedy: str = ""
    until: float = 0.0
    tries: int = 0
    on_change: float = float("inf")
    signature: Signature | None = None

    def is_over(self, now: float, found: Signature) -> bool:
        """Whether it is worth another try. Another file in its place always is."""
        if self.signature is None or self.signature.identity != found.identity:
            return True
        return now >= self.until or (now >= self.on_change and self.signature != found)


class ScheduledDatabase:
    """A database and when to look at it again."""

    def __init__(self, follower: DatabaseFollower) -> None:
        self.follower = follower
        self.signature: Signature | None = None
        self.changed_at = float("-inf")
        self.scanned_at = float("-inf")
        self.unscanned = True
        self.looked_at = float("-inf")
        self.noticed_at: float | None = None
        self.trouble: Trouble | None = None
        self.damage: Trouble | None = None  # of some rows only: the others are read on
        self.backfill = Backfill()

    @property
    def is_behind(self) -> bool:
        """Whether sums are incomplete: readable rows are unread, or many sessions wait."""
        if self.trouble is not None and self.trouble.state == "degraded":
            return False
        return not self.follower.caught_up or self.follower.waiting > MANY_SESSIONS

    def is_due(self, now: float, pace: Pace, signature: Signature) -> bool:
        """Whether to look now. In trouble only when it is time, or when the trouble may be over."""
        if self.trouble is not None and not self.trouble.is_over(now, signature):
            return False
        if self.trouble is not None or signature != self.signature or self.is_hot(now, pace):
            return True
        return now - self.looked_at >= pace.doubt or self.wants_scan(now, pace) or self.is_worth_a_try(now, signature)

    def is_worth_a_try(self, now: float, signature: Signature) -> bool:
        """Whether what could not be read may be readable by now."""
        return self.damage is not None and self.damage.is_over(now, signature)

    def is_hot(self, now: float, pace: Pace) -> bool:
        """Whether it changed so lately that the next change is waited for with an open connection."""
        return now - self.changed_at < pace.rest

    def rests(self, now: float, pace: Pace) -> float:
        """For how long it can be left alone: not long where something goes on, or where trouble may be over soon."""
        if now - self.changed_at < pace.idle_after or self.follower.due is not None:
            return pace.tick
        until = self.trouble.until - now if self.trouble is not None else pace.idle_tick
        return min(pace.idle_tick, max(pace.tick, until))

    def wants_scan(self, now: float, pace: Pace) -> bool:
        return (self.unscanned and now - self.scanned_at >= pace.scan) or now - self.scanned_at >= pace.doubt

    def wrong(self) -> Trouble | None:
        """What is wrong with it, if anything; that there are rows which are not read yet is said loudly."""
        found = self.trouble or self.damage
        if found is not None or not self.follower.coming:
            return found
        tables = ", ".join(self.follower.coming)
        detail = f"holds sessions in opencode's coming format ({tables}), which are NOT READ yet"
        return Trouble("degraded", detail, "update burnd")


def trouble_of(error: Exception, before: Trouble | None, now: float) -> Trouble:
    """What an error comes to; `before` tells how often it was tried already."""
    if isinstance(error, Unsupported):
        remedy = "update burnd, if opencode is newer than it"
        return Trouble("degraded", f"unsupported opencode schema ({error})", remedy, now + _LAST_S, 1, on_change=now)
    name = error_name(error) if isinstance(error, sqlite3.Error) else type(error).__name__
    tries = before.tries + 1 if before is not None else 1
    if isinstance(error, sqlite3.Error) and is_lock(error):
        return Trouble("waiting", f"locked by another program ({name})", "", now + _delay(tries), tries)
    if name.startswith(_DAMAGED):
        return damage(name, now)
    remedy = "see that burnd may read it"
    return Trouble("degraded", f"cannot be read ({name})", remedy, now + _delay(tries), tries, on_change=now)


def damage(name: str, now: float) -> Trouble:
    """The trouble of unreadable rows: they are tried again after a while, or soon after a change."""
    detail, remedy = f"a session of it cannot be understood ({name})", "report it"
    if name.startswith("SQLITE_"):
        detail = f"damaged ({name})"
        remedy = "restore it from a backup, or let opencode create it again; readable rows are recorded"
    return Trouble("degraded", detail, remedy, now + _DAMAGED_S, on_change=now + _CHANGED_S)


def _delay(tries: int) -> float:
    """A second for the first tries, then ever longer: a lock is mostly short."""
    return min(_LAST_S, _FIRST_S * float(2 ** min(10, max(0, tries - _PATIENT_TRIES))))
