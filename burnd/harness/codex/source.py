"""Codex as a source: rollouts by day, archived and compressed ones, and the file of thread names."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, ClassVar, Final, cast

import anyio.to_thread
import msgspec
import zstandard

from burnd.harness.codex.product import PRODUCT
from burnd.harness.codex.reader import COMPRESSED, TITLE_ID, CodexReader, place_of, title_request, whole_contexts
from burnd.harness.codex.rollout import SOURCE, RolloutName, load_state
from burnd.harness.product import uuid7_ms
from burnd.harness.supervisor import SourceContext
from burnd.index.store import IndexStore
from burnd.logfiles.follower import LogFollower
from burnd.logfiles.log_reader import NEVER, Log, LogFormat, LogHistory, LogReading, iso
from burnd.logfiles.scanner import SUFFIX, Refused, lines_of, open_regular, small_file
from burnd.logfiles.tail import MAX_LINE, Chunk, Cursor, Line, Misfit
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.recording.source import Source
from burnd.records import Content, Request
from burnd.records.content import title_record
from burnd.records.foreign_json import SafeDecoder
from burnd.records.times import to_ms

MOST_UNPACKED = 512 << 20  # far more than a conversation; a small file may unpack to any size
_FINISHED: Final = b"read to its end"
_BLOCK: Final = 1 << 20
_LARGEST_WINDOW: Final = 1 << 27

_NAMES_FILE: Final = "session_index.jsonl"
LARGEST_NAMES_FILE: Final = 16 << 20
_FIRST_NUMBER: Final = 1 << 20  # of titles from that file, which override those in rollouts
_SOON_MS: Final = 10 * 60 * 1000
_EXISTING: Final = "SELECT session_id FROM sessions WHERE session_id IN ({keys})"


class CodexLogs(LogFormat):
    source: ClassVar[str] = SOURCE
    suffixes: ClassVar[tuple[str, ...]] = (SUFFIX, COMPRESSED)
    _pipeline: Pipeline
    _names: ThreadNames

    def roots_below(self, folders: Iterable[str]) -> list[str]:
        return PRODUCT.logs_below(folders)

    def place_of(self, relative: str) -> RolloutName | None:
        return place_of(relative)

    def is_state(self, data: bytes) -> bool:
        return load_state(data) is not None

    def reader(self, log: Log, history: LogHistory) -> CodexReader:  # noqa: ARG002
        return CodexReader(log.place, load_state(log.state))

    def compressed_chunk(self, log: Log, max_bytes: int) -> Chunk:
        return read_compressed(log.path, log.cursor, root=log.root, max_bytes=max_bytes)

    def content(self, log: Log, reading: LogReading) -> list[Content]:
        read_lines = _unpacked_lines_of if log.path.endswith(COMPRESSED) else lines_of
        with read_lines(log.path, log.root, log.private) as line_at:
            return list(whole_contexts(reading.content, line_at))

    async def begin(self, pipeline: Pipeline) -> None:
        self._pipeline, self._names = pipeline, ThreadNames()

    async def news(self, roots: Sequence[str]) -> Batch | None:
        folders = dict.fromkeys(map(os.path.dirname, roots))
        await anyio.to_thread.run_sync(self._names.read, folders)
        return await self._names.batch(self._pipeline.index)


def make(context: SourceContext) -> Source:
    return LogFollower(CodexLogs(), context.logs(PRODUCT), context.pipeline)


def read_compressed(path: str, cursor: Cursor | None, *, root: str | None, max_bytes: int) -> Chunk:
    """Reads the next lines of a compressed rollout, which never grows.

    The cursor counts unpacked bytes; `_FINISHED` replaces the hash of the file's head once all was read. Raises
    Refused, or OSError if it cannot be read now.
    """
    with os.fdopen(open_regular(path, root=root), "rb") as file:
        stat = os.fstat(file.fileno())
        identity = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_ctime_ns)
        before = cursor
        if cursor is not None and (cursor.dev, cursor.ino, cursor.size, cursor.ctime_ns) != identity:
            cursor = None
        if cursor is not None and cursor.head == _FINISHED:
            return Chunk([], cursor, stat.st_size, more=False)
        try:
            unpacked = _Unpacked(file, cursor.offset if cursor is not None else 0, max_bytes)
        except zstandard.ZstdError as error:
            raise OSError(errno.EIO, "not a zstd file, or damaged") from error
    after = Cursor(
        dev=stat.st_dev,
        ino=stat.st_ino,
        offset=unpacked.end,
        lines=len(unpacked.lines),
        head=b"" if unpacked.more else _FINISHED,
        size=stat.st_size,
        ctime_ns=stat.st_ctime_ns,
    )
    rewound: Misfit | None = "rewritten" if before is not None and cursor is None else None
    return Chunk(
        unpacked.lines,
        after,
        stat.st_size,
        more=unpacked.more,
        rewound=rewound,
        skipped=unpacked.skipped,
        cut=unpacked.cut,
    )


@contextlib.contextmanager
def unpacked(file: BinaryIO) -> Iterator[BinaryIO]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    with decompressor.stream_reader(file, read_across_frames=True, closefd=False) as stream:
        yield cast("BinaryIO", io.BufferedReader(stream, _BLOCK))


@contextlib.contextmanager
def _unpacked_lines_of(path: str, root: str, first: int = 0) -> Iterator[Callable[[int, int], bytes]]:
    """Like `lines_of`, for a compressed rollout: lines in the order of the file are unpacked once."""
    text: BinaryIO | None = None
    position = 0

    def line_at(offset: int, size: int) -> bytes:
        nonlocal text, position
        if offset < first:
            return b""
        try:
            if text is None or offset < position:
                opened.close()
                file = opened.enter_context(os.fdopen(open_regular(path, root=root), "rb"))
                text, position = opened.enter_context(unpacked(file)), 0
            while position < offset and (passed := len(text.read(min(offset - position, _BLOCK)))):
                position += passed
            line = text.read(size)
        except (OSError, Refused, ValueError, zstandard.ZstdError):
            return b""
        position += len(line)
        return line

    with contextlib.ExitStack() as opened:
        yield line_at


class _Unpacked:
    """Lines of about `most` bytes from `start` on; `skipped` and `cut` are (offset, size) of too long lines.

    `cut` is the first line beyond the limit of unpacked bytes.
    """

    def __init__(self, file: BinaryIO, start: int, most: int) -> None:
        self.lines: list[Line] = []
        self.skipped: list[tuple[int, int]] = []
        self.cut: tuple[int, int] | None = None
        self.end, self.more = start, True
        with unpacked(file) as text:
            while start > 0 and (passed := len(text.read(min(start, _BLOCK)))):
                start -= passed
            limit = self.end + most
            while self.more and self.end < limit:
                self._read_line(text)

    def _read_line(self, text: BinaryIO) -> None:
        at, line = self.end, text.readline(MAX_LINE + 1)
        size = len(line)
        if not line or at + size > MOST_UNPACKED:
            self.more, self.cut = False, (at, size) if line else None
            return
        if size <= MAX_LINE:
            self.lines.append((at, line.removesuffix(b"\n")))
        else:
            while line and not line.endswith(b"\n") and at + size <= MOST_UNPACKED:
                line = text.readline(_BLOCK)
                size += len(line)
            self.skipped.append((at, size))
        self.end += size


class NameLine(msgspec.Struct):
    """A line of the file of thread names, to which Codex appends every new name."""

    id: str | None = None
    thread_name: str | None = None
    updated_at: str | None = None


_name_lines: Final = SafeDecoder(NameLine)


class ThreadNames:
    """Reads the file of thread names when it changed, and keeps names until their threads are recorded."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[int, int, int]] = {}
        self._waiting: list[Content | Request] = []

    def read(self, folders: Iterable[str]) -> None:
        for folder in map(os.path.realpath, folders):
            path = os.path.join(folder, _NAMES_FILE)
            try:
                stat = os.stat(path, follow_symlinks=False)
            except OSError:
                continue
            version = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if self._read.get(path) != version:
                self._read[path] = version
                # Names recorded before have the same numbers, and are dropped as duplicates.
                titles = titles_in(small_file(path, folder, LARGEST_NAMES_FILE) or b"")
                self._waiting += [*titles, *title_requests(titles)]

    async def batch(self, index: IndexStore) -> Batch | None:
        if not self._waiting:
            return None
        ids = sorted({one.session_id for one in self._waiting})
        existing = {row[0] for row in await index.keyed(_EXISTING, [(one,) for one in ids])}
        ready = [one for one in self._waiting if one.session_id in existing]
        self._waiting = [one for one in self._waiting if one.session_id not in existing]
        if not ready:
            return None
        return Batch(
            content=[one for one in ready if isinstance(one, Content)],
            entries=[one for one in ready if isinstance(one, Request)],
        )


def titles_in(data: bytes) -> list[Content]:
    """Each name as a title; the newest of a thread has the highest number."""
    titles, counts = [], Counter[str]()
    for data_line in data.splitlines():
        line = _name_lines.value(data_line)
        if line is None or not line.id or not (name := (line.thread_name or "").strip()):
            continue
        ts = iso(line.updated_at) or NEVER
        titles.append(title_record(line.id, TITLE_ID, name, ts, n=_FIRST_NUMBER + counts[line.id]))
        counts[line.id] += 1
    return titles


def title_requests(titles: Iterable[Content]) -> list[Request]:
    """The requests for first names of threads, if given within minutes of the start."""
    first = [title for title in titles if title.n == _FIRST_NUMBER and title.ts != NEVER]
    return [
        title_request(title.session_id, title.ts)
        for title in first
        if (start := uuid7_ms(title.session_id)) is not None and 0 <= to_ms(title.ts) - start <= _SOON_MS
    ]
