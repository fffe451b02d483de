"""The content store: writes records to sidecars, large texts to blobs, and reads them back."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from burnd.errors import BlobsDamaged
from burnd.ledger.blobs import BlobStore, Pack, remove_aside, set_aside, sha_of
from burnd.ledger.lines import read_lines
from burnd.ledger.sidecars import Sidecars
from burnd.ledger.sqlite_files import log_bytes
from burnd.records.codec import Skipped, clean, decode_content, encode_content
from burnd.records.content import LONGEST_TITLE, NO_RAIL, TITLE, BlobRef, Content, Label
from burnd.records.names import bounded
from burnd.records.times import index_ms, to_ms
from burnd.tokens.words import SearchWords, search_words

INLINE_BYTES = 512  # below this a blob would take more space than the text
_INLINE_TITLE_BYTES = 1024
_TIMES = re.compile(r'"timestamp":\s*"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z)"')


class EncodedRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A record as it will be stored: its label, its line with references, and the referenced blobs.

    `context_ms` is the time of the oldest line in its context.
    """

    label: Label
    line: bytes
    blobs: dict[str, bytes]  # empty bytes if a pack has them
    search: SearchWords
    context_ms: int | None = None

    def without_context(self) -> EncodedRecord:
        record = decode_content(self.line)
        if isinstance(record, Skipped):
            return self
        line = encode_content(replace(record, context=None))
        blobs = {sha: data for sha, data in self.blobs.items() if sha.encode() in line}
        return replace(self, line=line, blobs=blobs, context_ms=None)


def encode_records(records: Iterable[Content], inline_bytes: int) -> list[EncodedRecord]:
    """Prepares records for storage; leaves out those that could not be read back."""
    encoded_records: list[EncodedRecord] = []
    for record in records:
        blobs: dict[str, bytes] = {}
        small = _with_references(record, blobs, inline_bytes)
        line, stored = encode_content(small), cast("Content | Skipped", small)
        if not (record.session_id.isascii() and record.rail_id.isascii() and record.message_id.isascii()):
            stored = decode_content(line)  # ids that UTF-8 cannot encode were repaired in the line
        if isinstance(stored, Skipped):
            continue
        try:
            label = label_of(stored)
        except ValueError:  # a time that cannot be parsed
            continue
        context_ms = _context_ms(record.context) if isinstance(record.context, str) else None
        encoded_records.append(EncodedRecord(label, line, blobs, search_words(record), context_ms))
    return encoded_records


def label_of(record: Content) -> Label:
    """Raises ValueError if its time cannot be parsed."""
    message_id, text = record.message_id, record.text
    rail, title = record.rail_id, None
    if message_id.startswith(TITLE):
        rail, title = NO_RAIL, text[:LONGEST_TITLE] if isinstance(text, str) else None
    tool = bounded(record.tool_use.name) if record.tool_use is not None else None
    return Label(
        record.session_id,
        rail,
        message_id,
        record.n,
        record.b,
        index_ms(record.ts),
        record.role,
        record.kind,
        tool,
        title,
    )


def _context_ms(context: str) -> int | None:
    times = _TIMES.findall(context) if '"timestamp"' in context else ()
    return index_ms(min(times)) if times else None


def looks_like_a_ref(data: bytes) -> bool:
    """Whether JSON could be mistaken for a reference; such a value is never stored inline."""
    return data.lstrip()[:8].startswith(b'{"blob"')


def _with_references(record: Content, blobs: dict[str, bytes], inline_bytes: int) -> Content:
    """The record with references in place of large texts, files, system prompts and its context."""
    if isinstance(record.context, str) and len(record.context) >= inline_bytes:
        record = replace(record, context=_put(record.context.encode("utf-8", "replace"), blobs))
    if isinstance(record.text, str):
        try:
            data = record.text.encode()
        except UnicodeEncodeError:
            data = clean(record.text).encode()
        # Titles are in every list, so they stay inline.
        most = _INLINE_TITLE_BYTES if record.kind in ("title", "summary") else inline_bytes
        is_system_prompt = record.role == "system" and record.kind in ("text", "system_prompt")
        return replace(record, text=_put(data, blobs)) if is_system_prompt or len(data) >= most else record
    if (use := record.tool_use) is not None:
        json = _encode_json(use.input, blobs, inline_bytes)
        return replace(record, tool_use=replace(use, input=json)) if json is not use.input else record
    if (result := record.tool_result) is not None:
        json = _encode_json(result.content, blobs, inline_bytes)
        return replace(record, tool_result=replace(result, content=json)) if json is not result.content else record
    if (file := record.file) is not None and isinstance(file.data, bytes):
        return replace(record, file=replace(file, data=_put(file.data, blobs)))
    return record


def _put(data: bytes, blobs: dict[str, bytes]) -> BlobRef:
    sha = sha_of(data)
    blobs[sha] = data
    return BlobRef(blob=sha, bytes=len(data))


def _encode_json(raw: msgspec.Raw, blobs: dict[str, bytes], inline_bytes: int) -> msgspec.Raw:
    """The same object if it stays inline, else a reference."""
    if not raw:
        return msgspec.Raw(b"null")
    data = bytes(raw)
    if len(data) < inline_bytes and not looks_like_a_ref(data) and b"\n" not in data:
        return raw
    return msgspec.Raw(msgspec.json.encode(_put(data, blobs)))


T = TypeVar("T")
DROPPED_AT_ONCE = 500  # sessions

_ref_decoder = msgspec.json.Decoder(BlobRef)


class Placed(NamedTuple):
    """The label of a stored record and the position of its line in the sidecar.

    `search` has its words if they were just computed. `is_replacement`: the sidecar has an earlier line of its block.
    """

    label: Label
    position: int
    length: int
    search: SearchWords | None = None
    is_replacement: bool = False


class Stored(NamedTuple):
    """A stored record with its references, and its position."""

    record: Content
    position: int
    length: int


Runner = Callable[[Callable[[], None]], None]


def run_now(work: Callable[[], None]) -> None:
    work()


class ContentStore:
    """Sidecars and blobs. One thread at a time may write; no file is created before the first write."""

    def __init__(self, folder: Path, *, inline_bytes: int = INLINE_BYTES) -> None:
        self.sidecars = Sidecars(folder)
        self.inline_bytes = inline_bytes
        self.replaced_count = 0  # how often the blob database was damaged and replaced
        self._blobs_path = folder / "blobs.db"
        self._blobs: BlobStore | None = None

    def append(
        self, encoded_records: Sequence[EncodedRecord], now_ms: int, packs: Sequence[Pack] = (), run: Runner = run_now
    ) -> list[Placed]:
        """Stores records durably, all or none, blobs first. Returns their positions.

        `run` runs the writing, at once or in a thread; the records are stored when that ends.
        """
        blobs: dict[str, bytes] = {}
        refs: defaultdict[str, set[str]] = defaultdict(set)
        by_session: defaultdict[str, list[EncodedRecord]] = defaultdict(list)
        for item in encoded_records:
            session_id = item.label.session_id
            by_session[session_id].append(item)
            if item.blobs:
                blobs.update(item.blobs)
                refs[session_id].update(item.blobs)
        if not by_session:
            return []
        starts = self.sidecars.ends(by_session)
        placed = []
        for session_id, items in by_session.items():
            position = starts[session_id]
            for item in items:
                length = len(item.line)
                placed.append(Placed(item.label, position, length, item.search))
                position += length

        def write() -> None:
            if blobs:
                self._with_blobs(lambda store: store.add(blobs, refs, packs))
            lines = {session_id: [item.line for item in items] for session_id, items in by_session.items()}
            # Not in the future: a wrong clock must not exempt content from pruning.
            newest = {one: min(now_ms, max([item.label.ts_ms for item in items])) for one, items in by_session.items()}
            self.sidecars.append(lines, newest, starts)

        run(write)
        return placed

    def lines_at(self, session_id: str, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        """The lines at these (position, length) of a sidecar; b"" if unreadable."""
        spans = list(spans)
        lines = [b""] * len(spans)
        path = self.sidecars.path(session_id)
        with self.sidecars.skip_damage(path):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                for number, (position, length) in enumerate(spans):
                    with self.sidecars.skip_damage(path):
                        lines[number] = os.pread(fd, length, position)
            finally:
                os.close(fd)
        return lines

    def placed(self, session_id: str, start: int = 0) -> Iterator[Placed]:
        """Labels and positions of a session's records from a byte position on."""
        for record, position, length in self.stored(session_id, start):
            yield Placed(label_of(record), position, length)

    def stored(self, session_id: str, start: int = 0) -> Iterator[Stored]:
        """A session's records from a byte position on, with references."""
        path = self.sidecars.path(session_id)
        self.sidecars.unreadable.pop(path, None)
        with self.sidecars.skip_damage(path):
            for position, length, line in read_lines(path, start) if self.sidecars.has(session_id) else ():
                record = decode_content(line, position)
                if not isinstance(record, Skipped):
                    yield Stored(record, position, length)

    def drop(self, session_ids: Iterable[str]) -> int:
        """Deletes the content of these sessions; returns bytes freed."""
        session_ids = list(session_ids)
        freed = 0
        for session_id in session_ids:
            freed += self.sidecars.remove(session_id)
        freed += self._release(session_ids)
        return freed + (remove_aside(self._blobs_path) if session_ids else 0)

    def erase(self, session_id: str, keeps: Callable[[Content], bool]) -> int:
        """Deletes records for which `keeps` is false, and unreadable lines; returns their number.

        Idempotent: a call after a crash completes the deletion.
        """
        lines: list[bytes] = []
        refs: set[str] = set()
        erased = newest_ms = 0
        path = self.sidecars.path(session_id)
        with self.sidecars.skip_damage(path):
            for _, _, line in read_lines(path) if self.sidecars.has(session_id) else ():
                record = decode_content(line)
                if isinstance(record, Skipped) or not keeps(record):
                    erased += 1
                    continue
                lines.append(line)
                refs |= _refs_in(record)
                newest_ms = max(newest_ms, to_ms(record.ts))
        if erased and not lines:
            self.sidecars.remove(session_id)
        elif erased:
            self.sidecars.replace(session_id, lines, min(newest_ms, self.sidecars.mtime_ms(session_id)))
        if self._blobs_path.exists():
            self._with_blobs(lambda store: store.retain(session_id, refs))
        return erased

    def orphaned(self) -> list[str]:
        """Sessions with blobs but without a sidecar, as a crash may leave them."""
        if not self._blobs_path.exists():
            return []
        holders = self._with_blobs(lambda store: store.holders())
        return [holder for holder in holders if not self.sidecars.has(holder)]

    def empty_log(self) -> None:
        if log_bytes(self._blobs_path):  # also that of an earlier process
            self._with_blobs(lambda store: store.empty_log())

    def close(self) -> None:
        self.sidecars.close()
        if self._blobs is not None:
            self._blobs.close()
            self._blobs = None

    def _release(self, session_ids: list[str]) -> int:
        if not session_ids or not self._blobs_path.exists():
            return 0
        return self._with_blobs(lambda store: store.release(session_ids))

    def _with_blobs(self, work: Callable[[BlobStore], T]) -> T:
        """Runs work on the blobs; retries after damage, at last with a new database."""
        for _ in range(2):
            try:
                return work(self._open_blobs())
            except BlobsDamaged:
                if self._blobs is not None:
                    self._blobs.close()
                    self._blobs = None
        set_aside(self._blobs_path)
        self.replaced_count += 1
        return work(self._open_blobs())

    def _open_blobs(self) -> BlobStore:
        if self._blobs is None:
            self._blobs = BlobStore(self._blobs_path)
        return self._blobs


def _refs_in(record: Content) -> set[str]:
    refs = [record.text, record.context, record.file.data if record.file is not None else None]
    values = (
        record.tool_use.input if record.tool_use else None,
        record.tool_result.content if record.tool_result else None,
    )
    refs += [_ref_decoder.decode(raw) for raw in values if raw is not None and looks_like_a_ref(bytes(raw))]
    return {ref.blob for ref in refs if isinstance(ref, BlobRef)}


def in_pieces(sessions: Sequence[T]) -> Iterator[Sequence[T]]:
    """Splits sessions into batches for `drop`: the watchdog needs progress, but each batch scans all references."""
    for begin in range(0, len(sessions), DROPPED_AT_ONCE):
        yield sessions[begin : begin + DROPPED_AT_ONCE]
