"""The batches that sources hand to the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from burnd.index.change import AgentRow, CursorChange, FileChange
from burnd.ledger.shelving import Shelved
from burnd.recording.candidate import Candidate
from burnd.records import Content, Overhead, Turn
from burnd.records.codec import Entry


class Submission(NamedTuple):
    """A candidate with the log or database it was read from.

    `beside` are records to write along with it once it is settled. `session_messages` are the ids of all messages that
    the database has of its session, unless another database may have more.
    """

    candidate: Candidate
    path: str
    beside: tuple[Entry, ...] = ()
    session_messages: frozenset[str] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.candidate.source, self.candidate.message_id)


class SeenSession(NamedTuple):
    """A session that needs a record, and the project that its main log states."""

    session_id: str
    source: str
    project: str | None = None


class SessionOrigin(NamedTuple):
    """A session and its origin (fork, branch, clear); `at_ms` is the time of the newest line that shows it.

    `by_process`: only the process connects them, and the session that it went on with may be older.
    """

    session_id: str
    origin: str
    at_ms: int
    by_process: bool = False


@dataclass
class Batch:
    """Records, content, candidates, and how far each source has been read with them."""

    entries: list[Entry] = field(default_factory=list)
    content: list[Content] = field(default_factory=list)
    shelved: list[Shelved] = field(default_factory=list)  # content in its stored form
    cursors: list[CursorChange] = field(default_factory=list)
    sessions: set[SeenSession] = field(default_factory=set)
    candidates: list[Submission] = field(default_factory=list)
    orphans: list[Turn] = field(default_factory=list)  # open turns whose rows are gone; settled as they were shown
    agents: list[AgentRow] = field(default_factory=list)
    overheads: list[Overhead] = field(default_factory=list)
    files: list[FileChange] = field(default_factory=list)
    source: str = ""  # of the content; decides whether its message ids are the same in other sessions
    origins: list[SessionOrigin] = field(default_factory=list)
    copied: set[tuple[str, str]] = field(default_factory=set)  # (session, message) of certain copies
    # Creation times of messages in milliseconds, for sources whose copies have ids of their own.
    message_times: dict[tuple[str, str], int] = field(default_factory=dict)
