"""What a piece of a rail added to the sums, as one small value: so that it can be taken off again, and read by itself.

Beside it stands how many turns there were of each key, so that whoever wants some of them knows whether these are all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
import zstandard

from burnd.attribution.blocks import Group
from burnd.attribution.misses import Reason
from burnd.attribution.sums import Packed, pack, unpack
from burnd.attribution.tally import Counts
from burnd.causes.cause import CauseKey, Dims, Numbered, key_of
from burnd.causes.counting import Segment

_LARGEST: Final = 1 << 28

Place = tuple[int, int, int, int, int]  # bucket, class, place, branch, subagent
Row = tuple[int, ...]  # a cause, and then what is counted
Counted = dict[Dims, dict[int, Packed]]  # by cause


class Cells(NamedTuple):
    """What turns that are counted together paid, cause by cause."""

    place: Place
    rows: list[Row]


class Pack(msgspec.Struct, array_like=True):
    """Cells of a piece by activity, and how many turns are counted where among all of them."""

    cells: dict[int, msgspec.Raw]
    turns: list[tuple[Place, int]]

    def of_activity(self, activity: int) -> list[Cells]:
        raw = self.cells.get(activity)
        return _cells.decode(raw) if raw is not None else []


_encode: Final = msgspec.msgpack.Encoder().encode
_pack: Final = msgspec.msgpack.Decoder(Pack)
_cells: Final[msgspec.msgpack.Decoder[list[Cells]]] = msgspec.msgpack.Decoder(list[Cells])


class Naming:
    """What the causes of pieces are called, looked up once for each group and type of agent."""

    def __init__(self, agents: Mapping[int, str]) -> None:
        self._agents = agents
        self._known: dict[str, dict[Group | Reason, CauseKey]] = {}

    def of(self, dims: Dims, groups: Counts) -> dict[Group | Reason, CauseKey]:
        """The names of all that is counted in a place, and of more."""
        agent = self._agents.get(dims.subagent, "")
        known = self._known.setdefault(agent, {})
        for group in groups.keys() - known.keys():
            known[group] = key_of(group, agent)
        return known

    def every(self, segments: Iterable[Segment]) -> set[CauseKey]:
        """The names of all that is counted in these pieces."""
        for segment in segments:
            for dims, groups in segment.sums.items():
                self.of(dims, groups)
        return {key for known in self._known.values() for key in known.values()}


def counted(segment: Segment, naming: Naming, numbers: Mapping[CauseKey, Numbered]) -> Counted:
    made: Counted = {}
    for dims, groups in segment.sums.items():
        names, cells = naming.of(dims, groups), made.setdefault(dims, {})
        for group, sums in groups.items():
            cause = numbers[names[group]].id  # several groups may be one cause
            cells[cause] = cells.get(cause, 0) + sums
    return made


def packed(made: Counted, turns: Mapping[Dims, int]) -> bytes:
    cells: dict[int, list[Cells]] = {}
    for dims, found in sorted(made.items()):
        rows = [(cause, *unpack(sums)[:-1]) for cause, sums in sorted(found.items())]
        cells.setdefault(dims.activity, []).append(Cells(dims[:-1], rows))
    raw = {activity: msgspec.Raw(_encode(some)) for activity, some in sorted(cells.items())}
    data = _encode(Pack(raw, [(dims[:-1], count) for dims, count in sorted(turns.items())]))
    return zstandard.ZstdCompressor(level=3).compress(data)


def unpacked(data: bytes) -> Pack:
    return _pack.decode(zstandard.ZstdDecompressor().decompress(data, max_output_size=_LARGEST))


def opened(data: bytes) -> Counted:
    found = unpacked(data)
    return {
        Dims(*place, activity): {cause: pack(sums) for cause, *sums in rows}
        for activity in found.cells
        for place, rows in found.of_activity(activity)
    }
