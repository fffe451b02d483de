"""Keeps what each prompt led to, summed up by day and activity: the turns of each piece of a rail by themselves."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from burnd.causes import counting, prompt_weights
from burnd.causes.cause import EVERY
from burnd.causes.prompt_weights import PromptKey
from burnd.index.grains import BUCKET_MS, DAY, GRAINS, NO_ACTIVITY, SHIFT_MS

TOKENS: Final = ("input", "output", "reasoning", "cache_read", "cache_create_5m", "cache_create_1h", "searches")
NO_PROMPT: Final = ""


def count_again(db: sqlite3.Connection, pieces: Iterable[tuple[int, str, int]]) -> None:
    """Sums up the turns of these pieces (session, rail, n) as they are now, in the place of what was kept."""
    length = counting.LENGTH
    listed = [(session, rail, n, n * length, (n + 1) * length) for session, rail, n in pieces]
    touched = sorted({prompt for piece in listed for prompt in _prompts(db, piece)})
    before = prompt_weights.weights(db, touched)
    known = ",".join(str(activity) for (activity,) in db.execute(_ACTIVITIES) if activity is not None)
    db.executemany(_FORGET.format(known=known), [row[:3] for row in listed])
    for activity in (EVERY, f"coalesce(activity, {NO_ACTIVITY})"):
        db.executemany(_COUNT.format(activity=activity), listed)
    prompt_weights.replace(db, before, prompt_weights.weights(db, touched))


def _prompts(db: sqlite3.Connection, piece: tuple[int, str, int, int, int]) -> Iterable[PromptKey]:
    """Those that were or are worked on in a piece."""
    session, rail, n, begin, end = piece
    for (prompt,) in db.execute(_TOUCHED, {"session": session, "rail": rail, "n": n, "begin": begin, "end": end}):
        yield session, prompt


_TOUCHED = f"""
SELECT prompt_id FROM turns WHERE session = :session AND rail = :rail AND turn_index >= :begin AND turn_index < :end
  AND prompt_id <> '{NO_PROMPT}'
UNION SELECT prompt_id FROM prompt_sums WHERE activity = {EVERY} AND session = :session AND rail = :rail AND n = :n
  AND prompt_id <> '{NO_PROMPT}'
"""
# Found by activity, session and prompt: there are few of them in a session, and no other index needs to be kept.
_FORGET = "DELETE FROM prompt_sums WHERE activity IN ({known}) AND session = ? AND rail = ? AND n = ?"
_ACTIVITIES = """
WITH RECURSIVE a(id) AS (SELECT min(activity) FROM prompt_sums UNION ALL
  SELECT (SELECT min(activity) FROM prompt_sums WHERE activity > a.id) FROM a WHERE a.id IS NOT NULL)
SELECT id FROM a
"""
_COUNT = f"""
INSERT INTO prompt_sums
SELECT {{activity}}, session, coalesce(prompt_id, '{NO_PROMPT}'), ?2, ?3, (ts + {SHIFT_MS}) / {GRAINS[DAY] * BUCKET_MS},
       place, class, coalesce(branch, 0), subagent, count(*), {", ".join(f"sum({name})" for name in TOKENS)}
FROM turns WHERE session = ?1 AND rail = ?2 AND turn_index >= ?4 AND turn_index < ?5 GROUP BY 1, 3, 6, 7, 8, 9, 10
"""
