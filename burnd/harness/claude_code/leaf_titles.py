"""Summaries that old clients wrote into another session's file: they belong to whoever holds the line they name.

A summary is kept with the sessions that turn out to hold the line, and nowhere else, so that it goes when their content
goes. Of one whose line nobody holds yet, only where it stands is remembered.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

import anyio.to_thread
import msgspec
import zstandard

from burnd.harness.claude_code.beside import summary_in
from burnd.harness.claude_code.place import place_of
from burnd.harness.claude_code.state import Reading, load_state
from burnd.harness.tool_calls import short_hash
from burnd.index import packs
from burnd.index.change import CursorChange
from burnd.index.path_key import path_key
from burnd.index.reading import LINK, link_of
from burnd.index.store import IndexStore
from burnd.logfiles.safe_open import Refused, open_regular
from burnd.logfiles.tail import MAX_LINE
from burnd.logfiles.transcripts import Piece, batch_of
from burnd.recording.batch import Batch
from burnd.recording.candidate import SOURCE
from burnd.recording.pipeline import Pipeline
from burnd.records import Content

_KEPT_AS = f"{SOURCE}/leaf-titles"


class _Told(NamedTuple):
    """Where a summary stands, and when it was told."""

    root: str
    path: str
    offset: int
    ts: str


class LeafTitles:
    """Knows which lines have a summary, and where it stands."""

    def __init__(self) -> None:
        self._told: defaultdict[str, set[_Told]] = defaultdict(set)

    async def load(self, index: IndexStore) -> None:
        rows = await index.rows("SELECT key, value FROM cursors WHERE source = ?", (_KEPT_AS,))
        try:
            for key, value in rows:
                leaf, _, offset = msgspec.json.decode(key, type=tuple[str, str, int])
                root, path, ts = msgspec.msgpack.decode(value, type=tuple[bytes, bytes, str])
                self._told[leaf].add(_Told(os.fsdecode(root), os.fsdecode(path), offset, ts))
        except (msgspec.MsgspecError, ValueError) as error:
            raise index.failed(error) from error

    async def batch_of(self, pipeline: Pipeline, pieces: Sequence[Piece]) -> Batch:
        """The pieces as one batch, with the summaries that found their sessions by them."""
        batch = batch_of(pieces)
        holders = await _holders(pipeline.index, pieces)
        new: dict[_Told, Content] = {}
        for piece in pieces:
            for leaf, offset, content in _reading(piece).titles:
                told = _Told(piece.root, piece.path, offset, content.ts)
                new[told] = content
                self._told[leaf].add(told)
                batch.cursors.append(_cursor(leaf, told))
                batch.content += [_for(content, leaf, *held) for held in holders.get((_folder(piece), leaf), ())]
        for piece in pieces if self._told else ():
            session_id = piece.reading.session_id
            if session_id is None or not _is_main(piece.change.path):
                continue
            for leaf, offset in _lines_of(piece.change.pack, self._told):
                told_of_it = [told for told in self._told[leaf] if _is_beside(piece, told)]
                found = await anyio.to_thread.run_sync(_found, leaf, told_of_it, new)
                batch.content += [_for(content, leaf, session_id, offset) for content in found]
        return batch


def _cursor(leaf: str, told: _Told) -> CursorChange:
    """With the path as bytes beside its key: one that is no UTF-8 could not be opened by that."""
    key = msgspec.json.encode((leaf, path_key(told.path), told.offset)).decode()
    where = os.fsencode(told.root), os.fsencode(told.path)
    return CursorChange(_KEPT_AS, key, msgspec.msgpack.encode((*where, told.ts)))


def _found(leaf: str, told: Iterable[_Told], new: Mapping[_Told, Content]) -> list[Content]:
    """The summaries of a line: those just read, and the others from where they stand; one that is gone is none."""
    again = [new.get(one) or summary_in(_line_at(one), leaf, one.ts) for one in sorted(told)]
    return [content for content in again if content is not None]


def _line_at(told: _Told) -> bytes:
    try:
        fd = open_regular(told.path, root=told.root)
    except (OSError, Refused, ValueError):
        return b""
    try:
        with os.fdopen(fd, "rb") as file:
            file.seek(told.offset)
            return file.readline(MAX_LINE).removesuffix(b"\n")
    except OSError:
        return b""


def _reading(piece: Piece) -> Reading:
    return cast("Reading", piece.reading)  # what Claude Code's reader gives away


def _folder(piece: Piece) -> str:
    return os.path.dirname(piece.change.path)


def _is_beside(piece: Piece, told: _Told) -> bool:
    """Whether a log stands in the folder of a summary or below: those of other projects are not looked for either."""
    return piece.change.path.startswith(f"{os.path.dirname(path_key(told.path))}/")


def _is_main(path: str) -> bool:
    """Whether a log is a session's own: what one of its agents was about is not what it was about."""
    place = place_of(f"project/{os.path.basename(path)}")
    return place is not None and place.rail_id is None


async def _holders(index: IndexStore, pieces: Sequence[Piece]) -> dict[tuple[str, str], list[tuple[str, int]]]:
    """The sessions whose files hold a line that a summary names, and where, by (folder, line): those of one project."""
    wanted: dict[str, set[str]] = {}
    for piece in pieces:
        if _reading(piece).titles:
            leaves = wanted.setdefault(_folder(piece), set())
            leaves.update(title.leaf_uuid for title in _reading(piece).titles)
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for folder, leaves in wanted.items():
        for session_id, leaf, offset in await index.ask(partial(_lines_in, folder=folder, leaves=leaves), within=60):
            found.setdefault((folder, leaf), []).append((session_id, offset))
    return found


def _lines_in(db: sqlite3.Connection, folder: str, leaves: set[str]) -> list[tuple[str, str, int]]:
    cursor = db.execute(
        "SELECT f.id, f.path, p.rows FROM files f JOIN reader_packs p ON p.file = f.id "
        "WHERE f.source = ? AND f.path >= ? AND f.path < ?",
        (SOURCE, folder + "/", folder + "0"),
    )
    found = []
    for file, path, data in cursor:
        lines = _lines_of(data, leaves) if _is_main(path) else []
        if lines and (session_id := _session_of(db, file)) is not None:
            found += [(session_id, leaf, offset) for leaf, offset in lines]
    return found


def _session_of(db: sqlite3.Connection, file: int) -> str | None:
    """Whose session a log was read as; not every path tells it."""
    ((data,),) = db.execute("SELECT state FROM files WHERE id = ?", (file,)).fetchall()
    try:
        state = load_state(packs.decompressed(data or b""))
    except zstandard.ZstdError:
        return None  # it will be read again
    return state.facts.session_id if state is not None else None


def _lines_of(pack: bytes, leaves: Iterable[str]) -> list[tuple[str, int]]:
    """Those of the lines that a reader gave away in this pack, and where they begin."""
    if not pack:
        return []
    links = packs.unpack(pack)[LINK]
    return [(leaf, link_of(row).offset) for leaf in leaves if (row := links.get(leaf)) is not None]


def _for(content: Content, leaf: str, session_id: str, offset: int) -> Content:
    """The summary for a session that holds its line: numbered by where that stands, so that the furthest one counts."""
    name = f"{content.message_id}:{leaf}:{short_hash(str(content.text).encode())}"
    return msgspec.structs.replace(content, session_id=session_id, message_id=name, n=offset)
