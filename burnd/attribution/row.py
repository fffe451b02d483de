"""The context of a rail as a row of blocks in order: how large each block is, and how a bill lies along the row.

A turn's row is its parent's row with more at the end, or with less where something was removed. Rows are kept as a tree
of slots: each slot comes after its parent, a turn's row is the path from the root to its last slot, and no row is ever
changed. A rewound branch, the row before a compaction and two clients that write one session in turns are other paths.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from burnd.attribution.blocks import FIRM, LOOSE, Claim, portions
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


# The order in which blocks go; of equals the oldest first, as harnesses clear old results.
THINKING: Final = 0
UNEXPLAINED: Final = 1
RESULT: Final = 2
OTHER: Final = 3
PREFIX: Final = 4

_TOLERATED: Final = 32

RanksOf = Callable[[Sequence[int]], list[int]]  # of owners


class Fitted(NamedTuple):
    """How many slots were looked at, whether the newest thinking is not to stay, and whether more went than thinking.

    Then what else went is a guess, and only what was read from the cache is sure to stand still.
    """

    looked: int = 0
    is_dropped: bool = False
    is_shrunk: bool = False


class Need(msgspec.Struct, frozen=True, gc=False):
    """What new blocks ask for: what was said, what was thought, what came in."""

    firm: int
    thought: int
    loose: int


def make_room(row: Row, need: Need, context: int, read: int, ranks_of: RanksOf) -> Fitted:
    """Take out of the row what must have gone for the new blocks to fit into the context.

    Providers drop the thinking of earlier answers when a person asks anew; of none, the newest and all thinking
    that goes whose absence brings the new blocks nearest to the size they should have. Only a row that is longer
    than the context loses anything else.
    """
    first = row.beyond(read)
    ranks = ranks_of([row.owners[slot] for slot in row.path[first:]])
    thoughts = {at: _unread(row, at, read) for at, rank in enumerate(ranks, first) if rank == THINKING}
    short = need.firm + need.thought + need.loose + row.total - context
    older = sum(thoughts.values())
    drop = min((0, need.thought, need.thought + older), key=lambda drop: (abs(short - drop), drop))
    dropped = need.thought > 0 and drop >= need.thought
    gone = thoughts if drop > need.thought else {}
    room = context - row.total + sum(gone.values())
    if room < 0:
        wanted = need.firm + need.loose + (0 if dropped else need.thought)
        gone = _chosen(row, gone, ranks, wanted - room, -room, read)
    is_shrunk = room < 0 and any(ranks[at - first] != THINKING for at in gone)
    _without(row, gone)
    return Fitted(len(ranks), dropped, is_shrunk or short - drop > tolerated(need.firm + need.thought, need.loose))


def tolerated(said: int, loose: int) -> int:
    """How many tokens too large new blocks may seem without anything having gone from the row."""
    return loose // 2 + said // 8 + _TOLERATED


def _chosen(
    row: Row, gone: Mapping[int, int], ranks: Sequence[int], wanted: int, least: int, read: int
) -> dict[int, int]:
    """What goes, by place on the path, so that `wanted` tokens are free; of the prefix only what must, for `least`."""
    chosen = dict(gone)
    first, freed = len(row.path) - len(ranks), 0
    for n in sorted(range(len(ranks)), key=ranks.__getitem__):
        limit = least if ranks[n] == PREFIX else wanted
        if freed >= limit:
            break
        at = first + n
        if at not in chosen:
            chosen[at] = min(_unread(row, at, read), limit - freed)
            freed += chosen[at]
    return chosen


def _without(row: Row, gone: Mapping[int, int]) -> None:
    if not gone:
        return
    first = min(gone)
    slots, ends = row.path[first:], row.path_ends[first - 1 :]
    row.cut(first)
    for at, slot in enumerate(slots):
        size = ends[at + 1] - ends[at] - gone.get(first + at, 0)
        if size:
            row.push_again(slot, size)


def rescale(row: Row, total: int) -> int:
    """Bring the whole row to another total, each block in proportion: another model counts it differently."""
    slots, old = row.path[1:], row.total
    row.cut(1)
    for slot in slots:
        size = row.ends[slot] * total // old - row.total
        if size:
            row.push_again(slot, size)
    return len(slots)


def cut_to(row: Row, total: int) -> None:
    """Leave the first `total` tokens of the row."""
    if total >= row.total:
        return
    at = row.beyond(total)
    slot = row.path[at]
    row.cut(at)
    if total > row.total:
        row.push_again(slot, total - row.total)


def _unread(row: Row, at: int, read: int) -> int:
    """The tokens of a slot that were not read from the cache."""
    return row.path_ends[at] - max(row.path_ends[at - 1], read)


_FITS: Final = Fitted()
_ANOTHER_TOKENIZER: Final = 20  # parts of the row: a difference of one part or more is no matter of new blocks


class Seated(msgspec.Struct, frozen=True, gc=False):
    """How much of the row was there before, where its new slots begin on the path, how many old ones were rewritten.

    `is_shrunk` says that something is gone from it, and what is not sure.
    """

    before: int
    first_new: int
    rewritten: int = 0
    is_shrunk: bool = False


class Bill(msgspec.Struct, frozen=True, gc=False):
    """What a turn tells of its row: how long it is, how much of it came from the cache, whether its model is another.

    `credit` is how many slots may be written anew for it.
    """

    context: int
    read: int
    switched: bool = False
    credit: int = 0


class Front(msgspec.Struct, frozen=True, gc=False):
    """Who owns what stands before a row's first block, and a slot it stood in, where it stood before."""

    owner: int
    slot: int | None = None


def begin(row: Row, claims: Sequence[Claim], context: int, known_prefix: int, front: Front, unexplained: int) -> Seated:
    """Seat the blocks of a row that begins. What stands before them is what they do not explain.

    A prefix that is known from an earlier row keeps its size, as long as that leaves the blocks at least half of
    what they are likely to weigh.
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
    return Seated(min(context - room, known_prefix), first_new)


def extend(row: Row, claims: Sequence[Claim], bill: Bill, ranks_of: RanksOf, unexplained: int) -> Seated:
    """Seat new blocks behind the row, and make it as long as the context that was billed.

    What the turn before said takes the tokens it was billed, thinking too unless it was dropped; what came in shares
    the rest by its bytes, up to twice what those let expect. What no block accounts for is unexplained.
    """
    firm = thought = loose = 0
    for claim in claims:
        if claim.nature == LOOSE:
            loose += claim.expected
        elif claim.nature == FIRM:
            firm += claim.expected
        else:
            thought += claim.expected
    total, context = row.path_ends[-1], bill.context
    short = total + firm + thought + loose - context
    fitted = _FITS
    if bill.switched or context < total or short > tolerated(firm + thought, loose):
        fitted = _refit(row, Need(firm, thought, loose), bill, short, ranks_of)
    before, first_new = row.path_ends[-1], len(row.path)
    left = _seat(row, claims, (firm, thought, loose), context - before, dropped=fitted.is_dropped)
    if left:
        row.push(unexplained, left)
    return Seated(before, first_new, fitted.looked, fitted.is_shrunk)


def _refit(row: Row, need: Need, bill: Bill, short: int, ranks_of: RanksOf) -> Fitted:
    """Change what stood in the row so that new blocks fit."""
    if bill.switched and _counted_anew(row.total, short, need) and len(row.path) <= bill.credit:
        return Fitted(rescale(row, max(0, row.total - short)))
    if bill.context >= row.total and short <= tolerated(need.firm + need.thought, need.loose):
        return _FITS
    if len(row.path) - row.beyond(bill.read) > bill.credit:
        cut_to(row, bill.context)
        return Fitted(is_shrunk=True)
    return make_room(row, need, bill.context, bill.read, ranks_of)


def _counted_anew(total: int, short: int, need: Need) -> bool:
    """Whether another model counts the same row so differently that new blocks cannot be the reason."""
    return abs(short) > max(total // _ANOTHER_TOKENIZER, need.firm + need.thought + need.loose)


def _seat(row: Row, claims: Sequence[Claim], wanted: tuple[int, int, int], room: int, *, dropped: bool) -> int:
    """Share the room out among the blocks, which want so much by their nature. Returns what is left of it."""
    firm, thought, loose = wanted[0], wanted[1], 2 * wanted[2]
    if firm + thought > room or dropped:
        firm = min(firm, room)
        thought = min(thought, max(0, room - firm - loose) if dropped else room - firm)
    left = room - firm - thought - loose
    if left < 0:
        loose, left = loose + left, 0
    given, seen = (firm, thought, loose), [0, 0, 0]
    for claim in claims:
        nature, size = claim.nature, claim.expected
        tokens, all_wanted = given[nature], wanted[nature]
        if tokens != all_wanted:
            before = seen[nature]
            seen[nature] = upto = before + size
            size = tokens * upto // all_wanted - tokens * before // all_wanted if size else 0
        if size:
            row.push(claim.owner, size)
    return left
