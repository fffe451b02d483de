"""The content store: what was said, small texts in sidecars, large ones as blobs, given back as they were."""

from __future__ import annotations

import os
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from burnd.ledger.blobs import BlobStore, sha_of
from burnd.ledger.lines import read_lines
from burnd.ledger.sidecars import Sidecars
from burnd.records.codec import Skipped, clean, decode_content, encode_content
from burnd.records.content import BlobRef, Content, File
from burnd.records.times import to_ms

INLINE_BYTES = 1024
_OVERLAPS_IN_MEMORY = 32
_ref_decoder = msgspec.json.Decoder(BlobRef)


class Placed(NamedTuple):
    """A content record as it was stored, and where its line stands in its session's sidecar."""

    record: Content
    position: int
    length: int


class ContentStore:
    """Sidecars and blobs together. One thread at a time may write; nothing is created before the first write."""

    def __init__(self, folder: Path, *, inline_bytes: int = INLINE_BYTES) -> None:
        self.sidecars = Sidecars(folder)
        self.inline_bytes = inline_bytes
        self._blobs_path = folder / "blobs.db"
        self._blobs: BlobStore | None = None
        self._again: dict[str, tuple[int, int]] = {}
        self._seen: OrderedDict[str, set[int]] = OrderedDict()

    def append_content(self, records: Iterable[Content], now_ms: int) -> list[Placed]:
        """Makes records durable, blobs first, and returns where they stand; all of them or none.

        A record that stands in its sidecar already, because its source is read again, is passed over.
        """
        blobs: dict[str, bytes] = {}
        refs: defaultdict[str, set[str]] = defaultdict(set)
        fresh: defaultdict[str, list[tuple[Content, bytes]]] = defaultdict(list)
        for record in records:
            stored = self._shelve(record, blobs, refs[record.session_id])
            line = encode_content(stored)
            if hash(line) not in self._seen_lines(record.session_id):
                fresh[record.session_id].append((stored, line))
        if blobs:
            self._open_blobs().add(blobs, refs)
        return self._write(fresh, now_ms) if fresh else []

    def read_content(self, session_id: str, message_id: str | None = None) -> Iterator[Content]:
        """A session's records in order, the newest of each, with their original text and bytes."""
        newest: dict[tuple[str, str, int, int], tuple[int, int]] = {}
        for placed in self.stored(session_id):
            record = placed.record
            if record.session_id == session_id and message_id in (None, record.message_id):
                newest[record.key] = (placed.position, placed.length)
        if newest:
            yield from self.read_at(session_id, newest.values())

    def read_at(self, session_id: str, places: Iterable[tuple[int, int]]) -> Iterator[Content]:
        """The records at known places of a session's sidecar, with their original text and bytes."""
        fd = os.open(self.sidecars.path(session_id), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for position, length in places:
                yield self._unshelve(os.pread(fd, length, position))
        finally:
            os.close(fd)

    def stored(self, session_id: str, start: int = 0) -> Iterator[Placed]:
        """A session's records as they stand on disk from a byte position on, large ones as references."""
        path = self.sidecars.path(session_id)
        for position, length, line in read_lines(path, start) if path.exists() else ():
            record = decode_content(line)
            if not isinstance(record, Skipped):
                yield Placed(record, position, length)

    def read_again(self, session_id: str, start: int = 0) -> None:
        """Announces that records which stand in the sidecar from `start` on may be appended once more."""
        size = self.sidecars.size(session_id)
        begin = min(start, self._again.get(session_id, (start, 0))[0])
        if size > begin:
            self._again[session_id] = (begin, size)
            self._seen.pop(session_id, None)

    def drop(self, session_ids: Iterable[str]) -> int:
        """Deletes the content of these sessions for good; returns bytes freed."""
        session_ids = list(session_ids)
        freed = 0
        for session_id in session_ids:
            freed += self.sidecars.remove(session_id)
            self._again.pop(session_id, None)
            self._seen.pop(session_id, None)
        return freed + self._release(session_ids)

    def sweep(self) -> int:
        """Releases blobs whose sessions have no sidecar, as a crash may leave them; returns bytes freed."""
        if not self._blobs_path.exists():
            return 0
        present = {self.sidecars.session_of(sidecar.path) for sidecar in self.sidecars.list()}
        return self._release([h for h in self._open_blobs().holders() if h not in present])

    def close(self) -> None:
        self.sidecars.close()
        if self._blobs is not None:
            self._blobs.close()
            self._blobs = None

    def _write(self, fresh: Mapping[str, list[tuple[Content, bytes]]], now_ms: int) -> list[Placed]:
        lines = {session_id: [line for _, line in items] for session_id, items in fresh.items()}
        newest = {session_id: _newest_ms(items, now_ms) for session_id, items in fresh.items()}
        starts = self.sidecars.append(lines, newest)
        placed = []
        for session_id, items in fresh.items():
            position = starts[session_id]
            for record, line in items:
                placed.append(Placed(record, position, len(line)))
                position += len(line)
        return placed

    def _seen_lines(self, session_id: str) -> set[int]:
        """Hashes of the lines that may come again. Kept for a few sessions; loaded anew when needed."""
        if session_id not in self._again:
            return set()
        if session_id not in self._seen:
            start, stop = self._again[session_id]
            lines = read_lines(self.sidecars.path(session_id), start, stop)
            self._seen[session_id] = {hash(line) for _, _, line in lines}
            if len(self._seen) > _OVERLAPS_IN_MEMORY:
                self._seen.popitem(last=False)
        self._seen.move_to_end(session_id)
        return self._seen[session_id]

    def _shelve(self, record: Content, blobs: dict[str, bytes], refs: set[str]) -> Content:
        """The record as it goes to disk: what is large, binary or a system prompt becomes a reference."""

        def put(data: bytes) -> BlobRef:
            sha = sha_of(data)
            blobs[sha] = data
            refs.add(sha)
            return BlobRef(blob=sha, bytes=len(data))

        def shelve_json(raw: msgspec.Raw) -> msgspec.Raw:
            data = bytes(raw)
            if len(data) < self.inline_bytes and not _looks_like_a_ref(data) and b"\n" not in data:
                return raw
            return msgspec.Raw(msgspec.json.encode(put(data)))

        if isinstance(record.text, str):
            data = clean(record.text).encode()
            if len(data) >= self.inline_bytes or record.role == "system":
                return msgspec.structs.replace(record, text=put(data))
        if (use := record.tool_use) is not None:
            return msgspec.structs.replace(record, tool_use=msgspec.structs.replace(use, input=shelve_json(use.input)))
        if (result := record.tool_result) is not None:
            return msgspec.structs.replace(
                record, tool_result=msgspec.structs.replace(result, content=shelve_json(result.content))
            )
        if (file := record.file) is not None and isinstance(file.data, bytes):
            return msgspec.structs.replace(record, file=msgspec.structs.replace(file, data=put(file.data)))
        return record

    def _unshelve(self, line: bytes) -> Content:
        """The record with its references resolved; one that cannot be resolved stays and says why."""
        record = decode_content(line)
        if isinstance(record, Skipped):
            raise ValueError("a line that was readable before is not any more")
        if isinstance(record.text, BlobRef):
            found = self._resolve(record.text)
            text = found if isinstance(found, BlobRef) else found.decode("utf-8", "replace")
            return msgspec.structs.replace(record, text=text)
        if (use := record.tool_use) is not None:
            use = msgspec.structs.replace(use, input=self._resolve_json(use.input))
            return msgspec.structs.replace(record, tool_use=use)
        if (result := record.tool_result) is not None:
            result = msgspec.structs.replace(result, content=self._resolve_json(result.content))
            return msgspec.structs.replace(record, tool_result=result)
        if (file := record.file) is not None and isinstance(file.data, BlobRef):
            return msgspec.structs.replace(record, file=self._resolve_file(file, file.data))
        return record

    def _resolve(self, ref: BlobRef) -> bytes | BlobRef:
        if not self._blobs_path.exists():
            return msgspec.structs.replace(ref, lost="missing")
        found = self._open_blobs().get(ref.blob)
        return found.data if found.lost is None else msgspec.structs.replace(ref, lost=found.lost)

    def _resolve_json(self, raw: msgspec.Raw) -> msgspec.Raw:
        if not _looks_like_a_ref(bytes(raw)):
            return raw
        found = self._resolve(_ref_decoder.decode(raw))
        return msgspec.Raw(msgspec.json.encode(found) if isinstance(found, BlobRef) else found)

    def _resolve_file(self, file: File, ref: BlobRef) -> File:
        return msgspec.structs.replace(file, data=self._resolve(ref))

    def _release(self, session_ids: list[str]) -> int:
        if not session_ids or not self._blobs_path.exists():
            return 0
        return self._open_blobs().release(session_ids)

    def _open_blobs(self) -> BlobStore:
        if self._blobs is None:
            self._blobs = BlobStore(self._blobs_path)
        return self._blobs


def _looks_like_a_ref(data: bytes) -> bool:
    """Whether JSON could be taken for a reference: such a value is never kept inline."""
    return data.lstrip()[:8].startswith(b'{"blob"')


def _newest_ms(items: list[tuple[Content, bytes]], now_ms: int) -> int:
    """The newest record's time, but not a time to come: a wrong clock must not make content immortal."""
    return min(now_ms, max(to_ms(record.ts) for record, _ in items))
