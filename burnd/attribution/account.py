"""Adds up what each cause paid over the turns of a rail, without visiting a block in every turn that it rode.

A run of slots that one class paid for whole is two marks: one at its last slot, one that takes it back before its
first. A slot was paid for as often as the marks at it and behind it add up to, so one walk over the slots, last to
first, tells it for all of them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from burnd.attribution.rail import Rail
from burnd.attribution.rates import CACHE_READ, CLASSES, Rate, Spent
from burnd.attribution.steps import Step

# Many numbers in one: a field for each rate and class, and two that count turns. Adding up or multiplying the whole
# does so for every field at once. A count is at most 2^40: sums of millions of them fit.
_FIELD: Final = 64
_MASK: Final = (1 << _FIELD) - 1
_PRESENT: Final = 1
_READ: Final = 1 << _FIELD
_FIRST_RATE: Final = 2
_NEVER: Final = (0, 0)

Fields = dict[int, int]


class Totals(msgspec.Struct, frozen=True, gc=False):
    """What one owner paid, and the tokens it brought into the context.

    `size` are those, and what it had brought in before, in turns that do not count. `rides` is in how many turns after
    it entered it was there, `reentries` in how many of them it was not read from the cache but paid in full again.
    """

    spent: dict[Rate, Spent]
    entered: int
    size: int
    rides: int
    reentries: int


class Account:
    """Takes the steps of those turns that are to count, each right after the rail was fed with it."""

    def __init__(self, rail: Rail) -> None:
        self._rail = rail
        self._rates: dict[Rate, tuple[int, ...]] = {}
        self._marks: Fields = {}
        self._paid: Fields = {}
        self._entered: list[int] = []
        self._entered_unseen: list[int] = []
        self._read: dict[int, int] = {}

    def add(self, rate: Rate, step: Step) -> None:
        row, marks, paid = self._rail.row, self._marks, self._paid
        units = self._rates.get(rate) or self._add_rate(rate)
        for rate_class, last, below in step.runs:
            unit = units[rate_class] + _READ if rate_class == CACHE_READ else units[rate_class]
            marks[last] = marks.get(last, 0) + unit
            marks[below] = marks.get(below, 0) - unit
        for rate_class, slot, tokens in step.pieces:
            owner = row.owners[slot]
            paid[owner] = paid.get(owner, 0) + tokens * units[rate_class]
            if rate_class == CACHE_READ and 2 * tokens >= row.size(slot):
                self._count_read(row.block(slot), 1)
        for rate_class, owner, tokens in step.outputs:
            paid[owner] = paid.get(owner, 0) + tokens * units[rate_class]
        if step.bounds.end:
            marks[row.tip] = marks.get(row.tip, 0) + _PRESENT
            self._entered += step.entered
            for slot in step.entered:
                if row.ends[slot] > step.bounds.read:
                    break
                self._count_read(slot, -1)

    def skip(self, step: Step) -> None:
        """A turn that does not count: what came in there may ride in those that do."""
        if step.bounds.end:
            self._entered_unseen += step.entered

    def _add_rate(self, rate: Rate) -> tuple[int, ...]:
        first = _FIRST_RATE + len(self._rates) * CLASSES
        units = tuple(1 << (first + n) * _FIELD for n in range(CLASSES))
        self._rates[rate] = units
        return units

    def _count_read(self, block: int, times: int) -> None:
        self._read[block] = self._read.get(block, 0) + times

    def totals(self) -> dict[int, Totals]:
        """Every owner that had a share in the turns that were added."""
        row = self._rail.row
        paid, present, read = self._settled()
        tokens, unseen, riding = [0] * len(paid), [0] * len(paid), [_NEVER] * len(paid)
        for slot in self._entered_unseen:
            unseen[row.owners[slot]] += row.size(slot) if present[slot] else 0
        for slot in self._entered:
            tokens[row.owners[slot]] += row.size(slot)
            present[slot] -= 1
        for block, rides in enumerate(present):
            if rides and rides > riding[row.owners[block]][0]:
                riding[row.owners[block]] = (rides, max(0, rides - read[block]))
        rates = list(self._rates)
        layout = Struct(f"<{_FIRST_RATE + len(rates) * CLASSES}Q")
        return {
            owner: Totals(_by_rate(fields, rates, layout), tokens[owner], tokens[owner] + unseen[owner], *riding[owner])
            for owner, fields in enumerate(paid)
            if fields
        }

    def _settled(self) -> tuple[list[int], list[int], list[int]]:
        """By owner what it paid; by block in how many turns it was there, and in how many it was read whole."""
        row = self._rail.row
        parents, ends, owners = row.parents, row.ends, row.owners
        paid = _as_list(self._paid, len(self._rail.origins))
        present, read = [0] * len(ends), _as_list(self._read, len(ends))
        waiting = _as_list(self._marks, len(ends))
        turns_only = (1 << _FIRST_RATE * _FIELD) - 1
        for slot in range(len(ends) - 1, 0, -1):
            marks = waiting[slot]
            if marks:
                parent, block, turns = parents[slot], row.block(slot), marks & turns_only
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


def _by_rate(fields: int, rates: list[Rate], layout: Struct) -> dict[Rate, Spent]:
    numbers = layout.unpack(fields.to_bytes(layout.size, "little"))
    if len(rates) == 1:  # as in most sessions
        return {rates[0]: Spent._make(numbers[_FIRST_RATE:])}
    found, at = {}, _FIRST_RATE
    for rate in rates:
        row = numbers[at : at + CLASSES]
        if any(row):
            found[rate] = Spent(*row)
        at += CLASSES
    return found
