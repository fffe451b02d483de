"""The types of a change to the index, and of what it has of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from burnd.records import Turn
from burnd.records.codec import Entry

if TYPE_CHECKING:
    from burnd.ledger.content import Placed
    from burnd.ledger.journal import Journal, Logged


class Known(NamedTuple):
    """A record in the index: revision, digest and position, by which a new one is compared."""

    id: int
    rev: int
    digest: int
    position: int | None
    length: int | None
    open: bool = False

    def entry_in(self, journal: Journal) -> Entry | None:
        """The record itself, where the ledger has it."""
        if self.position is None or self.length is None:
            return None
        return journal.entry_at(self.position, self.length)


class CursorChange(NamedTuple):
    """How far a source has been read; None forgets it."""

    source: str
    key: str
    value: bytes | None


class FileChange(NamedTuple):
    """How far a file has been read, with the reader's state there and a pack of rows that it may need again.

    The pack replaces an earlier one with the id `replaces`. `anew` deletes earlier packs: the file is read from its
    start. A cursor of None deletes the file.
    """

    source: str
    path: str
    cursor: bytes | None
    state: bytes = b""
    pack: bytes = b""
    replaces: int | None = None
    from_start: bool = False
    seen_ms: int = 0
    root: str = ""
    open: bool = False


class Evidence(IntEnum):
    """The kind of record that names the call which started an agent, the most reliable first."""

    META = 0
    RESULT = 1
    PROMPT = 2
    NOTIFICATION = 3


class AgentRow(NamedTuple):
    """The call that started an agent, as one file names it."""

    session_id: str
    agent_id: str
    evidence: int  # an Evidence
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
    """All that one transaction writes to the index."""

    logged: Sequence[tuple[Logged, int]] = ()
    placed: Sequence[Placed] = ()
    cursors: Sequence[CursorChange] = ()
    files: Sequence[FileChange] = ()
    agents: Sequence[AgentRow] = ()
    open: Sequence[OpenTurn] = ()
    closed: Sequence[Turn] = ()  # no longer open, and recorded in the same state
    origins: Sequence[
        tuple[str, str]
    ] = ()  # (session, the session it was forked, branched or cleared from, by its log)
    erased: Sequence[str] = ()  # sessions that lost some messages; read by listeners only
    ledger_end: int | None = None  # None: the ledger did not grow
    ledger_anchor: str = ""
