"""What was found to be waste in a family of sessions, kept in the index until one of the family changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from burnd.pricing import PriceTable

_NOT_COUNTED: Final = -1
# What is kept was found by rules: to be raised with every change of these, so that all is looked at again.
_RULES: Final = 4


class Family(NamedTuple):
    """A session and those it started, by their rows; `kept` is what was found in it, if that still holds.

    `changes` is how often each of them had changed, `is_whole` whether all of their turns are selected.
    """

    root: int
    members: tuple[int, ...]
    turns: int
    is_whole: bool
    changes: tuple[int, ...]
    kept: bytes | None


class Kept:
    """What is kept now, and how often each session has changed."""

    def __init__(self, db: sqlite3.Connection, sizes: str) -> None:
        self._sizes = sizes
        self._rows: dict[int, tuple[Any, ...]] = {row[0]: row[1:] for row in db.execute(_KEPT)}

    def family(self, root: int, members: tuple[int, ...], turns: int, *, is_whole: bool) -> Family:
        rows = [self._rows.get(member, (_NOT_COUNTED, None, None, None)) for member in members]
        holds = is_whole and all(row[1] == root and row[2] == self._sizes for row in rows)
        found = next((row[3] for member, row in zip(members, rows, strict=True) if member == root), None)
        return Family(root, members, turns, is_whole, tuple(row[0] for row in rows), found if holds else None)


def begin(db: sqlite3.Connection) -> None:
    """From now on changes of every session are counted. To be run inside a transaction, before anything is planned."""
    db.execute(_BEGIN)


def keep(db: sqlite3.Connection, sizes: str, families: Iterable[tuple[Family, bytes]]) -> None:
    """Remembers what was found, unless one of the family has changed since. To be run inside a transaction."""
    for family, found in families:
        if not family.is_whole:
            continue
        sessions = list(zip(family.members, family.changes, strict=True))
        now = dict(db.execute(_CHANGES, (msgspec.json.encode(family.members).decode(),)).fetchall())
        if all(now.get(session) == change for session, change in sessions):
            rows = [(family.root, sizes, found if session == family.root else None, session) for session, _ in sessions]
            db.executemany(_KEEP, rows)


def sizes_of(prices: PriceTable) -> str:
    """What findings hold for: the rules, and the context sizes at which prices change, which tell rates apart."""
    return msgspec.json.encode([_RULES, *prices.thresholds()]).decode()


_KEPT = "SELECT session, change, root, sizes, found FROM findings"
_BEGIN = "INSERT INTO findings(session) SELECT id FROM sessions WHERE id NOT IN (SELECT session FROM findings)"
_CHANGES = "SELECT session, change FROM findings WHERE session IN (SELECT value FROM json_each(?))"
_KEEP = "UPDATE findings SET root = ?, sizes = ?, found = ? WHERE session = ?"
