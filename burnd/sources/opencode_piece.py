"""What one go at a database of opencode's brings."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from burnd.index.store import AgentRow
from burnd.records import Content, Session
from burnd.sources.opencode_cursor import Marker, Seen
from burnd.steps import Told


class Looked(NamedTuple):
    """Whether anything is sure to have been written since the last look, and why rows are read again, if they are."""

    changed: bool
    rewound: str = ""


class Piece(msgspec.Struct):
    """What is to be recorded together, and how far it brings the reading."""

    steps: list[Told] = []
    content: list[Content] = []
    sessions: list[Session] = []
    agents: list[AgentRow] = []
    seen: dict[str, Seen | None] = {}
    marker: Marker | None = None
    size: int = 0

    def add(self, other: Piece) -> None:
        self.steps += other.steps
        self.content += other.content
        self.sessions += other.sessions
        self.agents += other.agents
        self.seen |= other.seen
