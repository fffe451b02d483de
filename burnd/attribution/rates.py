"""Rate classes of tokens, and the rate of a turn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from burnd.records import Turn

INPUT: Final = 0
OUTPUT: Final = 1
REASONING: Final = 2
CACHE_READ: Final = 3
CACHE_CREATE_5M: Final = 4
CACHE_CREATE_1H: Final = 5
SEARCHES: Final = 6
CLASSES: Final = 7


class Rate(NamedTuple):
    """Everything that decides the price of a token of a class.

    `over` is the context threshold that the turn exceeded, or 0; `speed` has its billing terms.
    """

    model: str
    provider: str | None = None
    over: int = 0
    speed: str | None = None


class Spent(NamedTuple):
    """Tokens by rate class, and the number of web searches."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_create_5m: int = 0
    cache_create_1h: int = 0
    searches: int = 0

    @property
    def context(self) -> int:
        return self.input + self.cache_read + self.cache_create_5m + self.cache_create_1h

    def plus(self, other: Spent, times: int = 1) -> Spent:
        return Spent(*(one + times * two for one, two in zip(self, other, strict=True)))


class Sums(NamedTuple):
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


NOTHING: Final = Spent()
ByRate = Mapping[Rate, Spent]


class Priceable(Protocol):
    @property
    def model(self) -> str: ...
    @property
    def provider(self) -> str | None: ...
    @property
    def speed(self) -> str | None: ...


class RateFinder:
    """`thresholds` are all context sizes at which a price changes, in order."""

    def __init__(self, thresholds: Sequence[int]) -> None:
        self._thresholds = (0, *thresholds)
        self._last = Rate("")

    def of(self, turn: Priceable, context: int) -> Rate:
        model, provider, over, speed = self._last
        now_over = self._thresholds[bisect_left(self._thresholds, context, 1) - 1]
        if turn.model != model or over != now_over or turn.speed != speed or turn.provider != provider:
            self._last = Rate(turn.model, turn.provider, now_over, turn.speed)
        return self._last


def rate_of(turn: Turn, thresholds: Sequence[int]) -> Rate:
    return RateFinder(thresholds).of(turn, turn.usage.context)


def spent_by(turn: Turn) -> Spent:
    usage = turn.usage
    return Spent(
        usage.input,
        usage.output,
        usage.reasoning,
        usage.cache_read,
        usage.cache_create_5m,
        usage.cache_create_1h,
        turn.searches,
    )


def add_up(bills: Sequence[ByRate]) -> dict[Rate, Spent]:
    total: dict[Rate, Spent] = {}
    for bill in bills:
        for rate, spent in bill.items():
            total[rate] = total[rate].plus(spent) if rate in total else spent
    return total
