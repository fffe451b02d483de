"""Keeps what each prompt weighs, the heaviest first, so that these are found without weighing every prompt there is.

A weight is of tokens alone, since prices change: what turns of a class cost is at most their weight times what that
class pays for a unit of weight at most. Beside it stands in which classes, places and days the turns were.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from burnd.causes.cause import EVERY
from burnd.index.store import keyed

# What a unit of each column of `prompts.TOKENS` weighs: about as prices go, so that a bound is a close one.
UNITS: Final = (20, 100, 100, 2, 25, 40, 2_000_000)
HEAVIEST: Final = 1 << 62  # stands for all that is heavier
PromptKey = tuple[int, str]  # a session by its number, and the prompt's id in it


class Weight(NamedTuple):
    """A prompt as it is kept: its classes and places are sets, by their members; `days` is how many more than one."""

    kinds: str
    weight: int
    places: str
    day: int
    days: int
    tokens: int
    rode: int


def weights(db: sqlite3.Connection, prompts: Iterable[PromptKey]) -> dict[PromptKey, Weight]:
    """What these prompts weigh by what is counted of them now; one of which nothing is counted is left out."""
    found: dict[PromptKey, list[tuple[int, ...]]] = {}
    for session, prompt, *row in keyed(db, _ROWS, prompts):
        found.setdefault((session, prompt), []).append(tuple(row))
    return {prompt: _weight(rows) for prompt, rows in found.items()}


def _weight(rows: list[tuple[int, ...]]) -> Weight:
    kinds, places, days, weighed, tokens, rode = zip(*rows, strict=True)
    weight, first = min(sum(weighed), HEAVIEST), min(days)
    return Weight(_members(kinds), weight, _members(places), first, max(days) - first, sum(tokens), sum(rode))


def _members(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(set(numbers))))


def replace(db: sqlite3.Connection, before: Mapping[PromptKey, Weight], after: Mapping[PromptKey, Weight]) -> None:
    """Puts prompts where they belong now; `before` is how they were kept."""
    gone = {prompt: kept for prompt, kept in before.items() if after.get(prompt) != kept}
    new = {prompt: kept for prompt, kept in after.items() if before.get(prompt) != kept}
    members = sorted({text for kept in (*gone.values(), *new.values()) for text in (kept.kinds, kept.places)})
    db.executemany("INSERT OR IGNORE INTO prompt_sets(members) VALUES(?)", [(text,) for text in members])
    listed = [(text,) for text in members]
    sets: dict[str, int] = dict(keyed(db, "SELECT members, id FROM prompt_sets WHERE members IN ({keys})", listed))
    db.executemany(_FORGET, [(sets[kept.kinds], kept.weight, *prompt) for prompt, kept in gone.items()])
    db.executemany(
        "INSERT INTO prompt_weights VALUES(?,?,?,?,?,?,?,?,?)",
        sorted((sets[kept.kinds], kept.weight, *prompt, sets[kept.places], *kept[3:]) for prompt, kept in new.items()),
    )


_COLUMNS = ("input", "output", "reasoning", "cache_read", "cache_create_5m", "cache_create_1h", "searches")
_SUM = " + ".join(f"x.{name} * {unit}" for name, unit in zip(_COLUMNS, UNITS, strict=True))
# Numbers that SQLite's integers cannot hold become real ones, which are cut.
_ROWS = f"""
WITH w(session, prompt_id) AS ({{keys}})
SELECT w.session, w.prompt_id, x.class, x.place, x.day, CAST({_SUM} AS INTEGER),
       {" + ".join(f"x.{name}" for name in _COLUMNS[:-1])}, x.cache_read FROM w
CROSS JOIN prompt_sums x ON x.activity = {EVERY} AND x.session = w.session AND x.prompt_id = w.prompt_id
"""
_FORGET = "DELETE FROM prompt_weights WHERE kinds = ? AND weight = ? AND session = ? AND prompt_id = ?"
