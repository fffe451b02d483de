"""What was spent on one thing: tokens by kind, how many came in and how many rode along, calls, exact cost."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, sub
from typing import Any

from burnd.attribution.tally import Sums
from burnd.pricing import UNITS_PER_USD
from burnd.queries.kinds import Kind, Kinds
from burnd.queries.tally import Tally, usage

_CONTEXT = Sums(input=1, cache_read=1, cache_create_5m=1, cache_create_1h=1)


def rates_of(rank: str, kinds: Kinds) -> dict[int, Sums]:
    """By kind, what each number of `attribution.Sums` adds to the weight of its sum, as `CauseSum.weight` has it."""
    ids = [kind.id for kind in kinds]
    if rank == "tokens":
        return dict.fromkeys(ids, _CONTEXT._replace(output=1, reasoning=1))
    if rank == "rides":
        return dict.fromkeys(ids, _CONTEXT._replace(entered=-1))
    return {kind.id: Sums(*kind.own_rates, searches=kind.search_units) if kind.own_rates else Sums() for kind in kinds}


class CauseSum:
    """A growing sum of what causes paid. `units` counts what has a price, 10^-15 USD each."""

    __slots__ = ("calls", "entered", "errors", "is_priced", "tokens", "units")

    def __init__(self) -> None:
        self.tokens = [0] * 6
        self.entered = self.calls = self.errors = self.units = 0
        self.is_priced = False

    @classmethod
    def of(cls, tally: Tally) -> CauseSum:
        paid = cls()
        paid.tokens, paid.units = [*tally.tokens], tally.units
        paid.is_priced = tally.cost_usd is not None
        return paid

    def add(self, kind: Kind, sums: Sequence[int]) -> None:
        """Takes in what turns of one kind paid, as `attribution.Sums` counts it."""
        i, o, r, read, five, hour, searches, entered, calls, errors = sums
        tokens = self.tokens
        tokens[0] += i
        tokens[1] += o
        tokens[2] += r
        tokens[3] += read
        tokens[4] += five
        tokens[5] += hour
        self.entered += entered
        self.calls += calls
        self.errors += errors
        rates = kind.own_rates
        if rates is not None:
            a, b, c, d, e, f = rates
            self.units += i * a + o * b + r * c + read * d + five * e + hour * f + searches * kind.search_units
            self.is_priced = True

    def merge(self, other: CauseSum) -> None:
        self.tokens = [*map(add, self.tokens, other.tokens)]
        self.entered += other.entered
        self.calls += other.calls
        self.errors += other.errors
        self.units += other.units
        self.is_priced = self.is_priced or other.is_priced

    def take_off(self, other: CauseSum) -> None:
        """Leaves what is not the other's. What is left without cost has no price: one of 0 is not told from none."""
        self.tokens = [*map(sub, self.tokens, other.tokens)]
        self.entered -= other.entered
        self.calls -= other.calls
        self.errors -= other.errors
        self.units -= other.units
        self.is_priced = self.units != 0

    def __bool__(self) -> bool:
        return any(self.tokens) or self.units != 0

    @property
    def ride_tokens(self) -> int:
        """What was paid for being in the context after the turn it came in with."""
        fresh, _, _, read, five, hour = self.tokens
        return fresh + read + five + hour - self.entered

    @property
    def cost_usd(self) -> float | None:
        return self.units / UNITS_PER_USD if self.is_priced else None

    def weight(self, rank: str) -> int:
        if rank == "cost":
            return self.units
        return self.ride_tokens if rank == "rides" else sum(self.tokens)

    def answer(self) -> dict[str, Any]:
        cost = self.cost_usd
        return {
            "calls": self.calls,
            "errors": self.errors,
            "entered": self.entered,
            "rideTokens": self.ride_tokens,
            "usage": usage(self.tokens),
            "costUsd": cost,
            "costPerCall": cost / self.calls if cost is not None and self.calls else None,
        }
