"""Keeps what each prompt led to, summed up by day and activity: the turns of each piece of a rail by themselves."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from operator import add
from typing import Any, Final

from burnd.causes import counting, prompt_weights
from burnd.causes.cause import EVERY
from burnd.causes.prompt_weights import PromptKey
from burnd.index.grains import BUCKET_MS, DAY, GRAINS, NO_ACTIVITY, SHIFT_MS

TOKENS: Final = ("input", "output", "reasoning", "cache_read", "cache_create_5m", "cache_create_1h", "searches")
NO_PROMPT: Final = ""


def count_again(db: sqlite3.Connection, pieces: Iterable[tuple[int, str, int]]) -> None:
    """Sums up the turns of these pieces (session, rail, n) as they are now, in the place of what was kept."""
    counted = {piece: _counted(db, piece) for piece in pieces}
    touched = sorted({prompt for piece, sums in counted.items() for prompt in _prompts(db, piece, sums)})
    before = prompt_weights.weights(db, touched)
    known = ",".join(str(activity) for (activity,) in db.execute(_ACTIVITIES) if activity is not None)
    db.executemany(_FORGET.format(known=known), list(counted))
    db.executemany(_KEEP, sorted((*key, *sums) for made in counted.values() for key, sums in made.items()))
    prompt_weights.replace(db, before, prompt_weights.weights(db, touched))


def _counted(db: sqlite3.Connection, piece: tuple[int, str, int]) -> _Sums:
    """What the turns of a piece paid, by prompt, day and what else tells them apart; each also among all activities."""
    session, rail, n = piece
    sums: _Sums = {}
    turns = db.execute(_TURNS, (session, rail, n * counting.LENGTH, (n + 1) * counting.LENGTH))
    for activity, prompt, day, place, kind, branch, subagent, *counts in turns:
        for way in (EVERY, activity):
            key = (way, session, prompt, rail, n, day, place, kind, branch, subagent)
            before = sums.get(key)
            sums[key] = counts if before is None else list(map(add, before, counts))
    return sums


def _prompts(db: sqlite3.Connection, piece: tuple[int, str, int], sums: _Sums) -> set[PromptKey]:
    """Those that were or are worked on in a piece."""
    kept = {prompt for (prompt,) in db.execute(_KEPT, piece)}
    return {(piece[0], prompt) for prompt in kept | {key[2] for key in sums} if prompt != NO_PROMPT}


_Sums = dict[tuple[Any, ...], list[int]]  # by the key of `prompt_sums`: how many turns, and their tokens
_KEPT = f"SELECT DISTINCT prompt_id FROM prompt_sums WHERE activity = {EVERY} AND session = ? AND rail = ? AND n = ?"
# Found by activity, session and prompt: there are few of them in a session, and no other index needs to be kept.
_FORGET = "DELETE FROM prompt_sums WHERE activity IN ({known}) AND session = ? AND rail = ? AND n = ?"
_ACTIVITIES = """
WITH RECURSIVE a(id) AS (SELECT min(activity) FROM prompt_sums UNION ALL
  SELECT (SELECT min(activity) FROM prompt_sums WHERE activity > a.id) FROM a WHERE a.id IS NOT NULL)
SELECT id FROM a
"""
_TURNS = f"""
SELECT coalesce(activity, {NO_ACTIVITY}), coalesce(prompt_id, '{NO_PROMPT}'),
       (ts + {SHIFT_MS}) / {GRAINS[DAY] * BUCKET_MS} AS day, place, class, coalesce(branch, 0), subagent,
       count(*), {", ".join(f"sum({name})" for name in TOKENS)}
FROM turns WHERE session = ? AND rail = ? AND turn_index >= ? AND turn_index < ?
GROUP BY activity, prompt, day, place, class, branch, subagent
"""
_KEEP = f"INSERT INTO prompt_sums VALUES({','.join('?' * (11 + len(TOKENS)))})"
