"""What is known of whole sessions by activity, packed: one value for all activities of a session.

All counts of a cell are the digits of one large number. Numbers that long are added as quickly as short ones, so a
report over every session adds each cell as a whole, where SQLite would sort a row for each of them.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Any, TypeVar

from burnd.index.store import keyed, many

T = TypeVar("T")
Key = tuple[int, ...]  # session, class, place, branch, subagent
Grown = defaultdict[Key, defaultdict[T, int]]
_WIDTHS = (4, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4)  # in bytes, of what is counted: sums over all there is must fit
_SHIFTS = tuple(8 * sum(_WIDTHS[:n]) for n in range(len(_WIDTHS)))
_LENGTH = sum(_WIDTHS)
_COUNTS = Struct("<I7Q4I")
_CELL = Struct(f"<i{_LENGTH}s")  # an activity and its number
_PROMPTS = Struct("<iQI")


def mark_of(activity: int) -> bytes:
    """What stands in a packed value that has a cell of this activity."""
    return activity.to_bytes(4, "little", signed=True)


def cells_in(packed: bytes) -> Iterator[tuple[int, bytes]]:
    """Every activity with its number, which `int.from_bytes(number, "little")` makes one to add with."""
    return _CELL.iter_unpack(packed)


def counts_of(number: int) -> tuple[int, ...]:
    """What is counted, as `rollup.COUNTED` names it."""
    return _COUNTS.unpack(number.to_bytes(_LENGTH, "little"))


def prompts_in(packed: bytes) -> Iterator[tuple[int, int, int]]:
    """Activities, retries, and how many prompts with edits took that many."""
    return _PROMPTS.iter_unpack(packed)


def add_up(db: sqlite3.Connection, moved: Iterable[Key]) -> None:
    """Takes in rows of a key, an activity and counts, which are below zero where turns left."""
    grown: Grown[int] = defaultdict(lambda: defaultdict(int))
    for row in moved:
        grown[row[:5]][row[5]] += sum(count << shift for count, shift in zip(row[6:], _SHIFTS, strict=True))
    for key, packed in _kept(db, "session_cells", grown):
        for activity, number in cells_in(packed):
            grown[key][activity] += int.from_bytes(number, "little")
    _keep(db, "session_cells", grown, lambda activity, number: _CELL.pack(activity, number.to_bytes(_LENGTH, "little")))


def add_up_prompts(db: sqlite3.Connection, gone: Iterable[Key], come: Iterable[Key]) -> None:
    """Takes in prompts that are judged otherwise than before: rows of a key, an activity and retries."""
    grown: Grown[tuple[int, int]] = defaultdict(lambda: defaultdict(int))
    for rows, change in ((gone, -1), (come, 1)):
        for row in rows:
            *where, activity, retries = row
            grown[tuple(where)][activity, retries] += change
    for key in [key for key, counts in grown.items() if not any(counts.values())]:
        del grown[key]
    for key, packed in _kept(db, "session_prompts", grown):
        for activity, retries, count in prompts_in(packed):
            grown[key][activity, retries] += count
    _keep(db, "session_prompts", grown, lambda cell, count: _PROMPTS.pack(*cell, count))


def _kept(db: sqlite3.Connection, table: str, keys: Iterable[Key]) -> list[tuple[Key, bytes]]:
    return [(row[:-1], row[-1]) for row in keyed(db, _FIND.format(table=table, keys="{keys}"), keys)]


def _keep(db: sqlite3.Connection, table: str, grown: Grown[Any], pack: Callable[[Any, int], bytes]) -> None:
    """Writes down what there is now, without the cells of which nothing is left."""
    packed = [
        (*key, b"".join([pack(cell, cells[cell]) for cell in sorted(cells) if cells[cell]]))
        for key, cells in grown.items()
    ]
    many(db, f"INSERT OR REPLACE INTO {table} VALUES(?,?,?,?,?,?)", [row for row in packed if row[-1]])
    many(db, f"DELETE FROM {table} WHERE {_SAME}", [row[:-1] for row in packed if not row[-1]])


_COLUMNS = ("session", "class", "place", "branch", "subagent")
_NAMED = ",".join(_COLUMNS)
_SAME = " AND ".join(f"{name} = ?" for name in _COLUMNS)
_FIND = (
    f"WITH w({_NAMED}) AS ({{keys}}) SELECT c.* FROM w "
    f"CROSS JOIN {{table}} c ON {' AND '.join(f'c.{name} = w.{name}' for name in _COLUMNS)}"
)
