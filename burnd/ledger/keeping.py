"""What content may be kept: the mode of the daemon and of each session, and what was pruned before."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from burnd.ledger.shelving import Shelved
from burnd.records import Content, Prune, Session, Turn
from burnd.records.codec import Entry
from burnd.records.session import ContentMode
from burnd.records.times import to_ms


class Keeping:
    """Decides, record by record, from what the ledger says. A session's own mode wins over the daemon's."""

    def __init__(self, mode: ContentMode) -> None:
        self.mode = mode
        self._modes: dict[str, ContentMode] = {}
        self._parents: dict[str, str] = {}
        self._pruned: dict[str, int] = {}

    def learn(self, entry: Entry) -> None:
        """Takes in what a session or a prune record says."""
        if isinstance(entry, Prune):
            known = self._pruned.get(entry.session_id, to_ms(entry.up_to))
            self._pruned[entry.session_id] = max(known, to_ms(entry.up_to))
        elif isinstance(entry, Session):
            if entry.content_mode is not None:
                self._modes[entry.session_id] = entry.content_mode
            if entry.parent_session_id is not None:
                self._parents[entry.session_id] = entry.parent_session_id

    def mode_of(self, session_id: str) -> ContentMode:
        """The mode a session was given, or its nearest ancestor was, or the daemon's."""
        if not self._modes:
            return self.mode
        seen: set[str] = set()
        at: str | None = session_id
        while at is not None and at not in seen:
            if (mode := self._modes.get(at)) is not None:
                return mode
            seen.add(at)
            at = self._parents.get(at)
        return self.mode

    def kept(self, records: Iterable[Content]) -> list[Content]:
        return [record for record in records if self.keeps(record.session_id, record.ts)]

    def kept_shelved(self, shelved: Iterable[Shelved]) -> list[Shelved]:
        if self.mode == "full" and not self._modes and not self._pruned:
            return list(shelved)
        return [item for item in shelved if self.keeps(item.label.session_id, item.label.ts_ms)]

    def trimmed(self, turn: Turn) -> Turn:
        """The turn as its mode allows: `off` keeps no hashes of results, for a hash of a short text tells it."""
        if self.mode_of(turn.session_id) != "off":
            return turn
        calls = tuple(msgspec.structs.replace(call, result_hash=None) for call in turn.tool_calls)
        return msgspec.structs.replace(turn, tool_calls=calls)

    def keeps(self, session_id: str, at: str | int) -> bool:
        """Whether what a session said at a time may be kept; the time as it is written, or in milliseconds."""
        if self.mode_of(session_id) != "full":
            return False
        pruned = self._pruned.get(session_id)
        return pruned is None or (at if isinstance(at, int) else to_ms(at)) > pruned
