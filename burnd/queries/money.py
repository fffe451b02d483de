"""Money: the classes of turns with their prices, sums of turns and of causes, and their exact cost."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import add, attrgetter, mul, sub
from typing import Any, NamedTuple

import msgspec

from burnd.attribution.causes import Causes
from burnd.attribution.rates import CLASSES, Rate, Spent, Sums
from burnd.index.sums import MEASURES
from burnd.pricing import UNITS_PER_USD, Price, PriceTable, Rates, rates_over, search_units
from burnd.pricing.names import parse
from burnd.queries.view import SqlRow, View

_DATE = re.compile(r"[-@]20\d\d-?\d\d-?\d\d$")
_BEDROCK = re.compile(r"(?:[a-z-]+\.)?[a-z0-9]+\.([a-z].*?)(?:-v\d+)?(?::\d+)?")
_SUFFIXES = ("-latest", "@latest", "@default")
_CACHED_NAMES = 1024
_CACHED_CLASSES = 32_768  # each turn priced by its harness has one
_PARTIALS, _EMPTIES, _EDITS = map(MEASURES.index, ("partials", "empties", "edits"))
_ZEROS: Sequence[int] = (0,) * len(MEASURES)


class TurnClass(NamedTuple):
    """`model` and `provider` are display names; `logged` is the model's name in the log."""

    id: int
    source: str
    logged: str
    model: str
    provider: str | None
    terms: str | None
    tier: int
    is_open: bool
    is_unlogged: bool
    price: Price | None
    sizes: tuple[int, ...]  # context sizes that are distinguished for this model
    own_rates: Rates | None  # units per token for contexts of this class
    search_units: int  # for a web search
    is_stated: bool  # its cost is the harness's figure, since no list has a price

    def rates(self, tier: int | None = None) -> Rates | None:
        """Units per token for contexts over `tier` tokens, by default for the contexts of this class."""
        return self.own_rates if tier is None else rates_over(self.price, tier, self.terms)

    def units(self, tier: int | None, counts: Sequence[int]) -> int | None:
        """None without a price."""
        rates = self.own_rates if tier is None else self.rates(tier)
        if rates is None:
            return None
        _, i, o, r, read, five, hour, searches = counts[:8]
        a, b, c, d, e, f = rates
        return i * a + o * b + r * c + read * d + five * e + hour * f + searches * self.search_units


TurnClasses = Mapping[int, TurnClass]  # by number


def classes_of(view: View) -> TurnClasses:
    return {row[0]: _class(view.prices, *row) for row in view.rows(_CLASSES)}


@lru_cache(_CACHED_CLASSES)
def _class(
    prices: PriceTable,
    number: int,
    source: str,
    model: str,
    provider: str | None,
    terms: str | None,
    tier: int,
    is_open: int,
    is_unlogged: int,
    sizes: str | None,
) -> TurnClass:
    price = prices.find(model, provider)
    rates = rates_over(price, tier, terms)
    return TurnClass(
        id=number,
        source=source,
        logged=model,
        model=shown_model(prices, model, provider),
        provider=shown_provider(prices, model, provider),
        terms=terms,
        tier=tier,
        is_open=bool(is_open),
        is_unlogged=bool(is_unlogged),
        price=price,
        sizes=msgspec.json.decode(sizes, type=tuple[int, ...]) if sizes is not None else (),
        own_rates=rates,
        search_units=search_units(price),
        is_stated=price is None and rates is not None,
    )


@lru_cache(_CACHED_NAMES)
def shown_model(prices: PriceTable, model: str, provider: str | None = None) -> str:
    """The plain name of a model from the price list, else the name in the log.

    `anthropic/claude-sonnet-4-5`, `claude-sonnet-4-5-20250929` and Bedrock's form are all `claude-sonnet-4-5`. The date
    stays if the plain name means another date or has another price.
    """
    price = prices.find(model, provider)
    name = parse(price.model, ()) if price else None
    if price is None or name is None:
        return model
    plain = prices.find(f"{name.stem}:{name.tag}" if name.tag else name.stem)
    plain_name = parse(plain.model, ()) if plain else None
    if plain is None or plain_name is None or (plain_name.stem, plain_name.tag) != (name.stem, name.tag):
        return _undated(price.model)
    dated = prices.find(f"{name.stem}-{name.date}") if name.date else None
    if dated is not None:
        is_another = plain_name.date != name.date if plain_name.date else dated.standard != plain.standard
        if is_another:
            return dated.model
    return _undated(plain.model)


@lru_cache(_CACHED_NAMES)
def shown_provider(prices: PriceTable, model: str, provider: str | None) -> str | None:
    """The provider in the log, by its name in the price list; else the maker in the price list."""
    if provider:
        return next(iter(prices.searched_providers(model, provider)), provider.strip().lower())
    price = prices.find(model)
    return price.provider if price else None


def _undated(listed: str) -> str:
    """A listed name without seller, region and date."""
    name = listed.rpartition("/")[2]
    bedrock = _BEDROCK.fullmatch(name)
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return _DATE.sub("", bedrock[1] if bedrock else name)


_CLASSES = """
SELECT c.id, s.name, m.name, p.name, f.name, c.tier, c.open, c.unlogged, t.sizes FROM classes c
JOIN names s ON s.id = c.source JOIN names m ON m.id = c.model LEFT JOIN names p ON p.id = c.provider
LEFT JOIN names f ON f.id = c.terms LEFT JOIN tiers t ON t.model = c.model AND t.provider = c.provider
"""


SumRow = tuple[SqlRow, int, Any, Sequence[int]]  # keys, class, an extra column, counts in the order of `MEASURES`
_ADDED = ("units", "open", "unpriced", "harness_turns", "harness_units")


class Tally:
    """A running sum of turns. `counts` are in the order of `MEASURES`; `units` is the cost of priced turns, in 10^-15
    USD; `harness_units` is the part of it from figures of harnesses, for models without a list price.
    """

    __slots__ = (*_ADDED, "counts")

    def __init__(self) -> None:
        self.counts: Sequence[int] = _ZEROS
        self.units = self.open = self.unpriced = self.harness_turns = self.harness_units = 0

    def add(self, turn_class: TurnClass, tier: int | None, counts: Sequence[int]) -> None:
        # Most sums of a long report are of one row, which need not be copied.
        self.counts = counts if self.counts is _ZEROS else [*map(add, self.counts, counts)]
        if turn_class.is_open:
            self.open += counts[0] - counts[_EMPTIES]
        units = turn_class.units(tier, counts)
        if units is None:
            self.unpriced += counts[0] - counts[_EMPTIES]
            return
        self.units += units
        if turn_class.is_stated:
            self.harness_units += units
            self.harness_turns += counts[0] - counts[_EMPTIES]

    @classmethod
    def over(cls, tallies: Collection[Tally]) -> Tally:
        """Sums tallies by column, since there may be one per session."""
        whole = cls()
        for name in _ADDED:
            setattr(whole, name, sum(map(attrgetter(name), tallies)))
        # Reports without quality read fewer measures, so the lengths may differ.
        whole.counts = [*map(sum, zip(*(tally.counts for tally in tallies), strict=False))] or _ZEROS
        return whole

    def merge(self, other: Tally) -> None:
        self.counts = [*map(add, self.counts, other.counts)]
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def turns(self) -> int:
        return self.counts[0] - self.counts[_EMPTIES]

    @property
    def tokens(self) -> Sequence[int]:
        """In the order of `USAGE_FIELDS`."""
        return self.counts[1:7]

    @property
    def partial(self) -> int:
        """Turns, or requests without a response, whose tokens are a minimum."""
        return self.counts[_PARTIALS]

    @property
    def empty(self) -> int:
        return self.counts[_EMPTIES]

    @property
    def edits(self) -> int:
        return self.counts[_EDITS]

    @property
    def one_shots(self) -> int:
        return self.counts[_EDITS + 1]

    @property
    def prompts(self) -> int:
        return self.counts[_EDITS + 2]

    @property
    def one_shot_prompts(self) -> int:
        return self.counts[_EDITS + 3]

    @property
    def priced(self) -> int:
        return self.turns - self.unpriced

    @property
    def has_price(self) -> bool:
        return bool(self.units) or self.turns > self.unpriced

    @property
    def cost_usd(self) -> float | None:
        """None without a price. Dividing integers gives the nearest float."""
        return self.units / UNITS_PER_USD if self.has_price else None

    @property
    def cache_hit_rate(self) -> float | None:
        """The share of the context from the cache; None without context."""
        fresh, _, _, read, five, hour = self.tokens
        context = fresh + read + five + hour
        return read / context if context else None

    @property
    def is_nothing(self) -> bool:
        return not (self.counts[0] or any(self.tokens) or self.units)

    def answer(self) -> dict[str, Any]:
        return {
            "turns": self.turns,
            "openTurns": self.open,
            "partialTurns": self.counts[_PARTIALS],
            "unpricedTurns": self.unpriced,
            "emptyTurns": self.counts[_EMPTIES],
            "usage": usage(self.tokens),
            "costUsd": self.cost_usd,
            "harnessTurns": self.harness_turns,
            "harnessCostUsd": self.harness_units / UNITS_PER_USD if self.harness_turns else None,
            "cacheHitRate": self.cache_hit_rate,
        }


def tallied(
    rows: Iterable[SumRow], classes: TurnClasses, label: Callable[[SqlRow, TurnClass], Any]
) -> dict[Any, Tally]:
    """By label, without unlogged usage."""
    tallies: defaultdict[Any, Tally] = defaultdict(Tally)
    for keys, number, tier, counts in rows:
        turn_class = classes[number]
        if not turn_class.is_unlogged:
            tallies[label(keys, turn_class)].add(turn_class, tier, counts)
    return tallies


def whole_of(rows: Iterable[SumRow], classes: TurnClasses) -> Tally:
    return tallied(rows, classes, lambda *_: None).get(None) or Tally()


def unlogged_of(rows: Iterable[SumRow], classes: TurnClasses) -> dict[str, Any] | None:
    """Unlogged usage, which is not in the totals: from running totals of harnesses, and requests without a response.

    Tokens and cost of these `requests` are a minimum.
    """
    beyond, models = Tally(), set()
    for _, number, tier, counts in rows:
        if classes[number].is_unlogged:
            beyond.add(classes[number], tier, counts)
            models.add(classes[number].model)
    if beyond.is_nothing and not beyond.partial:
        return None
    return {
        "usage": usage(beyond.tokens),
        "costUsd": beyond.cost_usd,
        "models": sorted(filter(None, models)),
        "requests": beyond.partial,
    }


def usage(tokens: Sequence[int]) -> dict[str, int]:
    """Tokens by the names in `protocol.USAGE_FIELDS`; written out, since reports have thousands of rows."""
    fresh, output, reasoning, read, five, hour = tokens
    return {
        "input": fresh,
        "output": output,
        "reasoning": reasoning,
        "cacheRead": read,
        "cacheCreate5m": five,
        "cacheCreate1h": hour,
    }


class CauseSum:
    """A running sum over causes. `units` counts priced tokens, in 10^-15 USD."""

    __slots__ = ("calls", "entered", "errors", "is_priced", "tokens", "units")

    def __init__(self) -> None:
        self.tokens = [0] * 6
        self.entered = self.calls = self.errors = self.units = 0
        self.is_priced = False

    @classmethod
    def of(cls, tally: Tally) -> CauseSum:
        total = cls()
        total.tokens, total.units = [*tally.tokens], tally.units
        total.is_priced = tally.cost_usd is not None
        return total

    def add(self, turn_class: TurnClass, sums: Sequence[int]) -> None:
        """`sums` are in the order of `attribution.Sums`."""
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
        rates = turn_class.own_rates
        if rates is not None:
            a, b, c, d, e, f = rates
            self.units += i * a + o * b + r * c + read * d + five * e + hour * f + searches * turn_class.search_units
            self.is_priced = True

    def merge(self, other: CauseSum) -> None:
        self._combine(other, add)
        self.is_priced = self.is_priced or other.is_priced

    def subtract(self, other: CauseSum) -> None:
        """A rest of zero units counts as unpriced."""
        self._combine(other, sub)
        self.is_priced = self.units != 0

    def _combine(self, other: CauseSum, combine: Callable[[int, int], int]) -> None:
        self.tokens = [*map(combine, self.tokens, other.tokens)]
        for name in ("entered", "calls", "errors", "units"):
            setattr(self, name, combine(getattr(self, name), getattr(other, name)))

    def __bool__(self) -> bool:
        return any(self.tokens) or self.units != 0

    @property
    def ride_tokens(self) -> int:
        """Tokens paid for context after the turn in which it entered."""
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


_CONTEXT = Sums(input=1, cache_read=1, cache_create_5m=1, cache_create_1h=1)


def rates_of(rank: str, classes: TurnClasses) -> dict[int, Sums]:
    """By class, the weight of each field of `attribution.Sums` in `CauseSum.weight`."""
    if rank == "tokens":
        return dict.fromkeys(classes, _CONTEXT._replace(output=1, reasoning=1))
    if rank == "rides":
        return dict.fromkeys(classes, _CONTEXT._replace(entered=-1))
    return {
        number: Sums(*one.own_rates, searches=one.search_units) if one.own_rates else Sums()
        for number, one in classes.items()
    }


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
        """None without a price."""
        return self.units / whole if whole and self.is_priced else None

    def answer(self) -> dict[str, Any]:
        searches = {"searches": self.tokens[-1]} if self.tokens[-1] else {}
        return {"usage": usage(self.tokens[:_TOKENS]), **searches, "costUsd": self.usd}


def total(costs: Sequence[Cost]) -> Cost:
    if not costs:
        return Cost()
    tokens = tuple(map(sum, zip(*(cost.tokens for cost in costs), strict=True)))
    return Cost(tokens, sum(cost.units for cost in costs), any(cost.is_priced for cost in costs))


class CausePrices(NamedTuple):
    """In the order of causes; `unpriced` are the numbers of those without a price."""

    units: list[int]
    unpriced: frozenset[int]


class Pricer:
    """Looks up each rate once."""

    def __init__(self, prices: PriceTable) -> None:
        self._prices = prices
        self._units: dict[Rate, tuple[int, ...] | None] = {}

    def of(self, spent: Mapping[Rate, Spent]) -> Cost:
        if len(spent) == 1:  # the usual case
            ((rate, tokens),) = spent.items()
            units = self.units(rate)
            return Cost(tokens, sum(map(mul, tokens, units)), True) if units is not None else Cost(tokens)
        priced = [(tokens, units) for rate, tokens in spent.items() if (units := self.units(rate)) is not None]
        summed = tuple(map(sum, zip(*spent.values(), strict=True))) or Cost().tokens
        return Cost(summed, sum(sum(map(mul, *pair)) for pair in priced), bool(priced))

    def each(self, causes: Causes) -> CausePrices:
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
        """For one token of each class and for one search; None if the model has no price."""
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
        """Models whose cost is the harness's own figure."""
        return self._names(
            rate
            for rate in rates
            if self._prices.find(rate.model, rate.provider) is None and self.units(rate) is not None
        )

    def unpriced(self, rates: Iterable[Rate]) -> list[str]:
        return self._names(rate for rate in rates if self.units(rate) is None)

    def _names(self, rates: Iterable[Rate]) -> list[str]:
        return sorted({shown_model(self._prices, rate.model, rate.provider) for rate in rates})
