"""The bill of a rail's contexts as it is, and as it would be if all cache writes lived five minutes or an hour.

With an hour, what was paid again after a pause of up to an hour would have been read. With five minutes, what was read
after a longer pause would have been written again. An estimate: requests of other sessions may keep a prefix cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from burnd.attribution.misses import FIVE_MINUTES_MS
from burnd.attribution.rail import Step
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
        # By rate: fresh input, reads, writes for five minutes and an hour; then reads that would have expired with five
        # minutes, and writes and fresh input that would have been reads with an hour.
        self._sums: dict[Rate, list[int]] = {}
        self._at = -1  # time of the turn before
        self._is_hour = False  # the lifetime of the last write

    def add(self, ts: str, step: Step, rate: Rate | None) -> None:
        """Adds a turn; without a rate it only counts as the turn before the next."""
        bounds = step.bounds
        if not bounds.end:
            return
        now, was_hour = index_ms(ts), self._is_hour
        gap = now - self._at if self._at >= 0 else 0
        self._at = now
        read, until_hour, until_five = bounds.read, bounds.hour, bounds.five
        if until_five > read:
            self._is_hour = until_five == until_hour
        if rate is None:
            return
        sums = self._sums.get(rate)
        if sums is None:
            sums = self._sums[rate] = [0] * 7
        sums[0] += bounds.end - until_five
        sums[1] += read
        sums[2] += until_five - until_hour
        sums[3] += until_hour - read
        if FIVE_MINUTES_MS < gap <= HOUR_MS:
            sums[4] += read if was_hour else 0
            if step.miss and step.miss.reason in ("pause", "slow-call"):
                missed = step.miss.spent
                sums[5] += missed.cache_create_1h + missed.cache_create_5m
                sums[6] += missed.input

    def bills(self) -> CacheBills:
        now, all_five, all_hour = {}, {}, {}
        for rate, (fresh, read, five, hour, expired, written, missed) in self._sums.items():
            now[rate] = Spent(input=fresh, cache_read=read, cache_create_5m=five, cache_create_1h=hour)
            all_five[rate] = Spent(input=fresh, cache_read=read - expired, cache_create_5m=five + hour + expired)
            reads = read + written + missed
            all_hour[rate] = Spent(input=fresh - missed, cache_read=reads, cache_create_1h=five + hour - written)
        return CacheBills(now, all_five, all_hour)


def add_bills(bills: Iterable[CacheBills]) -> CacheBills:
    total = CacheBills()
    for one in bills:
        total = total.plus(one)
    return total
