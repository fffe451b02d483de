"""Whether a message really says what was asked for: phrases, and words by who is asked for. Bounded in what it reads.

The search index knows words, and messages as wholes. So this is seen in the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from burnd.queries.view import View
from burnd.recall import Recall
from burnd.search.documents import narrowed, strings
from burnd.search.passages import Spotter
from burnd.search.wanted import Only, Wanted

_MOST_READ, _MOST_READ_CHARS = 600, 64 << 20
_EDGE: Final = "\n"

Key = tuple[int, str, str]  # a session's row, a message, a rail


class Check:
    """Looks into messages, as many as are worth it."""

    def __init__(self, view: View, recall: Recall, spotter: Spotter, wanted: Wanted, only: Only) -> None:
        self._view, self._recall, self._spotter, self._only = view, recall, spotter, only
        self._has_phrases = bool(wanted.phrases)
        self._records: dict[Key, list[tuple[int, int, str]]] = {}
        self._read = self._read_chars = 0

    @property
    def is_needed(self) -> bool:
        return self._has_phrases or self._only.is_by_somebody

    @property
    def gave_up(self) -> bool:
        """Whether too many messages had the words to look into every one."""
        return self._read >= _MOST_READ or self._read_chars >= _MOST_READ_CHARS

    def prepare(self, keys: Iterable[Key]) -> None:
        """Finds where the records of these messages stand."""
        if not self.is_needed:
            return
        self._records = {}
        for session, message_id, rail, position, length, role in self._view.keyed(_RECORDS, keys):
            self._records.setdefault((session, message_id, rail), []).append((position, length, role))

    def passes(self, session_id: str, key: Key) -> bool:
        """Whether the phrases stand in the message, and who is asked for said one of the words."""
        if not self.is_needed:
            return True
        rows = self._records.get(key, [])
        if not self._has_phrases and self._is_certain(rows):
            return True
        self._read += 1
        with self._recall.opened(session_id) as reading:
            records = [reading.record(position, length) for position, length, _ in rows]
        said = narrowed([record for record in records if record is not None], self._only)
        text = _EDGE.join(text for record in said for text in strings(record))
        self._read_chars += len(text)
        return self._spotter.has_phrases(text) and (self._has_phrases or bool(self._spotter.spots(text)))

    def _is_certain(self, rows: list[tuple[int, int, str]]) -> bool:
        """A message that is all by one, or is one record: then what the index says of it is exact."""
        return len(rows) == 1 or (self._only.tool is None and len({role for _, _, role in rows}) == 1)


_RECORDS = """
WITH wanted(session, message_id, rail) AS ({keys})
SELECT w.session, w.message_id, w.rail, max(m.position), m.length, m.role FROM wanted w
CROSS JOIN messages m ON m.session = w.session AND m.message_id = w.message_id AND m.rail = w.rail
GROUP BY w.session, w.message_id, w.rail, m.n, m.b ORDER BY w.session, w.message_id, w.rail, m.n, m.b
"""
