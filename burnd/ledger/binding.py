"""Lists that are bound to an SQL statement, in a few lengths only: each is another statement, to be parsed and kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
MOST_AT_ONCE = 256


def in_few_lengths(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in order, in stretches of round lengths, as long as may be: the ten or twenty of a page are one."""
    begin, left = 0, len(items)
    while left:
        length = min(MOST_AT_ONCE, _round(left))
        yield items[begin : begin + length]
        begin, left = begin + length, left - length


def _round(number: int) -> int:
    """The largest of 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, ... that is not above it."""
    largest = 1 << number.bit_length() - 1
    return next(largest + part for part in (largest // 2, largest // 4, 0) if largest + part <= number)
