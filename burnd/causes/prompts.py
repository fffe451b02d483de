"""Keeps what each prompt led to, summed up by day: the turns of each piece of a rail by themselves."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from burnd.causes import counting
from burnd.index.rollup import BUCKET_MS, DAY, GRAINS, SHIFT_MS

TOKENS: Final = ("input", "output", "reasoning", "cache_read", "cache_create_5m", "cache_create_1h", "searches")
NO_PROMPT: Final = ""


def count_again(db: sqlite3.Connection, pieces: Iterable[tuple[int, str, int]]) -> None:
    """Sums up the turns of these pieces (session, rail, n) as they are now, in the place of what was kept."""
    length = counting.LENGTH
    listed = [(session, rail, n, n * length, (n + 1) * length) for session, rail, n in pieces]
    db.executemany(_FORGET, [row[:3] for row in listed])
    db.executemany(_COUNT, listed)


# Found by session and prompt: a session has few prompts, and no other index needs to be kept.
_FORGET = "DELETE FROM prompt_sums WHERE session = ? AND rail = ? AND n = ?"
_COUNT = f"""
INSERT INTO prompt_sums
SELECT session, coalesce(prompt_id, '{NO_PROMPT}'), ?2, ?3, (ts + {SHIFT_MS}) / {GRAINS[DAY] * BUCKET_MS}, place, class,
       count(*), {", ".join(f"sum({name})" for name in TOKENS)}
FROM turns WHERE session = ?1 AND rail = ?2 AND turn_index >= ?4 AND turn_index < ?5 GROUP BY 1, 2, 5, 6, 7
"""
