"""Many counts in one number: adding such numbers up, or multiplying one, does so for every count at once.

Each count has 64 bits of it, as a signed number: a count is at most 2^40, and sums over millions of them fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from burnd.attribution.rates import CLASSES, Spent

Packed = int
FIELD: Final = 64
_FIELDS: Final = CLASSES + 4
UNITS: Final = tuple(1 << n * FIELD for n in range(_FIELDS))  # one of each rate class, then of these
ENTERED, CALL, ERROR, ONE = UNITS[CLASSES:]  # the last is for whoever adds sums up: how many there were
_SIGNS: Final = sum(unit << (FIELD - 1) for unit in UNITS)
_BYTES: Final = _FIELDS * FIELD // 8
_LAYOUT: Final = Struct(f"<{_FIELDS}q")


class Sums(NamedTuple):
    """What a group paid in the turns of a bucket, the tokens it brought in, its calls and how many of them failed."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_create_5m: int = 0
    cache_create_1h: int = 0
    searches: int = 0
    entered: int = 0
    calls: int = 0
    errors: int = 0

    @classmethod
    def of(cls, packed: Packed) -> Sums:
        return cls(*unpack(packed)[:-1])

    @property
    def spent(self) -> Spent:
        return Spent(*self[:CLASSES])


def pack(counts: Iterable[int]) -> Packed:
    """Counts in the order of `Sums`."""
    return sum(unit * count for unit, count in zip(UNITS, counts, strict=False))


def unpack(packed: Packed) -> tuple[int, ...]:
    """The counts in the order of `Sums`, and then how many of them were added up, where that was counted."""
    # With the sign of every count turned around none is negative, so none borrows from the one above it.
    return _LAYOUT.unpack(((packed + _SIGNS) ^ _SIGNS).to_bytes(_BYTES, "little"))
