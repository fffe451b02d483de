"""Reads records from sidecars and blobs, beside the one writer."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import zstandard

from burnd.index.keys import read_only
from burnd.ledger.blobs import PACK_BYTES, PACK_OF_BLOB, Blob, key_of, sha_of
from burnd.ledger.sidecars import SUFFIX
from burnd.ledger.sqlite_files import batches
from burnd.records import BlobRef, Content
from burnd.records.codec import decode_content
from burnd.records.names import file_stem

_CACHE_BYTES = 24 << 20  # of decompressed packs
_MOST_IN_ONE_READ = 256 << 10
_MOST_AT_ONCE = 4 << 20
_refs = msgspec.json.Decoder(BlobRef)
_contents = msgspec.json.Decoder(Content)  # rows of the index come from lines with valid times
_PLACES = f"""
SELECT pack.id, blob.start, blob.length, blob.sha FROM blob JOIN pack ON pack.id = {PACK_OF_BLOB}
WHERE substr(blob.sha, 1, 8) IN ({{heads}})
"""
_REFERENCE = b'{"blob"'
_NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}  # no free descriptor: retry later
_NOTHING = memoryview(bytearray())
_END = itemgetter(1)


class Spot(msgspec.Struct, frozen=True, gc=False):
    """The position of a record; `at_most` limits the bytes read of a large text."""

    position: int
    length: int
    at_most: int | None = None


class _Drafts(NamedTuple):
    """Records of a sidecar with large texts as references; None for a deleted record."""

    records: list[Content | None]
    references: list[tuple[int, BlobRef]]  # with the number of the record


class Recall:
    """Reads records, many at a time or from one open sidecar. The reference of a lost text has `lost`."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._blobs = Blobs(folder / "blobs.db")

    @contextlib.contextmanager
    def opened(self, session_id: str) -> Iterator[SidecarReader]:
        """Opens a session's sidecar; without one there are no records."""
        fd = self._open(session_id)
        try:
            yield SidecarReader(fd, self._blobs)
        finally:
            if fd is not None:
                os.close(fd)

    def path(self, session_id: str) -> str:
        return f"{self._folder}/{file_stem(session_id)}{SUFFIX}"

    def has(self, session_id: str) -> bool:
        with self.opened(session_id) as reader:
            return reader.is_open

    def records(self, wanted: Iterable[tuple[str, Sequence[Spot]]]) -> Iterator[list[Content | None]]:
        """The records of each session at these positions; large texts are read 4 MB at a time."""
        drafts: list[_Drafts] = []
        needs: dict[str, int | None] = {}
        size = 0
        for session_id, spots in wanted:
            own = self._drafts(session_id, spots)
            drafts.append(own)
            for number, ref in own.references:
                at_most, before = spots[number].at_most, needs.get(ref.blob, 0)
                needs[ref.blob] = None if before is None or at_most is None else max(before, at_most)
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
            if error.errno in _NO_DESCRIPTOR:
                raise
            return None  # a link, or no permission: status reports it

    def _resolved(self, drafts: list[_Drafts], needs: Mapping[str, int | None]) -> Iterator[list[Content | None]]:
        blobs = self._blobs.get(needs) if needs else {}
        for records, references in drafts:
            for number, ref in references:
                record = records[number]
                records[number] = _filled(record, ref, blobs[ref.blob]) if record is not None else None
            yield records

    def close(self) -> None:
        self._blobs.close()


class SidecarReader:
    """An open sidecar, and the blobs that its records refer to."""

    def __init__(self, fd: int | None, blobs: Blobs) -> None:
        self._fd, self._blobs = fd, blobs

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def record(self, position: int, length: int, at_most: int | None = None) -> Content | None:
        """The record at a position, None if deleted."""
        record = _record(_piece(self._fd, length, position), position) if self._fd is not None else None
        if record is None:
            return None
        try:
            ref = reference_in(record)
        except msgspec.MsgspecError:
            return None
        return record if ref is None else _filled(record, ref, self._blobs.get({ref.blob: at_most})[ref.blob])

    def whole(self, position: int, length: int) -> Content | None:
        """The record at a position with its whole text, file and context; None if deleted."""
        record = self.record(position, length)
        if record is None:
            return None
        if record.file is not None and isinstance(ref := record.file.data, BlobRef):
            record = _filled(record, ref, self._blobs.get({ref.blob: None})[ref.blob])
        if isinstance(record.context, BlobRef):
            blob = self._blobs.get({record.context.blob: None})[record.context.blob]
            text = None if blob.lost is not None else blob.data.decode("utf-8", "replace")
            record = msgspec.structs.replace(record, context=text)
        return record

    def beginning(self, position: int, length: int, most: int) -> tuple[Content, int | None] | None:
        """The record at a position with its file, and the size of its content if that was cut at `most` bytes.

        Cut JSON becomes text. None if the record was deleted. Raises OSError.
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
    places = [(spot.position, spot.position + spot.length) for spot in spots]
    first, last = min(places)[0], max(places, key=_END)[1]
    if last - first > _MOST_IN_ONE_READ:
        return [_piece(fd, end - begin, begin) for begin, end in places]
    data = _piece(fd, last - first, first)
    return [data[begin - first : end - first] for begin, end in places]


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
    try:
        records = _contents.decode_lines(b"\n".join(lines))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        records = []
    return records if len(records) == len(lines) else [_record(line) for line in lines]


def _record(line: bytes, position: int = 0) -> Content | None:
    """The record in a line, None if invalid. A block of the older format gets its position as its number."""
    try:
        return _contents.decode(line)
    except msgspec.ValidationError:
        older = decode_content(line, position)
        return older if isinstance(older, Content) else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


class Blobs:
    """The packs of large content, read by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._packs: OrderedDict[int, memoryview] = OrderedDict()  # decompressed as far as needed
        self._cached = 0
        self._room = bytearray()  # of a dropped pack: new pages would cost half as much as decompression
        self._version = -1  # of the database when packs were read
        self._zstd = zstandard.ZstdDecompressor()
        self._lock = threading.Lock()

    def get(self, wanted: Mapping[str, int | None]) -> dict[str, Blob]:
        """Blobs by hash, up to a number of bytes each or in full."""
        with self._lock:
            return self._get_intact(wanted)

    def close(self) -> None:
        with self._lock:
            self._reset()

    def _get_intact(self, wanted: Mapping[str, int | None]) -> dict[str, Blob]:
        try:
            with self._snapshot() as db:
                return self._get(db, wanted)
        except (sqlite3.Error, zstandard.ZstdError):
            self._reset()
        if len(wanted) > 1:  # one damaged blob must not affect the others
            each = (self._get_intact({sha: at_most}) for sha, at_most in wanted.items())
            return {sha: blob for one in each for sha, blob in one.items()}
        return dict.fromkeys(wanted, Blob(b"", "damaged" if self._path.exists() else "missing"))

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection | None]:
        """A transaction, since packs are rewritten now and then."""
        if self._db is None and self._path.exists():
            self._db = sqlite3.connect(read_only(self._path), uri=True, isolation_level=None, check_same_thread=False)
        db = self._db
        if db is None:
            yield None
            return
        db.execute("BEGIN")
        try:
            (version,) = db.execute("PRAGMA data_version").fetchone()
            if version != self._version:  # a change may have rewritten a pack or reused its id
                self._packs.clear()
                self._cached, self._version = 0, version
            yield db
        finally:
            db.execute("COMMIT")

    def _get(self, db: sqlite3.Connection | None, wanted: Mapping[str, int | None]) -> dict[str, Blob]:
        result = dict.fromkeys(wanted, Blob(b"", "missing"))
        if db is None:
            return result
        for pack, blobs in groupby(sorted(_places(db, wanted)), key=itemgetter(0)):
            cuts = [(sha, start, length, _cut(length, wanted[sha])) for _, start, length, sha in blobs]
            data = self._pack(db, pack, max(start + cut for _, start, _, cut in cuts))
            for sha, start, length, cut in cuts:
                piece = bytes(data[start : start + cut])
                is_sound = len(piece) == cut and (cut < length or sha_of(piece) == sha)
                result[sha] = Blob(piece) if is_sound else Blob(b"", "damaged")
        return result

    def _pack(self, db: sqlite3.Connection, pack: int, end: int) -> memoryview:
        """A pack, at least up to `end`."""
        data = self._packs.pop(pack, _NOTHING)
        if len(data) < end:
            self._release(data)
            row = db.execute("SELECT data FROM pack WHERE id = ?", (pack,)).fetchone()
            data = self._decompress(row[0], end) if row else _NOTHING
            self._cached += data.nbytes
        self._packs[pack] = data
        while self._cached > _CACHE_BYTES and len(self._packs) > 1:
            self._release(self._packs.popitem(last=False)[1])
        return data

    def _decompress(self, packed: bytes, end: int) -> memoryview:
        size = min(zstandard.frame_content_size(packed), PACK_BYTES)  # a damaged frame may state any size
        needed = max(size, end) if end * 2 > size else end
        room, self._room = self._room, bytearray()
        if len(room) < needed:
            room = bytearray(max(needed, PACK_BYTES))
        with self._zstd.stream_reader(packed) as reader:
            return memoryview(room)[: reader.readinto(memoryview(room)[:needed])]

    def _release(self, data: memoryview) -> None:
        self._cached -= data.nbytes
        if isinstance(data.obj, bytearray) and len(data.obj) == PACK_BYTES:
            self._room = data.obj

    def _reset(self) -> None:
        self._packs.clear()
        self._cached, self._version, self._room = 0, -1, bytearray()
        if self._db is not None:
            self._db.close()
            self._db = None


def _places(db: sqlite3.Connection, wanted: Iterable[str]) -> Iterator[tuple[int, int, int, str]]:
    names = {key_of(sha): sha for sha in wanted}
    heads = [key[:8] for key in names]
    for some in batches(heads):
        for *place, key in db.execute(_PLACES.format(heads=",".join("?" * len(some))), some):
            if key in names:
                yield (*place, names[key])


def _cut(length: int, at_most: int | None) -> int:
    return length if at_most is None else min(length, at_most)


def reference_in(record: Content) -> BlobRef | None:
    if isinstance(record.text, BlobRef):
        return record.text
    raw = record.tool_use.input if record.tool_use is not None else None
    if raw is None and record.tool_result is not None:
        raw = record.tool_result.content
    return reference(raw) if raw is not None and is_reference(raw) else None


def _filled(record: Content, ref: BlobRef, blob: Blob, *, as_text: bool = False) -> Content:
    """The record with its blob, or if that is lost with the reason. Cut JSON is completed, or becomes text."""
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


# JSON that is cut at any byte

_ESCAPE: Final = 12  # the most bytes of a JSON string that make one character
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[\[\]{},]', re.DOTALL)
_CLOSING: Final = {b"[": b"]", b"{": b"}"}


def closed(beginning: bytes) -> bytes:
    """Completes the value as far as its beginning goes; its text if that is impossible.

    A string is cut after its last whole character; half a name or a number is left out.
    """
    closing, is_in_string, comma = _open_brackets(beginning)
    size = len(beginning)
    ends = range(size, max(size - _ESCAPE, 0), -1) if is_in_string else (size,)
    candidates = [beginning[:end] + (b'"' if is_in_string else b"") + closing for end in ends]
    if comma * 2 > size:  # else most of the text would be missing
        candidates.append(beginning[:comma] + _open_brackets(beginning[:comma])[0])
    for value in candidates:
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            msgspec.json.decode(value)
            return value
    return msgspec.json.encode(beginning.decode("utf-8", "ignore"))


def _open_brackets(beginning: bytes) -> tuple[bytes, bool, int]:
    """The brackets that close it, whether it ends within a string, and its last comma."""
    is_in_string, comma = False, 0
    closing: list[bytes] = []
    for token in _TOKEN.finditer(beginning):
        what = token[0]
        is_in_string = what[:1] == b'"' and not token[1]
        if what in _CLOSING:
            closing.append(_CLOSING[what])
        elif what in (b"]", b"}"):
            del closing[-1:]
        elif what == b",":
            comma = token.start()
    return b"".join(reversed(closing)), is_in_string, comma
