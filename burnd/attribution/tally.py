"""Adds up the tokens of turns by group of causes and by bucket, for the sums in the index.

A run of slots of one rate class is stored as two marks, one at its last slot and a negative one before its first. The
count of a slot is the sum of the marks at it and after it (`Row.times`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from burnd.attribution.blocks import Group
from burnd.attribution.misses import MissGroup
from burnd.attribution.rail import Rail, RailEntry, Step
from burnd.attribution.rates import CLASSES, Spent
from burnd.records import Turn

ENTERED, CALLS, ERRORS = range(CLASSES, CLASSES + 3)
Bucket = TypeVar("Bucket", bound=Hashable)
Counts = list[int]  # in the order of `Sums`
BySource = dict[Group | MissGroup, Counts]


class Sums(NamedTuple):
    """Tokens of a group of causes, those that entered contexts, its calls and their errors."""

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

    @property
    def spent(self) -> Spent:
        return Spent(*self[:CLASSES])


class Tally(Generic[Bucket]):
    """Adds up steps by bucket; each must be added right after its turn was fed to the rail.

    Cache misses are also counted by reason, with tokens that the causes have too.
    """

    def __init__(self, rail: Rail) -> None:
        self._rail = rail
        self._groups: list[Group] = []  # by owner
        self._counts: dict[Bucket, BySource] = {}
        self._runs: dict[tuple[Bucket, int], defaultdict[int, int]] = {}  # marks by slot

    def add(self, step: Step, bucket: Bucket) -> None:
        rail, counts = self._rail, self._counts.setdefault(bucket, {})
        groups, owners = self._groups, rail.row.owners
        groups += [origin.group for origin in rail.origins[len(groups) :]]
        for rate_class, last, below in step.runs:
            marks = self._runs.get((bucket, rate_class))
            if marks is None:
                marks = self._runs[bucket, rate_class] = defaultdict(int)
            marks[last] += 1
            marks[below] -= 1
        for rate_class, slot, tokens in step.pieces:
            _of(counts, groups[owners[slot]])[rate_class] += tokens
        for rate_class, owner, tokens in step.outputs:
            _of(counts, groups[owner])[rate_class] += tokens
        for slot in step.entered:
            _of(counts, groups[owners[slot]])[ENTERED] += rail.row.size(slot)
        for owner, is_error in step.calls:
            call = _of(counts, groups[owner])
            call[CALLS] += 1
            call[ERRORS] += is_error
        if step.miss is not None:
            miss = _of(counts, step.miss.group)
            miss[CALLS] += 1
            for rate_class, tokens in enumerate(step.miss.spent):
                miss[rate_class] += tokens

    def take(self) -> dict[Bucket, dict[Group | MissGroup, Sums]]:
        """The sums since the last call."""
        row, groups = self._rail.row, self._groups
        for (bucket, rate_class), marks in self._runs.items():
            counts = self._counts[bucket]
            for slot, times in enumerate(row.times(marks)):
                if times:
                    _of(counts, groups[row.owners[slot]])[rate_class] += times * row.size(slot)
        result = {
            bucket: {source: Sums(*some) for source, some in counts.items() if any(some)}
            for bucket, counts in self._counts.items()
        }
        self._counts, self._runs = {}, {}
        return result


def _of(counts: BySource, source: Group | MissGroup) -> Counts:
    sums = counts.get(source)
    if sums is None:
        sums = counts[source] = [0] * len(Sums._fields)
    return sums


def tally(
    rail: Rail, entries: Iterable[RailEntry], bucket_of: Callable[[Turn], Bucket]
) -> dict[Bucket, dict[Group | MissGroup, Sums]]:
    """Feeds a rail with entries and adds up their tokens."""
    sums: Tally[Bucket] = Tally(rail)
    for entry in entries:
        step = rail.feed(entry)
        if step is not None and isinstance(entry, Turn):
            sums.add(step, bucket_of(entry))
    return sums.take()
