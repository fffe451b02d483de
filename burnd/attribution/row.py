"""The context of a turn as a row of blocks: computes block sizes and lays the bill along the row.

Rows form a tree of slots: a row is the path from the root to its last slot, and is never changed. A turn's row is its
parent's with more blocks at the end, or fewer. Rewinds, compactions and a second client in a session are other paths.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import sub
from typing import Final, Literal, NamedTuple

import msgspec

from burnd.attribution.rates import CACHE_CREATE_1H, CACHE_CREATE_5M, CACHE_READ, INPUT
from burnd.classify.tools import kind as tool_kind
from burnd.records import Block, Copy, Usage

ROOT: Final = 0

Run = tuple[int, int, int]
Piece = tuple[int, int, int]


CauseKind = Literal[
    "prefix",
    "prompt",
    "answer",
    "thinking",
    "call",
    "reminder",
    "attachment",
    "summary",
    "inherited",
    "unexplained",
]

# how exact an expected size is; THOUGHT: exact, unless the provider drops the block
EXACT: Final = 0
THOUGHT: Final = 1
ESTIMATED: Final = 2

IMAGE_TOKENS: Final = 1600
_BYTES_PER_TOKEN: Final = 4
_WRAPPING_TOKENS: Final = 8

INSTRUCTIONS: Final = "instructions"
ENTERED_KINDS: Final[dict[str, CauseKind]] = {
    "prompt": "prompt",
    "image": "prompt",
    "file": "attachment",
    "summary": "summary",
}

# (owner, expected tokens, precision) of a block whose size no bill has shown yet
SizeClaim = tuple[int, int, int]
# (rate class, owner, tokens)
Output = tuple[int, int, int]


class CauseGroup(NamedTuple):
    kind: CauseKind
    tool: str | None = None
    target: str | None = None


def expected_tokens(block: Block) -> int:
    """Twice that is the maximum: no text has more than a token per two bytes."""
    if block.kind == "image":
        return IMAGE_TOKENS
    return -(-block.bytes // _BYTES_PER_TOKEN) + _WRAPPING_TOKENS


def inherited_tokens(copy: Copy) -> int:
    return sum(expected_tokens(block) for block in (*copy.entered, *copy.made) if block.kind != INSTRUCTIONS)


def output_shares(blocks: Sequence[Block], usage: Usage) -> list[int]:
    """In proportion to bytes. Logs shorten thinking, so tokens above the maximum of other blocks are thinking."""
    if len(blocks) == 1:
        return [usage.output]
    weights = [block.bytes or 1 for block in blocks]
    thoughts = [n for n, block in enumerate(blocks) if block.kind == "thinking"]
    if usage.reasoning and len(thoughts) < len(blocks):
        for n in thoughts:
            weights[n] = 0
    shares = portions(usage.output, weights)
    if thoughts and not usage.reasoning:
        for n, block in enumerate(blocks):
            over = shares[n] - 2 * expected_tokens(block)
            if over > 0 and block.kind != "thinking":
                shares[n] -= over
                shares[thoughts[0]] += over
    return shares


def is_search(tool: str) -> bool:
    return "search" in tool.lower() and tool_kind(tool) in ("web", "other")


def portions(amount: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers that add up to the amount. The weights must not all be zero."""
    total, weight_sum, assigned = sum(weights), 0, 0
    shares = []
    for weight in weights:
        weight_sum += weight
        upto = amount * weight_sum // total
        shares.append(upto - assigned)
        assigned = upto
    return shares


class Bounds(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where each rate class ends along the row: cache reads first, uncached input last."""

    read: int
    hour: int
    five: int
    end: int

    @classmethod
    def of(cls, usage: Usage) -> Bounds:
        read = usage.cache_read
        hour = read + usage.cache_create_1h
        five = hour + usage.cache_create_5m
        return cls(read, hour, five, five + usage.input)

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        """(class, tokens) pairs."""
        shares, at = [], start
        for rate_class, bound in self.along():
            upto = min(bound, end)
            if upto > at:
                shares.append((rate_class, upto - at))
                at = upto
        return shares

    def along(self) -> tuple[tuple[int, int], ...]:
        return (
            (CACHE_READ, self.read),
            (CACHE_CREATE_1H, self.hour),
            (CACHE_CREATE_5M, self.five),
            (INPUT, self.end),
        )


class Row:
    """A tree of slots, and the current path through it.

    A slot has the tokens of one block: `ends` is its end on the row, `owners` its cause. No slot is empty, and its
    number is above its parent's, so numbers and ends rise along a path. `blocks` has the first slot of a block that has
    several.
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

    def push(self, blocks: Iterable[tuple[int, int]]) -> None:
        """Leaves out blocks of size 0."""
        parents, ends, owners, path, path_ends = self.parents, self.ends, self.owners, self.path, self.path_ends
        slot, end = path[-1], path_ends[-1]
        for owner, size in blocks:
            if size:
                parents.append(slot)
                slot, end = len(ends), end + size
                ends.append(end)
                owners.append(owner)
                path.append(slot)
                path_ends.append(end)

    def push_again(self, slots: Sequence[int], sizes: Iterable[int]) -> None:
        """Appends the blocks of other slots, with other sizes."""
        blocks, owners, new = self.blocks, self.owners, len(self.ends)
        resized = [(slot, size) for slot, size in zip(slots, sizes, strict=True) if size]
        for slot, _ in resized:
            blocks[new] = blocks.get(slot, slot)
            new += 1
        self.push([(owners[slot], size) for slot, size in resized])

    def go(self, tip: int) -> None:
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
        del self.path[length:]
        del self.path_ends[length:]

    def beyond(self, position: int) -> int:
        """The index in the path of the first slot that ends after a position."""
        return bisect_right(self.path_ends, position)

    def times(self, marks: Mapping[int, int]) -> list[int]:
        """How often each slot was paid: the sum of the marks at it and after it.

        A run has a mark at its last slot and a negative one before its first.
        """
        parents, counts = self.parents, [0] * len(self.ends)  # a dictionary takes twice as long
        for slot, mark in marks.items():
            counts[slot] = mark
        for slot in range(max(marks, default=ROOT), ROOT, -1):
            if count := counts[slot]:
                counts[parents[slot]] += count
        counts[ROOT] = 0
        return counts

    def lay(self, bounds: Bounds) -> tuple[list[Run], list[Piece]]:
        """Divides a bill along the row.

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


# the order in which blocks are removed; the oldest first among equals, as harnesses clear old results
THINKING: Final = 0
UNEXPLAINED: Final = 1
RESULT: Final = 2
OTHER: Final = 3
PREFIX: Final = 4

RanksOf = Callable[[Sequence[int]], list[int]]
_TOLERANCE: Final = 32
_OTHER_TOKENIZER: Final = 20  # a larger difference, as a share of the row, is not due to new blocks


class Placement(msgspec.Struct, frozen=True, gc=False):
    """`before` are the tokens that were in the row, `first_new` is the index of its first new slot.

    `is_shrunk`: blocks other than thinking left.
    """

    before: int
    first_new: int
    rewritten: int = 0
    is_shrunk: bool = False


class TurnBill(msgspec.Struct, frozen=True, gc=False):
    """`credit` is the number of slots that may be rewritten."""

    context: int
    read: int
    switched: bool = False
    credit: int = 0


class _Need(msgspec.Struct, frozen=True, gc=False):
    """Expected tokens of new blocks."""

    exact: int
    thought: int
    estimated: int

    @property
    def total(self) -> int:
        return self.exact + self.thought + self.estimated

    @property
    def tolerance(self) -> int:
        """By how much new blocks may exceed the context without a removal."""
        return self.estimated // 2 + (self.exact + self.thought) // 8 + _TOLERANCE


class _Fit(msgspec.Struct, frozen=True, gc=False):
    """`is_dropped`: the newest thinking was."""

    visited: int = 0
    is_dropped: bool = False
    is_shrunk: bool = False


_UNCHANGED: Final = _Fit()


def begin(
    row: Row, claims: Sequence[SizeClaim], context: int, known_prefix: int, prefix: int, slot: int | None, rest: int
) -> Placement:
    """Adds the blocks of a new row after its prefix, which has the tokens that they do not explain.

    The prefix may be in `slot` of an earlier row. One of known size keeps it, unless that leaves the blocks less than
    half of their expected tokens. Tokens above the maximum of all blocks are owned by `rest`.
    """
    weights = [expected for _, expected, _ in claims]
    expected = sum(weights)
    room = context - known_prefix
    if not known_prefix or room < 0 or 2 * room < expected:
        room = min(context, expected)
    if slot is not None:
        row.push_again([slot], [context - room])
    else:
        row.push([(prefix, context - room)])
    first_new = len(row.path) if known_prefix else 1
    if expected:
        sizes = portions(min(room, 2 * expected), weights)
        row.push([(claim[0], size) for claim, size in zip(claims, sizes, strict=True)])
    row.push([(rest, context - row.total)])
    return Placement(min(context - room, known_prefix), first_new)


def extend(row: Row, claims: Sequence[SizeClaim], bill: TurnBill, ranks_of: RanksOf, unexplained: int) -> Placement:
    """Appends new blocks and makes the row as long as the billed context.

    Output of the turn before has its billed size. Input blocks share the rest by their bytes, up to twice their
    expected tokens. The remainder is unexplained.
    """
    expected = [0, 0, 0]
    for _, tokens, precision in claims:
        expected[precision] += tokens
    exact, thought, estimated = expected
    total, context = row.path_ends[-1], bill.context
    short = total + exact + thought + estimated - context
    fit = _UNCHANGED
    if bill.switched or context < total or short > _TOLERANCE:
        fit = _refit(row, _Need(exact, thought, estimated), bill, short, ranks_of)
    before, first_new = row.path_ends[-1], len(row.path)
    room, estimated = context - before, 2 * estimated
    if exact + thought > room or fit.is_dropped:
        exact = min(exact, room)
        thought = min(thought, max(0, room - exact - estimated) if fit.is_dropped else room - exact)
    rest = room - exact - thought - estimated
    if rest < 0:
        estimated, rest = estimated + rest, 0
    assigned, done = (exact, thought, estimated), [0, 0, 0]
    sized = []
    for owner, size, precision in claims:
        tokens, whole = assigned[precision], expected[precision]
        if tokens != whole and size:
            start = done[precision]
            done[precision] = upto = start + size
            size = tokens * upto // whole - tokens * start // whole
        sized.append((owner, size))
    sized.append((unexplained, rest))
    row.push(sized)
    return Placement(before, first_new, fit.visited, fit.is_shrunk)


def _refit(row: Row, need: _Need, bill: TurnBill, short: int, ranks_of: RanksOf) -> _Fit:
    """Scales the row if the model counts tokens differently, else removes blocks, so that new blocks fit."""
    total, context = row.total, bill.context
    if bill.switched and abs(short) > max(total // _OTHER_TOKENIZER, need.total) and len(row.path) <= bill.credit:
        slots, scaled = row.path[1:], max(0, total - short)
        ends = [row.ends[slot] * scaled // total for slot in slots]
        row.cut(1)
        row.push_again(slots, map(sub, ends, (0, *ends)))
        return _Fit(len(slots))
    if context >= total and short <= need.tolerance:
        return _UNCHANGED
    if len(row.path) - row.beyond(bill.read) <= bill.credit:
        return _make_room(row, need, context, bill.read, ranks_of)
    if context < total:
        at = row.beyond(context)
        slot = row.path[at]
        row.cut(at)
        row.push_again([slot], [context - row.total])
    return _Fit(is_shrunk=True)


def _make_room(row: Row, need: _Need, context: int, read: int, ranks_of: RanksOf) -> _Fit:
    """Removes the blocks that must have left the row.

    Providers drop thinking of earlier answers after a new prompt: none, the newest or all, whichever brings the new
    blocks nearest to their expected size. Other blocks leave only a row longer than the context.
    """
    first, owners = row.beyond(read), row.owners
    ranks = ranks_of([owners[slot] for slot in row.path[first:]])
    ends = [read, *row.path_ends[first:]]
    unread = list(map(sub, ends[1:], ends))  # tokens not read from the cache
    thoughts = {n: unread[n] for n, rank in enumerate(ranks) if rank == THINKING}
    short = need.total + row.total - context
    older = sum(thoughts.values())
    drop = min((0, need.thought, need.thought + older), key=lambda drop: (abs(short - drop), drop))
    dropped = need.thought > 0 and drop >= need.thought
    removed = thoughts if drop > need.thought else {}
    room = context - row.total + sum(removed.values())
    if room < 0:
        target = need.exact + need.estimated + (0 if dropped else need.thought)
        removed = _removals(unread, removed, ranks, target - room, -room)
    is_shrunk = room < 0 and any(ranks[n] != THINKING for n in removed)
    if removed:
        begin = first + min(removed)
        slots, sizes = row.path[begin:], list(map(sub, row.path_ends[begin:], row.path_ends[begin - 1 :]))
        for n, tokens in removed.items():
            sizes[first + n - begin] -= tokens
        row.cut(begin)
        row.push_again(slots, sizes)
    return _Fit(len(ranks), dropped, is_shrunk or short - drop > need.tolerance)


def _removals(
    unread: Sequence[int], removed: Mapping[int, int], ranks: Sequence[int], target: int, least: int
) -> dict[int, int]:
    """`target` tokens in total, but of the prefix only as needed for `least`."""
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
