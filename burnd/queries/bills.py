"""The bills of a session's rails as a tree: tokens by rate, and their exact prices."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from operator import add, mul, sub
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from burnd.attribution import Branch, Cause, Explained, nest
from burnd.attribution.causes import Causes, Selected, explain
from burnd.attribution.rail import CauseOrigin
from burnd.attribution.rail_entries import RailEntries, RailName, load
from burnd.attribution.rates import CLASSES, Rate, Spent
from burnd.pricing import UNITS_PER_USD, PriceTable, rates_over, search_units
from burnd.queries.tally import shown_model, usage
from burnd.queries.view import View
from burnd.records import Turn

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


Group = TypeVar("Group")


class Item(msgspec.Struct, frozen=True, gc=False):
    """A cause and what it cost."""

    cause: Cause
    cost: Cost


class Bill:
    """What a rail paid for; `below` are the bills of the rails that it started."""

    def __init__(self, rail: RailName, explained: Explained, below: list[Bill], costing: Costing) -> None:
        self.rail = rail
        self.explained = explained
        self.below = below
        self._priced = costing.each(explained.causes)
        self.own = self._total()
        self.whole: Cost = total([self.own, *(bill.whole for bill in below)])

    def dearest(self, most: int, but: AbstractSet[int] = frozenset()) -> list[Item]:
        """So many of its causes without some of them, the dearest first; else in the order in which they began.

        What has no price goes by its tokens, behind what has one.
        """
        units, unpriced = self._priced
        if unpriced:
            order = sorted(range(len(units)), key=lambda n: (-units[n], -sum(self._tokens(n))))
        else:
            order = sorted(range(len(units)), key=units.__getitem__, reverse=True)
        return [self.item(n) for n in islice((n for n in order if n not in but), most)]

    def item(self, n: int) -> Item:
        """The n-th of its causes."""
        units, unpriced = self._priced
        return Item(self.explained.causes[n], Cost(self._tokens(n), units[n], n not in unpriced))

    def count_priced(self, but: AbstractSet[int]) -> int:
        """How many of its causes have a price, without some of them."""
        units, unpriced = self._priced
        return len(units) - len(unpriced | but)

    def _tokens(self, n: int) -> tuple[int, ...]:
        columns = self.explained.causes.paid.values()
        return tuple(map(sum, zip(*(column[n] for column in columns), strict=True)))

    def _total(self) -> Cost:
        columns = self.explained.causes.paid.values()
        by_class = zip(*(map(sum, zip(*column, strict=True)) for column in columns), strict=True)
        units, unpriced = self._priced
        return Cost(tuple(map(sum, by_class)), sum(units), len(unpriced) < len(units)) if units else Cost()

    def grouped(self, name: Callable[[CauseOrigin], Group]) -> dict[Group, tuple[int, Cost]]:
        """How many causes there are of each name that `name` gives them, and what these cost together."""
        numbers: dict[Group, list[int]] = {}
        for n, origin in enumerate(self.explained.causes.origins()):
            numbers.setdefault(name(origin), []).append(n)
        units, unpriced = self._priced
        return {
            group: (
                len(some),
                Cost(
                    tuple(map(sum, zip(*map(self._tokens, some), strict=True))),
                    sum(units[n] for n in some),
                    not unpriced.issuperset(some),
                ),
            )
            for group, some in numbers.items()
        }

    def started(self) -> dict[int, list[Bill]]:
        """The rails that its causes started, by the number of the cause."""
        if not self.below:
            return {}
        found: dict[str | None, list[Bill]] = {}
        for bill in self.below:
            found.setdefault(bill.explained.started_by, []).append(bill)
        numbers = dict(self.explained.causes.calls())
        return {numbers[call_id]: bills for call_id, bills in found.items() if call_id is not None}

    def every(self) -> Iterator[Bill]:
        """This one and all below it, each before those that it started."""
        waiting = [self]
        while waiting:
            bill = waiting.pop()
            yield bill
            waiting += reversed(bill.below)


class Explaining:
    """Explains the rails of sessions at the prices of a view."""

    def __init__(self, view: View, ledger: Path) -> None:
        self._db: sqlite3.Connection = view.db
        self._ledger = ledger
        self.costing = Costing(view.prices)

    def rails(self, sessions: Iterable[int], first: int) -> list[RailEntries]:
        """All their rails, those of the session `first` before the others'."""
        return sorted(load(self._db, self._ledger, sessions), key=lambda rail: rail.session != first)

    def bills(self, rails: Sequence[RailEntries], selected: Selected | None = None) -> list[Bill]:
        """What was paid for in the selected turns. A rail whose call is not known stands for itself."""
        by_name = {(rail.session_id, rail.rail_id): rail for rail in rails}
        models = {(turn.model, turn.provider) for rail in rails for turn in rail.turns}
        thresholds = self.costing.thresholds(models)
        roots = nest([explain(rail.entries, thresholds, selected) for rail in rails])
        made: dict[int, Bill] = {}
        for branch in reversed(list(_every(roots))):
            rail = by_name[branch.explained.session_id, branch.explained.rail_id]
            below = [made.pop(id(one)) for one in branch.below]
            made[id(branch)] = Bill(rail, branch.explained, below, self.costing)
        return [made[id(root)] for root in roots]


def _every(roots: Sequence[Branch]) -> Iterator[Branch]:
    waiting = list(reversed(roots))
    while waiting:
        branch = waiting.pop()
        yield branch
        waiting += reversed(branch.below)


def billed(turns: Iterable[Turn]) -> int:
    """How many of them count: those without any usage do not."""
    return sum(turn.quality != "empty" for turn in turns)
