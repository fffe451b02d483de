"""Content modes: whether text of a session may be stored, by the modes, origins and prunes in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from burnd.records import Origin, Prune, Session, Turn, Withheld
from burnd.records.codec import Entry
from burnd.records.session import ContentMode
from burnd.records.times import index_ms, to_iso

_STRICTNESS: Final[dict[ContentMode, int]] = {"full": 0, "hash-only": 1, "off": 2}


class ContentModes:
    """Modes, origins and prunes of all sessions. A session's own mode wins over the daemon's."""

    def __init__(self, mode: ContentMode) -> None:
        self.mode = mode
        self.has_withheld = False  # whether the text of any message is withheld from all sessions
        self.withholders: set[str] = set()  # private sessions with withheld messages
        self._modes: dict[str, ContentMode] = {}
        self._strict: set[str] = set()  # sessions with their own mode stricter than full
        self._off: set[str] = set()
        self._since: dict[str, int] = {}
        self._parents: dict[str, str] = {}
        self._origins: dict[str, set[str]] = {}
        self._repeats: dict[str, set[str]] = {}  # sessions that repeat withheld messages of others
        self._pruned: dict[str, int] = {}

    def learn(self, entry: Entry) -> None:
        if isinstance(entry, Prune):
            up_to = self._pruned.get(entry.session_id, index_ms(entry.up_to))
            self._pruned[entry.session_id] = max(up_to, index_ms(entry.up_to))
        elif isinstance(entry, Withheld):
            self.has_withheld = True
            if entry.by_mode:
                self.withholders.add(entry.session_id)
        elif isinstance(entry, Session):
            if entry.content_mode is not None:
                self._set_mode(entry.session_id, entry.content_mode, entry.content_since)
            if entry.parent_session_id is not None:
                self._parents[entry.session_id] = entry.parent_session_id
        elif isinstance(entry, Origin):
            self.came_from(entry.session_id, entry.origin)
            self._repeats.setdefault(entry.session_id, set()).add(entry.origin)
            if entry.content_mode is not None:
                self._set_mode(entry.session_id, entry.content_mode, entry.content_since)

    def _set_mode(self, session_id: str, mode: ContentMode, since: str | None) -> None:
        self._modes[session_id] = mode
        self._since[session_id] = index_ms(since) if since else 0
        for sessions, is_one in ((self._strict, mode != "full"), (self._off, mode == "off")):
            sessions.add(session_id) if is_one else sessions.discard(session_id)

    @property
    def has_private(self) -> bool:
        return bool(self._strict)

    @property
    def has_off(self) -> bool:
        """Whether any session may be in mode `off`."""
        return self.mode == "off" or bool(self._off)

    @property
    def has_limits(self) -> bool:
        """Whether text of any session may not be stored, or must be erased."""
        return self.has_withheld or bool(self._pruned) or bool(self._strict)

    def came_from(self, session_id: str, origin: str) -> bool:
        """Records that a session was derived from another; returns whether that is new."""
        origins = self._origins.setdefault(session_id, set())
        is_new = origin not in origins and origin != session_id
        origins |= {origin} - {session_id}
        return is_new

    def mode_of(self, session_id: str) -> ContentMode:
        """The mode of a session, else of its nearest ancestor with one, else of the daemon."""
        decider = self._decider(session_id)
        return self.mode if decider is None else self._modes[decider]

    def since(self, session_id: str) -> int:
        """The time from which a session's mode applies; older messages are not its own."""
        decider = self._decider(session_id)
        return 0 if decider is None else self._since[decider]

    def is_private(self, session_id: str) -> bool:
        """Whether a client set a stricter mode than full for this session, or for one that it was derived from."""
        return self._decider(session_id) is not None and self.mode_of(session_id) != "full"

    def allowed_before(self, session_id: str) -> int | None:
        """The time before which stored text of a session may stay; None for all of it.

        Text from before a client set a stricter mode, or before a private process resumed the session, stays.
        """
        return self._since.get(session_id, 0) if self.is_private(session_id) else None

    def private_sessions(self) -> Iterator[str]:
        """The sessions with their own mode stricter than full."""
        return (session_id for session_id, mode in list(self._modes.items()) if mode != "full")

    def has_unread(self) -> bool:
        """Whether no message of some private session was read yet."""
        return any(session_id not in self.withholders for session_id in self.private_sessions())

    def children(self, session_ids: set[str]) -> set[str]:
        """The sessions that these started, or that were derived from any of them, at any depth."""
        children: set[str] = set()
        while True:
            family = session_ids | children
            more = {child for child, parent in self._parents.items() if parent in family}
            more |= {session_id for session_id, origins in self._origins.items() if origins & family}
            if more <= family:
                return children
            children |= more - session_ids

    def origins(self, session_id: str) -> frozenset[str]:
        return frozenset(self._origins.get(session_id, ()))

    def inherited(self, session_id: str, origin: str, at_ms: int, since_ms: int = 0) -> Origin | None:
        """The record that gives a session the stricter mode of its origin; `at_ms` is the time of a shared line.

        The mode applies from `since_ms` on, or from when it applied to the origin.
        None if the origin's mode is not stricter or did not apply yet, or if a client set full.
        """
        theirs = self.mode_of(origin)
        is_stricter = _STRICTNESS[theirs] > _STRICTNESS[self.mode_of(session_id)]
        if not is_stricter or self._modes.get(session_id) == "full" or at_ms < self.since(origin):
            return None
        since = max(self.since(origin), since_ms)
        return Origin(
            session_id=session_id, origin=origin, content_mode=theirs, content_since=to_iso(since) if since else None
        )

    def is_pruned(self, session_id: str) -> bool:
        return session_id in self._pruned

    def was_pruned(self, session_id: str, at_ms: int) -> bool:
        """Whether text of a session from this time was pruned or forgotten."""
        return at_ms <= self._pruned.get(session_id, -1)

    def forks_pruned(self, session_id: str) -> bool:
        return any(origin in self._pruned for origin in self._origins.get(session_id, ()))

    def keeps_titles(self, session_id: str) -> bool:
        """Whether harness titles of a session may be stored: a fork repeats those of its origin."""
        if any(origin in self._pruned for origin in self._repeats.get(session_id, ())):
            return False
        return not any(self.is_private(origin) for origin in self._origins.get(session_id, ()))

    def trimmed(self, turn: Turn) -> Turn:
        """The turn without hashes of results in mode `off`: a short text could be guessed from its hash."""
        if self.mode_of(turn.session_id) != "off":
            return turn
        calls = tuple(msgspec.structs.replace(call, result_hash=None) for call in turn.tool_calls)
        return msgspec.structs.replace(turn, tool_calls=calls)

    def keeps(self, session_id: str, at: int) -> bool:
        if self.mode_of(session_id) != "full":
            return False
        pruned = self._pruned.get(session_id)
        return pruned is None or at > pruned

    def _decider(self, session_id: str) -> str | None:
        """The session whose mode counts for this one: itself, or its nearest ancestor with a mode."""
        if not self._modes:
            return None
        visited: set[str] = set()
        at: str | None = session_id
        while at is not None and at not in visited:
            if at in self._modes:
                return at
            visited.add(at)
            at = self._parents.get(at)
        return None
