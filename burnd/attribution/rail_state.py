"""Saves and restores the state of a rail: what later turns may continue. Of a cause only its group is state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from burnd.attribution.blocks import Group, SizeClaim
from burnd.attribution.rail import CallOwner, CauseOrigin, Node, Rail
from burnd.attribution.row import ROOT, Row

VERSION: Final = 5


class _RailState(msgspec.Struct, array_like=True):
    """`distances` are from each slot to its parent, `causes` has the group of each cause.

    `tip` is the last slot of the row of the last billed turn; an unbilled message may have another.
    """

    version: int
    groups: list[Group]
    causes: list[int]
    distances: list[int]
    sizes: list[int]
    owners: list[int]
    tip: int
    order: list[tuple[str, Node]]
    calls: dict[str, CallOwner]


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(_RailState)


def save(rail: Rail) -> bytes:
    """Encodes a rail in some 8 bytes per block and 100 per message within reach."""
    rail.drop_old()
    row, order = rail.row, rail.order
    slots = _reachable(row, (row.tip, *(node.tip for _, node in order)))
    causes = _needed(rail, slots)
    groups: dict[Group, int] = {}
    slot_at = {slot: n for n, slot in enumerate(slots)}
    cause_at = {cause: n for n, cause in enumerate(causes)}
    state = _RailState(
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
                    pending=tuple(SizeClaim(cause_at[one.owner], one.expected, one.precision) for one in node.pending),
                ),
            )
            for message_id, node in order
        ],
        calls={call_id: CallOwner(cause_at[call.owner], call.n) for call_id, call in rail.calls.items()},
    )
    return _encode(state)


def restore(data: bytes) -> Rail:
    """Decodes a rail. Raises ValueError if the bytes are damaged or of another version."""
    state = _decoder.decode(data)
    if state.version != VERSION:
        raise ValueError(f"rail state has version {state.version}, not {VERSION}")
    rail = Rail()
    origins = [CauseOrigin(*group) for group in state.groups]
    rail.origins = [origins[group] for group in state.causes]
    row = rail.row
    for slot, (distance, size, owner) in enumerate(zip(state.distances, state.sizes, state.owners, strict=True), 1):
        row.parents.append(slot - distance)
        row.ends.append(row.ends[slot - distance] + size)
        row.owners.append(owner)
    rail.order = state.order
    rail.nodes = dict(state.order)
    rail.calls = state.calls
    rail.last = state.order[-1][1] if state.order else Node()
    row.go(state.tip)
    return rail


def _reachable(row: Row, tips: Iterable[int]) -> list[int]:
    slots = {ROOT}
    for slot in tips:
        while slot not in slots:
            slots.add(slot)
            slot = row.parents[slot]
    return sorted(slots)


def _needed(rail: Rail, slots: list[int]) -> list[int]:
    """The causes that later turns may refer to, permanent ones included."""
    causes = {*range(len(Rail().origins)), *(rail.row.owners[slot] for slot in slots[1:])}
    causes.update(claim.owner for _, node in rail.order for claim in node.pending)
    causes.update(call.owner for call in rail.calls.values())
    return sorted(causes)
