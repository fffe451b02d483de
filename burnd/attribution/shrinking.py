"""What goes when a context shrank and no record says why: nothing that was still read from the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from burnd.attribution.context import Row

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
