"""Divides the bill of a rail among causes; every billed token has exactly one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import add, mul, sub
from typing import Final, Generic, NamedTuple, TypeVar, overload

import msgspec

from burnd.attribution.misses import CacheBills, CacheMeter, Miss, MissGroup
from burnd.attribution.rail import CauseOrigin, Rail, RailEntry, Step
from burnd.attribution.rates import CACHE_READ, CLASSES, Rate, RateFinder, Spent, Sums, add_up
from burnd.attribution.row import ROOT, CauseGroup, CauseKind
from burnd.records import Subagent, Turn


class Cause(msgspec.Struct, frozen=True, gc=False):
    """A block or group of blocks that tokens were spent on.

    `spent` includes its own output; `entered` are the tokens that entered the context, `size` also in turns that were
    not selected. `rides` are later turns with it in their context, `reentries` those that did not read it from the
    cache. `largest` is the most that entered in one turn, `end` its position.
    """

    kind: CauseKind
    spent: Mapping[Rate, Spent]
    turn_index: int = 0
    message_id: str = ""
    call_id: str | None = None
    tool: str | None = None
    target: str | None = None
    is_error: bool | None = None
    entered: int = 0
    size: int = 0
    rides: int = 0
    reentries: int = 0
    largest: int = 0
    end: int = 0


class Sizes(NamedTuple):
    """The sizes of `Cause`, by owner."""

    entered: list[int]
    size: list[int]
    rides: list[int]
    reentries: list[int]
    largest: list[int]
    end: list[int]


Paid = tuple[int, ...]  # the values of a `Spent`, without the time to create it


class Causes(Sequence[Cause]):
    """In order of appearance, created on access: there may be many thousands."""

    def __init__(
        self, origins: Sequence[CauseOrigin], owners: Sequence[int], sizes: Sizes, paid: Mapping[Rate, Sequence[Paid]]
    ) -> None:
        self._origins = origins
        self._owners = owners
        self._sizes = sizes
        self.paid = paid

    def __len__(self) -> int:
        return len(self._owners)

    @overload
    def __getitem__(self, at: int) -> Cause: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Cause]: ...
    def __getitem__(self, at: int | slice) -> Cause | Sequence[Cause]:
        return self._all[at] if isinstance(at, slice) else self._cause(at)

    def __iter__(self) -> Iterator[Cause]:
        return iter(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all)

    @cached_property
    def _all(self) -> tuple[Cause, ...]:
        return tuple(map(self._cause, range(len(self))))

    def origins(self) -> Iterator[CauseOrigin]:
        return (self._origins[owner] for owner in self._owners)

    def calls(self) -> Iterator[tuple[str, int]]:
        """The ids and positions of calls."""
        origins = self._origins
        for n, owner in enumerate(self._owners):
            call_id = origins[owner].call_id
            if call_id is not None:
                yield call_id, n

    def _cause(self, at: int) -> Cause:
        owner = self._owners[at]
        origin = self._origins[owner]
        entered, size, rides, reentries, largest, end = self._sizes
        return Cause(
            origin.kind,
            {rate: Spent._make(column[at]) for rate, column in self.paid.items() if any(column[at])},
            origin.turn_index,
            origin.message_id,
            origin.call_id,
            origin.tool,
            origin.target,
            origin.is_error,
            entered[owner],
            size[owner],
            rides[owner],
            reentries[owner],
            largest[owner],
            end[owner],
        )


NONE: Final = Causes((), (), Sizes([], [], [], [], [], []), {})


Marks = defaultdict[int, int]


class _RateSums:
    """By class: marks of runs of slots, and tokens by owner."""

    def __init__(self) -> None:
        self.runs: list[Marks] = [defaultdict(int) for _ in range(CLASSES)]
        self.by_owner: list[Marks] = [defaultdict(int) for _ in range(CLASSES)]


class Account:
    """Adds up the steps of a rail without visiting a block in each turn that contained it."""

    def __init__(self, rail: Rail) -> None:
        self._row = rail.row
        self._origins = rail.origins
        self._sums: dict[Rate, _RateSums] = {}
        self._rate, self._current = Rate(""), _RateSums()  # most turns have the rate of the one before
        self._present: Marks = defaultdict(int)  # block -> turns in which two classes share it
        self._read: Marks = defaultdict(int)  # block -> turns that read it from the cache
        self._entered: list[list[int]] = []
        self._entered_before: list[list[int]] = []  # in turns that do not count

    def add(self, rate: Rate, step: Step) -> None:
        if rate is not self._rate:
            self._rate, self._current = rate, self._sums.setdefault(rate, _RateSums())
        runs, by_owner = self._current.runs, self._current.by_owner
        for rate_class, last, below in step.runs:
            marks = runs[rate_class]
            marks[last] += 1
            marks[below] -= 1
        row, before = self._row, ROOT
        for rate_class, slot, tokens in step.pieces:
            block = row.blocks.get(slot, slot)
            by_owner[rate_class][row.owners[slot]] += tokens
            if slot != before:
                self._present[block] += 1
            if rate_class == CACHE_READ and 2 * tokens >= row.size(slot):
                self._read[block] += 1
            before = slot
        for rate_class, owner, tokens in step.outputs:
            by_owner[rate_class][owner] += tokens
        if entered := step.entered:
            self._entered.append(entered)
            read, ends = step.bounds.read, row.ends
            for slot in entered:
                if ends[slot] > read:
                    break
                self._read[slot] -= 1

    def skip(self, step: Step) -> None:
        """For a turn that does not count; its blocks may be in the context of turns that do."""
        self._entered_before.append(step.entered)

    def causes(self) -> Causes:
        row, count = self._row, len(self._origins)
        sizes = list(map(sub, row.ends, map(row.ends.__getitem__, row.parents)))
        present = _column(self._present, len(sizes))  # by block: turns with it in their context
        read = _column(self._read, len(sizes))
        by_rate: dict[Rate, list[Paid]] = {}
        for rate, sums in self._sums.items():
            columns = [_column(tokens, count) for tokens in sums.by_owner]
            for rate_class, marks in enumerate(sums.runs):
                if not marks:
                    continue
                column, times = columns[rate_class], row.times(marks)
                for owner, tokens in zip(row.owners, map(mul, times, sizes), strict=True):
                    if tokens:
                        column[owner] += tokens
                present = list(map(add, present, times))
                if rate_class == CACHE_READ:
                    read = list(map(add, read, times))
            by_rate[rate] = list(zip(*columns, strict=True))
        for slot, block in row.blocks.items():
            present[block] += present[slot]
            read[block] += read[slot]
            present[slot] = 0
        owners = [owner for owner, some in enumerate(zip(*by_rate.values(), strict=True)) if any(map(any, some))]
        columns_of = {rate: [column[owner] for owner in owners] for rate, column in by_rate.items()}
        return Causes(self._origins, owners, self._sizes(present, read), columns_of)

    def _sizes(self, present: list[int], read: list[int]) -> Sizes:
        owners, count = self._row.owners, len(self._origins)
        largest, end = [0] * count, [0] * count
        self._add_entered(self._entered_before, largest, end)
        entered = self._add_entered(self._entered, largest, end)
        size = entered.copy()
        for slot in chain.from_iterable(self._entered_before):
            size[owners[slot]] += self._row.size(slot) if present[slot] else 0
        for slot in chain.from_iterable(self._entered):
            present[slot] -= 1
        rides, reentries = [0] * count, [0] * count
        for block, times in enumerate(present):
            if times and times > rides[owner := owners[block]]:
                rides[owner], reentries[owner] = times, max(0, times - read[block])
        return Sizes(entered, size, rides, reentries, largest, end)

    def _add_entered(self, steps: list[list[int]], largest: list[int], end: list[int]) -> list[int]:
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


def _column(values: Mapping[int, int], count: int) -> list[int]:
    column = [0] * count
    for n, value in values.items():
        column[n] = value
    return column


Selected = Callable[[Turn], bool]


class TurnMiss(msgspec.Struct, frozen=True):
    turn_index: int
    message_id: str
    rate: Rate
    miss: Miss


class Shrink(msgspec.Struct, frozen=True):
    """A turn before which blocks left the context; only its first `read` tokens are certainly unchanged."""

    turn_index: int
    message_id: str
    read: int


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """`turns` counts the selected turns with usage, `begins` are those at which a row began."""

    session_id: str = ""
    rail_id: str = ""
    agent: Subagent | None = None
    turns: int = 0
    causes: Causes = NONE
    misses: tuple[TurnMiss, ...] = ()
    begins: tuple[int, ...] = ()
    shrinks: tuple[Shrink, ...] = ()
    prefix: int = 0
    caching: CacheBills = CacheBills()

    @property
    def started_by(self) -> str | None:
        return self.agent.parent_tool_use_id if self.agent is not None else None

    @property
    def spent(self) -> dict[Rate, Spent]:
        return add_up([cause.spent for cause in self.causes])


class CauseShare(msgspec.Struct, frozen=True):
    cause: CauseOrigin
    tokens: int
    spent: Spent


class Anatomy(msgspec.Struct, frozen=True):
    """In order of the context, then the output."""

    parts: tuple[CauseShare, ...]
    miss: Miss | None = None


def explain(entries: Iterable[RailEntry], thresholds: Sequence[int], selected: Selected | None = None) -> Explained:
    """Only the selected turns count."""
    rail = Rail()
    account, meter, rates = Account(rail), CacheMeter(), RateFinder(thresholds)
    misses: list[TurnMiss] = []
    begins: list[int] = []
    shrinks: list[Shrink] = []
    last: Turn | None = None
    turns = 0
    for entry in entries:
        step = rail.feed(entry)
        if step is None or not isinstance(entry, Turn):
            continue
        last = turn = entry
        if step.began:
            begins.append(turn.turn_index)
        if step.is_shrunk:
            shrinks.append(Shrink(turn.turn_index, turn.message_id, step.bounds.read))
        if selected is not None and not selected(turn):
            account.skip(step)
            meter.add(turn.ts, step.bounds, step.miss, None)
            continue
        turns += turn.quality != "empty"
        rate = rates.of(turn, step.bounds.end)
        account.add(rate, step)
        meter.add(turn.ts, step.bounds, step.miss, rate)
        if step.miss is not None:
            misses.append(TurnMiss(turn.turn_index, turn.message_id, rate, step.miss))
    return Explained(
        session_id=last.session_id if last is not None else "",
        rail_id=last.rail_id if last is not None else "",
        agent=last.subagent if last is not None else None,
        turns=turns,
        causes=account.causes(),
        misses=tuple(misses),
        begins=tuple(begins),
        shrinks=tuple(shrinks),
        prefix=rail.last.prefix,
        caching=meter.bills(),
    )


def anatomy(entries: Iterable[RailEntry], message_id: str) -> Anatomy | None:
    """None if there is no such turn."""
    rail = Rail()
    for entry in entries:
        step = rail.feed(entry)
        if step is not None and isinstance(entry, Turn) and entry.message_id == message_id:
            return Anatomy(parts(rail, step), step.miss)
    return None


def parts(rail: Rail, step: Step) -> tuple[CauseShare, ...]:
    row = rail.row
    tokens: dict[int, int] = {}
    by_owner: dict[int, list[int]] = {}
    path = row.path[1:] if step.bounds.end else ()
    for slot in path:
        owner, start, end = row.owners[slot], row.ends[row.parents[slot]], row.ends[slot]
        tokens[owner] = tokens.get(owner, 0) + end - start
        own = by_owner.setdefault(owner, [0] * CLASSES)
        for rate_class, share in step.bounds.between(start, end):
            own[rate_class] += share
    for rate_class, owner, share in step.outputs:
        by_owner.setdefault(owner, [0] * CLASSES)[rate_class] += share
    return tuple(CauseShare(rail.origins[owner], tokens.get(owner, 0), Spent(*own)) for owner, own in by_owner.items())


class Branch(msgspec.Struct, frozen=True):
    explained: Explained
    below: tuple[Branch, ...] = ()


def nest(rails: Sequence[Explained]) -> tuple[Branch, ...]:
    """Keeps the order. A rail whose call is missing is a root."""
    below: dict[int | None, list[int]] = {}
    for n, parent in enumerate(_above(rails)):
        below.setdefault(parent, []).append(n)
    order: list[int] = []  # parents first
    waiting = list(below.get(None, ()))
    while waiting:
        order.append(n := waiting.pop())
        waiting += below.get(n, ())
    branches: dict[int, Branch] = {}
    for n in reversed(order):
        branches[n] = Branch(rails[n], tuple(branches[child] for child in below.get(n, ())))
    return tuple(branches[n] for n in below.get(None, ()))


def _above(rails: Sequence[Explained]) -> list[int | None]:
    """The parent of each rail. A cycle, as a damaged log may have, is cut at its first rail."""
    if len(rails) == 1:
        return [None]
    caller = {call_id: n for n, one in enumerate(rails) for call_id, _ in one.causes.calls()}
    above = [caller.get(one.started_by) if one.started_by is not None else None for one in rails]
    free: set[int] = set()
    for n in range(len(rails)):
        climbed: set[int] = set()
        at: int | None = n
        while at is not None and at not in free and at not in climbed:
            climbed.add(at)
            at = above[at]
        if at is not None and at in climbed:
            above[at] = None
        free |= climbed
    return above


ENTERED, CALLS, ERRORS = range(CLASSES, CLASSES + 3)
Bucket = TypeVar("Bucket", bound=Hashable)
Counts = list[int]  # in the order of `Sums`
Source = CauseGroup | MissGroup


class GroupTally(Generic[Bucket]):
    """Adds up steps by bucket and group; each right after its turn was fed to the rail.

    Cache misses are also counted by reason, with tokens that the causes have too.
    """

    def __init__(self, rail: Rail) -> None:
        self._rail = rail
        self._numbers: dict[Source, int] = {}
        self._of_owner: list[int] = []
        self._counts: dict[Bucket, dict[int, Counts]] = {}
        self._runs: dict[tuple[Bucket, int], defaultdict[int, int]] = {}

    def add(self, step: Step, bucket: Bucket) -> None:
        rail, counts = self._rail, self._counts.setdefault(bucket, {})
        numbers, owners = self._owner_numbers(), rail.row.owners
        for rate_class, last, below in step.runs:
            marks = self._runs.get((bucket, rate_class))
            if marks is None:
                marks = self._runs[bucket, rate_class] = defaultdict(int)
            marks[last] += 1
            marks[below] -= 1
        for rate_class, slot, tokens in step.pieces:
            _of(counts, numbers[owners[slot]])[rate_class] += tokens
        for rate_class, owner, tokens in step.outputs:
            _of(counts, numbers[owner])[rate_class] += tokens
        for slot in step.entered:
            _of(counts, numbers[owners[slot]])[ENTERED] += rail.row.size(slot)
        for owner, is_error in step.calls:
            call = _of(counts, numbers[owner])
            call[CALLS] += 1
            call[ERRORS] += is_error
        if step.miss is not None:
            miss = _of(counts, self._number(step.miss.group))
            miss[CALLS] += 1
            for rate_class, tokens in enumerate(step.miss.spent):
                miss[rate_class] += tokens

    def _number(self, source: Source) -> int:
        return self._numbers.setdefault(source, len(self._numbers))

    def _owner_numbers(self) -> list[int]:
        numbers, origins = self._of_owner, self._rail.origins
        if len(numbers) < len(origins):
            numbers += [self._number(origin.group) for origin in origins[len(numbers) :]]
        return numbers

    def take(self) -> dict[Bucket, dict[Source, Counts]]:
        """The sums since the last call."""
        row, of_owner = self._rail.row, self._owner_numbers()
        of_slot = [of_owner[owner] for owner in row.owners] if self._runs else []
        sizes = list(map(sub, row.ends, map(row.ends.__getitem__, row.parents)))
        for (bucket, rate_class), marks in self._runs.items():
            counts, sums = self._counts[bucket], [0] * len(self._numbers)
            for number, tokens in zip(of_slot, map(mul, row.times(marks), sizes), strict=True):
                if tokens:
                    sums[number] += tokens
            for number, tokens in enumerate(sums):
                if tokens:
                    _of(counts, number)[rate_class] += tokens
        sources = list(self._numbers)
        result = {
            bucket: {sources[number]: some for number, some in counts.items() if any(some)}
            for bucket, counts in self._counts.items()
        }
        self._counts, self._runs = {}, {}
        return result


def _of(counts: dict[int, Counts], number: int) -> Counts:
    sums = counts.get(number)
    if sums is None:
        sums = counts[number] = [0] * len(Sums._fields)
    return sums


def tally(
    rail: Rail, entries: Iterable[RailEntry], bucket_of: Callable[[Turn], Bucket]
) -> dict[Bucket, dict[Source, Counts]]:
    sums: GroupTally[Bucket] = GroupTally(rail)
    for entry in entries:
        step = rail.feed(entry)
        if step is not None and isinstance(entry, Turn):
            sums.add(step, bucket_of(entry))
    return sums.take()
