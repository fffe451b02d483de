"""The interface of harnesses that write logs: format, reader, and the reader's output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeVar

import msgspec

from burnd.recording.candidate import Candidate
from burnd.records import Compaction, Content, Event, Overhead, Quota, Request, Session
from burnd.records.foreign_json import MOST_VALUES, WHOLE_BYTES, Reason, Rejected, Repair, Repaired, SafeDecoder
from burnd.records.times import canonical

if TYPE_CHECKING:
    from burnd.logfiles.logs import Log, LogHistory, Piece
    from burnd.logfiles.tail import Chunk, OpenFiles
    from burnd.recording.candidate import Batch
    from burnd.recording.pipeline import Pipeline

T = TypeVar("T", bound=msgspec.Struct)

NEVER: Final = "1970-01-01T00:00:00.000Z"
CUT: Final[dict[Repair, str]] = {
    "many-values": f"more than {MOST_VALUES:,} values: its usage is counted, content behind them is left out",
    "large": f"larger than {WHOLE_BYTES >> 20} MB: its usage is counted, long texts in it are cut",
}
_LONGEST_NAME: Final = 60
_MOST_NAMES: Final = 100


class AgentLink(msgspec.Struct, frozen=True):
    """The call that started an agent, and the time of the record that names it.

    Of two records the better kind of evidence wins, then the earlier one. An agent of a workflow run or a team has a
    `group_id`: its call is the one linked to that id.
    """

    session_id: str
    agent_id: str
    evidence: Literal["meta", "result", "prompt", "notification"]
    tool_use_id: str | None = None
    type: str | None = None
    group_id: str | None = None
    ts: str = ""


class Counts(msgspec.Struct):
    """The number of lines read, and of those not fully used, by type or reason."""

    lines: int = 0
    skipped: dict[str, int] = {}
    unknown: dict[str, int] = {}
    rejected: dict[str, int] = {}
    repaired: dict[str, int] = {}


class LogReading(msgspec.Struct, kw_only=True):
    """The output of a reader since the last time, as snapshots.

    `state` is the reader's state after the last line.
    """

    state: bytes = b""
    session_id: str | None = None
    project: str | None = None  # of the whole session, if this log decides it and no session record states it
    candidates: list[Candidate] = []
    content: list[Content] = []
    sessions: list[Session] = []
    events: list[Event] = []
    compactions: list[Compaction] = []
    overheads: list[Overhead] = []
    requests: list[Request] = []
    quotas: list[Quota] = []
    agents: list[AgentLink] = []
    copied: list[str] = []  # ids of messages copied from another session
    origins: dict[str, int] = {}  # sessions it was derived from, with the time of the newest line that shows it
    process_origins: dict[str, int] = {}  # earlier sessions of the same process, likewise
    counts: Counts = msgspec.field(default_factory=Counts)


class LogReader(Protocol):
    """Reads the whole lines of one log, in file order; pure.

    The output must be the same however the lines are cut into readings, and whether or not the state was stored and
    loaded.
    """

    def feed(self, line: bytes, offset: int) -> str | None:
        """Reads one line at `offset`; returns the reason if any of it could not be used."""

    def flush(self, *, answered_only: bool = False) -> None:
        """Settles what is open; more may still come."""

    def open_candidates(self) -> list[Candidate]:
        """The messages that may still grow."""

    def waiting_sessions(self) -> set[str]:
        """The sessions with a message that may still grow, or a request without its response."""

    def take(self) -> LogReading:
        """The output since the last take, and the state to continue from."""

    def again(self) -> bytes:
        """The initial state for reading the log again from its start, after it was replaced."""


class LogFormat:
    """What a harness gives the log engine: the names of its files, their readers, and additions to a batch.

    Worker threads and child processes import the subclass's module: import whatever needs an event loop where it is
    used.
    """

    source: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl",)
    beside: ClassVar[tuple[str, ...]] = ()  # suffixes of files beside a log that add to it

    def roots_below(self, folders: Iterable[str]) -> list[str]:
        """The folders of logs below the harness's configured folders."""
        raise NotImplementedError

    def place_of(self, relative: str) -> Any | None:
        """The facts in a log's path below its root; None if it is not a log."""
        raise NotImplementedError

    def log_of(self, path: str) -> str:
        """The log that a file adds to; any other path unchanged."""
        return path

    def is_state(self, data: bytes) -> bool:
        """Whether this release's readers can continue from this state."""
        raise NotImplementedError

    def reader(self, log: Log, history: LogHistory) -> LogReader:
        raise NotImplementedError

    def look_beside(self, log: Log) -> None:
        """Adds the facts in a file beside the log to its place, before it is read."""

    def chunk(self, log: Log, files: OpenFiles, max_bytes: int) -> Chunk:
        """The next lines of a log. Raises Refused, or OSError if the file cannot be read now."""
        return files.read(log.path, log.cursor, root=log.root, max_bytes=max_bytes)

    def content(self, log: Log, reading: Any) -> list[Content]:  # noqa: ARG002
        """The content of a reading and of files beside the log."""
        content: list[Content] = reading.content
        return content

    async def begin(self, pipeline: Pipeline) -> None:
        """Loads what the index has: before the first read, and after the index was lost."""

    async def add_to(self, batch: Batch, pieces: Sequence[Piece], roots: Sequence[str]) -> None:
        """Adds to a batch what follows from its pieces together."""

    def news_every(self) -> float | None:
        """Seconds between calls of `news`; None for never."""
        return None

    async def news(self, roots: Sequence[str]) -> Batch | None:  # noqa: ARG002
        """What is new in files that belong to no log; called when there is nothing to read."""
        return None


class VersionedState(Protocol):
    """A reader's state, with the version of its layout."""

    version: int


S = TypeVar("S", bound=VersionedState)


def load_state(decode: Callable[[bytes], S], version: int, data: bytes | None) -> S | None:
    """A reader's stored state; None if it is damaged or of another version: its log is read again."""
    if not data:
        return None
    try:
        state = decode(data)
    except (msgspec.MsgspecError, ValueError):
        return None
    return state if state.version == version else None


def iso(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        datetime.fromisoformat(text)
        if len(text) == 24 and text[10] == "T" and text[19] == "." and text[23] == "Z" and text[7] == "-":
            return text
        return canonical(text)
    except (ValueError, OverflowError):
        return None


def tally(counts: dict[str, int], name: str) -> None:
    """Counts a name that may be foreign: cuts it, and limits the number of names."""
    name = name[:_LONGEST_NAME]
    if name not in counts and len(counts) >= _MOST_NAMES:
        name = "(other)"
    counts[name] = counts.get(name, 0) + 1


def decode_line(decoder: SafeDecoder[T], line: bytes, offset: int, counts: Counts) -> tuple[T | None, str | None]:
    """Decodes a line and counts what was repaired or rejected; returns its value, and the reason if any of it is
    unusable.
    """
    result = decoder.decode(line, offset)
    if isinstance(result, Rejected):
        return None, rejected(counts, result.reason)
    if not isinstance(result, Repaired):
        return result, None
    for repair in result.what:
        tally(counts.repaired, repair)
    return result.value, cut_reason(result.what)


def cut_reason(repairs: Iterable[Repair]) -> str | None:
    return next((CUT[what] for what in repairs if what in CUT), None)


def rejected(counts: Counts, reason: Reason) -> Reason | None:
    """Counts a line that cannot be used, unless it is empty."""
    if reason == "empty":
        return None
    tally(counts.rejected, reason)
    return reason
