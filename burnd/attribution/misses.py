"""Why a part of the context was not read from the cache though it had been there before."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from burnd.attribution.context import Bounds
from burnd.attribution.rates import CLASSES, Spent
from burnd.records.times import HOUR_MS, index_ms

Reason = Literal["compaction", "model-switch", "pause", "slow-call", "rewind", "edited", "prefix", "unknown"]

# Less than providers cache at all. The last few tokens of a turn are seldom cached and always paid for again.
LEAST_TOKENS: Final = 1024
_FIVE_MINUTES_MS: Final = 300_000


class Miss(NamedTuple):
    """Tokens that were paid in full again, by what they were paid as, and the likely reason."""

    reason: Reason
    spent: Spent


class Circumstances(NamedTuple):
    """What is known of a turn and of the one before it that may explain a miss. `earlier` may be unknown, and empty.

    `waited` says that it was a call that came back in between, and that nobody said anything.
    """

    compacted: bool
    switched: bool
    rewound: bool
    rewritten: bool
    for_an_hour: bool
    earlier: str
    later: str
    prefix: int
    waited: bool


def miss_of(before: int, bounds: Bounds, found: Circumstances) -> Miss:
    """The miss of a turn whose row had `before` tokens that were in the turn before, too."""
    again = [0] * CLASSES
    for rate_class, tokens in bounds.of(bounds.read, before):
        again[rate_class] = tokens
    return Miss(_reason(bounds.read, found), Spent(*again))


def _reason(read: int, found: Circumstances) -> Reason:
    if found.compacted:
        return "compaction"
    if found.switched:
        return "model-switch"
    lives = HOUR_MS if found.for_an_hour else _FIVE_MINUTES_MS
    if found.earlier and index_ms(found.later) - index_ms(found.earlier) > lives:
        return "slow-call" if found.waited else "pause"
    if found.rewound:
        return "rewind"
    if read < found.prefix:
        return "prefix"
    return "edited" if found.rewritten else "unknown"
