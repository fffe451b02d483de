"""Keys and stored forms of values in the index: paths, database URIs, copies of messages, compressed blobs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import zstandard

_LEVEL = 3
_LARGEST = 1 << 28


def compressed(data: bytes) -> bytes:
    # A copy: zstandard's result keeps memory for the largest possible size.
    return bytes(memoryview(zstandard.compress(data, _LEVEL)))


def decompressed(data: bytes) -> bytes:
    """Raises ZstdError for data that is no stored value, before allocating memory."""
    if zstandard.frame_content_size(data) > _LARGEST:
        raise zstandard.ZstdError("larger than any stored value")
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=_LARGEST)


_ESCAPED = re.compile(rb"\\x([89a-f][0-9a-f])")


def path_key(path: str) -> str:
    """A path as text for the index; bytes that are not UTF-8 are escaped."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def path_of(key: str) -> str:
    """The path with this key: as it is if it exists, else with its escapes resolved."""
    if os.path.lexists(key):
        return key
    return os.fsdecode(_ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), os.fsencode(key)))


def is_there(key: str) -> bool:
    return os.path.lexists(path_of(key))


def read_only(path: Path) -> str:
    """The URI of a database for a read-only connection."""
    quoted = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode=ro"


def selecting_copies(columns: str) -> str:
    """A statement for columns of the copies `f` of messages; its keys are their `copy_spans`."""
    return (
        f"WITH wanted(low, high) AS ({{keys}}) SELECT {columns} FROM wanted w "
        "CROSS JOIN facts f ON f.kind = 'copy' AND f.key > w.low AND f.key < w.high"
    )


def copy_spans(messages: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The ranges of keys of the copies of these (source, messageId).

    A copy's key is [source, messageId, session, rail] as JSON, so those of a message have a common prefix.
    """
    begins = [msgspec.json.encode(message).decode()[:-1] + "," for message in messages]
    return [(begin, begin + "\U0010ffff") for begin in begins]


def copy_key(source: str, message_id: str, session_id: str, rail_id: str) -> str:
    return msgspec.json.encode((source, message_id, session_id, rail_id)).decode()


def copy_holder(key: str) -> tuple[tuple[str, str], str]:
    """The message of a copy's key, and the session that has the copy."""
    source, message_id, session_id, _ = msgspec.json.decode(key, type=tuple[str, str, str, str])
    return (source, message_id), session_id
