"""Summaries that old clients wrote into another session's file: they belong to whoever holds the line they name.

The text is kept where it was found, in the sidecar of that file's session, and given to every session that turns
out to hold the line; the index only remembers where to look.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import cast

import msgspec

from burnd.index import packs
from burnd.index.change import CursorChange
from burnd.index.reading import LINK, link_of
from burnd.index.store import IndexStore
from burnd.readers.claude_place import place_of
from burnd.readers.claude_state import Reading
from burnd.readers.holding import SOURCE
from burnd.recording.batch import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Content
from burnd.records.content import LEAF
from burnd.sources.transcripts import Piece, batch_of

_KEPT_AS = f"{SOURCE}/leaf-titles"


class LeafTitles:
    """Knows which lines have a summary, and in which session's sidecar it stands."""

    def __init__(self) -> None:
        self._kept_in: dict[str, str] = {}

    async def load(self, index: IndexStore) -> None:
        rows = await index.rows("SELECT key, value FROM cursors WHERE source = ?", (_KEPT_AS,))
        try:
            self._kept_in = {leaf: bytes(session).decode() for leaf, session in rows}
        except UnicodeDecodeError as error:
            raise index.failed(error) from error

    async def batch_of(self, pipeline: Pipeline, pieces: Sequence[Piece]) -> Batch:
        """The pieces as one batch, with the summaries that found their sessions by them."""
        batch = batch_of(pieces)
        content: list[Content] = []
        texts: dict[str, Content] = {}
        holders = await _holders(pipeline.index, pieces)
        for piece in pieces:
            for title in _reading(piece).titles:
                leaf = title.leaf_uuid
                texts[leaf] = msgspec.structs.replace(title.content, message_id=LEAF + leaf)
                self._kept_in[leaf] = title.content.session_id
                batch.cursors.append(CursorChange(_KEPT_AS, leaf, title.content.session_id.encode()))
                content.append(texts[leaf])
                content += [_for(texts[leaf], *held) for held in holders.get((_folder(piece), leaf), ())]
        for piece in pieces:
            lines, session_id = _reading(piece).lines, piece.reading.session_id
            for leaf in self._kept_in.keys() & lines.keys():
                found = [texts[leaf]] if leaf in texts else _stored(pipeline, self._kept_in[leaf], LEAF + leaf)
                content += [_for(record, session_id, lines[leaf]) for record in found if session_id is not None]
        batch.content += content
        return batch


def _stored(pipeline: Pipeline, session_id: str, message_id: str) -> list[Content]:
    return list(pipeline.content.read_content(session_id, message_id))


def _reading(piece: Piece) -> Reading:
    return cast("Reading", piece.reading)  # what Claude Code's reader gives away


def _folder(piece: Piece) -> str:
    return os.path.dirname(piece.change.path)


async def _holders(index: IndexStore, pieces: Sequence[Piece]) -> dict[tuple[str, str], list[tuple[str, int]]]:
    """The sessions whose files hold a line that a summary names, and where, by (folder, line): those of one project."""
    wanted: dict[str, set[str]] = {}
    for piece in pieces:
        if _reading(piece).titles:
            leaves = wanted.setdefault(_folder(piece), set())
            leaves.update(title.leaf_uuid for title in _reading(piece).titles)
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for folder, leaves in wanted.items():
        for path, leaf, offset in await index.ask(partial(_files_with, folder=folder, leaves=leaves), within=60):
            place = place_of(f"project/{os.path.basename(path)}")
            if place is not None and place.session_id is not None:
                found.setdefault((folder, leaf), []).append((place.session_id, offset))
    return found


def _files_with(db: sqlite3.Connection, folder: str, leaves: set[str]) -> list[tuple[str, str, int]]:
    cursor = db.execute(
        "SELECT f.path, p.rows FROM files f JOIN reader_packs p ON p.file = f.id "
        "WHERE f.source = ? AND f.path >= ? AND f.path < ?",
        (SOURCE, folder + "/", folder + "0"),
    )
    found = []
    for path, data in cursor:
        links = packs.unpack(data)[LINK]
        found += [(path, leaf, link_of(row).offset) for leaf in leaves if (row := links.get(leaf)) is not None]
    return found


def _for(record: Content, session_id: str, offset: int) -> Content:
    """The summary for a session that holds its line: numbered by where that stands, so that the furthest one counts."""
    leaf = record.message_id.removeprefix(LEAF)
    return msgspec.structs.replace(record, session_id=session_id, message_id=f"title:summary:{leaf}", n=offset)
