"""Bills: the tokens that each cause of a rail paid, by rate, and their exact prices."""

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
from burnd.attribution.blocks import Kind
from burnd.attribution.causes import Causes, Selected, explain
from burnd.attribution.rail_entries import RailEntries, RailName, load
from burnd.attribution.rates import CLASSES, Rate, Spent
from burnd.pricing import UNITS_PER_USD, PriceTable, rates_over, search_units
from burnd.queries.tally import shown_model, usage
from burnd.queries.view import View
from burnd.records import Turn

_TOKENS = CLASSES - 1  # the last class counts searches


class Cost(msgspec.Struct, frozen=True, gc=False):
    """Tokens by class, searches last, and the cost of those that have a price, in units of 10^-15 USD."""

    tokens: tuple[int, ...] = (0,) * CLASSES
    units: int = 0
    is_priced: bool = False  # at least partly

    @property
    def usd(self) -> float | None:
        return self.units / UNITS_PER_USD if self.is_priced else None

    def share(self, whole: int) -> float | None:
        """This cost divided by a whole in units; None without a price."""
        return self.units / whole if whole and self.is_priced else None

    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = {"usage": usage(self.tokens[:_TOKENS])}
        if self.tokens[-1]:
            answer["searches"] = self.tokens[-1]
        answer["costUsd"] = self.usd
        return answer


def total(costs: Sequence[Cost]) -> Cost:
    """Adds up costs in one pass."""
    if not costs:
        return Cost()
    tokens = tuple(map(sum, zip(*(cost.tokens for cost in costs), strict=True)))
    return Cost(tokens, sum(cost.units for cost in costs), any(cost.is_priced for cost in costs))


def without(whole: Cost, parts: Sequence[Cost], *, is_priced: bool) -> Cost:
    """The whole minus some of its parts."""
    part = total(parts)
    tokens = tuple(map(sub, whole.tokens, part.tokens))
    return Cost(tokens, whole.units - part.units, is_priced)


class CausePrices(NamedTuple):
    """The units that each cause cost, in the order of causes, and the numbers of those without a price."""

    units: list[int]
    unpriced: frozenset[int]


class Pricer:
    """Prices tokens; looks up each rate once."""

    def __init__(self, prices: PriceTable) -> None:
        self._prices = prices
        self._units: dict[Rate, tuple[int, ...] | None] = {}

    def of(self, spent: Mapping[Rate, Spent]) -> Cost:
        """The cost of tokens at any number of rates."""
        if len(spent) == 1:  # the usual case
            ((rate, tokens),) = spent.items()
            units = self.units(rate)
            return Cost(tokens, sum(map(mul, tokens, units)), True) if units is not None else Cost(tokens)
        priced = [(tokens, units) for rate, tokens in spent.items() if (units := self.units(rate)) is not None]
        summed = tuple(map(sum, zip(*spent.values(), strict=True))) or Cost().tokens
        return Cost(summed, sum(sum(map(mul, *pair)) for pair in priced), bool(priced))

    def each(self, causes: Causes) -> CausePrices:
        """The cost of each cause."""
        columns = [(column, units) for rate, column in causes.paid.items() if (units := self.units(rate)) is not None]
        cost = [0] * len(causes)
        for column, (a, b, c, d, e, f, g) in columns:
            at_rate = [t * a + u * b + v * c + w * d + x * e + y * f + z * g for t, u, v, w, x, y, z in column]
            cost = list(map(add, cost, at_rate)) if len(columns) > 1 else at_rate
        if len(columns) == len(causes.paid):
            return CausePrices(cost, frozenset())
        return CausePrices(
            cost, frozenset(n for n in range(len(cost)) if not any(any(column[n]) for column, _ in columns))
        )

    def units(self, rate: Rate) -> tuple[int, ...] | None:
        """Units for one token of each class and for one search; None if the model has no price."""
        if rate not in self._units:
            price = self._prices.find(rate.model, rate.provider)
            rates = rates_over(price, rate.over, rate.speed)
            self._units[rate] = (*rates, search_units(price)) if rates is not None else None
        return self._units[rate]

    def thresholds(self, models: Iterable[tuple[str, str | None]]) -> tuple[int, ...]:
        """Context sizes at which the price of any of these models changes."""
        prices = (self._prices.find(model, provider) for model, provider in models)
        return tuple(sorted({size for price in prices if price is not None for size in price.thresholds}))

    def by_harness(self, rates: Iterable[Rate]) -> list[str]:
        """Report names of the models whose cost is the harness's own figure."""
        stated = {rate for rate in rates if self._is_stated(rate)}
        return sorted({shown_model(self._prices, rate.model, rate.provider) for rate in stated})

    def _is_stated(self, rate: Rate) -> bool:
        return self._prices.find(rate.model, rate.provider) is None and self.units(rate) is not None

    def unpriced(self, rates: Iterable[Rate]) -> list[str]:
        """Report names of the models without a price."""
        lacking = {rate for rate in rates if self.units(rate) is None}
        return sorted({shown_model(self._prices, rate.model, rate.provider) for rate in lacking})


Group = TypeVar("Group")


class Item(msgspec.Struct, frozen=True, gc=False):
    """A cause and its cost."""

    cause: Cause
    cost: Cost


class Bill:
    """The causes that a rail paid for; `below` are the bills of the rails it started."""

    def __init__(self, rail: RailName, explained: Explained, below: list[Bill], pricer: Pricer) -> None:
        self.rail = rail
        self.explained = explained
        self.below = below
        self._priced = pricer.each(explained.causes)
        self.own = self._total()
        self.whole: Cost = total([self.own, *(bill.whole for bill in below)])

    def most_expensive(self, most: int, but: AbstractSet[int] = frozenset()) -> list[Item]:
        """The most expensive causes except those in `but`; equal ones in order of appearance, unpriced ones last by
        tokens.
        """
        units, unpriced = self._priced
        if unpriced:
            order = sorted(range(len(units)), key=lambda n: (-units[n], -sum(self._tokens(n))))
        else:
            order = sorted(range(len(units)), key=units.__getitem__, reverse=True)
        return [self.item(n) for n in islice((n for n in order if n not in but), most)]

    def item(self, n: int) -> Item:
        """The cause with this number."""
        units, unpriced = self._priced
        return Item(self.explained.causes[n], Cost(self._tokens(n), units[n], n not in unpriced))

    def count_priced(self, but: AbstractSet[int]) -> int:
        """The number of causes with a price, except those in `but`."""
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

    def grouped(self, name: Callable[[Kind, str | None, str | None], Group]) -> dict[Group, tuple[int, Cost]]:
        """Groups causes by `name` of their kind, tool and target; the number and cost of each group."""
        alike: dict[tuple[Kind, str | None, str | None], list[int]] = {}
        for n, origin in enumerate(self.explained.causes.origins()):
            alike.setdefault((origin.kind, origin.tool, origin.target), []).append(n)
        numbers: dict[Group, list[int]] = {}
        for described, some in alike.items():
            numbers.setdefault(name(*described), []).extend(some)
        units, unpriced = self._priced
        columns = self.explained.causes.paid.values()
        return {
            group: (
                len(some),
                Cost(
                    tuple(map(sum, zip(*(column[n] for column in columns for n in some), strict=True))),
                    sum(units[n] for n in some),
                    not unpriced.issuperset(some),
                ),
            )
            for group, some in numbers.items()
        }

    def started(self) -> dict[int, list[Bill]]:
        """Bills of the rails that causes started, by number of the cause."""
        if not self.below:
            return {}
        by_call: dict[str | None, list[Bill]] = {}
        for bill in self.below:
            by_call.setdefault(bill.explained.started_by, []).append(bill)
        numbers = dict(self.explained.causes.calls())
        return {numbers[call_id]: bills for call_id, bills in by_call.items() if call_id is not None}

    def every(self) -> Iterator[Bill]:
        """Yields this bill and all below it, parents first."""
        stack = [self]
        while stack:
            bill = stack.pop()
            yield bill
            stack += reversed(bill.below)


class BillReader:
    """Makes the bills of sessions at the prices of a view."""

    def __init__(self, view: View, ledger: Path) -> None:
        self._db: sqlite3.Connection = view.db
        self._ledger = ledger
        self.pricer = Pricer(view.prices)

    def rails(self, sessions: Iterable[int], first: int) -> list[RailEntries]:
        """All rails of these sessions, those of the session `first` before the others."""
        return sorted(load(self._db, self._ledger, sessions), key=lambda rail: rail.session != first)

    def bills(self, rails: Sequence[RailEntries], selected: Selected | None = None) -> list[Bill]:
        """The bills of the selected turns. A rail is a root if the call that started it is unknown."""
        by_name = {(rail.session_id, rail.rail_id): rail for rail in rails}
        models = {(turn.model, turn.provider) for rail in rails for turn in rail.turns}
        thresholds = self.pricer.thresholds(models)
        roots = nest([explain(rail.entries, thresholds, selected) for rail in rails])
        bills: dict[int, Bill] = {}
        for branch in reversed(list(_every(roots))):
            rail = by_name[branch.explained.session_id, branch.explained.rail_id]
            below = [bills.pop(id(one)) for one in branch.below]
            bills[id(branch)] = Bill(rail, branch.explained, below, self.pricer)
        return [bills[id(root)] for root in roots]


def _every(roots: Sequence[Branch]) -> Iterator[Branch]:
    stack = list(reversed(roots))
    while stack:
        branch = stack.pop()
        yield branch
        stack += reversed(branch.below)


def billed(turns: Iterable[Turn]) -> int:
    """The number of turns with usage."""
    return sum(turn.quality != "empty" for turn in turns)
