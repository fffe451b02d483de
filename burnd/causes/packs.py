"""What a piece of a rail added to the sums, as one small value: so that it can be taken off again, and read by itself.

It is kept twice: by quarters of an hour, and by days for each activity. To keep activities by quarters of an hour would
take five times the room. Beside it stands how many turns there were of each key, so that whoever wants some of them
knows whether these are all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import add
from typing import Final

import msgspec
import zstandard

from burnd.attribution.blocks import Group
from burnd.attribution.misses import Reason
from burnd.attribution.tally import Sums
from burnd.causes.cause import CauseKey, Dims, Numbered, key_of, miss_key
from burnd.causes.counting import Segment
from burnd.index.rollup import DAY, GRAINS

A_DAY: Final = GRAINS[DAY]
_LARGEST: Final = 1 << 28
_WIDTH: Final = 6  # of a key

# (bucket, class, place, branch, subagent, cause); by activity the bucket is a day.
Key = tuple[int, int, int, int, int, int]
Row = tuple[int, ...]  # a key, and then what is counted


class Pack(msgspec.Struct, array_like=True):
    """Rows of a piece, by time alone and by activity, and how many turns are counted by time where."""

    by_time: msgspec.Raw
    by_activity: dict[int, msgspec.Raw]
    turns: msgspec.Raw

    def rows(self) -> list[Row]:
        return _rows.decode(self.by_time)

    def counts(self) -> list[Row]:
        """Keys of turns, each with how many there are."""
        return _rows.decode(self.turns)

    def of_activity(self, activity: int) -> list[Row]:
        raw = self.by_activity.get(activity)
        return _rows.decode(raw) if raw is not None else []


_encode: Final = msgspec.msgpack.Encoder().encode
_pack: Final = msgspec.msgpack.Decoder(Pack)
_rows: Final[msgspec.msgpack.Decoder[list[Row]]] = msgspec.msgpack.Decoder(list[Row])


class Counted:
    """The same as dictionaries, to be compared and added up."""

    def __init__(self) -> None:
        self.by_time: dict[Key, list[int]] = {}
        self.by_activity: dict[int, dict[Key, list[int]]] = {}
        self.turns: dict[Row, int] = {}

    def add(self, dims: Dims, cause: int, sums: Sums) -> None:
        bucket, *where, activity = dims
        _plus(self.by_time, (bucket, *where, cause), sums)  # type: ignore[arg-type]
        day = (bucket // A_DAY, *where, cause)
        _plus(self.by_activity.setdefault(activity, {}), day, sums)  # type: ignore[arg-type]

    def packed(self) -> bytes:
        by_activity = {number: _raw(_flat(rows)) for number, rows in sorted(self.by_activity.items())}
        turns = [(*place, count) for place, count in sorted(self.turns.items())]
        data = _encode(Pack(_raw(_flat(self.by_time)), by_activity, _raw(turns)))
        return zstandard.ZstdCompressor(level=3).compress(data)


class Naming:
    """What the causes of a piece are called, looked up once for each group and agent."""

    def __init__(self, agents: Mapping[int, str]) -> None:
        self._agents = agents
        self._known: dict[tuple[Group | Reason, int], CauseKey] = {}

    def of(self, segment: Segment) -> Iterator[tuple[Dims, CauseKey, Sums]]:
        known = self._known
        for dims, groups in segment.sums.items():
            subagent = dims.subagent
            for group, sums in groups.items():
                key = known.get((group, subagent))
                if key is None:
                    key = known[group, subagent] = key_of(group, self._agents.get(subagent, ""))
                yield dims, key, sums
        for dims, reasons in segment.misses.items():
            for reason, sums in reasons.items():
                yield dims, miss_key(reason, self._agents.get(dims.subagent, "")), sums


def counted(segment: Segment, naming: Naming, numbers: Mapping[CauseKey, Numbered]) -> Counted:
    made = Counted()
    for dims, key, sums in naming.of(segment):
        made.add(dims, numbers[key].id, sums)
    for (*place, _), count in segment.turns.items():
        made.turns[tuple(place)] = made.turns.get(tuple(place), 0) + count
    return made


def unpacked(data: bytes) -> Pack:
    return _pack.decode(zstandard.ZstdDecompressor().decompress(data, max_output_size=_LARGEST))


def opened(data: bytes) -> Counted:
    pack, made = unpacked(data), Counted()
    made.by_time = _by_key(pack.rows())
    made.by_activity = {activity: _by_key(pack.of_activity(activity)) for activity in pack.by_activity}
    return made


def _plus(rows: dict[Key, list[int]], key: Key, sums: Sums) -> None:
    row = rows.get(key)
    if row is None:
        rows[key] = list(sums)
    else:
        rows[key] = [*map(add, row, sums)]


def _raw(rows: list[Row]) -> msgspec.Raw:
    """Opened only by those who ask for it."""
    return msgspec.Raw(_encode(rows))


def _flat(rows: Mapping[Key, list[int]]) -> list[Row]:
    return [(*key, *row) for key, row in sorted(rows.items())]


def _by_key(rows: list[Row]) -> dict[Key, list[int]]:
    return {row[:_WIDTH]: list(row[_WIDTH:]) for row in rows}  # type: ignore[misc]
