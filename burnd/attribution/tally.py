"""Adds up by groups of causes what turns paid, for sums over many sessions: the form in which an index keeps it.

As in `account`, a run of slots that one class paid for whole is two marks, and one walk over the slots tells what each
of them paid. A mark is one number for all buckets, in which each has its own stretch: it is added up for all at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from burnd.attribution.blocks import Group
from burnd.attribution.misses import Reason
from burnd.attribution.rail import Entry, Rail
from burnd.attribution.rates import SEARCHES
from burnd.attribution.steps import Step
from burnd.attribution.sums import CALL, ENTERED, ERROR, FIELD, UNITS, Packed, pack
from burnd.records import Turn

_STRETCH: Final = SEARCHES * FIELD  # bits of a bucket: all rate classes of tokens, which come first in what is packed
_BYTES: Final = _STRETCH // 8

Bucket = TypeVar("Bucket", bound=Hashable)
What = TypeVar("What", bound=Hashable)
Counts = dict[Group | Reason, Packed]
Stretches = int


class Taken(NamedTuple, Generic[Bucket]):
    """Sums by bucket and group, and what cache misses made to be paid again, by bucket and reason; a miss is a call."""

    sums: dict[Bucket, Counts]
    misses: dict[Bucket, Counts]


class _Open:
    """What turns of the same buckets were counted for by group, and by class how a mark counts in all of these."""

    __slots__ = ("columns", "marks", "misses")

    def __init__(self, numbers: Iterable[int]) -> None:
        one = sum(1 << n * _STRETCH for n in numbers)
        self.marks: tuple[Stretches, ...] = tuple(one * unit for unit in UNITS[:SEARCHES])
        self.columns: defaultdict[int, Packed] = defaultdict(int)
        self.misses: defaultdict[Group | Reason, Packed] = defaultdict(int)


class Tally(Generic[Bucket]):
    """Takes steps, each right after the rail was fed with it; a bucket is whatever they are to be summed up by."""

    def __init__(self, rail: Rail) -> None:
        self._rail = rail
        self._numbers: dict[Group, int] = {}
        self._group_of: list[int] = []
        self._clear()

    def _clear(self) -> None:
        self._buckets: dict[Bucket, int] = {}
        self._open: dict[tuple[Bucket, ...], _Open] = {}
        self._marks: defaultdict[int, Stretches] = defaultdict(int)

    def add(self, step: Step, *buckets: Bucket) -> None:
        """Counts a step in each of these."""
        self._learn_owners()
        found = self._open.get(buckets)
        if found is None:
            numbers = [self._buckets.setdefault(bucket, len(self._buckets)) for bucket in buckets]
            found = self._open[buckets] = _Open(numbers)
        marks, units = self._marks, found.marks
        for rate_class, last, below in step.runs:
            unit = units[rate_class]
            marks[last] += unit
            marks[below] -= unit
        row, group_of, columns = self._rail.row, self._group_of, found.columns
        owners = row.owners
        for rate_class, slot, tokens in step.pieces:
            columns[group_of[owners[slot]]] += tokens * UNITS[rate_class]
        for rate_class, owner, tokens in step.outputs:
            columns[group_of[owner]] += tokens * UNITS[rate_class]
        for slot in step.entered:
            columns[group_of[owners[slot]]] += row.size(slot) * ENTERED
        for owner, failed in step.calls:
            columns[group_of[owner]] += CALL + ERROR if failed else CALL
        if step.miss is not None:
            reason, spent = step.miss
            found.misses[reason] += pack(spent) + CALL

    def take(self) -> Taken[Bucket]:
        """All that was added since this was last asked."""
        groups: list[Group | Reason] = [*self._numbers]
        counted = self._runs()
        misses: dict[Bucket, Counts] = {}
        for buckets, found in self._open.items():
            for bucket in buckets:
                _merge(counted[bucket], found.columns)
                if found.misses:
                    _merge(misses.setdefault(bucket, {}), found.misses)
        sums = {
            bucket: {groups[group]: packed for group, packed in cells.items() if packed}
            for bucket, cells in counted.items()
        }
        self._clear()
        return Taken(sums, misses)

    def _runs(self) -> dict[Bucket, dict[int, Packed]]:
        """What was paid for whole slots, by bucket and group."""
        found: list[dict[int, Packed]] = [{} for _ in self._buckets]
        for group, stretches in self._walked().items():
            data = stretches.to_bytes(len(found) * _BYTES, "little")
            for n, cells in enumerate(found):
                if packed := int.from_bytes(data[n * _BYTES : (n + 1) * _BYTES], "little"):
                    cells[group] = packed
        return dict(zip(self._buckets, found, strict=True))

    def _walked(self) -> dict[int, Stretches]:
        """The same for all buckets at once: a slot was paid for as often as the marks at it and behind it add up to."""
        row, marks, group_of = self._rail.row, self._marks, self._group_of
        parents, ends, owners = row.parents, row.ends, row.owners
        paid: defaultdict[int, Stretches] = defaultdict(int)
        for slot in range(max(marks, default=0), 0, -1):
            if times := marks.get(slot):
                parent = parents[slot]
                paid[group_of[owners[slot]]] += times * (ends[slot] - ends[parent])
                marks[parent] += times
        return paid

    def _learn_owners(self) -> None:
        known, numbers = self._group_of, self._numbers
        known += [numbers.setdefault(one.group, len(numbers)) for one in self._rail.origins[len(known) :]]


def _merge(sums: dict[What, Packed], more: Mapping[What, Packed]) -> None:
    for what, packed in more.items():
        sums[what] = sums.get(what, 0) + packed


def tally(rail: Rail, entries: Iterable[Entry], bucket_of: Callable[[Turn], Bucket]) -> Taken[Bucket]:
    """Feed a rail with entries and add up what they paid."""
    counted: Tally[Bucket] = Tally(rail)
    for entry in entries:
        step = rail.feed(entry)
        if step is not None and isinstance(entry, Turn):
            counted.add(step, bucket_of(entry))
    return counted.take()
