"""Rows that a reader gives away, packed: the many small rows of a file are stored as a few compressed values.

They are looked for only when a log goes back to an old line, and then from the newest pack on; a row of its own
for each would cost most of the index and most of the time of writing it. What stands in one field of all rows is kept
together: that takes a seventh less room than row after row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
import zstandard
from msgspec.structs import astuple

Fields = list[list[msgspec.Raw]]

SMALL = 16 << 10  # a pack below this takes in what comes next, so that a live log does not leave a trail of crumbs
_LEVEL = 3
_LARGEST = 1 << 28
_FEW = 16  # an array of fewer says so in one byte
_encode = msgspec.msgpack.Encoder().encode


class Rows:
    """Rows of one kind. Each has the same fields, and a name of its own."""

    def __init__(self, names: Sequence[str], fields: msgspec.Raw) -> None:
        self._packed = fields
        self._places = {name: place for place, name in enumerate(names)}

    @cached_property
    def fields(self) -> Fields:
        """Taken apart when the first row is asked for: mostly nobody wants to know more than the names."""
        fields = _fields.decode(self._packed)
        if any(len(field) != len(self._places) for field in fields):
            raise msgspec.DecodeError("rows and fields do not go together")
        return fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def get(self, name: str) -> bytes | None:
        """The row of this name, as a struct that is written like an array would be."""
        place = self._places.get(name)
        if place is None:
            return None
        count = len(self.fields)
        head = bytes([0x90 | count]) if count < _FEW else b"\xdc" + count.to_bytes(2)
        return head + b"".join([bytes(field[place]) for field in self.fields])

    def with_newer(self, newer: Rows) -> tuple[list[str], Fields]:
        """The names and fields of both; of two rows of one name the newer counts."""
        if not self.fields or not newer.fields:
            one = self if self.fields else newer
            return list(one), one.fields
        kept = {name: place for name, place in self._places.items() if name not in newer._places}
        both = zip(self.fields, newer.fields, strict=True)
        return [*kept, *newer], [[*[old[place] for place in kept.values()], *new] for old, new in both]


_rows = msgspec.msgpack.Decoder(list[tuple[list[str], msgspec.Raw]])
_fields = msgspec.msgpack.Decoder(Fields)


def pack(kinds: Sequence[Mapping[str, msgspec.Struct]]) -> bytes:
    """The rows of every kind as one value. They go by their whole names, which stand in other rows too."""
    if not any(kinds):
        return b""
    return compressed(_encode([(list(rows), list(zip(*map(astuple, rows.values()), strict=True))) for rows in kinds]))


def unpack(data: bytes) -> list[Rows]:
    """Raises DecodeError, or ZstdError, for what was not packed here; so does a look at its rows."""
    return [Rows(names, fields) for names, fields in _rows.decode(decompressed(data))]


def merged(older: bytes, newer: bytes) -> bytes:
    """Both packs as one; of two rows of the same kind and name the newer one counts."""
    return compressed(_encode([old.with_newer(new) for old, new in zip(unpack(older), unpack(newer), strict=True)]))


def compressed(data: bytes) -> bytes:
    return zstandard.compress(data, _LEVEL)


def decompressed(data: bytes) -> bytes:
    """Raises ZstdError for what was not made here, before it takes any memory."""
    if zstandard.frame_content_size(data) > _LARGEST:
        raise zstandard.ZstdError("larger than anything that is stored")
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=_LARGEST)
