"""How far a database of opencode's has been read: the marker among its rows, and what was seen of each session."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import msgspec

from burnd.harness.opencode.rows import Unusable
from burnd.index.change import CursorChange

T = TypeVar("T")
_MARKER = "marker"
_SESSION = "session:"
_KEPT_ANCHORS = 24
FIRST_ROWID, LAST_ROWID = -(1 << 63), (1 << 63) - 1


class Anchor(NamedTuple):
    """A row of `message` that was there: rows are given numbers again once the newest are gone."""

    rowid: int
    id: str


class Marker(msgspec.Struct, frozen=True, array_like=True):
    """The next row to look at, and the rows it follows, the newest last and the older ones ever further apart."""

    next: int = FIRST_ROWID
    anchors: tuple[Anchor, ...] = ()
    identity: tuple[int, int] | None = None

    def after(self, rowid: int, message_id: str) -> Marker:
        """The marker behind this row."""
        anchors = [*self.anchors, Anchor(rowid, message_id)]
        return msgspec.structs.replace(self, next=rowid + 1, anchors=_thinned(anchors))

    def back_to(self, anchor: Anchor | None) -> Marker:
        """The marker behind an anchor that still stands, or at the beginning."""
        kept = self.anchors[: self.anchors.index(anchor) + 1] if anchor is not None else ()
        after = anchor.rowid + 1 if anchor is not None else FIRST_ROWID
        return msgspec.structs.replace(self, next=after, anchors=kept)

    @property
    def is_last(self) -> bool:
        """Whether it is the largest rowid: SQLite then gives new rows any free one."""
        return self.next > LAST_ROWID


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """A session as it was read: digests of its row and of its messages' versions, and its number in the event log.

    One that is `pending` has messages that had not settled; `unfinished` are those that opencode never finished, each
    with when it was last written to and a digest that a change of its parts changes too. `unused` are the first rows
    that could not be used, `unused_count` is how many there are.
    """

    row: int
    seq: int = -1
    versions: int = 0
    pending: bool = False
    unfinished: tuple[tuple[str, int, int], ...] = ()
    unused: tuple[Unusable, ...] = ()
    unused_count: int = 0


class Cursors(NamedTuple):
    """All that is stored about one database."""

    marker: Marker
    seen: dict[str, Seen]


def digest_of(values: Iterable[object]) -> int:
    """A 64-bit hash that is the same in every process."""
    data = "\x1f".join(map(repr, values)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)


def source_key(source: str, path: str) -> str:
    return f"{source}:{path}"


def marker_change(source: str, marker: Marker) -> CursorChange:
    return CursorChange(source, _MARKER, msgspec.msgpack.encode(marker))


def seen_change(source: str, session_id: str, seen: Seen | None) -> CursorChange:
    return CursorChange(source, _SESSION + session_id, msgspec.msgpack.encode(seen) if seen is not None else None)


def loaded(rows: Iterable[tuple[str, bytes]]) -> Cursors:
    """What was stored; what cannot be read, as after an update, counts as not seen."""
    marker, seen = Marker(), {}
    for key, value in rows:
        if key == _MARKER:
            marker = _decoded(value, Marker) or marker
        elif (found := _decoded(value, Seen)) is not None:
            seen[key.removeprefix(_SESSION)] = found
    return Cursors(marker, seen)


def _decoded(value: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.MsgspecError, ValueError):
        return None


def _thinned(anchors: list[Anchor]) -> tuple[Anchor, ...]:
    """At most so many anchors: where there are more, the one goes whose neighbours are closest for their age."""
    if len(anchors) <= _KEPT_ANCHORS:
        return tuple(anchors)
    newest = anchors[-1].rowid
    gaps = [
        ((anchors[n + 1].rowid - anchors[n - 1].rowid) / (newest - anchors[n].rowid + 1), n)
        for n in range(1, len(anchors) - 1)
    ]
    del anchors[min(gaps)[1]]
    return tuple(anchors)
