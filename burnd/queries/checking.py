"""Whether a message really says what was asked for: phrases, and words by who is asked for. Bounded in what it reads.

The search index knows words, and messages as wholes. So this is seen in the text.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from burnd.content.recall import Recall, Spot
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.queries.view import View
from burnd.search.documents import narrowed, strings
from burnd.search.passages import Spotter
from burnd.search.wanted import Only, Wanted

# Where nothing was found yet, it is worth more time.
_MOST_READ_CHARS, _SOON_S, _LATE_S = 64 << 20, 0.008, 0.04
_EDGE: Final = "\n"

Key = tuple[int, str, str]  # a session's row, a message, a rail


class Check:
    """Looks into messages, as many as are worth it."""

    def __init__(self, view: View, recall: Recall, spotter: Spotter, wanted: Wanted, only: Only) -> None:
        self._view, self._recall, self._spotter, self._only = view, recall, spotter, only
        self._has_phrases = bool(wanted.phrases)
        self._records: dict[Key, list[tuple[int, int, str]]] = {}
        self._texts: dict[Key, str] = {}
        self._read_chars = 0
        self._spent = 0.0
        self._passed = 0

    @property
    def is_needed(self) -> bool:
        return self._has_phrases or self._only.is_by_somebody

    @property
    def gave_up(self) -> bool:
        """Whether too many messages had the words to look into every one."""
        return self._read_chars >= _MOST_READ_CHARS or self._spent > (_SOON_S if self._passed else _LATE_S)

    def prepare(self, keys: Iterable[Key], sessions: Mapping[int, str]) -> None:
        """Reads what is to be looked into of these messages."""
        if not self.is_needed:
            return
        begun = time.thread_time()
        self._records, self._texts = {}, {}
        for session, message_id, rail, position, length, role in self._view.keyed(_RECORDS, keys):
            self._records.setdefault((session, message_id, rail), []).append((position, length, role))
        unsure = [key for key, rows in self._records.items() if self._has_phrases or not self._is_certain(rows)]
        spots = [(sessions[key[0]], [Spot(row[0], row[1]) for row in self._records[key]]) for key in unsure]
        for key, records in zip(unsure, self._recall.records(spots), strict=True):
            said = narrowed([record for record in records if record is not None], self._only)
            self._texts[key] = _EDGE.join(text for record in said for text in strings(record))
            self._read_chars += len(self._texts[key])
        self._spent += time.thread_time() - begun

    def passes(self, key: Key) -> bool:
        """Whether the phrases stand in the message, and who is asked for said one of the words."""
        if not self.is_needed:
            return True
        text = self._texts.get(key)
        if text is None:
            return not self._has_phrases and self._is_certain(self._records.get(key, []))
        begun = time.thread_time()
        found = self._spotter.has_phrases(text) and (self._has_phrases or bool(self._spotter.spots(text)))
        self._passed += found
        self._spent += time.thread_time() - begun
        return found

    def _is_certain(self, rows: list[tuple[int, int, str]]) -> bool:
        """A message that is all by one, or is one record: then what the index says of it is exact."""
        return len(rows) == 1 or (self._only.tool is None and len({role for _, _, role in rows}) == 1)


_RECORDS = f"""
WITH wanted(session, message_id, rail) AS ({{keys}})
SELECT w.session, w.message_id, w.rail, max(m.position), m.length, m.role FROM wanted w
CROSS JOIN {MESSAGES_BY_ID} ON m.session = w.session AND {is_message("w.message_id")} AND m.rail = w.rail
GROUP BY w.session, w.message_id, w.rail, m.n, m.b ORDER BY w.session, w.message_id, w.rail, m.n, m.b
"""
