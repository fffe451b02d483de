"""Facts about a session from outside its transcript: summaries in other sessions' files, and its process.

Old clients wrote a summary into another session's file. It is recorded with the session that has the line it names, so
that it is deleted with that session's content; until that line is read, only its position is stored.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO, Final, NamedTuple, cast

import anyio
import anyio.to_thread
import msgspec
import zstandard

from burnd.harness.claude_code import lines as claude_lines
from burnd.harness.claude_code.lines import BARE, IGNORED, SOURCE, leading_type, parse_path
from burnd.harness.claude_code.product import live_sessions
from burnd.harness.claude_code.reader import parse_summary
from burnd.harness.claude_code.state import ClaudeReading, load_state
from burnd.harness.tool_calls import short_hash
from burnd.index.change import CursorChange
from burnd.index.keys import decompressed, path_key, path_of
from burnd.index.store import IndexStore
from burnd.logfiles.log_reader import Piece
from burnd.logfiles.scanner import Refused, open_regular
from burnd.logfiles.tail import MAX_LINE, load_cursor
from burnd.recording.candidate import Batch, SessionOrigin
from burnd.records import Content

_TITLE_CURSORS = f"{SOURCE}/leaf-titles"
_LOGS_BELOW = "SELECT path, root, cursor, state FROM files WHERE source = ? AND path >= ? AND path < ?"
_UUID_KEY: Final = b'"uuid":"'
_LONGEST_UUID: Final = 201  # with the quote behind it
_BLOCK: Final = 1 << 20
_SEARCHED_AT_ONCE: Final = 8 << 20


class Summary(NamedTuple):
    root: str
    path: str
    offset: int
    ts: str


class LeafLine(NamedTuple):
    session_id: str
    uuid: str
    offset: int


class LeafTitles:
    """The positions of all summaries, by the uuid of the line they name.

    A line that is read later than its summary is found when it comes. Logs that were read before are searched when
    there is nothing to read, some megabytes at a time and once for all new summaries of a folder.
    """

    def __init__(self) -> None:
        self.summaries: defaultdict[str, set[Summary]] = defaultdict(set)
        self._unsearched: defaultdict[str, set[tuple[str, Summary]]] = defaultdict(set)  # by folder
        self._search: _FolderSearch | None = None
        self.has_unsearched = False

    async def load(self, index: IndexStore) -> None:
        rows = await index.rows("SELECT key, value FROM cursors WHERE source = ?", (_TITLE_CURSORS,))
        try:
            for key, value in rows:
                leaf, path_of_log, offset = msgspec.json.decode(key, type=tuple[str, str, int])
                root, path, ts, is_searched = msgspec.msgpack.decode(value, type=tuple[bytes, bytes, str, bool])
                summary = Summary(os.fsdecode(root), os.fsdecode(path), offset, ts)
                self.summaries[leaf].add(summary)
                if not is_searched:
                    self._unsearched[os.path.dirname(path_of_log)].add((leaf, summary))
                    self.has_unsearched = True
        except (msgspec.MsgspecError, ValueError) as error:
            raise index.failed(error) from error

    async def add_to(self, batch: Batch, pieces: Sequence[Piece]) -> None:
        new: dict[Summary, Content] = {}
        for piece in pieces:
            for leaf, offset, content in cast("ClaudeReading", piece.reading).titles:
                summary = Summary(piece.root, piece.path, offset, content.ts)
                new[summary] = content
                self.summaries[leaf].add(summary)
                self._unsearched[os.path.dirname(piece.change.path)].add((leaf, summary))
                self.has_unsearched = True
                batch.cursors.append(_cursor(leaf, summary, is_searched=False))
        for piece in pieces if self.summaries else ():
            batch.content += await self._titles_of(piece, new)

    async def search(self, index: IndexStore) -> Batch | None:
        """Searches some logs for the lines of new summaries; None if there is nothing to record yet."""
        if self._search is None:
            if not self._unsearched:
                return None
            folder, summaries = self._unsearched.popitem()
            logs = await index.rows(_LOGS_BELOW, (SOURCE, folder + "/", folder + "0"))
            self._search = _FolderSearch(summaries, list(logs))
        search = self._search
        lines = await anyio.to_thread.run_sync(search.next_lines)
        batch = Batch()
        for line in lines:
            named = sorted(summary for leaf, summary in search.summaries if leaf == line.uuid)
            batch.content += await self._of_line(named, line, {})
        if not search.logs:
            self._search, self.has_unsearched = None, bool(self._unsearched)
            batch.cursors += [_cursor(leaf, summary, is_searched=True) for leaf, summary in sorted(search.summaries)]
        return batch if batch.cursors or batch.content else None

    async def _titles_of(self, piece: Piece, new: Mapping[Summary, Content]) -> list[Content]:
        session_id, offsets = piece.reading.session_id, cast("ClaudeReading", piece.reading).offsets
        if session_id is None:
            return []
        content: list[Content] = []
        for uuid in sorted(self.summaries.keys() & offsets.keys()):
            line = LeafLine(session_id, uuid, offsets[uuid])
            # A summary is about a session of its project: of a log in or below its folder.
            nearby = [
                one
                for one in sorted(self.summaries[uuid])
                if piece.change.path.startswith(f"{os.path.dirname(path_key(one.path))}/")
            ]
            content += await self._of_line(nearby, line, new)
        return content

    async def _of_line(
        self, summaries: Iterable[Summary], line: LeafLine, new: Mapping[Summary, Content]
    ) -> list[Content]:
        content: list[Content] = []
        for one in summaries:
            title = new.get(one) or parse_summary(await anyio.to_thread.run_sync(_line_at, one), line.uuid, one.ts)
            content += [_assign(title, line)] if title is not None else []
        return content


def _cursor(leaf: str, summary: Summary, *, is_searched: bool) -> CursorChange:
    """The stored form, with the path's bytes, since the key of a path that is not UTF-8 cannot be opened."""
    key = msgspec.json.encode((leaf, path_key(summary.path), summary.offset)).decode()
    folders = os.fsencode(summary.root), os.fsencode(summary.path)
    return CursorChange(_TITLE_CURSORS, key, msgspec.msgpack.encode((*folders, summary.ts, is_searched)))


def _line_at(summary: Summary) -> bytes:
    try:
        with os.fdopen(open_regular(summary.path, root=summary.root), "rb") as file:
            file.seek(summary.offset)
            return file.readline(MAX_LINE).removesuffix(b"\n")
    except (OSError, Refused, ValueError):
        return b""


class _FolderSearch:
    """Searches the logs of a folder, as far as they are read, for the lines that some summaries name."""

    def __init__(self, summaries: set[tuple[str, Summary]], logs: list[tuple[str, str, bytes, bytes]]) -> None:
        self.summaries = summaries
        self.logs = logs
        self._leaves = {leaf.encode() for leaf, _ in summaries}

    def next_lines(self) -> list[LeafLine]:
        """The lines in some of the logs left. Blocking."""
        lines: list[LeafLine] = []
        size = 0
        while self.logs and size < _SEARCHED_AT_ONCE:
            path, root, stored_cursor, stored_state = self.logs.pop()
            place, cursor = parse_path(f"project/{os.path.basename(path)}"), load_cursor(stored_cursor)
            if place is None or place.rail_id is not None or cursor is None:
                continue
            with suppress(OSError, Refused, ValueError, zstandard.ZstdError):
                state = load_state(decompressed(stored_state))
                if state is None or state.session_id is None:
                    continue
                size += cursor.offset
                with os.fdopen(open_regular(path_of(path), root=path_of(root)), "rb") as file:
                    if self._mentions(file, cursor.offset):
                        file.seek(0)
                        lines += self._lines(file, cursor.offset, state.session_id)
        return lines

    def _mentions(self, file: BinaryIO, end: int) -> bool:
        """Whether any line may be one of them: most logs have none."""
        tail = b""
        while end > 0 and (block := file.read(min(_BLOCK, end))):
            end -= len(block)
            parts = (tail + block).split(_UUID_KEY)
            if not self._leaves.isdisjoint([part[: part.find(b'"', 0, _LONGEST_UUID)] for part in parts[1:]]):
                return True
            tail = (_UUID_KEY if len(parts) > 1 else b"") + parts[-1][-_LONGEST_UUID:]
        return False

    def _lines(self, file: BinaryIO, end: int, session_id: str) -> Iterator[LeafLine]:
        offset = 0
        while offset < end and (line := file.readline(MAX_LINE)):
            if any(leaf in line for leaf in self._leaves) and leading_type(line) not in BARE | IGNORED:
                decoded = claude_lines.lines.value(line)
                if decoded is not None and decoded.uuid is not None and decoded.uuid.encode() in self._leaves:
                    yield LeafLine(session_id, decoded.uuid, offset)
            offset += len(line)


def _assign(content: Content, line: LeafLine) -> Content:
    """The summary as content of the line's session, numbered by the line's offset, so that the last line counts."""
    name = f"{content.message_id}:{line.uuid}:{short_hash(str(content.text).encode())}"
    return msgspec.structs.replace(content, session_id=line.session_id, message_id=name, n=line.offset)


_PROCESS_CURSORS: Final = f"{SOURCE}/processes"


class LiveProcesses:
    """The last session of each process, by config folder, pid and start time."""

    def __init__(self) -> None:
        self._sessions: dict[str, str] = {}
        self._lock = anyio.Lock()

    async def load(self, index: IndexStore) -> None:
        rows = await index.rows("SELECT key, value FROM cursors WHERE source = ?", (_PROCESS_CURSORS,))
        self._sessions = {key: bytes(value).decode("utf-8", "replace") for key, value in rows}

    async def add_to(self, batch: Batch, roots: Iterable[str], now_ms: int) -> None:
        async with self._lock:
            self._compare(batch, await anyio.to_thread.run_sync(_live, sorted(set(roots))), now_ms)

    def _compare(self, batch: Batch, live: dict[str, str], now_ms: int) -> None:
        for process, session_id in live.items():
            before = self._sessions.get(process)
            if before == session_id:
                continue
            self._sessions[process] = session_id
            batch.cursors.append(CursorChange(_PROCESS_CURSORS, process, session_id.encode()))
            if before is not None:
                batch.origins.append(SessionOrigin(session_id, before, now_ms, True))
        for process in self._sessions.keys() - live.keys():
            del self._sessions[process]
            batch.cursors.append(CursorChange(_PROCESS_CURSORS, process, None))


def _live(roots: list[str]) -> dict[str, str]:
    """The session of each process; the start time distinguishes processes with the same pid."""
    live: dict[str, str] = {}
    for config in map(os.path.dirname, roots):
        for pid, session in live_sessions(config).items():
            with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
                start = file.read().rpartition(b")")[2].split()[19].decode()
                live[f"{config} {pid} {start}"] = session.id
    return live
