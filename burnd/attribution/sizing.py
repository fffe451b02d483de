"""How large the blocks of a context are: each bill tells by how much they grew together since the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from burnd.attribution.blocks import FIRM, LOOSE, Claim, portions
from burnd.attribution.context import Row
from burnd.attribution.shrinking import Fitted, Need, RanksOf, cut_to, make_room, rescale, tolerated

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
