"""Writes counted pieces of rails and what they change in the sums, in one transaction: a crash tears nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from burnd.causes import prompts
from burnd.causes.cause import TOOL, CauseKey, Numbered, numbered
from burnd.causes.rolling import COUNTED, Rolled
from burnd.index.store import keyed


class Piece(NamedTuple):
    """A piece of a rail as it is stored."""

    session: int
    rail: str
    n: int
    newest: str
    state: bytes | None
    counted: bytes


class Finished(NamedTuple):
    """A mark that was worked off as it stood when it had been made so many times, up to message `upto` or whole."""

    mark: int
    times: int
    upto: int | None


class Written(NamedTuple):
    """All that one transaction changes."""

    pieces: Sequence[Piece]
    gone: Sequence[tuple[int, str, int]]  # pieces that have no message any more: session, rail, n
    sums: Rolled
    finished: Sequence[Finished]


def number(db: sqlite3.Connection, keys: Iterable[CauseKey]) -> dict[CauseKey, Numbered]:
    """Gives causes their numbers; what they are about and part of comes before them."""
    wanted = set(keys)
    wholes = {key.whole for key in wanted}
    subjects = {key.subject for key in wanted | wholes} - wanted - wholes
    names = _named(db, {text for key in wanted | wholes | subjects for text in key[1:] if text})
    numbers: dict[CauseKey, Numbered] = {}
    for some in (subjects, wholes, wanted - wholes):
        numbers |= _numbered(db, sorted(some), numbers, names)
    return numbers


def _named(db: sqlite3.Connection, texts: set[str]) -> dict[str, int]:
    """The numbers of tools, targets and agents; 0 stands for none."""
    wanted = [(text,) for text in sorted(texts)]
    db.executemany("INSERT OR IGNORE INTO names(name) VALUES(?)", wanted)
    return {"": 0, **dict(keyed(db, "SELECT name, id FROM names WHERE name IN ({keys})", wanted))}


def _numbered(
    db: sqlite3.Connection, keys: Sequence[CauseKey], parts: dict[CauseKey, Numbered], names: dict[str, int]
) -> dict[CauseKey, Numbered]:
    none = Numbered(0, 0, 0, TOOL)
    found = {(key.kind, *(names[text] for text in key[1:])): key for key in keys}
    rows = [
        (*row, key.level, parts.get(key.whole, none).id, parts.get(key.subject, none).id) for row, key in found.items()
    ]
    db.executemany(_NUMBER, rows)
    return {found[tuple(row[:4])]: numbered(*row[4:]) for row in keyed(db, _NUMBERED, found)}


def write(db: sqlite3.Connection, what: Written) -> None:
    db.executemany("DELETE FROM segments WHERE session = ? AND rail = ? AND n = ?", what.gone)
    db.executemany(_KEEP, what.pieces)
    prompts.count_again(db, [*what.gone, *((piece.session, piece.rail, piece.n) for piece in what.pieces)])
    _add(db, "cause_sums", "level,grain,activity,place,bucket,cause,class", what.sums.by_time)
    _add(db, "session_causes", "level,session,subagent,cause,class,place,branch", what.sums.by_session)
    for mark, times, upto in what.finished:
        if upto is None:
            db.execute("DELETE FROM changed WHERE id = ? AND times = ?", (mark, times))
        else:
            sql = "UPDATE changed SET turn_index = ?, times = times + 1 WHERE id = ? AND times = ?"
            db.execute(sql, (upto, mark, times))


def _add(db: sqlite3.Connection, table: str, key: str, changes: Sequence[tuple[int, ...]]) -> None:
    if not changes:
        return
    marks = ",".join("?" * len(changes[0]))
    sql = f"INSERT INTO {table}({key},{','.join(COUNTED)}) VALUES({marks}) ON CONFLICT DO UPDATE SET {_GROWTH}"
    db.executemany(sql, changes)
    if any(change[-1] < 0 for change in changes):
        db.execute(f"DELETE FROM {table} WHERE n = 0")


_NUMBER = "INSERT OR IGNORE INTO causes(kind, tool, target, agent, level, whole, subject) VALUES(?,?,?,?,?,?,?)"
_NUMBERED = """
WITH w(kind, tool, target, agent) AS ({keys})
SELECT c.kind, c.tool, c.target, c.agent, c.id, c.level, c.whole, c.subject FROM w
CROSS JOIN causes c ON c.kind = w.kind AND c.tool = w.tool AND c.target = w.target AND c.agent = w.agent
"""
_KEEP = (
    "INSERT INTO segments(session, rail, n, newest, state, counted) VALUES(?,?,?,?,?,?) "
    "ON CONFLICT DO UPDATE SET newest = excluded.newest, state = excluded.state, counted = excluded.counted"
)
_GROWTH = ",".join(f"{name} = {name} + excluded.{name}" for name in COUNTED)
