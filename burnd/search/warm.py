"""The words of records that were written a moment ago, kept so that nothing need be read back. Bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from burnd.ledger.content import Placed
from burnd.search.hearing import Heard

MUCH: Final = 8 << 20  # characters: who brings more waits a little
MOST: Final = 24 << 20


class Warm:
    """Filled by the event loop and emptied by a worker thread: each of its steps is one that cannot be torn."""

    def __init__(self) -> None:
        self._words: dict[tuple[str, int], Heard] = {}
        self._kept = self._taken = 0

    @property
    def size(self) -> int:
        """How many characters wait to be taken."""
        return self._kept - self._taken

    def keep(self, placed: Sequence[Placed]) -> None:
        if self.size > MOST:
            return  # nobody keeps up with it: the rest is read
        for item in placed:
            if item.heard is not None:
                self._words[item.label.session_id, item.position] = item.heard
                self._kept += item.heard.size

    def take(self, session_id: str, position: int) -> Heard | None:
        words = self._words.pop((session_id, position), None)
        if words is not None:
            self._taken += words.size
        return words

    def forget(self, session_ids: set[str]) -> None:
        """Their content is gone: what comes next stands where it stood."""
        for session_id, position in list(self._words):
            if session_id in session_ids:
                self.take(session_id, position)

    def clear(self) -> None:
        self._words.clear()
        self._kept = self._taken = 0
