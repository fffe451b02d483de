"""Files within content blocks and attachments: images, documents and search results, by their bytes or their words."""

from __future__ import annotations

import binascii
from typing import Final, NamedTuple

import msgspec

from burnd.harness.claude_code import lines as claude_lines
from burnd.harness.claude_code.lines import Attachment, Piece, Source, opened
from burnd.harness.tool_calls import decoded_size, size
from burnd.records import File
from burnd.records.foreign_json import Rejected, Repaired

BYTES: Final = "application/octet-stream"
_WORDS: Final = "text/plain"
_TYPES: Final = {"pdf": "application/pdf", "image": "image/png"}


class Carried(NamedTuple):
    """A file that a block holds: its words, or its bytes in base64. `kind` is what it is weighed as."""

    kind: str
    mime: str
    name: str | None
    base64: str = ""
    words: str = ""

    @property
    def size(self) -> int:
        return decoded_size(self.base64) if self.base64 else size(self.words)

    @property
    def file(self) -> File | None:
        """The file with its bytes; None where what stands for them cannot be read. Words are kept as text."""
        try:
            data = binascii.a2b_base64(self.base64) if self.base64 else None
        except ValueError:
            return None
        return File(mime=self.mime, name=self.name, data=data)


def carried(piece: Piece) -> list[Carried]:
    """The files in a block: one, or those that a document is put together from."""
    source = piece.source
    if isinstance(source, Source) and source.type == "content":
        return _put_together(piece.title, source.content)
    if piece.type == "search_result":
        return _put_together(piece.title or (source if isinstance(source, str) else None), piece.content)
    return _single(piece)


def _single(piece: Piece) -> list[Carried]:
    source = piece.source
    if not isinstance(source, Source) or not source.data:
        return []
    if source.type == "text":
        return [Carried("file", source.media_type or _WORDS, piece.title, words=source.data)]
    kind = "image" if piece.type == "image" else "file"
    return [Carried(kind, source.media_type or BYTES, piece.title, base64=source.data)]


def _put_together(name: str | None, raw: msgspec.Raw) -> list[Carried]:
    inner = opened(raw)
    pieces = [Piece(type="text", text=inner)] if isinstance(inner, str) else inner
    words = "\n".join(piece.text for piece in pieces if piece.text)
    found = [Carried("file", _WORDS, name, words=words)] if words else []
    return found + [file for piece in pieces for file in _single(piece)]


def attached_file(attachment: Attachment) -> Carried | None:
    """An image or a document that a client attached by its bytes."""
    raw = bytes(attachment.content)
    if b'"base64"' not in raw:
        return None
    found = claude_lines.file_contents.decode(raw)
    found = found.value if isinstance(found, Repaired) else found
    if isinstance(found, Rejected) or found.file is None or not found.file.base64:
        return None
    mime = found.file.type or _TYPES.get(found.type or "", BYTES)
    kind = "image" if mime.startswith("image/") else "file"
    return Carried(kind, mime, attachment.filename, base64=found.file.base64)
