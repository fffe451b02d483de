"""Titles and summaries for sessions without them: from the first prompt and the last compaction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from burnd.content.recall import Recall, Spot
from burnd.harness.registry import PRODUCTS
from burnd.queries.quotes import READ_BYTES, first_words
from burnd.queries.view import View
from burnd.records import Content
from burnd.records.content import MAIN

LONGEST_SUMMARY: Final = 64 << 10  # bytes of each block, and characters in all
_LOOKED_THROUGH: Final = 64  # messages; before the first prompt there is little but what the harness says
_MOST_BLOCKS: Final = 4
_LONGEST_CHARACTER: Final = 4  # bytes: one that is cut in two is left out
# What a harness puts before a person's words: <system-reminder>, <ide_selection>.
_ASIDES: Final = re.compile(r"\s*(?:<([a-z]+[_-][a-z_-]+)>.*?</\1>\s*)+", re.DOTALL)
_ENDLESS: Final = re.compile(r"\s*<[a-z]+[_-][a-z_-]+>")
_COMMANDS: Final = [re.compile(product.command, re.DOTALL) for product in PRODUCTS if product.command]
_FIRST_PROMPTS: Final = f"""
WITH said AS MATERIALIZED (
  SELECT msg_idx, n, b, role, position, length FROM messages
  WHERE session = (SELECT id FROM sessions WHERE session_id = ?1) AND rail = '{MAIN}' AND msg_idx < {_LOOKED_THROUGH}
  AND kind = 'text' AND role IN ('user', 'system')),
asked AS (SELECT * FROM said WHERE role = 'user' ORDER BY msg_idx, n, b LIMIT {_MOST_BLOCKS}),
before AS (
  SELECT * FROM said
  WHERE role = 'system' AND msg_idx < coalesce((SELECT min(msg_idx) FROM asked), {_LOOKED_THROUGH})
  ORDER BY msg_idx, n, b LIMIT {_MOST_BLOCKS})
SELECT position, length FROM (SELECT * FROM before UNION ALL SELECT * FROM asked) ORDER BY msg_idx, n, b
"""

_LAST_COMPACTION: Final = f"""
SELECT position, length FROM messages WHERE session = ?1 AND rail = '{MAIN}' AND kind = 'summary' AND msg_idx = (
  SELECT msg_idx FROM messages WHERE session = ?1 AND rail = '{MAIN}' AND kind = 'summary'
  ORDER BY ts DESC, message_id DESC LIMIT 1)
ORDER BY n, b
"""


def name_all(view: View, recall: Recall, sessions: Sequence[dict[str, Any]]) -> None:
    """Give a title to those that have neither a title nor a summary, where their content is kept."""
    nameless = [one for one in sessions if not one["title"] and not one["summary"] and one["content"] == "yes"]
    places = [(one["sessionId"], _first_prompts(view, one["sessionId"])) for one in nameless]
    for session, found in zip(nameless, recall.records(places), strict=True):
        said = (_asked(record) for record in found if record is not None)
        session["title"] = next(filter(None, said), None)


def add_compaction_summary(view: View, recall: Recall, session: dict[str, Any]) -> None:
    """Give a session the summary of its last compaction as its own, unless a client set one."""
    found = view.rows("SELECT id, nullif(summary, '') FROM sessions WHERE session_id = ?", (session["sessionId"],))
    if not found or found[0][1] is not None:
        return
    places = [Spot(position, length, LONGEST_SUMMARY) for position, length in view.rows(_LAST_COMPACTION, found[0][:1])]
    (records,) = recall.records([(session["sessionId"], places)])
    text = "\n".join(record.text for record in records if record is not None and isinstance(record.text, str))
    if text:
        session["summary"] = text if len(text) <= LONGEST_SUMMARY else f"{text[:LONGEST_SUMMARY]}\u2026"


def _asked(record: Content) -> str | None:
    """How the words begin that a person typed, or the command that stands for them; None for what the harness says."""
    if not isinstance(record.text, str):
        return None
    if record.role != "user":
        return _command(record.text)
    aside = _ASIDES.match(record.text)
    said = record.text[aside.end() :] if aside else record.text
    is_cut = len(record.text.encode()) > READ_BYTES - _LONGEST_CHARACTER
    return None if is_cut and _ENDLESS.match(said) else first_words(said)


def _command(text: str) -> str | None:
    """A command as a person types it."""
    match = next(filter(None, (pattern.match(text) for pattern in _COMMANDS)), None)
    return first_words(f"/{match[1]} {match[2] or ''}") if match else None


def _first_prompts(view: View, session_id: str) -> list[Spot]:
    return [Spot(position, length, READ_BYTES) for position, length in view.rows(_FIRST_PROMPTS, (session_id,))]
