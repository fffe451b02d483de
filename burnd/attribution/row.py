"""The context of a turn as a row of blocks: computes block sizes and lays the bill along the row.

A turn's row is its parent's row with more blocks at the end, or fewer if some were removed. Rows form a tree of slots:
a row is the path from the root to its last slot, and is never changed. A rewound branch, the row before a compaction
and two clients that take turns in one session are different paths.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import sub
from typing import Final, NamedTuple

import msgspec

from burnd.attribution.blocks import ESTIMATED, EXACT, SizeClaim, portions
from burnd.attribution.rates import CACHE_CREATE_1H, CACHE_CREATE_5M, CACHE_READ, INPUT
from burnd.records import Usage

ROOT: Final = 0

Run = tuple[int, int, int]
Piece = tuple[int, int, int]


class Bounds(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where each rate class ends along the row: cache reads first, uncached input last."""

    read: int
    hour: int
    five: int
    end: int

    def of(self, start: int, end: int) -> list[tuple[int, int]]:
        """The (class, tokens) of the row from `start` to `end`."""
        if start >= self.hour and end <= self.five:
            return [(CACHE_CREATE_5M, end - start)]
        shares, at = [], start
        for rate_class, bound in self.along():
            upto = min(bound, end)
            if upto > at:
                shares.append((rate_class, upto - at))
                at = upto
        return shares

    def along(self) -> tuple[tuple[int, int], ...]:
        """Each class and its end, in the order of the row."""
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
    """A tree of slots, and the current path through it.

    A slot has the tokens of one block: `ends` is its end on the row, `owners` its cause. No slot is empty, and its
    number is above its parent's, so numbers and ends rise along a path and can be bisected. `blocks` has the first slot
    of a block if it is another one.
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
        """The first slot of the block of a slot."""
        return self.blocks.get(slot, slot)

    def push(self, owner: int, size: int) -> None:
        """Appends a new block to the row."""
        path, ends, path_ends = self.path, self.ends, self.path_ends
        end = path_ends[-1] + size
        self.parents.append(path[-1])
        path.append(len(ends))
        ends.append(end)
        self.owners.append(owner)
        path_ends.append(end)

    def push_again(self, slot: int, size: int) -> None:
        """Appends a block of another slot to the row, possibly with another size."""
        blocks = self.blocks
        blocks[len(self.ends)] = blocks.get(slot, slot)
        self.push(self.owners[slot], size)

    def go(self, tip: int) -> None:
        """Changes the current path to the row that ends in `tip`; takes time by their difference."""
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
        """Shortens the path to its first `length` slots, the root included."""
        del self.path[length:]
        del self.path_ends[length:]

    def beyond(self, position: int) -> int:
        """The index in the path of the first slot that ends after a position."""
        return bisect_right(self.path_ends, position)

    def times(self, marks: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """How often each slot was paid for, from marks at the last slots of runs and negative marks before their first.

        The count of a slot is the sum of the marks at it and after it.
        """
        parents, top = self.parents, max(marks, default=ROOT)
        counts = [0] * (top + 1)  # a list: looking up in a dictionary takes twice as long
        for slot, mark in marks.items():
            counts[slot] = mark
        for slot in range(top, ROOT, -1):
            count = counts[slot]
            if count:
                counts[parents[slot]] += count
                yield slot, count

    def lay(self, bounds: Bounds) -> tuple[list[Run], list[Piece]]:
        """Divides a bill along the row, which must be as long as its context.

        Runs are (class, last slot, slot before the first): whole slots of one class. Pieces are (class, slot, tokens)
        of slots that two classes share. Together they have every token once.
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


# The order in which blocks are removed; the oldest first among equals, as harnesses clear old results.
THINKING: Final = 0
UNEXPLAINED: Final = 1
RESULT: Final = 2
OTHER: Final = 3
PREFIX: Final = 4

_TOLERANCE: Final = 32

RanksOf = Callable[[Sequence[int]], list[int]]  # of owners


class Fit(NamedTuple):
    """How a row was changed: the number of slots visited, and whether the newest thinking was dropped.

    `is_shrunk` is set if other blocks left. Which ones is a guess; only cache reads are certainly unchanged.
    """

    visited: int = 0
    is_dropped: bool = False
    is_shrunk: bool = False


class Need(msgspec.Struct, frozen=True, gc=False):
    """Expected tokens of new blocks: exact output, thinking, and estimated input."""

    exact: int
    thought: int
    estimated: int


def make_room(row: Row, need: Need, context: int, read: int, ranks_of: RanksOf) -> Fit:
    """Removes the blocks that must have left the row for the new blocks to fit into the context.

    Providers drop thinking of earlier answers after a new prompt: none, the newest or all, whichever brings the new
    blocks nearest to their expected size. Other blocks are removed only from a row longer than the context.
    """
    first, owners = row.beyond(read), row.owners
    ranks = ranks_of([owners[slot] for slot in row.path[first:]])
    ends = [read, *row.path_ends[first:]]
    unread = list(map(sub, ends[1:], ends))  # the tokens of each slot that were not read from the cache
    thoughts = {n: unread[n] for n, rank in enumerate(ranks) if rank == THINKING}
    short = need.exact + need.thought + need.estimated + row.total - context
    older = sum(thoughts.values())
    drop = min((0, need.thought, need.thought + older), key=lambda drop: (abs(short - drop), drop))
    dropped = need.thought > 0 and drop >= need.thought
    removed = thoughts if drop > need.thought else {}
    room = context - row.total + sum(removed.values())
    if room < 0:
        target = need.exact + need.estimated + (0 if dropped else need.thought)
        removed = _removals(unread, removed, ranks, target - room, -room)
    is_shrunk = room < 0 and any(ranks[n] != THINKING for n in removed)
    _remove(row, {first + n: tokens for n, tokens in removed.items()})
    return Fit(len(ranks), dropped, is_shrunk or short - drop > tolerance(need.exact + need.thought, need.estimated))


def tolerance(output: int, estimated: int) -> int:
    """The tokens by which new blocks may exceed the context without a removal."""
    return estimated // 2 + output // 8 + _TOLERANCE


def _removals(
    unread: Sequence[int], removed: Mapping[int, int], ranks: Sequence[int], target: int, least: int
) -> dict[int, int]:
    """Tokens to remove, by index in `unread`: `target` in total, and of the prefix only as needed for `least`."""
    removals = dict(removed)
    freed = 0
    for n in sorted(range(len(ranks)), key=ranks.__getitem__):
        limit = least if ranks[n] == PREFIX else target
        if freed >= limit:
            break
        if n not in removals:
            removals[n] = tokens = min(unread[n], limit - freed)
            freed += tokens
    return removals


def _remove(row: Row, removals: Mapping[int, int]) -> None:
    """Removes tokens by index in the path."""
    if not removals:
        return
    first = min(removals)
    slots, sizes = row.path[first:], list(map(sub, row.path_ends[first:], row.path_ends[first - 1 :]))
    for at, tokens in removals.items():
        sizes[at - first] -= tokens
    row.cut(first)
    for slot, size in zip(slots, sizes, strict=True):
        if size:
            row.push_again(slot, size)


def rescale(row: Row, total: int) -> int:
    """Scales the whole row to another total: another model may count tokens differently."""
    slots, old = row.path[1:], row.total
    row.cut(1)
    for slot in slots:
        size = row.ends[slot] * total // old - row.total
        if size:
            row.push_again(slot, size)
    return len(slots)


def cut_to(row: Row, total: int) -> None:
    """Cuts the row to its first `total` tokens."""
    if total >= row.total:
        return
    at = row.beyond(total)
    slot = row.path[at]
    row.cut(at)
    if total > row.total:
        row.push_again(slot, total - row.total)


_UNCHANGED: Final = Fit()
_OTHER_TOKENIZER: Final = 20  # a difference of more than a twentieth of the row is not due to new blocks


class Placement(msgspec.Struct, frozen=True, gc=False):
    """The tokens that were in the row before, the index of its first new slot, and the number of rewritten slots.

    `is_shrunk` as in `Fit`.
    """

    before: int
    first_new: int
    rewritten: int = 0
    is_shrunk: bool = False


class TurnBill(msgspec.Struct, frozen=True, gc=False):
    """The size of a turn's context, its cache reads, and whether the model changed.

    `credit` is the number of slots that may be rewritten.
    """

    context: int
    read: int
    switched: bool = False
    credit: int = 0


class Front(msgspec.Struct, frozen=True, gc=False):
    """The owner of the tokens before a row's first block, and their slot in an earlier row, if any."""

    owner: int
    slot: int | None = None


def begin(
    row: Row, claims: Sequence[SizeClaim], context: int, known_prefix: int, front: Front, unexplained: int
) -> Placement:
    """Adds the blocks of a new row; the tokens that they do not explain come before them.

    A prefix of known size keeps it, unless that leaves the blocks less than half of their expected tokens.
    """
    expected = sum([claim.expected for claim in claims])
    room = context - known_prefix
    if not known_prefix or room < 0 or 2 * room < expected:
        room = min(context, expected)
    if context > room and front.slot is not None:
        row.push_again(front.slot, context - room)
    elif context > room:
        row.push(front.owner, context - room)
    first_new = len(row.path) if known_prefix else 1
    if expected:
        sizes = portions(min(room, 2 * expected), [claim.expected for claim in claims])
        for claim, size in zip(claims, sizes, strict=True):
            if size:
                row.push(claim.owner, size)
    if row.total < context:
        row.push(unexplained, context - row.total)
    return Placement(min(context - room, known_prefix), first_new)


def extend(row: Row, claims: Sequence[SizeClaim], bill: TurnBill, ranks_of: RanksOf, unexplained: int) -> Placement:
    """Appends new blocks and makes the row as long as the billed context.

    Output of the turn before has its billed size, thinking too unless it was dropped. Input blocks share the rest by
    their bytes, up to twice their expected tokens. Tokens of no block are unexplained.
    """
    exact = thought = estimated = 0
    for claim in claims:
        if claim.precision == ESTIMATED:
            estimated += claim.expected
        elif claim.precision == EXACT:
            exact += claim.expected
        else:
            thought += claim.expected
    total, context = row.path_ends[-1], bill.context
    short = total + exact + thought + estimated - context
    fit = _UNCHANGED
    if bill.switched or context < total or short > tolerance(exact + thought, estimated):
        fit = _refit(row, Need(exact, thought, estimated), bill, short, ranks_of)
    before, first_new = row.path_ends[-1], len(row.path)
    rest = _append(row, claims, (exact, thought, estimated), context - before, dropped=fit.is_dropped)
    if rest:
        row.push(unexplained, rest)
    return Placement(before, first_new, fit.visited, fit.is_shrunk)


def _refit(row: Row, need: Need, bill: TurnBill, short: int, ranks_of: RanksOf) -> Fit:
    """Changes the row so that new blocks fit."""
    if bill.switched and _is_other_tokenizer(row.total, short, need) and len(row.path) <= bill.credit:
        return Fit(rescale(row, max(0, row.total - short)))
    if bill.context >= row.total and short <= tolerance(need.exact + need.thought, need.estimated):
        return _UNCHANGED
    if len(row.path) - row.beyond(bill.read) > bill.credit:
        cut_to(row, bill.context)
        return Fit(is_shrunk=True)
    return make_room(row, need, bill.context, bill.read, ranks_of)


def _is_other_tokenizer(total: int, short: int, need: Need) -> bool:
    """Whether the difference is too large to be due to new blocks: the new model counts tokens differently."""
    return abs(short) > max(total // _OTHER_TOKENIZER, need.exact + need.thought + need.estimated)


def _append(row: Row, claims: Sequence[SizeClaim], expected: tuple[int, int, int], room: int, *, dropped: bool) -> int:
    """Divides the room among the blocks; `expected` are their tokens by precision. Returns the rest."""
    exact, thought, estimated = expected[0], expected[1], 2 * expected[2]
    if exact + thought > room or dropped:
        exact = min(exact, room)
        thought = min(thought, max(0, room - exact - estimated) if dropped else room - exact)
    rest = room - exact - thought - estimated
    if rest < 0:
        estimated, rest = estimated + rest, 0
    assigned, done = (exact, thought, estimated), [0, 0, 0]
    for claim in claims:
        precision, size = claim.precision, claim.expected
        tokens, total = assigned[precision], expected[precision]
        if tokens != total:
            before = done[precision]
            done[precision] = upto = before + size
            size = tokens * upto // total - tokens * before // total if size else 0
        if size:
            row.push(claim.owner, size)
    return rest
