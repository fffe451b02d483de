"""The interface of a harness that writes logs (`LogFormat`, `LogReader`), and the open logs that use it.

Logs are read in a worker thread or a child process.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec
import zstandard

from burnd.index.change import AgentRow, FileChange, LinkEvidence
from burnd.index.keys import compressed, decompressed, path_key
from burnd.index.recorded_turns import RecordedTurns
from burnd.ledger.blobs import Pack, Packer
from burnd.ledger.content import INLINE_BYTES, EncodedRecord, encode_records
from burnd.logfiles.scanner import SUFFIX, Refused, below, open_regular
from burnd.logfiles.tail import (
    FATAL,
    FATAL_WORDS,
    MAX_LINE,
    PLACES_KEPT,
    TOO_LARGE,
    TOO_LONG,
    Chunk,
    Cursor,
    LastLine,
    Line,
    OpenFiles,
    Unused,
    load_cursor,
)
from burnd.recording.candidate import Batch, Candidate, SeenSession, SessionOrigin, Submission
from burnd.recording.crash_guard import Guard
from burnd.records import Compaction, Content, Event, Overhead, Quota, Request, Session
from burnd.records.foreign_json import MOST_VALUES, WHOLE_BYTES, Reason, Rejected, Repair, Repaired, SafeDecoder
from burnd.records.times import canonical

if TYPE_CHECKING:
    from burnd.recording.pipeline import Pipeline

T = TypeVar("T", bound=msgspec.Struct)

NEVER: Final = "1970-01-01T00:00:00.000Z"
CUT: Final[dict[Repair, str]] = {
    "many-values": f"more than {MOST_VALUES:,} values: its usage is counted, content behind them is left out",
    "large": f"larger than {WHOLE_BYTES >> 20} MB: its usage is counted, long texts in it are cut",
}
_LONGEST_NAME: Final = 60
_MOST_NAMES: Final = 100
OLD_MS = 600_000
_READERS_KEPT = 64
_BLOCK = 1 << 20


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


class UnusedLines(msgspec.Struct):
    """`skipped` has (reason, offset, size) of lines unparsed in this read."""

    by_reason: dict[str, Unused]
    skipped: list[tuple[str, int, int]] = []

    def skip(self, reason: str, offset: int, size: int) -> None:
        self.skipped.append((reason, offset, size))
        self.add(reason, offset, size)

    def add(self, reason: str, offset: int, size: int) -> None:
        before = self.by_reason.get(reason) or Unused(reason, 0, ())
        places = (*before.places, (offset, size))[:PLACES_KEPT]
        self.by_reason[reason] = Unused(reason, before.count + 1, places)


class Counts(msgspec.Struct):
    """Lines read, and those not fully used, by type or reason."""

    lines: int = 0
    skipped: dict[str, int] = {}
    unknown: dict[str, int] = {}
    rejected: dict[str, int] = {}
    repaired: dict[str, int] = {}


class LogReading(msgspec.Struct, kw_only=True):
    """The output of a reader since the last one; `state` is the reader's state after the last line."""

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
        """Returns the reason if any of the line could not be used."""

    def flush(self, *, answered_only: bool = False) -> None:
        """Settles what is open; more may still come."""

    def open_candidates(self) -> list[Candidate]:
        """The messages that may still grow."""

    def waiting_sessions(self) -> set[str]:
        """Sessions with a message that may still grow, or a request without its response."""

    def take(self) -> LogReading: ...

    def again(self) -> bytes:
        """The initial state for reading the log again after it was replaced."""


class LogFormat:
    """What a harness gives the log engine: the names of its files, their readers, and additions to a batch.

    Worker processes import the subclass's module: import whatever needs an event loop where it is used.
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
        """Adds the facts in a file beside the log to its place, before it is read; or sets `is_alone`."""
        log.is_alone = True

    def compressed_chunk(self, log: Log, max_bytes: int) -> Chunk | None:  # noqa: ARG002
        """The next lines of a compressed log. Raises Refused, or OSError if the file cannot be read now."""
        return None

    def content(self, log: Log, reading: Any) -> list[Content]:  # noqa: ARG002
        """The content of a reading and of files beside the log."""
        content: list[Content] = reading.content
        return content

    async def begin(self, pipeline: Pipeline) -> None:
        """Loads what the index has: before the first read, and after the index was lost."""

    async def add_to(self, batch: Batch, pieces: Sequence[Piece], roots: Sequence[str]) -> None:
        """Adds to a batch what follows from its pieces together."""

    def news_every(self) -> float | None:
        """Seconds between calls of `news`: 0 while there is more to do at once, None for never."""
        return None

    async def news(self, roots: Sequence[str]) -> Batch | None:  # noqa: ARG002
        """News from files that belong to no log; called when there is nothing to read."""
        return None


class VersionedState(Protocol):
    version: int


S = TypeVar("S", bound=VersionedState)


def load_state(decode: Callable[[bytes], S], version: int, data: bytes | None) -> S | None:
    """None if the state is damaged or of another version: its log is read again."""
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
    """Counts what was repaired or rejected; returns the value, and the reason if any of it is unusable."""
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


class Piece(NamedTuple):
    """The result of one read of a log."""

    path: str
    root: str
    reading: LogReading
    change: FileChange
    cursor: Cursor
    content: list[EncodedRecord]
    packs: list[Pack]
    consumed: int = 0
    more: bool = False
    skipped: tuple[tuple[str, int, int], ...] = ()  # unread lines: reason, offset and size
    rewound: str | None = None
    is_unfinished: bool = False  # its incomplete last line is not waited for


class Log:
    """An open log; text of lines before offset `private` may not be stored with later records."""

    def __init__(self, path: str, root: str, place: Any, cursor: Cursor | None, state: bytes | None) -> None:
        self.path = path
        self.root = root
        self.place = place
        self.cursor = cursor
        self.state = state
        self.reader: LogReader | None = None
        self.changed_at = 0.0
        self.private = 0
        self.is_alone = False  # no file beside it can add more facts

    @property
    def waiting_sessions(self) -> set[str]:
        return self.reader.waiting_sessions() if self.reader is not None else set()


class LogHistory:
    """The turns recorded of one log, and its lines before those that are being read."""

    def __init__(self, turns: RecordedTurns, source: str, log: Log, guard: Guard) -> None:
        self._log, self._guard = log, guard
        self.has_turns = turns.has_turns
        self.turn_index = partial(turns.turn_index, source)

    def mentions(self, name: bytes) -> bool:
        with self._file() as (file, end):
            data = b""
            while end > 0 and (block := file.read(min(_BLOCK, end))):
                data = data[-len(name) :] + block
                if name in data:
                    return True
                end -= len(block)
            return False

    def lines(self) -> Iterator[Line]:
        """Reads all earlier lines again, except those that are never read."""
        skipped = self._guard.skipped(path_key(self._log.path))
        with self._file() as (file, end):
            offset, is_whole = 0, True
            while offset < end and (line := file.readline(min(MAX_LINE, end - offset))):
                begins, is_whole = is_whole, line.endswith(b"\n") or offset + len(line) == end
                if begins and is_whole and offset not in skipped and line.strip():
                    yield offset, line.removesuffix(b"\n")
                offset += len(line)

    @contextmanager
    def _file(self) -> Iterator[tuple[BinaryIO, int]]:
        """The file that was read, and how far; an empty one if it is gone."""
        cursor = self._log.cursor
        with ExitStack() as files:
            file: BinaryIO = io.BytesIO()
            end = 0
            if cursor is not None:
                with suppress(FileNotFoundError, NotADirectoryError, Refused):
                    file = files.enter_context(os.fdopen(open_regular(self._log.path, root=self._log.root), "rb"))
                    status = os.fstat(file.fileno())
                    end = min(cursor.offset, status.st_size) if status.st_ino == cursor.ino else 0
            yield file, end


class Logs:
    """The logs read lately.

    One worker thread reads; meanwhile the event loop may `trim`, `forget` and list.
    """

    def __init__(
        self,
        log_format: LogFormat,
        index_path: Path,
        guard: Guard,
        inline_bytes: int = INLINE_BYTES,
        *,
        stores_text: bool = True,
    ) -> None:
        self.format = log_format
        self.guard = guard
        self.files = OpenFiles()
        self._turns = RecordedTurns(index_path)
        self._packer = Packer()
        self._inline_bytes = inline_bytes
        self.stores_text = stores_text
        self._logs: OrderedDict[str, Log] = OrderedDict()

    def __contains__(self, path: str) -> bool:
        return path in self._logs

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def get(self, path: str) -> Log | None:
        log = self._logs.get(path)
        if log is not None:
            self._logs.move_to_end(path)
        return log

    def open(self, path: str, root: str, saved: tuple[bytes, bytes] | None) -> Log | None:
        """Opens a log from its stored cursor and state; None if the path is not a log."""
        place = self.format.place_of(path_key(below(path, root)))
        if place is None:
            return None
        cursor, state = (load_cursor(saved[0]), self._load_state(saved[1])) if saved else (None, None)
        if cursor is None or state is None:  # neither is of use alone
            cursor = state = None
        log = self._logs[path] = Log(path, root, place, cursor, state)
        # While burnd stores no text, a session may still have the mode full, and the writer decides by session.
        log.private = cursor.private if cursor is not None and self.stores_text else 0
        return log

    def is_usable(self, stored: bytes) -> bool:
        return self._load_state(stored) is not None

    def _load_state(self, stored: bytes) -> bytes | None:
        try:
            state = decompressed(stored)
        except zstandard.ZstdError:
            return None
        return state if self.format.is_state(state) else None

    def read(self, log: Log, max_bytes: int, now: float, seen_ms: int) -> Piece:
        """Raises Refused, or OSError if the file cannot be read now."""
        chunk = self.format.compressed_chunk(log, max_bytes) if not log.path.endswith(SUFFIX) else None
        chunk = chunk or self.files.read(log.path, log.cursor, root=log.root, max_bytes=max_bytes)
        from_start = chunk.rewound is not None or log.cursor is None
        before = None if from_start else log.cursor
        lost: list[Candidate] = []
        if chunk.rewound is not None:  # what was open was billed, and its lines may be gone
            reader = self._reader(log, from_start=False)
            reader.flush()
            lost = reader.take().candidates
            log.state = reader.again()
        reader = self._reader(log, from_start=from_start)
        if from_start:
            log.private = 0
        unused = UnusedLines({one.reason: one for one in before.unused} if before is not None else {})
        for place in chunk.skipped:
            unused.skip(TOO_LONG, *place)
        if chunk.cut is not None:
            unused.skip(TOO_LARGE, *chunk.cut)
        self._feed(log, reader, chunk.lines, unused)
        cursor = chunk.cursor
        if chunk.tail is not None and cursor.has_untried_tail:
            cursor = self._feed_last_line(log, reader, cursor, chunk.tail, unused)
        if chunk.lines:
            log.changed_at = now
        if not chunk.more and seen_ms - cursor.ctime_ns // 1_000_000 > OLD_MS:
            reader.flush()  # not written to for long: its last message is complete
        piece = self._piece(log, cursor, unused, seen_ms)
        piece.reading.candidates[:0] = lost
        return piece._replace(
            consumed=cursor.position - (before.position if before is not None else 0),
            more=chunk.more,
            rewound=chunk.rewound,
            is_unfinished=cursor.unfinished and not chunk.cursor.unfinished,
        )

    def take_tail(self, log: Log, seen_ms: int, *, only_whole: bool = False) -> Piece | None:
        """Reads the last line of a quiet file that has no newline, if it is complete.

        An incomplete one is noted in the cursor or, with `only_whole`, left for later. None if there is no such line or
        the file has changed.
        """
        before = log.cursor
        if before is None or not before.has_untried_tail:
            return None
        tail = self.files.last_line(log.path, before, root=log.root)
        if tail is None or (only_whole and not _is_whole(tail)):
            return None
        unused = UnusedLines({one.reason: one for one in before.unused})
        cursor = self._feed_last_line(log, self._reader(log, from_start=False), before, tail, unused)
        piece = self._piece(log, cursor, unused, seen_ms)
        return piece._replace(is_unfinished=cursor.unfinished)

    def settle(self, log: Log, seen_ms: int, *, answered_only: bool) -> Piece | None:
        if log.cursor is None:
            return None
        self._reader(log, from_start=False).flush(answered_only=answered_only)
        unused = UnusedLines({one.reason: one for one in log.cursor.unused})
        return self._piece(log, log.cursor, unused, seen_ms)

    def load(self, log: Log, changed_at: float) -> None:
        self._reader(log, from_start=False)
        log.changed_at = changed_at

    def forget(self, path: str) -> None:
        """Drops a log from memory; it is read on from its stored cursor and state."""
        self._logs.pop(path, None)
        self.files.release(path)

    def trim(self, busy: Container[str]) -> None:
        """Drops the least recently used readers without open turns; the worker thread may read busy logs."""
        self.files.expire()
        spare = len(self._logs) - _READERS_KEPT
        for path, log in list(self._logs.items())[: max(0, spare)]:
            if path not in busy and not log.waiting_sessions:
                self._logs.pop(path)

    def close(self) -> None:
        self.files.close()
        self._turns.close()
        self.guard.close()

    def _feed(self, log: Log, reader: LogReader, lines: Sequence[Line], unused: UnusedLines) -> None:
        def skip(line: Line) -> None:
            unused.skip(FATAL, line[0], len(line[1]) + 1)

        for offset, line in self.guard.each(path_key(log.path), lines, itemgetter(0), skip):
            if (reason := reader.feed(line, offset)) is not None:
                name = reason if reason in CUT.values() else f"rejected {reason}"
                unused.add(name, offset, len(line) + 1)

    def _feed_last_line(
        self, log: Log, reader: LogReader, cursor: Cursor, tail: LastLine, unused: UnusedLines
    ) -> Cursor:
        if tail.data is None or not _is_whole(tail):
            return msgspec.structs.replace(cursor, unfinished=True)
        self._feed(log, reader, [(tail.offset, tail.data)], unused)
        return tail.cursor

    def _reader(self, log: Log, *, from_start: bool) -> LogReader:
        if not log.is_alone:
            self.format.look_beside(log)
        if from_start:
            log.reader = None
        if log.reader is None:
            log.reader = self.format.reader(log, LogHistory(self._turns, self.format.source, log, self.guard))
        return log.reader

    def _piece(self, log: Log, cursor: Cursor, unused: UnusedLines, seen_ms: int) -> Piece:
        assert log.reader is not None  # noqa: S101 - every caller has just used it
        is_open = bool(log.reader.waiting_sessions())
        reading = log.reader.take()
        log.state = reading.state

        def skip(_record: Content) -> None:
            unused.skip(FATAL_WORDS, cursor.offset, 0)

        def name_of(record: Content) -> str:
            return f"{record.rail_id} {record.message_id} {record.n} {record.b}"

        content = self.guard.each(path_key(log.path), self.format.content(log, reading), name_of, skip)
        encoded_records = encode_records(content, self._inline_bytes)
        private = log.private if self.stores_text else cursor.offset
        log.cursor = msgspec.structs.replace(cursor, unused=tuple(unused.by_reason.values()), private=private)
        change = FileChange(
            source=self.format.source,
            path=path_key(log.path),
            cursor=msgspec.msgpack.encode(log.cursor),
            state=compressed(reading.state),
            seen_ms=seen_ms,
            root=path_key(log.root),
            open=is_open,
        )
        blobs = [item.blobs for item in encoded_records if item.blobs]
        packs = self._packer.pack(blobs) if blobs else []
        return Piece(
            log.path, log.root, reading, change, log.cursor, encoded_records, packs, skipped=tuple(unused.skipped)
        )


def _is_whole(tail: LastLine) -> bool:
    """Whether only the newline is missing: no prefix of a JSON object is one."""
    try:
        return tail.data is not None and isinstance(msgspec.json.decode(tail.data), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def is_done(piece: Piece) -> bool:
    return not (piece.more or piece.change.open or piece.cursor.has_untried_tail)


def batch_of(pieces: Sequence[Piece]) -> Batch:
    batch = Batch()
    for piece in pieces:
        reading = piece.reading
        source, path = piece.change.source, piece.change.path
        batch.candidates += [Submission(candidate, path) for candidate in reading.candidates]
        batch.encoded_records += piece.content
        batch.packs += piece.packs
        batch.entries += [*reading.sessions, *reading.events, *reading.compactions, *reading.requests, *reading.quotas]
        session_id = reading.session_id
        is_described = any(session.session_id == session_id for session in reading.sessions)
        if session_id and (piece.content or reading.candidates) and not is_described:
            # A session without any response has no turn that names it.
            batch.sessions.add(SeenSession(session_id, source, reading.project))
        batch.overheads += reading.overheads
        batch.source = source
        if session_id:
            batch.origins += [SessionOrigin(session_id, *origin) for origin in reading.origins.items()]
            batch.origins += [SessionOrigin(session_id, *origin, True) for origin in reading.process_origins.items()]
            batch.copied |= {(session_id, message_id) for message_id in reading.copied}
        batch.agents += [
            AgentRow(
                link.session_id,
                link.agent_id,
                LinkEvidence[link.evidence.upper()],
                link.tool_use_id or "",
                link.ts,
                link.type,
                link.group_id,
            )
            for link in reading.agents
        ]
        batch.files.append(piece.change)
    return batch
