"""A rail's state as bytes, to go on from after a restart: what later turns may stand on, and nothing else.

Causes are saved as their groups: sums by group go on exactly, single causes are told by feeding a rail from its start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

import msgspec

from burnd.attribution.blocks import Claim, Group
from burnd.attribution.context import ROOT, Row
from burnd.attribution.rail import Rail
from burnd.attribution.steps import Made, Node, Origin

VERSION: Final = 1


class _Saved(msgspec.Struct, array_like=True):
    """`distances` tell how many slots before its own each slot's parent stands."""

    version: int
    groups: list[Group]
    distances: list[int]
    sizes: list[int]
    owners: list[int]
    order: list[tuple[str, Node]]
    calls: dict[str, tuple[Made, ...]]


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(_Saved)


def save(rail: Rail) -> bytes:
    """As large as the rows that turns within reach stood on: some 5 bytes a block and 100 a message."""
    rail.forget_old()
    row, order = rail.row, rail.order
    kept = _reachable(row, (node.tip for _, node in order))
    groups, group_of = _numbered(rail, kept, order)
    number = {slot: n for n, slot in enumerate(kept)}
    saved = _Saved(
        version=VERSION,
        groups=groups,
        distances=[number[slot] - number[row.parents[slot]] for slot in kept[1:]],
        sizes=[row.size(slot) for slot in kept[1:]],
        owners=[group_of[row.owners[slot]] for slot in kept[1:]],
        order=[
            (
                message_id,
                msgspec.structs.replace(
                    node,
                    tip=number[node.tip],
                    pending=tuple(Claim(group_of[one.owner], one.expected, one.nature) for one in node.pending),
                    slots=bisect_left(kept, node.slots),
                    owners=len(groups),
                ),
            )
            for message_id, node in order
        ],
        calls={
            call_id: tuple(Made(group_of[one.owner], one.n) for one in made) for call_id, made in rail.calls.items()
        },
    )
    return _encode(saved)


def restore(data: bytes) -> Rail:
    """The rail as it was saved. Raises ValueError where the bytes are of another version or are damaged."""
    saved = _decoder.decode(data)
    if saved.version != VERSION:
        raise ValueError(f"a rail's state of version {saved.version}, where {VERSION} is known")
    rail = Rail()
    rail.origins = [Origin(*group) for group in saved.groups]
    row = rail.row
    for slot, (distance, size, owner) in enumerate(zip(saved.distances, saved.sizes, saved.owners, strict=True), 1):
        row.parents.append(slot - distance)
        row.ends.append(row.ends[slot - distance] + size)
        row.owners.append(owner)
    rail.order = saved.order
    rail.nodes = dict(saved.order)
    rail.calls = saved.calls
    rail.last = saved.order[-1][1] if saved.order else Node()
    row.go(rail.last.tip)
    return rail


def _reachable(row: Row, tips: Iterable[int]) -> list[int]:
    kept = {ROOT}
    for slot in tips:
        while slot not in kept:
            kept.add(slot)
            slot = row.parents[slot]
    return sorted(kept)


def _numbered(rail: Rail, kept: list[int], order: list[tuple[str, Node]]) -> tuple[list[Group], dict[int, int]]:
    """The groups of all owners that are still needed, those that every rail has first, and each owner's place."""
    owners = {rail.row.owners[slot] for slot in kept[1:]}
    owners |= {claim.owner for _, node in order for claim in node.pending}
    owners |= {one.owner for made in rail.calls.values() for one in made}
    standing = range(len(Rail().origins))
    numbers: dict[Group, int] = {}
    group_of = {
        owner: numbers.setdefault(rail.origins[owner].group, len(numbers))
        for owner in (*standing, *sorted(owners - set(standing)))
    }
    return list(numbers), group_of
