"""The bill of a rail's contexts as it is, and as it would be if all cache writes lived five minutes or an hour.

With an hour, what was paid again after a pause of up to an hour would have been read. With five minutes, what was read
after a longer pause would have been written again. An estimate: requests of other sessions may keep a prefix cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from burnd.attribution.misses import FIVE_MINUTES_MS
from burnd.attribution.rail import TurnStep
from burnd.attribution.rates import ByRate, Rate, Spent, add_up
from burnd.records.times import HOUR_MS, index_ms


class CacheBills(NamedTuple):
    """Tokens of contexts, without output: as billed, and with all writes for five minutes or for an hour."""

    now: ByRate = {}  # noqa: RUF012 - never changed
    five: ByRate = {}  # noqa: RUF012
    hour: ByRate = {}  # noqa: RUF012

    @property
    def is_written(self) -> bool:
        return any(spent.cache_create_5m or spent.cache_create_1h for spent in self.now.values())

    def plus(self, other: CacheBills) -> CacheBills:
        return CacheBills(*(add_up(pair) for pair in zip(self, other, strict=True)))


class CacheMeter:
    """Adds up the contexts of the turns of a rail, in order."""

    def __init__(self) -> None:
        self._bills: tuple[dict[Rate, Spent], ...] = ({}, {}, {})
        self._at = -1  # time of the turn before
        self._is_hour = False  # the lifetime of the last write

    def add(self, turn: TurnStep, rate: Rate | None) -> None:
        """Adds a turn; without a rate it only counts as the turn before the next."""
        step = turn.step
        bounds = step.bounds
        if not bounds.end:
            return
        now, was_hour = index_ms(turn.ts), self._is_hour
        gap = now - self._at if self._at >= 0 else 0
        self._at = now
        read, fresh = bounds.read, bounds.end - bounds.five
        hour, five = bounds.hour - read, bounds.five - bounds.hour
        if hour or five:
            self._is_hour = not five
        if rate is None:
            return
        is_between = FIVE_MINUTES_MS < gap <= HOUR_MS
        missed = step.miss.spent if is_between and step.miss and step.miss.reason in ("pause", "slow-call") else Spent()
        expired = read if is_between and was_hour else 0
        saved = missed.cache_create_1h + missed.cache_create_5m
        for bill, spent in zip(
            self._bills,
            (
                Spent(input=fresh, cache_read=read, cache_create_5m=five, cache_create_1h=hour),
                Spent(input=fresh, cache_read=read - expired, cache_create_5m=five + hour + expired),
                Spent(
                    input=fresh - missed.input,
                    cache_read=read + saved + missed.input,
                    cache_create_1h=five + hour - saved,
                ),
            ),
            strict=True,
        ):
            bill[rate] = bill[rate].plus(spent) if rate in bill else spent

    def bills(self) -> CacheBills:
        return CacheBills(*self._bills)


def add_bills(bills: Iterable[CacheBills]) -> CacheBills:
    total = CacheBills()
    for one in bills:
        total = total.plus(one)
    return total
