"""Which of several logs was first, where each has the same right to the messages they share.

A fork is written with all that its session held by then. What tells the two apart is when each went its own way: a
session that ended there never did, and one that goes on after its fork was made does so later than the fork, which is
written only when it is used. One that went its own way even before a message was there first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_NEVER = 1 << 62  # after every time


class Shared(NamedTuple):
    """When a message was made, and the sessions that hold it."""

    ts: int
    sessions: frozenset[str]


class Partings:
    """When sessions went ways of their own. A function of who holds what, not of who was read first."""

    def __init__(self, messages: Iterable[Shared]) -> None:
        self._messages: defaultdict[str, list[Shared]] = defaultdict(list)
        for message in messages:
            for session in message.sessions:
                self._messages[session].append(message)
        self._known: dict[tuple[str, frozenset[str]], int] = {}

    def first(self, ts: int, group: frozenset[str]) -> str:
        """The session of a group to which a message of this time belongs; the smallest name where nothing tells."""
        while len(group) > 1:
            claims = {session: self._claim(session, group, ts) for session in group}
            best = _best(claims)
            if best == group:
                break
            group = best
        return min(group)

    def _claim(self, session: str, group: frozenset[str], ts: int) -> tuple[bool, int]:
        parted = self._parted(session, group)
        return (True, 0) if parted < ts else (False, parted)

    def _parted(self, session: str, group: frozenset[str]) -> int:
        """When a session first held something that others of the group do not."""
        known = self._known.get((session, group))
        if known is None:
            apart = (message.ts for message in self._messages[session] if not group <= message.sessions)
            known = self._known[session, group] = min(apart, default=_NEVER)
        return known


def _best(claims: Mapping[str, tuple[bool, int]]) -> frozenset[str]:
    best = max(claims.values())
    return frozenset(session for session, claim in claims.items() if claim == best)
