"""A database of opencode's and when to look at it: how often, after what trouble, and how far a first reading is."""

from __future__ import annotations

import msgspec

from burnd.sources.opencode_db import Signature
from burnd.sources.opencode_follower import Follower
from burnd.sources.opencode_trouble import Trouble


class Pace(msgspec.Struct, frozen=True):
    """How often what is looked at, in seconds."""

    tick: float = 0.1  # is anything new, by the file system's word
    idle_tick: float = 1.0  # the same when nothing was for a while
    idle_after: float = 30.0
    discover: float = 5.0  # are there other databases
    scan: float = 2.0  # between two looks at every session, while something changes
    rest: float = 1.0  # without a change until the connection is given up
    doubt: float = 30.0  # between two looks though the file system says that nothing changed


class Backfill(msgspec.Struct):
    """How far the first reading of a database has come, in bytes."""

    done: int = 0
    total: int = 0
    since: float = 0.0
    told: float = 0.0


class Attended:
    """A database and when to look at it again."""

    def __init__(self, follower: Follower) -> None:
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

    def is_due(self, now: float, pace: Pace, signature: Signature) -> bool:
        """Whether to look now. In trouble only when it is time, or when the trouble may be over."""
        if self.trouble is not None and not self.trouble.is_over(now, self.signature, signature):
            return False
        if self.trouble is not None or signature != self.signature or self.is_hot(now, pace):
            return True
        return now - self.looked_at >= pace.doubt or self.wants_scan(now, pace) or self.is_worth_a_try(now, signature)

    def is_worth_a_try(self, now: float, signature: Signature) -> bool:
        """Whether what could not be read may be readable by now."""
        return self.damage is not None and self.damage.is_over(now, self.signature, signature)

    def is_hot(self, now: float, pace: Pace) -> bool:
        """Whether it changed so lately that the next change is waited for with an open connection."""
        return now - self.changed_at < pace.rest

    def rests(self, now: float, pace: Pace) -> float:
        """For how long it can be left alone: not long where something goes on, or where trouble may be over soon."""
        if now - self.changed_at < pace.idle_after:
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
