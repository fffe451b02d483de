"""Which database tells of a session that several hold: the first that knows it, also while that cannot be asked."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from burnd.harness.opencode.database import Disturbed
from burnd.harness.opencode.queries import error_name, is_lock
from burnd.harness.opencode.schema import Unsupported

Ids = frozenset[str]
PATIENCE_S = 60.0  # a lock is mostly short; what is in another database must not wait for one that is not


class Holder(Protocol):
    """A database that may know a session."""

    key: str

    def ids_of(self, session_id: str) -> Ids | None: ...

    def has_seen(self, session_id: str) -> bool: ...


class Precedence:
    """The databases whose word on a session counts more than that of the one that asks."""

    def __init__(self, counts: Counter[str]) -> None:
        self.above: Sequence[Holder] = ()
        self._counts = counts
        self._locked_since: dict[str, float] = {}
        self._found_locked: dict[str, float] = {}

    def told_above(self, session_id: str, known: Ids | None, now: float) -> Ids | None:
        """The messages of a session that databases above tell of; None where none of them knows it.

        Raises Disturbed while one of them is locked. Of one that is so for long, or cannot be read at all, what was
        `known` before stands: it tells of nothing itself meanwhile, so what is new here must not be lost over it.
        """
        told = [self._ask(database, session_id, known, now) for database in self.above]
        held = [ids for ids in told if ids is not None]
        return frozenset().union(*held) if held else None

    def _ask(self, database: Holder, session_id: str, known: Ids | None, now: float) -> Ids | None:
        if self._found_locked.get(database.key) != now:  # waiting for a lock once in each reading is enough
            try:
                ids = database.ids_of(session_id)
            except FileNotFoundError:
                return None
            except (OSError, sqlite3.Error, Disturbed, Unsupported) as error:
                if not _passes(error):
                    return self._go_without(database, session_id, known, _name(error))
                self._found_locked[database.key] = now
                self._locked_since.setdefault(database.key, now)
            else:
                self._locked_since.pop(database.key, None)
                return ids
        if now - self._locked_since[database.key] < PATIENCE_S:
            raise Disturbed
        return self._go_without(database, session_id, known, "locked")

    def _go_without(self, database: Holder, session_id: str, known: Ids | None, reason: str) -> Ids | None:
        """What was known of its messages, or, where nobody remembers, that it knew the session."""
        self._counts[f"readings without another database's word ({reason})"] += 1
        return known or (frozenset() if database.has_seen(session_id) else None)


def _passes(error: Exception) -> bool:
    return isinstance(error, Disturbed) or (isinstance(error, sqlite3.Error) and is_lock(error))


def _name(error: Exception) -> str:
    return error_name(error) if isinstance(error, sqlite3.Error) else type(error).__name__
