"""What sessions are called that nobody named: how the first prompt in each of them begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from burnd.content.recall import Recall, Spot
from burnd.queries.quotes import READ_BYTES, first_words
from burnd.queries.view import View
from burnd.records import Content
from burnd.records.content import MAIN

_LOOKED_THROUGH: Final = 64  # messages; before the first prompt there is little but what the harness says
_MOST_BLOCKS: Final = 4
_LONGEST_CHARACTER: Final = 4  # bytes: one that is cut in two is left out
# What a harness puts before a person's words: <system-reminder>, <ide_selection>.
_ASIDES: Final = re.compile(r"\s*(?:<([a-z]+[_-][a-z_-]+)>.*?</\1>\s*)+", re.DOTALL)
_ENDLESS: Final = re.compile(r"\s*<[a-z]+[_-][a-z_-]+>")
_FIRST_PROMPTS: Final = f"""
SELECT position, length FROM messages WHERE session = (SELECT id FROM sessions WHERE session_id = ?1)
AND rail = '{MAIN}' AND msg_idx < {_LOOKED_THROUGH} AND role = 'user' AND kind = 'text'
ORDER BY msg_idx, n, b LIMIT {_MOST_BLOCKS}
"""


def name_all(view: View, recall: Recall, sessions: Sequence[dict[str, Any]]) -> None:
    """Give a title to those that have neither a title nor a summary, where their content is kept."""
    nameless = [one for one in sessions if not one["title"] and not one["summary"] and one["content"] == "yes"]
    places = [(one["sessionId"], _first_prompts(view, one["sessionId"])) for one in nameless]
    for session, found in zip(nameless, recall.records(places), strict=True):
        said = (_asked(record) for record in found if record is not None)
        session["title"] = next(filter(None, said), None)


def _asked(record: Content) -> str | None:
    """How the words begin that a person typed."""
    if not isinstance(record.text, str):
        return None
    aside = _ASIDES.match(record.text)
    said = record.text[aside.end() :] if aside else record.text
    is_cut = len(record.text.encode()) > READ_BYTES - _LONGEST_CHARACTER
    return None if is_cut and _ENDLESS.match(said) else first_words(said)


def _first_prompts(view: View, session_id: str) -> list[Spot]:
    return [Spot(position, length, READ_BYTES) for position, length in view.rows(_FIRST_PROMPTS, (session_id,))]
