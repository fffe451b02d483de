"""Saves the findings of a family of sessions until one of them changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from burnd.pricing import PriceTable

_NOT_COUNTED: Final = -1
# raise with every change of the rules
_RULES: Final = 5


class Family(NamedTuple):
    """A session and its descendants. `changes` is the number of changes of each."""

    root: int
    members: tuple[int, ...]
    turns: int
    is_whole: bool
    changes: tuple[int, ...]
    saved: bytes | None


class SavedFindings:
    def __init__(self, db: sqlite3.Connection, sizes: str) -> None:
        self._sizes = sizes
        self._rows: dict[int, tuple[Any, ...]] = {row[0]: row[1:] for row in db.execute(_SAVED)}

    def family(self, root: int, members: tuple[int, ...], turns: int, *, is_whole: bool) -> Family:
        rows = [self._rows.get(member, (_NOT_COUNTED, None, None, None)) for member in members]
        holds = is_whole and all(row[1] == root and row[2] == self._sizes for row in rows)
        saved = next((row[3] for member, row in zip(members, rows, strict=True) if member == root), None)
        return Family(root, members, turns, is_whole, tuple(row[0] for row in rows), saved if holds else None)


def begin(db: sqlite3.Connection) -> None:
    """Must run in a transaction, before `SavedFindings`."""
    db.execute(_BEGIN)


def save(db: sqlite3.Connection, sizes: str, families: Iterable[tuple[Family, bytes]]) -> None:
    """Skips families that changed since. Must run in a transaction."""
    for family, findings in families:
        if not family.is_whole:
            continue
        sessions = list(zip(family.members, family.changes, strict=True))
        now = dict(db.execute(_CHANGES, (msgspec.json.encode(family.members).decode(),)).fetchall())
        if all(now.get(session) == change for session, change in sessions):
            rows = [
                (family.root, sizes, findings if session == family.root else None, session) for session, _ in sessions
            ]
            db.executemany(_SAVE, rows)


def sizes_of(prices: PriceTable) -> str:
    """Saved findings are valid for this version of the rules and these price thresholds."""
    return msgspec.json.encode([_RULES, *prices.thresholds()]).decode()


_SAVED = "SELECT session, change, root, sizes, found FROM findings"
_BEGIN = "INSERT INTO findings(session) SELECT id FROM sessions WHERE id NOT IN (SELECT session FROM findings)"
_CHANGES = "SELECT session, change FROM findings WHERE session IN (SELECT value FROM json_each(?))"
_SAVE = "UPDATE findings SET root = ?, sizes = ?, found = ? WHERE session = ?"
