"""Adds up what each cause paid over the turns of a rail, without visiting a block in every turn that it was in.

A run of slots that one rate class paid for as a whole is two marks (see `Row.times`); one walk over the slots for each
rate and class settles all of them.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

from burnd.attribution.cause import Causes, Paid, Sizes
from burnd.attribution.rail import Rail
from burnd.attribution.rates import CACHE_READ, CLASSES, NOTHING, Rate
from burnd.attribution.steps import Step

Marks = defaultdict[int, int]


class Account:
    """Takes the steps of those turns of a rail that are to count."""

    def __init__(self, rail: Rail) -> None:
        self._row = rail.row
        self._origins = rail.origins
        self._runs: dict[tuple[Rate, int], Marks] = {}
        self._tips: Marks = defaultdict(int)  # the last slots of rows, each with the turns that had that row
        self._paid: dict[Rate, dict[int, list[int]]] = {}  # by owner
        self._read: Marks = defaultdict(int)  # by block: turns that read it from the cache
        self._entered: list[list[int]] = []
        self._entered_before: list[list[int]] = []  # in turns that do not count

    def add(self, rate: Rate, step: Step) -> None:
        row, paid = self._row, self._paid.setdefault(rate, {})
        for rate_class, last, below in step.runs:
            marks = self._runs.get((rate, rate_class))
            if marks is None:
                marks = self._runs[rate, rate_class] = defaultdict(int)
            marks[last] += 1
            marks[below] -= 1
        for rate_class, slot, tokens in step.pieces:
            _pay(paid, row.owners[slot], rate_class, tokens)
            if rate_class == CACHE_READ and 2 * tokens >= row.size(slot):
                self._read[row.block(slot)] += 1
        for rate_class, owner, tokens in step.outputs:
            _pay(paid, owner, rate_class, tokens)
        if step.bounds.end:
            self._tips[step.tip] += 1
            self._entered.append(step.entered)
            for slot in step.entered:
                if row.ends[slot] > step.bounds.read:
                    break
                self._read[slot] -= 1

    def skip(self, step: Step) -> None:
        """Takes a turn that does not count: what entered there may be in the context of turns that do."""
        if step.bounds.end:
            self._entered_before.append(step.entered)

    def causes(self) -> Causes:
        """Every cause that had a share in the turns that count."""
        row, read = self._row, [0] * len(self._row.ends)
        for block, times in self._read.items():
            read[block] = times
        for (rate, rate_class), marks in self._runs.items():
            paid = self._paid[rate]
            for slot, times in row.times(marks):
                _pay(paid, row.owners[slot], rate_class, times * row.size(slot))
                if rate_class == CACHE_READ:
                    read[row.block(slot)] += times
        present = [0] * len(row.ends)  # by block: turns that had it in their context
        for slot, times in row.times(self._tips):
            present[row.block(slot)] += times
        sizes = self._sizes(present, read)
        owners = sorted({owner for paid in self._paid.values() for owner, some in paid.items() if any(some)})
        columns: dict[Rate, list[Paid]] = {
            rate: [tuple(paid.get(owner, NOTHING)) for owner in owners] for rate, paid in self._paid.items()
        }
        return Causes(self._origins, owners, sizes, columns)

    def _sizes(self, present: list[int], read: list[int]) -> Sizes:
        owners, count = self._row.owners, len(self._origins)
        largest, end = [0] * count, [0] * count
        self._add_entered(self._entered_before, largest, end)
        entered = self._add_entered(self._entered, largest, end)
        size = entered.copy()
        for slot in chain.from_iterable(self._entered_before):
            size[owners[slot]] += self._row.size(slot) if present[slot] else 0
        rides, reentries = self._count_rides(present, read)
        return Sizes(entered, size, rides, reentries, largest, end)

    def _add_entered(self, steps: list[list[int]], largest: list[int], end: list[int]) -> list[int]:
        """The tokens that entered, by owner; brings `largest` and `end` up to date."""
        parents, ends, owners = self._row.parents, self._row.ends, self._row.owners
        entered = [0] * len(largest)
        for slots in steps:
            in_step: dict[int, int] = {}
            for slot in slots:
                owner = owners[slot]
                end[owner] = upto = ends[slot]
                in_step[owner] = in_step.get(owner, 0) + upto - ends[parents[slot]]
            for owner, tokens in in_step.items():
                entered[owner] += tokens
                if tokens > largest[owner]:
                    largest[owner] = tokens
        return entered

    def _count_rides(self, present: list[int], read: list[int]) -> tuple[list[int], list[int]]:
        """By owner the turns after its entry that had it in their context, and those of them that did not read it."""
        owners, count = self._row.owners, len(self._origins)
        rides, reentries = [0] * count, [0] * count
        for slot in chain.from_iterable(self._entered):
            present[slot] -= 1
        for block, times in enumerate(present):
            if times and times > rides[owner := owners[block]]:
                rides[owner], reentries[owner] = times, max(0, times - read[block])
        return rides, reentries


def _pay(paid: dict[int, list[int]], owner: int, rate_class: int, tokens: int) -> None:
    found = paid.get(owner)
    if found is None:
        found = paid[owner] = [0] * CLASSES
    found[rate_class] += tokens
