"""What sessions are called that nobody named: how the first prompt in each of them begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from burnd.content.recall import Recall, Spot
from burnd.queries.quotes import READ_BYTES, first_words
from burnd.queries.view import View
from burnd.records.content import MAIN

_LOOKED_THROUGH: Final = 64  # messages; before the first prompt there is little but what the harness says
_FIRST_PROMPT: Final = f"""
SELECT position, length FROM messages WHERE session = (SELECT id FROM sessions WHERE session_id = ?1)
AND rail = '{MAIN}' AND msg_idx < {_LOOKED_THROUGH} AND role = 'user' AND kind = 'text' ORDER BY msg_idx, n, b LIMIT 1
"""


def name_all(view: View, recall: Recall, sessions: Sequence[dict[str, Any]]) -> None:
    """Give a title to those that have neither a title nor a summary, where their content is kept."""
    nameless = [one for one in sessions if not one["title"] and not one["summary"] and one["content"] == "yes"]
    places = [(one["sessionId"], _first_prompt(view, one["sessionId"])) for one in nameless]
    for session, found in zip(nameless, recall.records(places), strict=True):
        said = [first_words(record.text) for record in found if record is not None]
        session["title"] = said[0] if said else session["title"]


def _first_prompt(view: View, session_id: str) -> list[Spot]:
    return [Spot(position, length, READ_BYTES) for position, length in view.rows(_FIRST_PROMPT, (session_id,))]
