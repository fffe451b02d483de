"""Keeps what quality is judged by: a row for each prompt that edited something, and one for how a session stands."""

from __future__ import annotations

import sqlite3

from burnd.index import cells
from burnd.index.grains import WITHIN_SESSION
from burnd.records.content import MAIN


def renew_prompts(db: sqlite3.Connection, *, revised: bool) -> None:
    """Judges the touched prompts again: their first edit says where they count, the last says how many retries."""
    before = db.execute(_JUDGED).fetchall()
    db.execute(_RENEW_PROMPTS)
    if revised:  # else turns only came
        gone = list(db.execute(_GONE_PROMPTS).fetchall())
        db.executemany("DELETE FROM prompts WHERE session = ? AND prompt_id = ?", [tuple(row) for row in gone])
    cells.add_up_prompts(db, before, db.execute(_JUDGED).fetchall())
    db.execute("DELETE FROM temp.touched")


def renew(db: sqlite3.Connection, sessions: str) -> None:
    """Looks again at when these sessions were and how they stand; `sessions` is a JSON array of numbers."""
    db.execute("DELETE FROM endings WHERE session IN (SELECT value FROM json_each(?))", (sessions,))
    db.execute(_RENEW, (sessions,))


# What was cut short or went wrong after the last turn. A retry is none of these: it says that it went on.
EVENTS_THAT_END = ("api_error", "interrupt", "no_response", "refusal")

_EDITS = "turns WHERE session = k.session AND prompt_id = k.prompt_id AND has_edits"
_RENEW_PROMPTS = f"""
INSERT OR REPLACE INTO prompts
SELECT k.session, k.prompt_id, t.id, t.ts, t.class, t.place, coalesce(t.branch, 0), coalesce(t.activity, -1),
       t.subagent, coalesce((SELECT max(prompt_retries) FROM {_EDITS}), 0)
FROM temp.touched k CROSS JOIN turns t
  ON t.id = (SELECT id FROM {_EDITS} ORDER BY prompt_retries, ts, turn_index, message_id LIMIT 1)
"""
_JUDGED = """
SELECT p.session, p.class, p.place, p.branch, p.subagent, p.activity, p.retries FROM temp.touched k
CROSS JOIN prompts p ON p.session = k.session AND p.prompt_id = k.prompt_id
"""
_GONE_PROMPTS = f"SELECT k.session, k.prompt_id FROM temp.touched k WHERE NOT EXISTS (SELECT 1 FROM {_EDITS})"

_BUCKETS = f"session_sums WHERE grain = {WITHIN_SESSION} AND session = s.value"
_RENEW = f"""
INSERT INTO endings
SELECT s.value, (SELECT min(bucket) FROM {_BUCKETS}) AS first, (SELECT max(bucket) FROM {_BUCKETS}),
       t.id, t.ts, t.class, t.place, coalesce(t.branch, 0), coalesce(t.activity, -1), t.subagent, t.quality,
       t.stop_reason,
       (SELECT f.name FROM facts f JOIN names n ON n.id = f.name
        WHERE f.session = s.value AND f.kind = 'event' AND f.rail = '{MAIN}' AND f.ts >= t.ts
          AND n.name IN ({",".join(repr(name) for name in EVENTS_THAT_END)})
        ORDER BY f.ts DESC, f.key DESC LIMIT 1)
FROM json_each(?) s LEFT JOIN turns t
  ON t.id = (SELECT id FROM turns WHERE session = s.value AND rail = '{MAIN}'
          ORDER BY turn_index DESC, ts DESC, message_id LIMIT 1)
WHERE first IS NOT NULL
"""
