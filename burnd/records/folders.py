"""Bounds on the folders that logs and clients name: how long a path may be, and how many parts it may have."""

from __future__ import annotations

import hashlib
from typing import Final

LONGEST: Final = 4096  # bytes; Linux opens no longer path
MOST_PARTS: Final = 256


def is_bounded(path: str) -> bool:
    """Whether a path may be walked part by part; that takes memory by the square of the number of parts."""
    return len(path) <= LONGEST and path.count("/") <= MOST_PARTS and len(_bytes(path)) <= LONGEST


def bounded(path: str | None) -> str | None:
    """The path, cut and with a hash of the whole if it is too long or too deep; None if it is empty."""
    if not path:
        return None
    if is_bounded(path):
        return path
    data = _bytes(path)
    mark = hashlib.blake2b(data, digest_size=8).hexdigest()
    parts = data[: LONGEST - len(mark) - 1].split(b"/", MOST_PARTS)[:MOST_PARTS]
    return b"/".join(parts).decode("utf-8", "ignore").rstrip("/") + "/" + mark


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")
