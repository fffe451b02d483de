"""Reads a file once from a cursor, as the log engine does with an open file."""

from __future__ import annotations

import os

from burnd.logfiles import tail
from burnd.logfiles.scanner import open_regular
from burnd.logfiles.tail import Chunk, Cursor


def read(
    path: str,
    cursor: Cursor | None,
    *,
    root: str | None = None,
    max_bytes: int = tail.MAX_BYTES,
    max_line: int = tail.MAX_LINE,
) -> Chunk:
    fd = open_regular(path, root=root)
    try:
        return tail.read_open(fd, cursor, max_bytes=max_bytes, max_line=max_line)
    finally:
        os.close(fd)
