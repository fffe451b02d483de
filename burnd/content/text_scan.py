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
from burnd.records.codec import clean, decode_content
from burnd.records.content import Content

Report = Callable[[int, int], None]


class ScanStopped(Exception):
    """The scan was stopped."""


class TextScan:
    """One scan. `run` blocks; `stop` may be called from another thread."""

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
        self._total = sum(sidecar.size for sidecar in sidecars.scan())
        sessions = self._in_blobs() if self._home.blobs.exists() else set()
        for sidecar in sidecars.scan():
            session_id = sidecars.session_of(sidecar.path)
            if session_id is not None and session_id not in sessions and self._is_in_sidecar(sidecar.path):
                sessions.add(session_id)
            self._advance(sidecar.size)
        return sessions

    def _in_blobs(self) -> set[str]:
        with contextlib.closing(sqlite3.connect(read_only(self._home.blobs), uri=True)) as db:
            db.execute("PRAGMA temp_store=MEMORY")
            db.execute("CREATE TEMP TABLE matched(blob INTEGER PRIMARY KEY)")
            db.execute("BEGIN")  # one snapshot: packs are rewritten now and then
            self._total += db.execute("SELECT coalesce(sum(length(data)), 0) FROM pack").fetchone()[0]
            for (pack,) in db.execute("SELECT id FROM pack ORDER BY id").fetchall():
                row = db.execute("SELECT data FROM pack WHERE id = ?", (pack,)).fetchone()
                if row is None:
                    continue
                with contextlib.suppress(zstandard.ZstdError):  # damaged; reading it reports that
                    raw = zstandard.decompress(row[0])
                    blobs = db.execute(f"SELECT id, start, length FROM blob WHERE {IN_PACK}", (pack,)).fetchall()
                    matched = [(blob,) for blob, start, length in blobs if self._is_in(raw[start : start + length])]
                    many(db, "INSERT OR IGNORE INTO matched VALUES(?)", matched)
                self._advance(len(row[0]))
            # One scan of `ref`, which has no index by blob.
            holders = "SELECT session_id FROM holder WHERE id IN (SELECT holder FROM ref WHERE blob IN matched)"
            return {session_id for (session_id,) in db.execute(holders)}

    def _is_in_sidecar(self, path: Path) -> bool:
        """Raises StorageError for an unreadable sidecar, since the text may be in it."""
        try:
            for _, _, line in read_lines(path):
                # Most lines need no decoding: text without escapes is the same in JSON.
                record = decode_content(line) if self._needle in line or b"\\" in line else None
                if isinstance(record, Content) and any(map(self._is_in, _texts_of(record))):
                    return True
        except FileNotFoundError:  # pruned meanwhile
            pass
        except OSError as error:
            raise as_storage_error(error, path) from error
        return False

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
            raise ScanStopped
        self._done += size
        self._report(self._done, self._total)


def _texts_of(record: Content) -> Iterator[bytes]:
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
