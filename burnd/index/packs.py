"""Rows that a reader gives away, packed: the many small rows of a file are stored as a few compressed values.

They are looked for only when a log goes back to an old line, and then from the newest pack on; a row of its own
for each would cost most of the index and most of the time of writing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import zstandard

Rows = list[dict[str, msgspec.Raw]]  # for every kind of row its values by their names

SMALL = 16 << 10  # a pack below this takes in what comes next, so that a live log does not leave a trail of crumbs
_LEVEL = 3
_LARGEST = 1 << 28
_rows = msgspec.msgpack.Decoder(Rows)
_encode = msgspec.msgpack.Encoder().encode


def pack(kinds: Sequence[Mapping[str, Any]]) -> bytes:
    """The rows as one value. They go by their whole names, which stand in other rows too and so take little room."""
    return compressed(_encode(kinds)) if any(kinds) else b""


def unpack(data: bytes) -> Rows:
    return _rows.decode(decompressed(data))


def merged(older: bytes, newer: bytes) -> bytes:
    """Both packs as one; of two rows of the same kind and name the newer one counts."""
    return pack([old | new for old, new in zip(unpack(older), unpack(newer), strict=True)])


def compressed(data: bytes) -> bytes:
    return zstandard.compress(data, _LEVEL)


def decompressed(data: bytes) -> bytes:
    """Raises ZstdError for what was not made here, before it takes any memory."""
    if zstandard.frame_content_size(data) > _LARGEST:
        raise zstandard.ZstdError("larger than anything that is stored")
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=_LARGEST)
