"""Rows that a reader gives away, packed: the many small rows of a file are stored as a few compressed values.

They are looked for only when a log goes back to an old line, and then from the newest pack on; a row of its own
for each would cost most of the index and most of the time of writing it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import zstandard

Row = tuple[int, bytes, bytes]
Rows = dict[tuple[int, bytes], bytes]

SMALL = 16 << 10  # a pack below this takes in what comes next, so that a live log does not leave a trail of crumbs
_LARGEST = 1 << 28
_rows = msgspec.msgpack.Decoder(list[Row])
_encode = msgspec.msgpack.Encoder().encode


def pack(rows: Iterable[Row]) -> bytes:
    """The rows as one value; of two with the same kind and key the later one counts."""
    latest = {(kind, key): value for kind, key, value in rows}
    if not latest:
        return b""
    return zstandard.ZstdCompressor(level=3).compress(_encode([(*key, value) for key, value in latest.items()]))


def unpack(data: bytes) -> Rows:
    rows = _rows.decode(zstandard.ZstdDecompressor().decompress(data, max_output_size=_LARGEST))
    return {(kind, key): value for kind, key, value in rows}


def merged(older: bytes, newer: bytes) -> bytes:
    rows = unpack(older)
    rows.update(unpack(newer))
    return pack((*key, value) for key, value in rows.items())
