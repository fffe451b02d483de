"""What was said, read back for whoever asks: any number of readers, beside the one writer, without disturbing it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import zstandard

from burnd.index.store import read_only
from burnd.ledger.blobs import Found, sha_of
from burnd.ledger.sidecars import SUFFIX
from burnd.records import BlobRef, Content
from burnd.records.ids import file_stem

_PACKS_KEPT = 64  # of 256 KB each
_MOST_HELD = 256 << 10
_refs = msgspec.json.Decoder(BlobRef)
_contents = msgspec.json.Decoder(Content)  # the rows of the index were made from lines whose times are sound
_PLACE = "SELECT b.pack, length(p.data), b.start, b.length FROM blob b JOIN pack p ON p.id = b.pack WHERE b.sha = ?"
_ESCAPE = 12  # the most bytes of a JSON string that make one character


class Recall:
    """Reads records from sidecars and blobs. What is gone is said on the record: `lost` on its reference."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._blobs = _Blobs(folder / "blobs.db")

    @contextlib.contextmanager
    def opened(self, session_id: str) -> Iterator[Reading]:
        """A session's sidecar, open for as long as the block runs; without one, there is nothing to be read."""
        try:
            path = f"{self._folder}/{file_stem(session_id)}{SUFFIX}"
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            yield Reading(None, self._blobs)
            return
        try:
            yield Reading(fd, self._blobs)
        finally:
            os.close(fd)

    def close(self) -> None:
        self._blobs.close()


class Reading:
    """One open sidecar, and the large content that its records refer to."""

    def __init__(self, fd: int | None, blobs: _Blobs) -> None:
        self._fd, self._blobs = fd, blobs
        self._begin, self._held = 0, b""

    def hold(self, begin: int, end: int) -> None:
        """Records from here to there will be asked for: they are read at once, unless that is very much."""
        if self._fd is not None and end - begin <= _MOST_HELD:
            self._begin, self._held = begin, os.pread(self._fd, end - begin, begin)

    def record(self, position: int, length: int, at_most: int | None = None) -> Content | None:
        """The record at a place; None where it is not there any more.

        With `at_most`, only so many bytes of a large text are read: enough to show how it begins.
        """
        if self._fd is None:
            return None
        try:
            record = _contents.decode(self._line(self._fd, position, length))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return resolved(record, lambda ref: self._blobs.get(ref.blob, at_most))

    def _line(self, fd: int, position: int, length: int) -> bytes:
        start = position - self._begin
        if start >= 0 and start + length <= len(self._held):
            return self._held[start : start + length]
        return os.pread(fd, length, position)


class _Blobs:
    """The packs of large content, read on a connection that cannot write. One thread at a time holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._packs: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._zstd = zstandard.ZstdDecompressor()
        self._one_at_a_time = threading.Lock()

    def get(self, sha: str, at_most: int | None) -> Found:
        with self._one_at_a_time:
            try:
                return self._get(sha, at_most)
            except (sqlite3.Error, zstandard.ZstdError):
                self._forget()
                return Found(b"", "damaged" if self._path.exists() else "missing")

    def close(self) -> None:
        with self._one_at_a_time:
            self._forget()

    def _get(self, sha: str, at_most: int | None) -> Found:
        db = self._connection()
        row = db.execute(_PLACE, (_key(sha),)).fetchone() if db is not None else None
        if db is None or row is None:
            return Found(b"", "missing")
        pack, size, start, length = row
        whole = at_most is None or at_most >= length
        data = self._pack(db, pack, size)[start : start + (length if whole else at_most)]
        return Found(data) if not whole or sha_of(data) == sha else Found(b"", "damaged")

    def _pack(self, db: sqlite3.Connection, pack: int, size: int) -> bytes:
        # A pack that lost blobs is written anew under its own number: its size tells the two apart.
        data = self._packs.get((pack, size))
        if data is None:
            row = db.execute("SELECT data FROM pack WHERE id = ?", (pack,)).fetchone()
            data = self._packs[pack, size] = self._zstd.decompress(row[0]) if row else b""
            while len(self._packs) > _PACKS_KEPT:
                self._packs.popitem(last=False)
        self._packs.move_to_end((pack, size))
        return data

    def _connection(self) -> sqlite3.Connection | None:
        if self._db is None and self._path.exists():
            self._db = sqlite3.connect(read_only(self._path), uri=True, isolation_level=None, check_same_thread=False)
        return self._db

    def _forget(self) -> None:
        self._packs.clear()
        if self._db is not None:
            self._db.close()
            self._db = None


def resolved(record: Content, find: Callable[[BlobRef], Found]) -> Content:
    """The record with what `find` gives for its references; one that cannot be had stays and says why."""
    if isinstance(record.text, BlobRef):
        found = find(record.text)
        if found.lost is not None:
            return msgspec.structs.replace(record, text=msgspec.structs.replace(record.text, lost=found.lost))
        return msgspec.structs.replace(record, text=found.data.decode("utf-8", "ignore"))
    if (use := record.tool_use) is not None and is_reference(use.input):
        return msgspec.structs.replace(record, tool_use=msgspec.structs.replace(use, input=_json(use.input, find)))
    if (result := record.tool_result) is not None and is_reference(result.content):
        content = _json(result.content, find)
        return msgspec.structs.replace(record, tool_result=msgspec.structs.replace(result, content=content))
    return record


def is_reference(raw: msgspec.Raw) -> bool:
    """Whether JSON stands for a blob. A value that merely looks like one is never kept inline."""
    return bytes(memoryview(raw)[:7]) == b'{"blob"'


def reference(raw: msgspec.Raw) -> BlobRef:
    return _refs.decode(raw)


def _json(raw: msgspec.Raw, find: Callable[[BlobRef], Found]) -> msgspec.Raw:
    ref = reference(raw)
    found = find(ref)
    if found.lost is not None:
        return msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(ref, lost=found.lost)))
    return msgspec.Raw(found.data if len(found.data) == ref.bytes else _closed(found.data))


def _closed(beginning: bytes) -> msgspec.Raw:
    """The beginning of a JSON text as JSON: a string is closed behind its last whole character, a list is a string."""
    if not beginning.startswith(b'"'):
        return msgspec.Raw(msgspec.json.encode(beginning.decode("utf-8", "ignore")))
    for end in range(len(beginning), max(len(beginning) - _ESCAPE, 0), -1):
        closed = beginning[:end] + b'"'
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            msgspec.json.decode(closed, type=str)
            return msgspec.Raw(closed)
    return msgspec.Raw(b"null")


def _key(sha: str) -> bytes:
    try:
        return bytes.fromhex(sha)
    except ValueError:
        return b""
