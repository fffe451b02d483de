"""Adds up what each cause paid over the turns of a rail, without visiting a block in every turn that it rode.

A run of slots that one class paid for whole is two marks: one at its last slot, one that takes it back before its
first. A slot was paid for as often as the marks at it and behind it add up to, so one walk over the slots, last to
first, tells it for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from burnd.attribution.cause import Causes, Paid, Sizes
from burnd.attribution.rail import Rail
from burnd.attribution.rates import CACHE_READ, CLASSES, Rate
from burnd.attribution.steps import Step

# Many numbers in one: a field for each rate and class, and two that count turns. Adding up or multiplying the whole
# does so for every field at once. A count is at most 2^40: sums of millions of them fit.
_FIELD: Final = 64
_MASK: Final = (1 << _FIELD) - 1
_PRESENT: Final = 1
_READ: Final = 1 << _FIELD
_FIRST_RATE: Final = 2

Fields = defaultdict[int, int]


class _Units(NamedTuple):
    """By class the field of a token of a rate; and for a run, which counts the turns that read its slots as well."""

    tokens: tuple[int, ...]
    runs: tuple[int, ...]


class Account:
    """Takes the steps of a followed rail, those of the turns that are to count."""

    def __init__(self, rail: Rail) -> None:
        self._row = rail.row
        self._origins = rail.origins
        self._rates: dict[Rate, _Units] = {}
        self._marks: Fields = defaultdict(int)
        self._paid: Fields = defaultdict(int)
        self._entered: list[list[int]] = []
        self._entered_unseen: list[list[int]] = []
        self._read: Fields = defaultdict(int)

    def add(self, rate: Rate, step: Step) -> None:
        ends, owners, marks, paid = self._row.ends, self._row.owners, self._marks, self._paid
        units, runs = self._rates.get(rate) or self._add_rate(rate)
        for rate_class, last, below in step.runs:
            unit = runs[rate_class]
            marks[last] += unit
            if below:
                marks[below] -= unit
        for rate_class, slot, tokens in step.pieces:
            paid[owners[slot]] += tokens * units[rate_class]
            if rate_class == CACHE_READ and 2 * tokens >= self._row.size(slot):
                self._read[self._row.block(slot)] += 1
        for rate_class, owner, tokens in step.outputs:
            paid[owner] += tokens * units[rate_class]
        if step.bounds.end:
            marks[step.tip] += _PRESENT
            self._entered.append(step.entered)
            for slot in step.entered:
                if ends[slot] > step.bounds.read:
                    break
                self._read[slot] -= 1

    def skip(self, step: Step) -> None:
        """A turn that does not count: what came in there may ride in those that do."""
        if step.bounds.end:
            self._entered_unseen.append(step.entered)

    def _add_rate(self, rate: Rate) -> _Units:
        first = _FIRST_RATE + len(self._rates) * CLASSES
        units = tuple(1 << (first + n) * _FIELD for n in range(CLASSES))
        runs = tuple(unit + _READ if n == CACHE_READ else unit for n, unit in enumerate(units))
        self._rates[rate] = found = _Units(units, runs)
        return found

    def causes(self) -> Causes:
        """Every owner that had a share in the turns that were added."""
        paid, present, read = self._settled()
        sizes = self._sizes(present, read)
        owners = [owner for owner, fields in enumerate(paid) if fields]
        return Causes(self._origins, owners, sizes, _by_rate([paid[owner] for owner in owners], list(self._rates)))

    def _sizes(self, present: list[int], read: list[int]) -> Sizes:
        owners, count = self._row.owners, len(self._origins)
        largest, end = [0] * count, [0] * count
        self._come_in(self._entered_unseen, largest, end)
        entered = self._come_in(self._entered, largest, end)
        size = entered.copy()
        for slot in chain.from_iterable(self._entered_unseen):
            size[owners[slot]] += self._row.size(slot) if present[slot] else 0
        rides, reentries = self._riding(present, read)
        return Sizes(entered, size, rides, reentries, largest, end)

    def _come_in(self, steps: list[list[int]], largest: list[int], end: list[int]) -> list[int]:
        """By owner the tokens that came in; `largest` and `end` are brought up to date."""
        parents, ends, owners = self._row.parents, self._row.ends, self._row.owners
        entered = [0] * len(largest)
        for slots in steps:
            came: dict[int, int] = {}
            for slot in slots:
                owner = owners[slot]
                end[owner] = upto = ends[slot]
                came[owner] = came.get(owner, 0) + upto - ends[parents[slot]]
            for owner, tokens in came.items():
                entered[owner] += tokens
                if tokens > largest[owner]:
                    largest[owner] = tokens
        return entered

    def _riding(self, present: list[int], read: list[int]) -> tuple[list[int], list[int]]:
        """By owner in how many turns after it came in it was there, and in how many of these it was not read."""
        owners, count = self._row.owners, len(self._origins)
        rides, reentries = [0] * count, [0] * count
        for slot in chain.from_iterable(self._entered):
            present[slot] -= 1
        for block, times in enumerate(present):
            if times and times > rides[owner := owners[block]]:
                rides[owner], reentries[owner] = times, max(0, times - read[block])
        return rides, reentries

    def _settled(self) -> tuple[list[int], list[int], list[int]]:
        """By owner what it paid; by block in how many turns it was there, and in how many it was read whole."""
        row = self._row
        parents, ends, owners, blocks = row.parents, row.ends, row.owners, row.blocks
        paid = _as_list(self._paid, len(self._origins))
        present, read = [0] * len(ends), _as_list(self._read, len(ends))
        waiting = _as_list(self._marks, len(ends))
        turns_only = (1 << _FIRST_RATE * _FIELD) - 1
        for slot in range(len(ends) - 1, 0, -1):
            marks = waiting[slot]
            if marks:
                parent, block, turns = parents[slot], blocks.get(slot, slot), marks & turns_only
                present[block] += turns & _MASK
                read[block] += turns >> _FIELD
                paid[owners[slot]] += (marks - turns) * (ends[slot] - ends[parent])
                waiting[parent] += marks
        return paid, present, read


def _as_list(numbers: dict[int, int], length: int) -> list[int]:
    column = [0] * length
    for at, number in numbers.items():
        column[at] = number
    return column


def _by_rate(paid: list[int], rates: list[Rate]) -> dict[Rate, list[Paid]]:
    """What many fields say, all of them taken apart at once."""
    size = (_FIRST_RATE + len(rates) * CLASSES) * _FIELD // 8
    packed = b"".join([fields.to_bytes(size, "little") for fields in paid])
    return {rate: _column(packed, size, n) for n, rate in enumerate(rates)}


def _column(packed: bytes, size: int, rate: int) -> list[Paid]:
    """What was paid at one rate."""
    begin = (_FIRST_RATE + rate * CLASSES) * _FIELD // 8
    layout = Struct(f"<{begin}x{CLASSES}Q{size - begin - CLASSES * _FIELD // 8}x")
    return list(layout.iter_unpack(packed))
