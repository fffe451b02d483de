"""What can be wrong with a database of opencode's: what to call it, what to do about it, when to try again."""

from __future__ import annotations

import sqlite3

import msgspec

from burnd.sources.base import State
from burnd.sources.opencode_db import Signature
from burnd.sources.opencode_queries import error_name
from burnd.sources.opencode_schema import Unsupported

_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_PATIENT_TRIES = 10
_FIRST_S, _LAST_S = 1.0, 60.0
_DAMAGED_S = 300.0


class Trouble(msgspec.Struct, frozen=True):
    """A state other than polling. It may be over at `until`, or with `any_change` when the file changes."""

    state: State
    detail: str
    remedy: str = ""
    until: float = 0.0
    tries: int = 0
    any_change: bool = False

    def is_over(self, now: float, before: Signature | None, after: Signature) -> bool:
        """Whether it is worth another try. Another file in its place always is."""
        if before is None or before.identity != after.identity:
            return True
        return now >= self.until or (self.any_change and before != after)


def trouble_of(error: Exception, before: Trouble | None, now: float) -> Trouble:
    """What an error comes to; `before` tells how often it was tried already."""
    if isinstance(error, Unsupported):
        remedy = "update burnd, if opencode is newer than it"
        return Trouble("degraded", f"unsupported opencode schema: {error}", remedy, now + _LAST_S, 1, any_change=True)
    name = error_name(error) if isinstance(error, sqlite3.Error) else type(error).__name__
    tries = before.tries + 1 if before is not None else 1
    if name.startswith(_LOCKED):
        return Trouble("waiting", f"locked by another program ({name})", "", now + _delay(tries), tries)
    if name.startswith(_DAMAGED):
        return damage(name, now)
    remedy = "see that burnd may read it"
    return Trouble("degraded", f"cannot be read ({name})", remedy, now + _delay(tries), tries, any_change=True)


def damage(name: str, now: float) -> Trouble:
    """Something in it cannot be read, by SQLite's word or our own; it is not worth trying all the time."""
    if not name.startswith("SQLITE_"):
        return Trouble("degraded", f"a session of it cannot be understood ({name})", "report it", now + _DAMAGED_S)
    remedy = "restore it from a backup, or let opencode make it anew; what can be read is recorded"
    return Trouble("degraded", f"damaged ({name})", remedy, now + _DAMAGED_S)


def _delay(tries: int) -> float:
    """A second for the first tries, then ever longer: a lock is mostly short."""
    return min(_LAST_S, _FIRST_S * float(2 ** min(10, max(0, tries - _PATIENT_TRIES))))
