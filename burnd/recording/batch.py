"""What sources hand over to the one writer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from burnd.index.change import AgentRow, CursorChange, FileChange
from burnd.ledger.shelving import Shelved
from burnd.recording.candidate import Candidate
from burnd.records import Content, Overhead, Turn
from burnd.records.codec import Entry


class Held(NamedTuple):
    """A candidate and the file that holds it."""

    candidate: Candidate
    source: str
    path: str


class SeenSession(NamedTuple):
    """A session that must be known, and its project where its main log has told one."""

    session_id: str
    source: str
    project: str | None = None


class Told(NamedTuple):
    """A step as its database tells it now; `path` is that database. `beside` goes along once it is settled.

    `there` are the messages of its session that the database holds, where no other database may hold more.
    """

    turn: Turn
    settled: bool
    path: str
    beside: tuple[Entry, ...] = ()
    there: frozenset[str] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.turn.source, self.turn.message_id)


class CameFrom(NamedTuple):
    """A session and its origin (fork, branch, clear); `at_ms` is the time of the newest line that shows it.

    `by_process`: only the process connects them, and the session that it went on with may be older.
    """

    session_id: str
    origin: str
    at_ms: int
    by_process: bool = False


@dataclass
class Batch:
    """What sources hand over: records, content, and how far each source has been read with them."""

    entries: list[Entry] = field(default_factory=list)
    content: list[Content] = field(default_factory=list)
    shelved: list[Shelved] = field(default_factory=list)  # content that is ready for the disk already
    cursors: list[CursorChange] = field(default_factory=list)
    sessions: set[SeenSession] = field(default_factory=set)
    held: list[Held] = field(default_factory=list)
    steps: list[Told] = field(default_factory=list)
    agents: list[AgentRow] = field(default_factory=list)
    overheads: list[Overhead] = field(default_factory=list)
    files: list[FileChange] = field(default_factory=list)
    source: str = ""  # of the content; decides whether its message ids are the same in other sessions
    origins: list[CameFrom] = field(default_factory=list)
    copied: set[tuple[str, str]] = field(default_factory=set)  # (session, message) of certain copies
    # Creation times of messages in milliseconds, for sources whose copies have ids of their own.
    made_at: dict[tuple[str, str], int] = field(default_factory=dict)
