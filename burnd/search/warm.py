"""What was written a moment ago, kept with its words so that nothing need be read back. Bounded."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from burnd.ledger.content import Placed
from burnd.tokens.record_words import SearchWords

MUCH: Final = 8 << 20  # characters: who brings more waits a little
MOST: Final = 24 << 20


class Warm:
    """Filled and emptied by the event loop; worker threads only look, each time at a copy."""

    def __init__(self) -> None:
        self._landed: dict[str, list[Placed]] = {}  # by session, as they stand in its sidecar
        self.size = 0  # characters that wait to be taken

    def keep(self, placed: Sequence[Placed]) -> None:
        if self.size > MOST:
            return  # nobody keeps up with it: the rest is read
        for item in placed:
            landed = self._landed.get(item.label.session_id)
            if landed is None:
                landed = self._landed[item.label.session_id] = []
            landed.append(item)
        self.size += _characters(placed)

    def landed(self, session_id: str, start: int, stop: int) -> list[Placed]:
        """What landed in a session's sidecar between these places, as far as every record is known."""
        items = self._landed.get(session_id, ())
        found: list[Placed] = []
        for item in items[bisect_left(items, start, key=_begin) :]:
            if item.position != start or start + item.length > stop:
                break
            found.append(item)
            start += item.length
        return found

    def words(self, session_id: str) -> dict[int, SearchWords]:
        """The words of what landed in a session, by where they stand."""
        return {item.position: item.search for item in self._landed.get(session_id, ())[:] if item.search is not None}

    def covered(self, session_id: str, end: int) -> None:
        """What landed before this place is not asked for any more."""
        items = self._landed.pop(session_id, [])
        left = items[bisect_left(items, end, key=_begin) :]
        self.size -= _characters(items[: len(items) - len(left)])
        if left:
            self._landed[session_id] = left

    def forget(self, session_ids: set[str]) -> None:
        """Their content is gone: what comes next stands where it stood."""
        for session_id in session_ids:
            self.size -= _characters(self._landed.pop(session_id, ()))

    def clear(self) -> None:
        self._landed.clear()
        self.size = 0


def _begin(item: Placed) -> int:
    return item.position


def _characters(items: Sequence[Placed]) -> int:
    """About how many they are: the parts of words, which are a text of their own, are few."""
    return sum([len(search.words[0]) for item in items if (search := item.search) is not None and search.words])
