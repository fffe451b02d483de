"""The words of records that were written a moment ago, kept so that nothing need be read back. Bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from burnd.ledger.content import Placed
from burnd.search.hearing import Heard

MUCH: Final = 8 << 20  # characters: who brings more waits a little
MOST: Final = 24 << 20


class Landed(NamedTuple):
    """Where a record stands in its session's sidecar, and which message it is of."""

    begin: int
    end: int
    message_id: str


class Warm:
    """Filled by the event loop and emptied by a worker thread: each of its steps is one that cannot be torn."""

    def __init__(self) -> None:
        self._words: dict[tuple[str, int], Heard] = {}
        self._landed: dict[str, list[Landed]] = {}
        self._kept = self._taken = 0

    @property
    def size(self) -> int:
        """How many characters wait to be taken."""
        return self._kept - self._taken

    def keep(self, placed: Sequence[Placed]) -> None:
        if self.size > MOST:
            return  # nobody keeps up with it: the rest is read
        for item in placed:
            landed = Landed(item.position, item.position + item.length, item.label.message_id)
            self._landed.setdefault(item.label.session_id, []).append(landed)
            if item.heard is not None:
                self._words[item.label.session_id, item.position] = item.heard
                self._kept += item.heard.size

    def take(self, session_id: str, position: int) -> Heard | None:
        words = self._words.pop((session_id, position), None)
        if words is not None:
            self._taken += words.size
        return words

    def landed(self, session_id: str, start: int) -> list[Landed]:
        """What landed in a session's sidecar from this place on, as far as every record is known."""
        found: list[Landed] = []
        for item in list(self._landed.get(session_id, ())):
            if item.begin == start:
                found.append(item)
                start = item.end
        return found

    def covered(self, session_id: str, end: int) -> None:
        """What landed up to there is not asked for any more."""
        left = [item for item in self._landed.pop(session_id, ()) if item.end > end]
        if left:
            self._landed[session_id] = left + self._landed.get(session_id, [])

    def forget(self, session_ids: set[str]) -> None:
        """Their content is gone: what comes next stands where it stood."""
        for session_id, position in list(self._words):
            if session_id in session_ids:
                self.take(session_id, position)
        for session_id in session_ids:
            self._landed.pop(session_id, None)

    def clear(self) -> None:
        self._words.clear()
        self._landed.clear()
        self._kept = self._taken = 0
