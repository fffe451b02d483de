"""Finds the sessions whose content has a text, by reading every sidecar and every blob, without an index."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from burnd.index.keys import read_only
from burnd.index.store import many
from burnd.ledger.blobs import IN_PACK
from burnd.ledger.files import as_storage_error
from burnd.ledger.lines import read_lines
from burnd.ledger.sidecars import Sidecars
from burnd.paths import Home
from burnd.records.codec import Skipped, clean, decode_content
from burnd.records.content import Content

Report = Callable[[int, int], None]


class Stopped(Exception):
    """The scan was stopped."""


class TextScan:
    """One scan. `run` blocks, in a worker thread; `stop` may be called from any other thread."""

    def __init__(self, home: Home, text: str, report: Report) -> None:
        self._home = home
        self._needle = clean(text).encode()
        self._text = clean(text)
        self._report = report
        self._stopped = threading.Event()
        self._done = self._total = 0

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> set[str]:
        """The sessions whose content has exactly this text."""
        sidecars = Sidecars(self._home.content)
        self._total = sum(sidecar.size for sidecar in sidecars.list())
        with self._blobs() as db:
            if db is not None:
                self._total += db.execute("SELECT coalesce(sum(length(data)), 0) FROM pack").fetchone()[0]
            sessions = set() if db is None else self._in_blobs(db)
        return sessions | self._in_sidecars(sidecars, sessions)

    @contextlib.contextmanager
    def _blobs(self) -> Iterator[sqlite3.Connection | None]:
        if not self._home.blobs.exists():
            yield None
            return
        with contextlib.closing(sqlite3.connect(read_only(self._home.blobs), uri=True)) as db:
            db.execute("PRAGMA temp_store=MEMORY")
            db.execute("CREATE TEMP TABLE matched(blob INTEGER PRIMARY KEY)")
            db.execute("BEGIN")  # one snapshot: packs are rewritten now and then
            yield db

    def _in_blobs(self, db: sqlite3.Connection) -> set[str]:
        for (pack,) in db.execute("SELECT id FROM pack ORDER BY id").fetchall():
            row = db.execute("SELECT data FROM pack WHERE id = ?", (pack,)).fetchone()
            if row is not None:
                blobs = [(blob,) for blob in self._in_pack(db, pack, row[0])]
                many(db, "INSERT OR IGNORE INTO matched VALUES(?)", blobs)
                self._advance(len(row[0]))
        return {session_id for (session_id,) in db.execute(_HOLDERS)}

    def _in_pack(self, db: sqlite3.Connection, pack: int, data: bytes) -> Iterator[int]:
        try:
            raw = zstandard.decompress(data)
        except zstandard.ZstdError:
            return  # damaged; reading it reports that
        sql = f"SELECT id, start, length FROM blob WHERE {IN_PACK}"
        for blob, start, length in db.execute(sql, (pack,)).fetchall():
            if self._is_in(raw[start : start + length]):
                yield blob

    def _in_sidecars(self, sidecars: Sidecars, skip: set[str]) -> set[str]:
        sessions: set[str] = set()
        for sidecar in sidecars.list():
            session_id = sidecars.session_of(sidecar.path)
            if session_id is not None and session_id not in skip and self._is_in_sidecar(sidecar.path):
                sessions.add(session_id)
            self._advance(sidecar.size)
        return sessions

    def _is_in_sidecar(self, path: Path) -> bool:
        """Raises StorageError for an unreadable sidecar, since the text may be in it."""
        try:
            return any(self._is_in_line(line) for _, _, line in read_lines(path))
        except FileNotFoundError:  # pruned meanwhile
            return False
        except OSError as error:
            raise as_storage_error(error, path) from error

    def _is_in_line(self, line: bytes) -> bool:
        # Most lines need no decoding: text without escapes is the same in JSON.
        if self._needle not in line and b"\\" not in line:
            return False
        record = decode_content(line)
        return not isinstance(record, Skipped) and any(map(self._is_in, _texts_of(record)))

    def _is_in(self, data: bytes) -> bool:
        """Whether the bytes, or the JSON in them, contain the text."""
        if self._needle in data:
            return True
        if b"\\" not in data:
            return False
        try:
            return any(self._text in text for text in _texts(msgspec.json.decode(data)))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return False

    def _advance(self, size: int) -> None:
        if self._stopped.is_set():
            raise Stopped
        self._done += size
        self._report(self._done, self._total)


# One scan of `ref`, which has no index by blob.
_HOLDERS = "SELECT session_id FROM holder WHERE id IN (SELECT holder FROM ref WHERE blob IN matched)"


def _texts_of(record: Content) -> Iterator[bytes]:
    """The texts of a record, without its position and references."""
    if isinstance(record.text, str):
        yield record.text.encode()
    if record.tool_use is not None:
        yield record.tool_use.name.encode()
        yield _unless_ref(record.tool_use.input)
    if record.tool_result is not None:
        yield _unless_ref(record.tool_result.content)
    if record.file is not None and record.file.name is not None:
        yield record.file.name.encode()
    if isinstance(record.context, str):
        yield record.context.encode()


def _unless_ref(raw: msgspec.Raw) -> bytes:
    data = bytes(raw)
    return b"" if data.startswith(b'{"blob"') else data


def _texts(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            stack += item
        elif isinstance(item, dict):
            stack += [*item.keys(), *item.values()]
