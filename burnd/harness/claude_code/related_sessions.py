"""Facts about a session from outside its transcript: summaries in other sessions' files, and its process.

Old clients wrote a summary into another session's file. It is recorded with the sessions that have the line it names,
so that it is deleted with their content; until that line is read, only its position is stored. After /clear or /branch
a process works on another session, as its entry in the folder of live sessions shows.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, cast

import anyio
import anyio.to_thread
import msgspec
import zstandard

from burnd.harness.claude_code.lines import SOURCE, parse_path
from burnd.harness.claude_code.live_sessions import live_sessions
from burnd.harness.claude_code.reader import parse_summary
from burnd.harness.claude_code.state import ClaudeReading, lines_in, load_state
from burnd.harness.tool_calls import short_hash
from burnd.index.change import CursorChange
from burnd.index.keys import decompressed, path_key
from burnd.index.store import IndexStore
from burnd.logfiles.logs import Piece
from burnd.logfiles.scanner import Refused, open_regular
from burnd.logfiles.tail import MAX_LINE
from burnd.recording.candidate import Batch, SessionOrigin
from burnd.recording.pipeline import Pipeline
from burnd.records import Content

_TITLE_CURSORS = f"{SOURCE}/leaf-titles"


class Summary(NamedTuple):
    """The position of a summary, and the time when it was read."""

    root: str
    path: str
    offset: int
    ts: str


class LeafLine(NamedTuple):
    """A line that a summary names, and its session."""

    session_id: str
    uuid: str
    offset: int


class LeafTitles:
    """The positions of all summaries, by the uuid of the line they name."""

    def __init__(self) -> None:
        self._summaries: defaultdict[str, set[Summary]] = defaultdict(set)
        self._assigned: set[LeafLine] = set()  # a pack repeats lines of earlier readings

    async def load(self, index: IndexStore) -> None:
        rows = await index.rows("SELECT key, value FROM cursors WHERE source = ?", (_TITLE_CURSORS,))
        try:
            for key, value in rows:
                leaf, _, offset = msgspec.json.decode(key, type=tuple[str, str, int])
                root, path, ts = msgspec.msgpack.decode(value, type=tuple[bytes, bytes, str])
                self._summaries[leaf].add(Summary(os.fsdecode(root), os.fsdecode(path), offset, ts))
        except (msgspec.MsgspecError, ValueError) as error:
            raise index.failed(error) from error

    async def add_to(self, batch: Batch, pipeline: Pipeline, pieces: Sequence[Piece]) -> None:
        """Adds the summaries of lines in these or earlier pieces."""
        new: dict[Summary, Content] = {}
        for piece in pieces:
            titles = cast("ClaudeReading", piece.reading).titles
            lines = await _find_lines(pipeline.index, piece, {title.leaf_uuid for title in titles}) if titles else []
            for leaf, offset, content in titles:
                summary = Summary(piece.root, piece.path, offset, content.ts)
                new[summary] = content
                self._summaries[leaf].add(summary)
                batch.cursors.append(_cursor(leaf, summary))
                batch.content += [_assign(content, line) for line in lines if line.uuid == leaf]
        for piece in pieces if self._summaries else ():
            batch.content += await self._titles_of(piece, new)

    async def _titles_of(self, piece: Piece, new: Mapping[Summary, Content]) -> list[Content]:
        session_id = piece.reading.session_id
        if session_id is None or not _is_main(piece.change.path):
            return []
        lines = {LeafLine(session_id, *line) for line in lines_in(piece.change.pack, self._summaries)} - self._assigned
        content: list[Content] = []
        for line in sorted(lines):
            nearby = [one for one in self._summaries[line.uuid] if _is_nearby(piece, one)]
            titles = await anyio.to_thread.run_sync(_read_summaries, line.uuid, nearby, new)
            content += [_assign(title, line) for title in titles]
        self._assigned |= lines
        return content


def _cursor(leaf: str, summary: Summary) -> CursorChange:
    """The stored form, with the path's bytes, since the key of a path that is not UTF-8 cannot be opened."""
    key = msgspec.json.encode((leaf, path_key(summary.path), summary.offset)).decode()
    folders = os.fsencode(summary.root), os.fsencode(summary.path)
    return CursorChange(_TITLE_CURSORS, key, msgspec.msgpack.encode((*folders, summary.ts)))


def _read_summaries(leaf: str, summaries: Iterable[Summary], new: Mapping[Summary, Content]) -> list[Content]:
    """The summaries of a line: of this batch, and others from their files if still there."""
    titles = [new.get(one) or parse_summary(_line_at(one), leaf, one.ts) for one in sorted(summaries)]
    return [title for title in titles if title is not None]


def _line_at(summary: Summary) -> bytes:
    try:
        with os.fdopen(open_regular(summary.path, root=summary.root), "rb") as file:
            file.seek(summary.offset)
            return file.readline(MAX_LINE).removesuffix(b"\n")
    except (OSError, Refused, ValueError):
        return b""


def _is_nearby(piece: Piece, summary: Summary) -> bool:
    """Whether a log is in or below the folder of a summary, which is about a session of its project."""
    return piece.change.path.startswith(f"{os.path.dirname(path_key(summary.path))}/")


def _is_main(path: str) -> bool:
    """Whether a log is a session's and not an agent's."""
    parsed = parse_path(f"project/{os.path.basename(path)}")
    return parsed is not None and parsed.rail_id is None


async def _find_lines(index: IndexStore, piece: Piece, leaves: set[str]) -> list[LeafLine]:
    """Searches all sessions of the piece's project for lines with these uuids."""
    folder = os.path.dirname(piece.change.path)
    return await index.ask(partial(_lines_below, folder=folder, leaves=leaves), within=60, urgent=True)


def _lines_below(db: sqlite3.Connection, folder: str, leaves: set[str]) -> list[LeafLine]:
    cursor = db.execute(
        "SELECT f.id, f.path, p.rows FROM files f JOIN reader_packs p ON p.file = f.id "
        "WHERE f.source = ? AND f.path >= ? AND f.path < ?",
        (SOURCE, folder + "/", folder + "0"),
    )
    lines: list[LeafLine] = []
    for file, path, pack in cursor:
        matches = lines_in(pack, leaves) if _is_main(path) else []
        if matches and (session_id := _session_of(db, file)) is not None:
            lines += [LeafLine(session_id, uuid, offset) for uuid, offset in matches]
    return lines


def _session_of(db: sqlite3.Connection, file: int) -> str | None:
    """The session that a log was read as; None if it must be read again."""
    ((data,),) = db.execute("SELECT state FROM files WHERE id = ?", (file,)).fetchall()
    try:
        state = load_state(decompressed(data or b""))
    except zstandard.ZstdError:
        return None
    return state.session_id if state is not None else None


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
        """Adds the origins of sessions that processes of these roots switched to."""
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
