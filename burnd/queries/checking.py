"""Whether a message really says what was asked for: phrases, and words by who is asked for. Bounded in what it reads.

The search index knows words, and messages as wholes. So this is seen in the text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from burnd.content.recall import Recall, Spot
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.queries.view import View
from burnd.records import Content
from burnd.search.documents import Place, narrowed
from burnd.search.passages import Spotter
from burnd.search.query import Only, Wanted
from burnd.tokens.record_words import strings

# Where nothing was found yet, it is worth more time.
_MOST_READ_CHARS, _SOON_S, _LATE_S = 64 << 20, 0.008, 0.04
_EDGE: Final = "\n"


_Records = list[tuple[int, int, str]]  # of a message: where each stands, how long it is, by whom


class Check:
    """Looks into messages, as many as are worth it."""

    def __init__(self, view: View, recall: Recall, spotter: Spotter, wanted: Wanted, only: Only, pages: int) -> None:
        self._view, self._recall, self._spotter, self._only = view, recall, spotter, only
        self._pages = pages
        self._has_phrases = bool(wanted.phrases)
        self._read_chars = 0
        self._spent = 0.0
        self._passed = 0

    @property
    def is_needed(self) -> bool:
        return self._has_phrases or self._only.has_author

    @property
    def gave_up(self) -> bool:
        """Whether too many messages had the words to look into every one."""
        most = _SOON_S if self._passed else _LATE_S
        return self._read_chars >= _MOST_READ_CHARS * self._pages or self._spent > most * self._pages

    def passed(self, places: Sequence[Place]) -> Sequence[Place]:
        """Those of the messages that really say it, and titles, into which others look."""
        if not self.is_needed:
            return places
        begun = time.thread_time()
        records = self._records([place for place in places if place.message_id])
        unsure = [place for place, own in records.items() if self._has_phrases or not self._is_certain(own)]
        spots = [(place.session_id, [Spot(row[0], row[1]) for row in records[place]]) for place in unsure]
        wrong = {
            place
            for place, found in zip(unsure, self._recall.records(spots), strict=True)
            if not self._says([record for record in found if record is not None])
        }
        self._passed += len(unsure) - len(wrong)
        self._spent += time.thread_time() - begun
        return [place for place in places if place not in wrong]

    def _records(self, places: Sequence[Place]) -> dict[Place, _Records]:
        records: dict[Place, _Records] = {}
        for session_id, rail, message_id, *record in self._view.keyed(_RECORDS, places):
            records.setdefault(Place(session_id, rail, message_id), []).append(tuple(record))
        return records

    def _says(self, records: Sequence[Content]) -> bool:
        """Whether the phrases stand in a message, and who is asked for said one of the words."""
        text = _EDGE.join(text for record in narrowed(records, self._only) for text in strings(record))
        self._read_chars += len(text)
        return self._spotter.has_phrases(text) and (self._has_phrases or bool(self._spotter.spots(text)))

    def _is_certain(self, rows: _Records) -> bool:
        """A message that is all by one, or is one record: then what the index says of it is exact."""
        return len(rows) == 1 or (self._only.tool is None and len({role for _, _, role in rows}) == 1)


_RECORDS = f"""
WITH wanted(session_id, rail, message_id) AS ({{keys}})
SELECT w.session_id, w.rail, w.message_id, max(m.position), m.length, m.role FROM wanted w
CROSS JOIN sessions s ON s.session_id = w.session_id
CROSS JOIN {MESSAGES_BY_ID} ON m.session = s.id AND {is_message("w.message_id")} AND m.rail = w.rail
GROUP BY w.session_id, w.rail, w.message_id, m.n, m.b ORDER BY w.session_id, w.rail, w.message_id, m.n, m.b
"""
