"""Which of several logs was first, where each has the same right to the messages they share.

A fork is written with all that its session held by then. What tells the two apart is when each went its own way: a
session that ended there never did, and one that goes on after its fork was made does so later than the fork, which is
written only when it is used. One that has something of its own from before they parted, a rewound attempt that was not
copied, was there first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
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
        self._known: dict[frozenset[str], str] = {}

    def first(self, group: frozenset[str]) -> str:
        """The session of a group that what they share belongs to; the smallest name where nothing tells."""
        if group not in self._known:
            best = self._best(group) if len(group) > 1 else group
            self._known[group] = min(group) if best == group else self.first(best)
        return self._known[group]

    def _best(self, group: frozenset[str]) -> frozenset[str]:
        claims = {session: self._claim(session, group) for session in group}
        best = max(claims.values())
        return frozenset(session for session, claim in claims.items() if claim == best)

    def _claim(self, session: str, group: frozenset[str]) -> tuple[bool, int]:
        """Whether it has something of its own from before the last they share; else when it first had."""
        held = self._messages[session]
        parted = min((one.ts for one in held if not group <= one.sessions), default=_NEVER)
        last = max((one.ts for one in held if group <= one.sessions), default=0)
        return (True, 0) if parted < last else (False, parted)
