"""Lists that are bound to an SQL statement, in a few lengths only: each is another statement, to be parsed and kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
MOST_AT_ONCE = 256


def in_few_lengths(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in order, in stretches as long as powers of two: all but the last few of them as long as may be."""
    begin, left = 0, len(items)
    while left:
        length = min(MOST_AT_ONCE, 1 << left.bit_length() - 1)
        yield items[begin : begin + length]
        begin, left = begin + length, left - length
