"""The context of a rail as a row of blocks in order, and how a bill's rate classes lie along it.

A turn's row is its parent's row with more at the end, or with less where something was taken out. So rows are kept
as a tree of slots: each slot stands behind its parent, a turn's row is the path from the root to its last slot, and
no row is ever changed. A rewound branch, an old row after a compaction and two clients that write one session in
turns are all just other paths.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

import msgspec

from burnd.attribution.rates import CACHE_CREATE_1H, CACHE_CREATE_5M, CACHE_READ, INPUT
from burnd.records import Usage

ROOT: Final = 0

Run = tuple[int, int, int]
Piece = tuple[int, int, int]


class Bounds(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where the rate classes end along the row: what was read from the cache comes first, what was not cached last."""

    read: int
    hour: int
    five: int
    end: int

    def of(self, start: int, end: int) -> list[tuple[int, int]]:
        """The (class, tokens) of the stretch of the row from `start` to `end`."""
        if start >= self.hour and end <= self.five:
            return [(CACHE_CREATE_5M, end - start)]
        found, at = [], start
        for rate_class, bound in self.along():
            upto = min(bound, end)
            if upto > at:
                found.append((rate_class, upto - at))
                at = upto
        return found

    def along(self) -> tuple[tuple[int, int], ...]:
        """Each class and where it ends, in their order along the row."""
        return (
            (CACHE_READ, self.read),
            (CACHE_CREATE_1H, self.hour),
            (CACHE_CREATE_5M, self.five),
            (INPUT, self.end),
        )


def bounds_of(usage: Usage) -> Bounds:
    read = usage.cache_read
    hour = read + usage.cache_create_1h
    five = hour + usage.cache_create_5m
    return Bounds(read, hour, five, five + usage.input)


class Row:
    """A tree of slots and one path through it, the row that is being looked at.

    A slot holds the tokens of one block: `ends` is where it ends on its row, `owners` whose it is. No slot is empty,
    and a slot's number is higher than its parent's: along a path numbers and ends both rise, so that both can be
    searched by bisection. `blocks` has the slot in which a slot's block first stood, where that is not the slot itself.
    """

    def __init__(self) -> None:
        self.parents = [ROOT]
        self.ends = [0]
        self.owners = [-1]
        self.path = [ROOT]
        self.path_ends = [0]
        self.blocks: dict[int, int] = {}

    @property
    def tip(self) -> int:
        return self.path[-1]

    @property
    def total(self) -> int:
        return self.path_ends[-1]

    def size(self, slot: int) -> int:
        return self.ends[slot] - self.ends[self.parents[slot]]

    def block(self, slot: int) -> int:
        """The slot in which a slot's block first stood."""
        return self.blocks.get(slot, slot)

    def push(self, owner: int, size: int) -> None:
        """Put a new block at the row's end."""
        path, ends, path_ends = self.path, self.ends, self.path_ends
        end = path_ends[-1] + size
        self.parents.append(path[-1])
        path.append(len(ends))
        ends.append(end)
        self.owners.append(owner)
        path_ends.append(end)

    def push_again(self, slot: int, size: int) -> None:
        """Put a block that stood elsewhere at the row's end, with another size perhaps."""
        self.blocks[len(self.ends)] = self.block(slot)
        self.push(self.owners[slot], size)

    def go(self, tip: int) -> None:
        """Look at the row that ends in `tip`. What that costs is how far it differs from the one before."""
        path = self.path
        if path[-1] == tip:
            return
        climbed = []
        while (at := bisect_left(path, tip)) == len(path) or path[at] != tip:
            climbed.append(tip)
            tip = self.parents[tip]
        self.cut(at + 1)
        climbed.reverse()
        path += climbed
        self.path_ends += [self.ends[slot] for slot in climbed]

    def cut(self, length: int) -> None:
        """Leave the first `length` slots of the path, the root among them."""
        del self.path[length:]
        del self.path_ends[length:]

    def beyond(self, position: int) -> int:
        """The place on the path of the first slot that reaches beyond a position."""
        return bisect_right(self.path_ends, position)

    def times(self, marks: dict[int, int]) -> Iterator[tuple[int, int]]:
        """How often each slot was paid for, by marks at the last slots of runs and negative ones before their first.

        A slot was paid for as often as the marks at it and behind it add up to. Uses the marks up.
        """
        parents = self.parents
        for slot in range(max(marks, default=0), ROOT, -1):
            count = marks.get(slot)
            if count:
                parent = parents[slot]
                marks[parent] = marks.get(parent, 0) + count
                yield slot, count

    def lay(self, bounds: Bounds) -> tuple[list[Run], list[Piece]]:
        """How a bill lies along the row, which must be as long as its context.

        Runs are (class, last slot, slot before the first): whole slots in one class. Pieces are (class, slot, tokens)
        of slots that two classes share. Together they hold every token once.
        """
        path, ends = self.path, self.path_ends
        runs: list[Run] = []
        pieces: list[Piece] = []
        low, at = 0, 1
        for rate_class, high in bounds.along():
            if high == low:
                continue
            if ends[at - 1] < low:  # the class before ended within this slot
                end = ends[at]
                if high < end:
                    pieces.append((rate_class, path[at], high - low))
                    low = high
                    continue
                pieces.append((rate_class, path[at], end - low))
                low, at = end, at + 1
                if high == end:
                    continue
            top = bisect_left(ends, high, at)
            whole = top if ends[top] == high else top - 1
            if whole >= at:
                runs.append((rate_class, path[whole], path[at - 1]))
            if whole < top:
                pieces.append((rate_class, path[top], high - ends[whole]))
            low, at = high, whole + 1
        return runs, pieces
