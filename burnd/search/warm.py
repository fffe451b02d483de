"""Records that were written a moment ago, kept so that they need not be read back. Bounded; the others are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from burnd.ledger.content import Placed
from burnd.recall import given
from burnd.records import Content

_MOST_BYTES: Final = 16 << 20


class Warm:
    """Filled by the event loop and emptied by a worker thread: each of its steps is one that cannot be torn."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], tuple[Content, Mapping[str, bytes]]] = {}
        self._bytes = 0

    def keep(self, placed: Sequence[Placed], blobs: Mapping[str, bytes]) -> None:
        self._bytes += sum(item.length for item in placed) + sum(map(len, blobs.values()))
        if self._bytes > _MOST_BYTES:
            self.clear()
            return
        for item in placed:
            self._records[item.record.session_id, item.position] = (item.record, blobs)

    def take(self, session_id: str, position: int) -> Content | None:
        found = self._records.pop((session_id, position), None)
        return given(found[1], found[0]) if found is not None else None

    def clear(self) -> None:
        self._records.clear()
        self._bytes = 0
