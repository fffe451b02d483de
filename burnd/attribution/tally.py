"""Adds up by groups of causes what turns paid, for sums over many sessions: the form in which an index keeps it.

A row of hundreds of blocks has far fewer groups, and most turns read nearly all of it from the cache. So each group
has a running total, and such a turn only counts one more ride for the whole row; what was paid otherwise, mostly the
few blocks at its end, is put right one by one. What joins the row or leaves it later is put right for the rides that
are counted already.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from burnd.attribution.blocks import Group
from burnd.attribution.context import Piece, Run
from burnd.attribution.misses import Reason
from burnd.attribution.rail import Entry, Rail
from burnd.attribution.rates import CLASSES, NOTHING, Spent
from burnd.attribution.steps import Step
from burnd.records import Compaction, Turn

_ENTERED: Final = CLASSES
_CALLS: Final = CLASSES + 1
_ERRORS: Final = CLASSES + 2
_COLUMNS: Final = CLASSES + 3
_MOST_RIDING: Final = 4

Bucket = TypeVar("Bucket", bound=Hashable)


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

    @property
    def spent(self) -> Spent:
        return Spent(*self[:CLASSES])


class Taken(NamedTuple, Generic[Bucket]):
    """Sums by bucket and group, and what cache misses made to be paid again, by bucket and reason."""

    sums: dict[Bucket, dict[Group, Sums]]
    misses: dict[Bucket, dict[Reason, Spent]]


class _Columns(dict[int, list[int]]):
    """Rows of numbers by group, each there as soon as it is asked for."""

    def __missing__(self, group: int) -> list[int]:
        row = self[group] = [0] * _COLUMNS
        return row


class _Open:
    """A bucket that turns are being added to: whole rides of the row by class, and all else by group."""

    __slots__ = ("columns", "misses", "rides")

    def __init__(self) -> None:
        self.rides: dict[int, int] = {}
        self.columns = _Columns()
        self.misses: dict[Reason, Spent] = {}


class Tally(Generic[Bucket]):
    """Takes steps, each right after the rail was fed with it; a bucket is whatever they are to be summed up by.

    It must see every step of the rail from the time it was made, and be made anew after a rollback.
    """

    def __init__(self, rail: Rail) -> None:
        self._rail = rail
        self._numbers: dict[Group, int] = {}
        self._group_of: list[int] = []
        self._standing: dict[int, int] = {}
        self._open: dict[Bucket, _Open] = {}
        self._riding: list[_Open] = []
        self._learn_owners()
        self._move((), rail.row.path[1:])

    def add(self, bucket: Bucket, step: Step) -> None:
        self._learn_owners()
        self._move(step.left, step.came)
        found = self._open.get(bucket)
        if found is None:
            found = self._open[bucket] = _Open()
        if step.runs:
            self._add_ride(found, step)
        else:
            self._put_right(found, step.pieces, None)
        self._add_rest(found, step)

    def take(self) -> Taken[Bucket]:
        """All that was added since this was last asked."""
        for found in self._riding:
            self._settle(found)
        groups = list(self._numbers)
        sums = {
            bucket: {groups[group]: Sums(*columns) for group, columns in found.columns.items() if any(columns)}
            for bucket, found in self._open.items()
        }
        misses = {bucket: found.misses for bucket, found in self._open.items() if found.misses}
        self._open, self._riding = {}, []
        return Taken(sums, misses)

    def _add_ride(self, found: _Open, step: Step) -> None:
        """Count the widest run as a ride of the whole row, and put right what other classes paid for."""
        row, widest = self._rail.row, max(step.runs, key=_width)
        if not found.rides:
            self._riding.append(found)
            if len(self._riding) > _MOST_RIDING:
                self._settle(self._riding.pop(0))
        found.rides[widest[0]] = found.rides.get(widest[0], 0) + 1
        others = list(step.pieces)
        for run in step.runs:
            rate_class, slot, below = run
            while run is not widest and slot != below:
                parent = row.parents[slot]
                others.append((rate_class, slot, row.ends[slot] - row.ends[parent]))
                slot = parent
        self._put_right(found, others, widest[0])

    def _put_right(self, found: _Open, others: Sequence[Piece], counted: int | None) -> None:
        owners, group_of, columns = self._rail.row.owners, self._group_of, found.columns
        for rate_class, slot, tokens in others:
            row = columns[group_of[owners[slot]]]
            row[rate_class] += tokens
            if counted is not None:
                row[counted] -= tokens

    def _add_rest(self, found: _Open, step: Step) -> None:
        row, group_of, columns = self._rail.row, self._group_of, found.columns
        for rate_class, owner, tokens in step.outputs:
            columns[group_of[owner]][rate_class] += tokens
        for slot in step.entered:
            columns[group_of[row.owners[slot]]][_ENTERED] += row.size(slot)
        for owner, failed in step.calls:
            of_tool = columns[group_of[owner]]
            of_tool[_CALLS] += 1
            of_tool[_ERRORS] += failed
        if step.miss is not None:
            reason, spent = step.miss
            found.misses[reason] = found.misses.get(reason, NOTHING).plus(spent)

    def _settle(self, found: _Open) -> None:
        columns = found.columns
        for rate_class, rides in found.rides.items():
            for group, tokens in self._standing.items():
                columns[group][rate_class] += tokens * rides
        found.rides.clear()

    def _move(self, left: Sequence[int], came: Sequence[int]) -> None:
        """Let slots join the row and leave it: the rides that were counted so far are not theirs."""
        parents, ends, owners = self._rail.row.parents, self._rail.row.ends, self._rail.row.owners
        changes: dict[int, int] = {}
        for slots, times in ((left, -1), (came, 1)):
            for slot in slots:
                group = self._group_of[owners[slot]]
                changes[group] = changes.get(group, 0) + times * (ends[slot] - ends[parents[slot]])
        for group, tokens in changes.items():
            self._standing[group] = self._standing.get(group, 0) + tokens
            if not self._standing[group]:
                del self._standing[group]
        for found in self._riding:
            for rate_class, rides in found.rides.items():
                for group, tokens in changes.items():
                    found.columns[group][rate_class] -= tokens * rides

    def _learn_owners(self) -> None:
        known, numbers = self._group_of, self._numbers
        known += [numbers.setdefault(one.group, len(numbers)) for one in self._rail.origins[len(known) :]]


def _width(run: Run) -> int:
    return run[1] - run[2]


def tally(rail: Rail, entries: Iterable[Entry], bucket_of: Callable[[Turn], Bucket]) -> Taken[Bucket]:
    """Feed a rail with entries and add up what they paid."""
    counted: Tally[Bucket] = Tally(rail)
    for entry in entries:
        step = rail.feed(entry)
        if step is not None and isinstance(entry, Turn):
            counted.add(bucket_of(entry), step)
    return counted.take()


def revise(
    rail: Rail, before: Sequence[Entry], after: Sequence[Entry], bucket_of: Callable[[Turn], Bucket]
) -> Taken[Bucket] | None:
    """What must be added to the sums when the entries that were fed last turn out to be others.

    `before` begins with a turn or a copy. None where that lies too far back: then the rail must be fed anew.
    """
    first = next((entry.message_id for entry in before if not isinstance(entry, Compaction)), None)
    if first is not None and not rail.rollback(first):
        return None
    old = tally(rail, before, bucket_of)
    if first is not None:
        rail.rollback(first)
    return difference(tally(rail, after, bucket_of), old)


def difference(new: Taken[Bucket], old: Taken[Bucket]) -> Taken[Bucket]:
    sums: dict[Bucket, dict[Group, Sums]] = {}
    for bucket in {**new.sums, **old.sums}:
        ours, theirs = new.sums.get(bucket, {}), old.sums.get(bucket, {})
        changed = {group: _less(ours.get(group, _NONE), theirs.get(group, _NONE)) for group in {**ours, **theirs}}
        sums[bucket] = {group: change for group, change in changed.items() if any(change)}
    misses: dict[Bucket, dict[Reason, Spent]] = {}
    for bucket in {**new.misses, **old.misses}:
        again, once = new.misses.get(bucket, {}), old.misses.get(bucket, {})
        found = {reason: again.get(reason, NOTHING).plus(once.get(reason, NOTHING), -1) for reason in {**again, **once}}
        misses[bucket] = {reason: change for reason, change in found.items() if any(change)}
    return Taken({b: s for b, s in sums.items() if s}, {b: m for b, m in misses.items() if m})


_NONE: Final = Sums()


def _less(one: Sums, other: Sums) -> Sums:
    return Sums(*(mine - theirs for mine, theirs in zip(one, other, strict=True)))
