"""Reads pieces of transcripts in a worker thread: bytes from the file, meaning from the reader, rows from the index."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import zstandard

from burnd.index.change import AgentRow, FileChange, ToldBy
from burnd.index.compression import compressed, decompressed
from burnd.index.path_key import path_key
from burnd.index.reader_packs import FilePacks, PackSource
from burnd.ledger.shelving import INLINE_BYTES, Shelved, shelve
from burnd.logfiles.cursor import Cursor, loaded
from burnd.logfiles.log_reader import LogReader, Reading
from burnd.logfiles.open_files import OpenFiles
from burnd.logfiles.safe_open import below
from burnd.logfiles.tail import Chunk, Line, Tail
from burnd.logfiles.unused import FATAL, FATAL_WORDS, TOO_LARGE, TOO_LONG, UnusedLines
from burnd.recording.batch import Batch, CameFrom, SeenSession, Submission
from burnd.recording.candidate import Candidate
from burnd.recording.crash_guard import CrashGuard, Guard
from burnd.records import Content

_READERS_KEPT = 64
OLD_MS = 600_000


class Piece(NamedTuple):
    """What one turn at a file brought: the reading, where the file stands now, and whether there is more."""

    path: str
    root: str
    reading: Reading
    change: FileChange
    content: list[Shelved]
    consumed: int = 0
    more: bool = False
    skipped: tuple[tuple[str, int, int], ...] = ()  # lines, too long or fatal: why, and where they stand
    rewound: str | None = None
    is_unfinished: bool = False  # its last line has no newline and will have none, and is not whole


class Transcript:
    """A transcript that is being read. The reader's state is that of the last piece that was taken."""

    def __init__(self, path: str, root: str, place: Any, cursor: Cursor | None, state: bytes | None) -> None:
        self.path = path
        self.root = root
        self.place = place
        self.cursor = cursor
        self.state = state
        self.reader: LogReader | None = None
        self.packs: FilePacks | None = None
        self.changed_at = 0.0

    def committed(self) -> None:
        """What was taken is durable: its packs can be read from now on."""
        if self.packs is not None:
            self.packs.committed()

    @property
    def open_candidates(self) -> list[Candidate]:
        return self.reader.open_candidates() if self.reader is not None else []

    @property
    def waiting_sessions(self) -> set[str]:
        """The sessions with a message that may still grow, or a request without its response."""
        return self.reader.waiting_sessions() if self.reader is not None else set()


class Transcripts:
    """The transcripts read lately, and how to read on in any of them.

    One worker thread at a time reads; the event loop may `trim`, `forget` and list meanwhile. A harness says in a
    subclass what its files are called and mean: the methods up to `chunk_of`.
    """

    source: ClassVar[str]

    def __init__(self, index_path: Path, inline_bytes: int = INLINE_BYTES, guard: Guard | None = None) -> None:
        self._files = OpenFiles()
        self._packs = PackSource(index_path)
        self.guard = guard or CrashGuard(index_path.with_name(f"reading.{self.source}"))
        self._inline_bytes = inline_bytes
        self._known: OrderedDict[str, Transcript] = OrderedDict()

    def place_of(self, relative: str) -> Any | None:
        """What a file's path below its root tells; None where it is no transcript."""
        raise NotImplementedError

    def is_state(self, data: bytes) -> bool:
        """Whether these bytes are a state of this release's readers."""
        raise NotImplementedError

    def reader_of(self, transcript: Transcript, packs: FilePacks) -> LogReader:
        """A reader that goes on from the transcript's state."""
        raise NotImplementedError

    def content_of(self, transcript: Transcript, reading: Any) -> list[Content]:  # noqa: ARG002
        """The reading's content, with what stands in files beside the transcript."""
        content: list[Content] = reading.content
        return content

    def look_beside(self, transcript: Transcript) -> None:
        """Before a transcript is read on: learns from a file beside it what its place does not tell yet."""

    def chunk_of(self, transcript: Transcript, max_bytes: int) -> Chunk:
        """The next lines of a transcript. Raises Refused, or the OSError of a file that cannot be read just now."""
        return self._files.read(transcript.path, transcript.cursor, root=transcript.root, max_bytes=max_bytes)

    def __contains__(self, path: str) -> bool:
        return path in self._known

    def get(self, path: str) -> Transcript | None:
        """The transcript at a path, if it was read lately."""
        known = self._known.get(path)
        if known is not None:
            self._known.move_to_end(path)
        return known

    def open(self, path: str, root: str, saved: tuple[bytes, bytes] | None) -> Transcript | None:
        """The transcript at a path; `saved` is its cursor and state from the index. None where it is none."""
        place = self.place_of(path_key(below(path, root)))
        if place is None:
            return None
        cursor, state = (loaded(saved[0]), self._state(saved[1])) if saved else (None, None)
        if state is None:  # nobody could go on from the cursor alone
            cursor = None
        known = self._known[path] = Transcript(path, root, place, cursor, state if cursor is not None else None)
        return known

    def is_usable(self, stored: bytes) -> bool:
        """Whether a reader can go on from what the index has of its state."""
        return self._state(stored) is not None

    def _state(self, stored: bytes) -> bytes | None:
        try:
            state = decompressed(stored)
        except zstandard.ZstdError:
            return None
        return state if self.is_state(state) else None

    def read(self, transcript: Transcript, max_bytes: int, now: float, seen_ms: int) -> Piece:
        """Reads on. Raises Refused, or the OSError of a file that cannot be read just now."""
        chunk = self.chunk_of(transcript, max_bytes)
        anew = chunk.rewound is not None or transcript.cursor is None
        before = 0 if anew or transcript.cursor is None else transcript.cursor.position
        lost = self._given_up(transcript) if chunk.rewound is not None else []
        reader = self._reader(transcript, anew=anew)
        unused = UnusedLines(() if anew or transcript.cursor is None else transcript.cursor.unused)
        for place in chunk.skipped:
            unused.skip(TOO_LONG, *place)
        if chunk.cut is not None:
            unused.skip(TOO_LARGE, *chunk.cut)
        self._feed(transcript, reader, chunk.lines, unused)
        cursor = chunk.cursor
        if chunk.tail is not None and cursor.has_untried_tail:
            cursor = self._after_tail(transcript, reader, cursor, chunk.tail, unused)
        if chunk.lines:
            transcript.changed_at = now
        if not chunk.more and seen_ms - cursor.ctime_ns // 1_000_000 > OLD_MS:
            reader.flush()  # nobody has written to it for long: its last message is what it is
        cursor = msgspec.structs.replace(cursor, unused=unused.all())
        piece = self._piece(transcript, cursor, anew=anew, seen_ms=seen_ms)
        piece.reading.candidates[:0] = lost
        return piece._replace(
            consumed=cursor.position - before,
            more=chunk.more,
            skipped=tuple(unused.skipped),
            rewound=chunk.rewound,
            is_unfinished=cursor.unfinished and not chunk.cursor.unfinished,
        )

    def take_tail(self, transcript: Transcript, seen_ms: int, *, only_whole: bool = False) -> Piece | None:
        """The last line of a quiet file that never got its newline, if it is whole; None if that cannot be told.

        With `only_whole` also if it is not whole, which else is noted: it may still become so.
        """
        before = transcript.cursor
        if before is None or not before.has_untried_tail:
            return None
        tail = self._files.unfinished(transcript.path, before, root=transcript.root)
        if tail is None or (only_whole and not _is_whole(tail)):
            return None
        unused = UnusedLines(before.unused)
        cursor = self._after_tail(transcript, self._reader(transcript, anew=False), before, tail, unused)
        cursor = msgspec.structs.replace(cursor, unused=unused.all())
        piece = self._piece(transcript, cursor, anew=False, seen_ms=seen_ms)
        return piece._replace(skipped=tuple(unused.skipped), is_unfinished=cursor.unfinished)

    def settle(self, transcript: Transcript, seen_ms: int, *, answered_only: bool) -> Piece | None:
        """Settles what is open in a transcript, all of it or only what has its answers."""
        if transcript.cursor is None:
            return None
        reader = self._reader(transcript, anew=False)
        reader.flush(answered_only=answered_only)
        return self._piece(transcript, transcript.cursor, anew=False, seen_ms=seen_ms)

    def load(self, transcript: Transcript, now: float) -> None:
        """Brings a transcript's reader back from its state, so that what is open in it can be seen."""
        self._reader(transcript, anew=False)
        transcript.changed_at = now

    def forget(self, path: str) -> None:
        """Drops what is in memory of a file: it is read on from what the index says."""
        self._known.pop(path, None)
        self._files.release(path)

    def held(self) -> list[str]:
        """The files whose last lines can be read even after they were deleted."""
        return self._files.paths()

    def live(self) -> list[Transcript]:
        return list(self._known.values())

    def trim(self, is_busy: Callable[[str], bool]) -> None:
        """Drops readers without open turns, the least recently used first, and closes idle descriptors.

        Files that are `is_busy` are left out: the worker thread may be using their reader.
        """
        self._files.expire()
        spare = len(self._known) - _READERS_KEPT
        for path, transcript in list(self._known.items())[: max(0, spare)]:
            if not is_busy(path) and not transcript.waiting_sessions:
                self._known.pop(path)

    def close(self) -> None:
        self._files.close()
        self._packs.close()
        self.guard.close()

    def _feed(self, transcript: Transcript, reader: LogReader, lines: Sequence[Line], unused: UnusedLines) -> None:
        def skip(line: Line) -> None:
            unused.skip(FATAL, line[0], len(line[1]) + 1)

        for offset, line in self.guard.each(path_key(transcript.path), lines, itemgetter(0), skip):
            if (reason := reader.feed(line, offset)) is not None:
                unused.reject(reason, offset, len(line) + 1)

    def _after_tail(
        self, transcript: Transcript, reader: LogReader, cursor: Cursor, tail: Tail, unused: UnusedLines
    ) -> Cursor:
        """Feeds a last line that never got its newline, if it is whole; the cursor behind it, or with a note on it."""
        if tail.data is None or not _is_whole(tail):
            return msgspec.structs.replace(cursor, unfinished=True)
        self._feed(transcript, reader, [(tail.offset, tail.data)], unused)
        return tail.cursor

    def _given_up(self, transcript: Transcript) -> list[Candidate]:
        """What was open in a file that is read again from its start: its lines may be gone, and it was billed."""
        reader = self._reader(transcript, anew=False)
        reader.flush()
        lost: list[Candidate] = reader.take().candidates
        transcript.state = reader.again()
        return lost

    def _reader(self, transcript: Transcript, *, anew: bool) -> LogReader:
        self.look_beside(transcript)
        if anew:
            transcript.reader = None
        if transcript.reader is None:
            transcript.packs = self._packs.of(self.source, path_key(transcript.path))
            transcript.packs.blank = anew
            transcript.reader = self.reader_of(transcript, transcript.packs)
        return transcript.reader

    def _piece(self, transcript: Transcript, cursor: Cursor, *, anew: bool, seen_ms: int) -> Piece:
        assert transcript.reader is not None  # noqa: S101 - every caller has just used it
        is_open = bool(transcript.waiting_sessions)
        reading = transcript.reader.take()
        transcript.state = reading.state
        content, cursor = self._shelve(transcript, self.content_of(transcript, reading), cursor)
        transcript.cursor = cursor
        change = FileChange(
            source=self.source,
            path=path_key(transcript.path),
            cursor=msgspec.msgpack.encode(cursor),
            state=compressed(reading.state),
            pack=reading.pack,
            replaces=reading.replaces,
            anew=anew,
            seen_ms=seen_ms,
            root=path_key(transcript.root),
            open=is_open,
        )
        return Piece(transcript.path, transcript.root, reading, change, content)

    def _shelve(
        self, transcript: Transcript, content: Sequence[Content], cursor: Cursor
    ) -> tuple[list[Shelved], Cursor]:
        """Content in its stored form, and the cursor with the skipped lines."""
        unused = UnusedLines(cursor.unused)

        def skip(_record: Content) -> None:
            unused.skip(FATAL_WORDS, cursor.offset, 0)

        allowed = self.guard.each(path_key(transcript.path), content, _content_name, skip)
        made = shelve(allowed, self._inline_bytes)
        return made, msgspec.structs.replace(cursor, unused=unused.all()) if unused.skipped else cursor


def _content_name(record: Content) -> str:
    return f"{record.rail_id} {record.message_id} {record.n} {record.b}"


def batch_of(pieces: Sequence[Piece]) -> Batch:
    """Several pieces as one batch."""
    batch = Batch()
    for piece in pieces:
        reading = piece.reading
        source, path = piece.change.source, piece.change.path
        batch.candidates += [Submission(candidate, path) for candidate in reading.candidates]
        batch.shelved += piece.content
        batch.entries += [*reading.sessions, *reading.events, *reading.compactions, *reading.requests, *reading.quotas]
        batch.sessions |= _session_of(piece)
        batch.overheads += reading.overheads
        batch.source = source
        if reading.session_id:
            batch.origins += [CameFrom(reading.session_id, *told) for told in reading.origins.items()]
            batch.origins += [CameFrom(reading.session_id, *told, True) for told in reading.process_origins.items()]
            batch.copied |= {(reading.session_id, message_id) for message_id in reading.copied}
        batch.agents += [
            AgentRow(
                link.session_id,
                link.agent_id,
                ToldBy[link.told_by.upper()],
                link.tool_use_id or "",
                link.ts,
                link.type,
                link.group_id,
            )
            for link in reading.agents
        ]
        batch.files.append(piece.change)
    return batch


def _session_of(piece: Piece) -> set[SeenSession]:
    """Whose session a piece is of: one that never got an answer has no turn to tell it by."""
    session_id = piece.reading.session_id
    if any(session.session_id == session_id for session in piece.reading.sessions):
        return set()
    if not session_id or not (piece.content or piece.reading.candidates):
        return set()
    return {SeenSession(session_id, piece.change.source, piece.reading.project)}


def _is_whole(tail: Tail) -> bool:
    """Whether nothing but its newline is missing: no beginning of an object is one."""
    try:
        return tail.data is not None and isinstance(msgspec.json.decode(tail.data), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
