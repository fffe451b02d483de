"""What tokens by rate come to: the same exact prices as sums of turns have, for whatever attribution counts by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add, mul, sub
from typing import Any, NamedTuple

import msgspec

from burnd.attribution.causes import Causes
from burnd.attribution.rates import CLASSES, Rate, Spent
from burnd.pricing import UNITS_PER_USD, PriceTable, rates_over, search_units
from burnd.queries.kinds import shown_model
from burnd.queries.tally import usage

_TOKENS = CLASSES - 1  # the last class counts searches


class Cost(msgspec.Struct, frozen=True, gc=False):
    """Tokens by class, searches last, and what those with a price came to, in units of 10^-15 USD."""

    tokens: tuple[int, ...] = (0,) * CLASSES
    units: int = 0
    is_priced: bool = False  # any of it

    @property
    def usd(self) -> float | None:
        return self.units / UNITS_PER_USD if self.is_priced else None  # as exact as a float can be

    def share(self, whole: int) -> float | None:
        """Its part of a whole in units; None where either has no price."""
        return self.units / whole if whole and self.is_priced else None

    def answer(self) -> dict[str, Any]:
        said: dict[str, Any] = {"usage": usage(self.tokens[:_TOKENS])}
        if self.tokens[-1]:
            said["searches"] = self.tokens[-1]
        said["costUsd"] = self.usd
        return said


def total(costs: Sequence[Cost]) -> Cost:
    """What many of them come to, at the speed of one pass."""
    if not costs:
        return Cost()
    tokens = tuple(map(sum, zip(*(cost.tokens for cost in costs), strict=True)))
    return Cost(tokens, sum(cost.units for cost in costs), any(cost.is_priced for cost in costs))


def without(whole: Cost, parts: Sequence[Cost], *, is_priced: bool) -> Cost:
    """What is left of a whole."""
    shown = total(parts)
    tokens = tuple(map(sub, whole.tokens, shown.tokens))
    return Cost(tokens, whole.units - shown.units, is_priced)


class Priced(NamedTuple):
    """What many causes cost, in their order, and which of them have no price."""

    units: list[int]
    unpriced: frozenset[int]


class Costing:
    """Prices rates as they are met, each once."""

    def __init__(self, prices: PriceTable) -> None:
        self._prices = prices
        self._known: dict[Rate, tuple[int, ...] | None] = {}

    def of(self, spent: Mapping[Rate, Spent]) -> Cost:
        """What was spent at any number of rates."""
        if len(spent) == 1:  # as nearly always
            ((rate, tokens),) = spent.items()
            units = self.units(rate)
            return Cost(tokens, sum(map(mul, tokens, units)), True) if units is not None else Cost(tokens)
        priced = [(tokens, units) for rate, tokens in spent.items() if (units := self.units(rate)) is not None]
        summed = tuple(map(sum, zip(*spent.values(), strict=True))) or Cost().tokens
        return Cost(summed, sum(sum(map(mul, *pair)) for pair in priced), bool(priced))

    def each(self, causes: Causes) -> Priced:
        """What each of many causes cost."""
        columns = [(column, units) for rate, column in causes.paid.items() if (units := self.units(rate)) is not None]
        cost = [0] * len(causes)
        for column, (a, b, c, d, e, f, g) in columns:
            at_rate = [t * a + u * b + v * c + w * d + x * e + y * f + z * g for t, u, v, w, x, y, z in column]
            cost = list(map(add, cost, at_rate)) if len(columns) > 1 else at_rate
        if len(columns) == len(causes.paid):
            return Priced(cost, frozenset())
        return Priced(cost, frozenset(n for n in range(len(cost)) if not any(any(column[n]) for column, _ in columns)))

    def units(self, rate: Rate) -> tuple[int, ...] | None:
        """Units for one token of each class, and for a search; None where the model has no price."""
        try:
            return self._known[rate]
        except KeyError:
            price = self._prices.find(rate.model, rate.provider)
            rates = rates_over(price, rate.over, rate.speed)
            found = self._known[rate] = (*rates, search_units(price)) if rates is not None else None
            return found

    def thresholds(self, models: Iterable[tuple[str, str | None]]) -> tuple[int, ...]:
        """The context sizes at which the price of any of these models changes: fewer rates than all there are."""
        prices = (self._prices.find(model, provider) for model, provider in models)
        return tuple(sorted({size for price in prices if price is not None for size in price.thresholds}))

    def by_harness(self, rates: Iterable[Rate]) -> list[str]:
        """The models among these whose cost is the harness's figure, as reports name them."""
        stated = {rate for rate in rates if self._is_stated(rate)}
        return sorted({shown_model(self._prices, rate.model, rate.provider) for rate in stated})

    def _is_stated(self, rate: Rate) -> bool:
        return self._prices.find(rate.model, rate.provider) is None and self.units(rate) is not None

    def unpriced(self, rates: Iterable[Rate]) -> list[str]:
        """The models among these that have no price, as reports name them."""
        lacking = {rate for rate in rates if self.units(rate) is None}
        return sorted({shown_model(self._prices, rate.model, rate.provider) for rate in lacking})
