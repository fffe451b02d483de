"""Saves a rail's state as bytes, to follow it further from there: what later turns may continue, and nothing else.

Of a cause only its group is saved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from burnd.attribution.blocks import Claim, Group
from burnd.attribution.rail import Made, Node, Origin, Rail
from burnd.attribution.row import ROOT, Row

VERSION: Final = 4


class _Saved(msgspec.Struct, array_like=True):
    """`distances` count back from each slot to its parent, `causes` names the group of each cause.

    `tip` is the last slot of the row that the last billed turn used. An unbilled message may have another tip.
    """

    version: int
    groups: list[Group]
    causes: list[int]
    distances: list[int]
    sizes: list[int]
    owners: list[int]
    tip: int
    order: list[tuple[str, Node]]
    calls: dict[str, Made]


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(_Saved)


def save(rail: Rail) -> bytes:
    """As large as the rows that turns within reach stood on: some 8 bytes a block and 100 a message."""
    rail.forget_old()
    row, order = rail.row, rail.order
    slots = _reachable(row, (row.tip, *(node.tip for _, node in order)))
    causes = _needed(rail, slots)
    groups: dict[Group, int] = {}
    slot_at = {slot: n for n, slot in enumerate(slots)}
    cause_at = {cause: n for n, cause in enumerate(causes)}
    saved = _Saved(
        version=VERSION,
        causes=[groups.setdefault(rail.origins[cause].group, len(groups)) for cause in causes],
        groups=list(groups),
        distances=[slot_at[slot] - slot_at[row.parents[slot]] for slot in slots[1:]],
        sizes=[row.size(slot) for slot in slots[1:]],
        owners=[cause_at[row.owners[slot]] for slot in slots[1:]],
        tip=slot_at[row.tip],
        order=[
            (
                message_id,
                msgspec.structs.replace(
                    node,
                    tip=slot_at[node.tip],
                    pending=tuple(Claim(cause_at[one.owner], one.expected, one.nature) for one in node.pending),
                ),
            )
            for message_id, node in order
        ],
        calls={call_id: Made(cause_at[made.owner], made.n) for call_id, made in rail.calls.items()},
    )
    return _encode(saved)


def restore(data: bytes) -> Rail:
    """The rail as it was saved. Raises ValueError where the bytes are of another version or are damaged."""
    saved = _decoder.decode(data)
    if saved.version != VERSION:
        raise ValueError(f"a rail's state of version {saved.version}, where {VERSION} is known")
    rail = Rail()
    origins = [Origin(*group) for group in saved.groups]
    rail.origins = [origins[group] for group in saved.causes]
    row = rail.row
    for slot, (distance, size, owner) in enumerate(zip(saved.distances, saved.sizes, saved.owners, strict=True), 1):
        row.parents.append(slot - distance)
        row.ends.append(row.ends[slot - distance] + size)
        row.owners.append(owner)
    rail.order = saved.order
    rail.nodes = dict(saved.order)
    rail.calls = saved.calls
    rail.last = saved.order[-1][1] if saved.order else Node()
    row.go(saved.tip)
    return rail


def _reachable(row: Row, tips: Iterable[int]) -> list[int]:
    kept = {ROOT}
    for slot in tips:
        while slot not in kept:
            kept.add(slot)
            slot = row.parents[slot]
    return sorted(kept)


def _needed(rail: Rail, slots: list[int]) -> list[int]:
    """The causes that later turns may meet, those that every rail has among them."""
    causes = {*range(len(Rail().origins)), *(rail.row.owners[slot] for slot in slots[1:])}
    causes.update(claim.owner for _, node in rail.order for claim in node.pending)
    causes.update(made.owner for made in rail.calls.values())
    return sorted(causes)
