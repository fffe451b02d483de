"""Makes content ready for the disk: what is large becomes a reference to a blob, and every record its line. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from burnd.ledger.blobs import sha_of
from burnd.records.codec import Skipped, clean, decode_content, encode_content
from burnd.records.content import BlobRef, Content, Label, label_of
from burnd.search.hearing import Heard, heard

INLINE_BYTES = 512  # below this a blob of its own would take more room than the text
_INLINE_TITLE_BYTES = 1024


class Shelved(NamedTuple):
    """A record made ready for the disk: its label, and its line with references for what is large."""

    label: Label
    line: bytes
    blobs: dict[str, bytes]
    heard: Heard  # its words for search, since its text is at hand


def shelve(records: Iterable[Content], inline_bytes: int) -> list[Shelved]:
    """Makes records ready for the disk; one that could not be read back is left out."""
    return [shelved for record in records if (shelved := _shelved(record, inline_bytes)) is not None]


def looks_like_a_ref(data: bytes) -> bool:
    """Whether JSON could be taken for a reference: such a value is never kept inline."""
    return data.lstrip()[:8].startswith(b'{"blob"')


def _shelved(record: Content, inline_bytes: int) -> Shelved | None:
    blobs: dict[str, bytes] = {}
    stored = _with_references(record, blobs, inline_bytes)
    line = encode_content(stored)
    if not (record.session_id + record.rail_id + record.message_id).isascii():
        # Ids that UTF-8 cannot hold were mended in the line, and that is what everybody else will see.
        mended = decode_content(line)
        if isinstance(mended, Skipped):
            return None
        stored = mended
    try:
        label = label_of(stored)
    except ValueError:
        return None  # a time that nobody can read
    return Shelved(label, line, blobs, heard(record))


def _with_references(record: Content, blobs: dict[str, bytes], inline_bytes: int) -> Content:
    """The record as it goes to disk: what is large, binary or a system prompt becomes a reference."""

    def put(data: bytes) -> BlobRef:
        sha = sha_of(data)
        blobs[sha] = data
        return BlobRef(blob=sha, bytes=len(data))

    if isinstance(record.text, str):
        data = _encoded(record.text)
        return msgspec.structs.replace(record, text=put(data)) if _is_large(record, data, inline_bytes) else record
    if (use := record.tool_use) is not None:
        shelved = _shelve_json(use.input, put, inline_bytes)
        if shelved is not use.input:
            return msgspec.structs.replace(record, tool_use=msgspec.structs.replace(use, input=shelved))
    elif (result := record.tool_result) is not None:
        shelved = _shelve_json(result.content, put, inline_bytes)
        if shelved is not result.content:
            return msgspec.structs.replace(record, tool_result=msgspec.structs.replace(result, content=shelved))
    elif (file := record.file) is not None and isinstance(file.data, bytes):
        return msgspec.structs.replace(record, file=msgspec.structs.replace(file, data=put(file.data)))
    return record


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return clean(text).encode()


def _is_large(record: Content, data: bytes, inline_bytes: int) -> bool:
    if record.role == "system" and record.kind in ("text", "system_prompt"):
        return True
    # A title is looked at in every list, so it stays at hand however little may be inline.
    return len(data) >= (_INLINE_TITLE_BYTES if record.kind in ("title", "summary") else inline_bytes)


def _shelve_json(raw: msgspec.Raw, put: Callable[[bytes], BlobRef], inline_bytes: int) -> msgspec.Raw:
    """The same value where it stays inline, as most do, else a reference."""
    if not raw:
        return msgspec.Raw(b"null")
    data = bytes(raw)
    if len(data) < inline_bytes and not looks_like_a_ref(data) and b"\n" not in data:
        return raw
    return msgspec.Raw(msgspec.json.encode(put(data)))
