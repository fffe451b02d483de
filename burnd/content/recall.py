"""Reads records from sidecars and blobs, for any number of readers beside the one writer."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import msgspec
import zstandard

from burnd.content.cut_json import closed
from burnd.index.keys import read_only
from burnd.ledger.blobs import PACK_BYTES, PACK_OF_BLOB, Blob, key_of, sha_of
from burnd.ledger.sidecars import SUFFIX
from burnd.ledger.sqlite_files import batches
from burnd.records import BlobRef, Content
from burnd.records.codec import decode_content
from burnd.records.names import file_stem

_KEPT_BYTES = 24 << 20  # of unpacked packs
_MOST_HELD = 256 << 10
_MOST_AT_ONCE = 4 << 20
_refs = msgspec.json.Decoder(BlobRef)
_contents = msgspec.json.Decoder(Content)  # the rows of the index were made from lines whose times are sound
_PLACES = f"""
SELECT pack.id, blob.start, blob.length, blob.sha FROM blob JOIN pack ON pack.id = {PACK_OF_BLOB}
WHERE substr(blob.sha, 1, 8) IN ({{heads}})
"""
_REFERENCE = b'{"blob"'
_FOR_WANT = {errno.EMFILE, errno.ENFILE}  # of descriptors: it can be read later
_NOTHING = memoryview(bytearray())
_END = itemgetter(1)


class Spot(msgspec.Struct, frozen=True, gc=False):
    """The position of a record. With `at_most`, only the first bytes of a large text are read."""

    position: int
    length: int
    at_most: int | None = None


class _Drafts(NamedTuple):
    """Records of a sidecar, large texts as references; None for one that is gone."""

    records: list[Content | None]
    references: list[tuple[int, BlobRef]]  # of which of the records each is


class Recall:
    """Reads records from sidecars and blobs. If a text is lost, its reference has `lost`."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._blobs = Blobs(folder / "blobs.db")

    @contextlib.contextmanager
    def opened(self, session_id: str) -> Iterator[Reading]:
        """A session's sidecar, open while the block runs; without a sidecar there are no records."""
        fd = self._open(session_id)
        try:
            yield Reading(fd, self._blobs)
        finally:
            if fd is not None:
                os.close(fd)

    def path(self, session_id: str) -> str:
        return f"{self._folder}/{file_stem(session_id)}{SUFFIX}"

    def has(self, session_id: str) -> bool:
        """Whether a session's sidecar is there and can be read."""
        with self.opened(session_id) as reading:
            return reading.is_open

    def records(self, wanted: Iterable[tuple[str, Sequence[Spot]]]) -> Iterator[list[Content | None]]:
        """The records of each session at these positions. Large texts are read together, up to 4 MB at once."""
        drafts: list[_Drafts] = []
        needs: dict[str, int | None] = {}
        size = 0
        for session_id, spots in wanted:
            own = self._drafts(session_id, spots)
            drafts.append(own)
            for number, ref in own.references:
                at_most = spots[number].at_most
                needs[ref.blob] = _more(needs.get(ref.blob, 0), at_most)
                size += _cut(ref.bytes, at_most)
            if size > _MOST_AT_ONCE:
                yield from self._resolved(drafts, needs)
                drafts, needs, size = [], {}, 0
        yield from self._resolved(drafts, needs)

    def _drafts(self, session_id: str, spots: Sequence[Spot]) -> _Drafts:
        fd = self._open(session_id) if spots else None
        if fd is None:
            return _Drafts([None] * len(spots), [])
        try:
            lines = _lines(fd, spots)
        finally:
            os.close(fd)
        return _drafts(lines)

    def _open(self, session_id: str) -> int | None:
        try:
            return os.open(self.path(session_id), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _FOR_WANT:
                raise
            return None  # a link, or missing permissions: status reports it

    def _resolved(self, drafts: list[_Drafts], needs: Mapping[str, int | None]) -> Iterator[list[Content | None]]:
        found = self._blobs.get(needs) if needs else {}
        for records, references in drafts:
            for number, ref in references:
                record = records[number]
                records[number] = _filled(record, ref, found[ref.blob]) if record is not None else None
            yield records

    def close(self) -> None:
        self._blobs.close()


def _more(one: int | None, other: int | None) -> int | None:
    """The larger of two sizes; None is unlimited."""
    return None if one is None or other is None else max(one, other)


class Reading:
    """One open sidecar, and the large content that its records refer to."""

    def __init__(self, fd: int | None, blobs: Blobs) -> None:
        self._fd, self._blobs = fd, blobs

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def record(self, position: int, length: int, at_most: int | None = None) -> Content | None:
        """The record at a position; None if it is gone. With `at_most`, so many bytes of a large text are read."""
        record = _record(_piece(self._fd, length, position), position) if self._fd is not None else None
        if record is None:
            return None
        try:
            ref = reference_in(record)
        except msgspec.MsgspecError:
            return None
        return record if ref is None else _filled(record, ref, self._blobs.get({ref.blob: at_most})[ref.blob])

    def beginning(self, position: int, length: int, most: int) -> tuple[Content, int | None] | None:
        """The record at a position with its file, and its content's whole size if that was cut at `most` bytes.

        Cut JSON is returned as text. None if the record is gone. Raises OSError if its line cannot be read.
        """
        record = _record(os.pread(self._fd, length, position), position) if self._fd is not None else None
        if record is None:
            return None
        try:
            ref = record.file.data if record.file is not None else reference_in(record)
        except msgspec.MsgspecError:
            return None
        if not isinstance(ref, BlobRef):
            return record, None
        blob = self._blobs.get({ref.blob: most})[ref.blob]
        if ref.bytes <= most:
            return _filled(record, ref, blob), None
        return _filled(record, ref, blob, as_text=True), ref.bytes


def _lines(fd: int, spots: Sequence[Spot]) -> list[bytes]:
    """The lines at these positions, read at once if they are close to each other."""
    places = [(spot.position, spot.position + spot.length) for spot in spots]
    first, last = min(places)[0], max(places, key=_END)[1]
    if last - first > _MOST_HELD:
        return [_piece(fd, end - begin, begin) for begin, end in places]
    held = _piece(fd, last - first, first)
    return [held[begin - first : end - first] for begin, end in places]


def _piece(fd: int, length: int, position: int) -> bytes:
    """Bytes at a position; empty if they cannot be read, as on a bad sector."""
    try:
        return os.pread(fd, length, position)
    except OSError:
        return b""


def _drafts(lines: Sequence[bytes]) -> _Drafts:
    records = list(_decoded(lines))
    references: list[tuple[int, BlobRef]] = []
    for number, line in enumerate(lines):
        record = records[number]
        if _REFERENCE in line and record is not None:
            try:
                ref = reference_in(record)
            except msgspec.MsgspecError:  # a damaged reference refers to nothing
                records[number] = ref = None
            if ref is not None:
                references.append((number, ref))
    return _Drafts(records, references)


def _decoded(lines: Sequence[bytes]) -> Sequence[Content | None]:
    """The record in each line; None if it has none."""
    try:
        found = _contents.decode_lines(b"\n".join(lines))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        found = []
    return found if len(found) == len(lines) else [_record(line) for line in lines]


def _record(line: bytes, position: int = 0) -> Content | None:
    """The record in a line; a block of the older format gets the position of its line as its number."""
    try:
        return _contents.decode(line)
    except msgspec.ValidationError:
        older = decode_content(line, position)
        return older if isinstance(older, Content) else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


class Blobs:
    """The packs of large content, read on a connection that cannot write. One thread at a time holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._packs: OrderedDict[int, memoryview] = OrderedDict()  # unpacked as far as was needed
        self._kept = 0
        self._room = bytearray()  # memory of a dropped pack: new pages would cost half as much as unpacking
        self._version = -1  # of the database that they are from
        self._zstd = zstandard.ZstdDecompressor()
        self._one_at_a_time = threading.Lock()

    def get(self, wanted: Mapping[str, int | None]) -> dict[str, Blob]:
        """Large contents by their hashes, of each so many bytes at most, or all of it."""
        with self._one_at_a_time:
            return self._as_far_as_sound(wanted)

    def close(self) -> None:
        with self._one_at_a_time:
            self._forget()

    def _as_far_as_sound(self, wanted: Mapping[str, int | None]) -> dict[str, Blob]:
        try:
            with self._one_state() as db:
                return self._get(db, wanted)
        except (sqlite3.Error, zstandard.ZstdError):
            self._forget()
        if len(wanted) > 1:  # a damaged one must not take the others with it
            each = (self._as_far_as_sound({sha: at_most}) for sha, at_most in wanted.items())
            return {sha: found for one in each for sha, found in one.items()}
        return dict.fromkeys(wanted, Blob(b"", "damaged" if self._path.exists() else "missing"))

    @contextlib.contextmanager
    def _one_state(self) -> Iterator[sqlite3.Connection | None]:
        """The row of a pack and its data must be read together: packs are rewritten now and then."""
        db = self._connection()
        if db is None:
            yield None
            return
        db.execute("BEGIN")
        try:
            self._see_changes(db)
            yield db
        finally:
            db.execute("COMMIT")

    def _see_changes(self, db: sqlite3.Connection) -> None:
        """Any change may have rewritten a pack, or reused the number of a deleted one."""
        (version,) = db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._packs.clear()
            self._kept, self._version = 0, version

    def _get(self, db: sqlite3.Connection | None, wanted: Mapping[str, int | None]) -> dict[str, Blob]:
        found = dict.fromkeys(wanted, Blob(b"", "missing"))
        if db is None:
            return found
        for pack, blobs in groupby(sorted(_places(db, wanted)), key=itemgetter(0)):
            cuts = [(sha, start, length, _cut(length, wanted[sha])) for _, start, length, sha in blobs]
            data = self._pack(db, pack, max(start + cut for _, start, _, cut in cuts))
            for sha, start, length, cut in cuts:
                piece = bytes(data[start : start + cut])
                is_sound = len(piece) == cut and (cut < length or sha_of(piece) == sha)
                found[sha] = Blob(piece) if is_sound else Blob(b"", "damaged")
        return found

    def _pack(self, db: sqlite3.Connection, pack: int, end: int) -> memoryview:
        """A pack, at least as far as `end`."""
        data = self._packs.pop(pack, _NOTHING)
        if len(data) < end:
            self._let_go(data)
            row = db.execute("SELECT data FROM pack WHERE id = ?", (pack,)).fetchone()
            data = self._unpacked(row[0], end) if row else _NOTHING
            self._kept += data.nbytes
        self._packs[pack] = data
        while self._kept > _KEPT_BYTES and len(self._packs) > 1:
            self._let_go(self._packs.popitem(last=False)[1])
        return data

    def _unpacked(self, packed: bytes, end: int) -> memoryview:
        size = min(zstandard.frame_content_size(packed), PACK_BYTES)  # a damaged one may say anything
        wanted = max(size, end) if end * 2 > size else end
        room, self._room = self._room, bytearray()
        if len(room) < wanted:
            room = bytearray(max(wanted, PACK_BYTES))
        with self._zstd.stream_reader(packed) as reader:
            return memoryview(room)[: reader.readinto(memoryview(room)[:wanted])]

    def _let_go(self, data: memoryview) -> None:
        self._kept -= data.nbytes
        if isinstance(data.obj, bytearray) and len(data.obj) == PACK_BYTES:
            self._room = data.obj

    def _connection(self) -> sqlite3.Connection | None:
        if self._db is None and self._path.exists():
            self._db = sqlite3.connect(read_only(self._path), uri=True, isolation_level=None, check_same_thread=False)
        return self._db

    def _forget(self) -> None:
        self._packs.clear()
        self._kept, self._version, self._room = 0, -1, bytearray()
        if self._db is not None:
            self._db.close()
            self._db = None


def _places(db: sqlite3.Connection, wanted: Iterable[str]) -> Iterator[tuple[int, int, int, str]]:
    """The pack, start, length and hash of each stored blob."""
    names = {key_of(sha): sha for sha in wanted}
    heads = [key[:8] for key in names]
    for some in batches(heads):
        for *place, key in db.execute(_PLACES.format(heads=",".join("?" * len(some))), some):
            if key in names:
                yield (*place, names[key])


def _cut(length: int, at_most: int | None) -> int:
    return length if at_most is None else min(length, at_most)


def reference_in(record: Content) -> BlobRef | None:
    """The large content that a record refers to."""
    if isinstance(record.text, BlobRef):
        return record.text
    raw = record.tool_use.input if record.tool_use is not None else None
    if raw is None and record.tool_result is not None:
        raw = record.tool_result.content
    return reference(raw) if raw is not None and is_reference(raw) else None


def _filled(record: Content, ref: BlobRef, blob: Blob, *, as_text: bool = False) -> Content:
    """The record with its reference resolved; a lost blob stays a reference with the reason.

    JSON that was cut is completed, or with `as_text` becomes its text.
    """
    replace = msgspec.structs.replace
    lost = replace(ref, lost=blob.lost) if blob.lost is not None else None
    if isinstance(record.text, BlobRef):
        return replace(record, text=lost or blob.data.decode("utf-8", "ignore"))
    if record.file is not None:
        return replace(record, file=replace(record.file, data=lost or blob.data))
    if lost is not None or as_text:
        content = msgspec.Raw(msgspec.json.encode(lost or blob.data.decode("utf-8", "ignore")))
    else:
        content = msgspec.Raw(blob.data if len(blob.data) == ref.bytes else closed(blob.data))
    if record.tool_use is not None:
        return replace(record, tool_use=replace(record.tool_use, input=content))
    assert record.tool_result is not None  # noqa: S101 - only these have references
    return replace(record, tool_result=replace(record.tool_result, content=content))


def is_reference(raw: msgspec.Raw) -> bool:
    """Whether JSON is a reference to a blob. A value that looks like one is never stored inline."""
    return bytes(memoryview(raw)[: len(_REFERENCE)]) == _REFERENCE


def reference(raw: msgspec.Raw) -> BlobRef:
    return _refs.decode(raw)
