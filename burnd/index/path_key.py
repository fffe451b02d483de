"""Names files in the index by their paths, as text, and databases by their URIs."""

from __future__ import annotations

import os
import re
from pathlib import Path

_WRITTEN_OUT = re.compile(rb"\\x([89a-f][0-9a-f])")


def path_key(path: str) -> str:
    """A path as text the index can hold; bytes that are no UTF-8 are written out."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def is_there(key: str) -> bool:
    """Whether anything stands at the path with this key: at the key itself, or with what it may have written out."""
    if os.path.lexists(key):
        return True
    path = _WRITTEN_OUT.sub(lambda found: bytes.fromhex(found[1].decode()), os.fsencode(key))
    return os.path.lexists(path)


def read_only(path: Path) -> str:
    """The URI of a database for a read-only connection."""
    quoted = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode=ro"
