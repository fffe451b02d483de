"""Makes content ready for the disk: what is large becomes a reference to a blob, and every record its line. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from burnd.ledger.blobs import sha_of
from burnd.records.codec import Skipped, clean, decode_content, encode_content
from burnd.records.content import BlobRef, Content, Label, label_of
from burnd.search.hearing import Heard, heard

INLINE_BYTES = 512  # below this a blob of its own would take more room than the text
_INLINE_TITLE_BYTES = 1024


class Shelved(msgspec.Struct, frozen=True, gc=False, array_like=True):
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
    if not (record.session_id.isascii() and record.rail_id.isascii() and record.message_id.isascii()):
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
    if isinstance(record.text, str):
        data = _encoded(record.text)
        return replace(record, text=_put(data, blobs)) if _is_large(record, data, inline_bytes) else record
    if (use := record.tool_use) is not None:
        given = _shelve_json(use.input, blobs, inline_bytes)
        return replace(record, tool_use=replace(use, input=given)) if given is not use.input else record
    if (result := record.tool_result) is not None:
        told = _shelve_json(result.content, blobs, inline_bytes)
        return replace(record, tool_result=replace(result, content=told)) if told is not result.content else record
    if (file := record.file) is not None and isinstance(file.data, bytes):
        return replace(record, file=replace(file, data=_put(file.data, blobs)))
    return record


def _put(data: bytes, blobs: dict[str, bytes]) -> BlobRef:
    sha = sha_of(data)
    blobs[sha] = data
    return BlobRef(blob=sha, bytes=len(data))


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


def _shelve_json(raw: msgspec.Raw, blobs: dict[str, bytes], inline_bytes: int) -> msgspec.Raw:
    """The same value where it stays inline, as most do, else a reference."""
    if not raw:
        return msgspec.Raw(b"null")
    data = bytes(raw)
    if len(data) < inline_bytes and not looks_like_a_ref(data) and b"\n" not in data:
        return raw
    return msgspec.Raw(msgspec.json.encode(_put(data, blobs)))
