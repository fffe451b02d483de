"""Changes to the index: the types that one transaction writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from burnd.records import Turn
from burnd.records.codec import Entry

if TYPE_CHECKING:
    from burnd.ledger.content import Placed
    from burnd.ledger.journal import Journal, Logged


class IndexedRecord(NamedTuple):
    """Revision, digest and position of a record in the index, to compare a new one with."""

    id: int
    rev: int
    digest: int
    position: int | None
    length: int | None
    open: bool = False

    def entry_in(self, journal: Journal) -> Entry | None:
        """The record itself; None if it is not in the ledger."""
        if self.position is None or self.length is None:
            return None
        return journal.entry_at(self.position, self.length)


class CursorChange(NamedTuple):
    """A new cursor of a source; None deletes it."""

    source: str
    key: str
    value: bytes | None


class FileChange(NamedTuple):
    """A new cursor of a file and the state of its reader. A cursor of None deletes the file."""

    source: str
    path: str
    cursor: bytes | None
    state: bytes = b""
    seen_ms: int = 0
    root: str = ""
    open: bool = False


class LinkEvidence(IntEnum):
    """The kind of record that names the call which started an agent, the most reliable first."""

    META = 0
    RESULT = 1
    PROMPT = 2
    NOTIFICATION = 3


class AgentRow(NamedTuple):
    """The call that started an agent, as one file names it."""

    session_id: str
    agent_id: str
    evidence: int  # a LinkEvidence
    tool_use_id: str  # empty if unknown
    ts: str  # the time of the record, empty if unknown
    type: str | None
    group_id: str | None  # the workflow run or the team it belongs to


class OpenTurn(NamedTuple):
    """A turn that may still grow, and the file it grows in."""

    turn: Turn
    source: str
    path: str


@dataclass
class Change:
    """Everything that one transaction writes to the index."""

    logged: Sequence[tuple[Logged, int]] = ()
    placed: Sequence[Placed] = ()
    cursors: Sequence[CursorChange] = ()
    files: Sequence[FileChange] = ()
    agents: Sequence[AgentRow] = ()
    open: Sequence[OpenTurn] = ()
    closed: Sequence[Turn] = ()  # closed, and recorded in the same state
    # The messages (source, id) that were looked up before.
    recorded: Mapping[tuple[str, str], IndexedRecord | None] = field(default_factory=dict)
    origins: Sequence[
        tuple[str, str]
    ] = ()  # (session, the session it was forked, branched or cleared from, by its log)
    erased: Sequence[str] = ()  # sessions that lost some messages; read by listeners only
    ledger_end: int | None = None  # None: the ledger did not grow
    ledger_anchor: str = ""
