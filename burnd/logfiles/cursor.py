"""How far a file was read and how to know it again: hashes and positions only, never a path nor a byte of content."""

from __future__ import annotations

import hashlib
import os
from typing import Literal

import msgspec

from burnd.logfiles.unused import Unused

# Long enough to hold what makes a line unlike others: in transcripts 256 bytes were sometimes only its common end.
ANCHOR_SIZE = 1024
HEAD_SIZE = 1024

# "rewritten": the file begins differently, so it was written anew in place or its inode was given to another file;
# from here the two look the same. "changed": it begins as before, but not what stands before our position.
Misfit = Literal["replaced", "rewritten", "truncated", "changed"]


class Cursor(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A place in one file.

    Lines before `offset` are consumed. The `passed` bytes after it were looked at and hold no newline, so they
    are looked at again only once their newline is there. Anchor and head are taken over everything before
    `position`.
    """

    dev: int
    ino: int
    offset: int = 0
    passed: int = 0
    lines: int = 0
    anchor: bytes = b""
    head: bytes = b""
    head_size: int = 0
    inside: bool = False  # the line around `offset` was begun by a tail that was already taken
    unfinished: bool = False  # the bytes passed were looked at as a last line without a newline, and are none
    size: int = 0
    ctime_ns: int = 0
    unused: tuple[Unused, ...] = ()  # lines before `offset` that were passed over

    @property
    def position(self) -> int:
        return self.offset + self.passed

    @property
    def anchor_size(self) -> int:
        return min(ANCHOR_SIZE, self.position)

    @property
    def has_untried_tail(self) -> bool:
        """Whether the file ended with something that has no newline and was not looked at yet."""
        return self.passed > 0 and self.position == self.size and not self.unfinished

    @property
    def left(self) -> int | None:
        """How the file looks for as long as there is no need to open it; None if it was not read to its end."""
        return looks_of(self.dev, self.ino, self.size, self.ctime_ns) if self.position == self.size else None


def looks_of(dev: int, ino: int, size: int, ctime_ns: int) -> int:
    """All by which a file that was changed, or is another, is told from how it was: one number, as there are many."""
    return hash((dev, ino, size, ctime_ns))


def loaded(stored: bytes) -> Cursor | None:
    """A cursor as the index has it; one that cannot be read, as after damage, is as if it were not there."""
    try:
        cursor = _cursors.decode(stored)
    except (msgspec.MsgspecError, ValueError):
        return None
    is_place = min(cursor.offset, cursor.passed, cursor.head_size) >= 0 and cursor.head_size <= HEAD_SIZE
    return cursor if is_place else None


_cursors = msgspec.msgpack.Decoder(Cursor)


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def misfit(cursor: Cursor, found: os.stat_result, head: bytes, anchor: bytes) -> Misfit | None:
    """Why reading may not go on from `cursor`, or None; `head` and `anchor` are what the file now holds there.

    A different device number alone is no reason: some file systems are numbered anew at every mount, and a
    whole archive would be read again after each restart of the machine.
    """
    if found.st_ino != cursor.ino:
        return "replaced"
    if found.st_size < cursor.head_size:
        return "truncated"
    if digest(head) != cursor.head:
        return "rewritten"
    if found.st_size < cursor.position:
        return "truncated"
    return None if digest(anchor) == cursor.anchor else "changed"
