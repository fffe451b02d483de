"""Tally: sums of turns by class with exact cost and cache share, and the price and names of each class."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import add, attrgetter
from typing import Any, NamedTuple

import msgspec

from burnd.index.sums import MEASURES
from burnd.pricing import UNITS_PER_USD, Price, PriceTable, Rates, rates_over, search_units
from burnd.pricing.names import parse
from burnd.queries.view import Row, View

_DATE = re.compile(r"[-@]20\d\d-?\d\d-?\d\d$")
_BEDROCK = re.compile(r"(?:[a-z-]+\.)?[a-z0-9]+\.([a-z].*?)(?:-v\d+)?(?::\d+)?")
_CACHED_NAMES = 1024
_CACHED_KINDS = 32_768  # each turn priced by its harness has one
_SUFFIXES = ("-latest", "@latest", "@default")
_PARTIALS, _EMPTIES, _EDITS = map(MEASURES.index, ("partials", "empties", "edits"))
_NOTHING: Sequence[int] = (0,) * len(MEASURES)


class Kind(NamedTuple):
    """A class of turns. `model` and `provider` are display names; `logged` is the model's name in the log."""

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
    is_stated: bool  # whether its cost is the harness's figure, since no list has a price

    def rates(self, tier: int | None = None) -> Rates | None:
        """Units per token for contexts over `tier` tokens, by default for the contexts of this class."""
        return self.own_rates if tier is None else rates_over(self.price, tier, self.terms)

    def units(self, tier: int | None, counts: Sequence[int]) -> int | None:
        """The cost of turns of this kind, counted as in `MEASURES`; None without a price."""
        rates = self.own_rates if tier is None else self.rates(tier)
        if rates is None:
            return None
        _, i, o, r, read, five, hour, searches = counts[:8]
        a, b, c, d, e, f = rates
        return i * a + o * b + r * c + read * d + five * e + hour * f + searches * self.search_units


class Kinds:
    """All classes by number."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.by_id = {kind.id: kind for kind in kinds}

    def __getitem__(self, number: int) -> Kind:
        return self.by_id[number]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self.by_id.values())


def kinds_of(view: View) -> Kinds:
    """The classes of turns in the index with their prices."""
    return Kinds(_kind(view.prices, *row) for row in view.rows(_KINDS))


@lru_cache(_CACHED_KINDS)
def _kind(
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
) -> Kind:
    price = prices.find(model, provider)
    rates = rates_over(price, tier, terms)
    return Kind(
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
    if dated is not None and _is_another(dated, name.date, plain, plain_name.date):
        return dated.model
    return _undated(plain.model)


def _is_another(dated: Price, date: str, plain: Price, plain_date: str) -> bool:
    """Whether a dated name is a different model from the plain one."""
    return plain_date != date if plain_date else dated.standard != plain.standard


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


_KINDS = """
SELECT c.id, s.name, m.name, p.name, f.name, c.tier, c.open, c.unlogged, t.sizes FROM classes c
JOIN names s ON s.id = c.source JOIN names m ON m.id = c.model LEFT JOIN names p ON p.id = c.provider
LEFT JOIN names f ON f.id = c.terms LEFT JOIN tiers t ON t.model = c.model AND t.provider = c.provider
"""


Parts = tuple[Row, int, Any, Sequence[int]]  # keys, class, an extra column, counts in the order of `MEASURES`
_ADDED = ("units", "open", "unpriced", "harness_turns", "harness_units")


class Tally:
    """A running sum of turns. `counts` are in the order of `MEASURES`; `units` is the cost of priced turns, in 10^-15
    USD; `harness_units` is the part of it from figures of harnesses, for models without a list price.
    """

    __slots__ = (*_ADDED, "counts")

    def __init__(self) -> None:
        self.counts: Sequence[int] = _NOTHING
        self.units = self.open = self.unpriced = self.harness_turns = self.harness_units = 0

    def add(self, kind: Kind, tier: int | None, counts: Sequence[int]) -> None:
        """Adds turns of one class."""
        # Most sums of a long report are of one row, which need not be copied.
        self.counts = counts if self.counts is _NOTHING else [*map(add, self.counts, counts)]
        if kind.is_open:
            self.open += counts[0] - counts[_EMPTIES]
        units = kind.units(tier, counts)
        if units is None:
            self.unpriced += counts[0] - counts[_EMPTIES]
            return
        self.units += units
        if kind.is_stated:
            self.harness_units += units
            self.harness_turns += counts[0] - counts[_EMPTIES]

    @classmethod
    def over(cls, tallies: Collection[Tally]) -> Tally:
        """Sums tallies by column, since there may be one per session."""
        whole = cls()
        for name in _ADDED:
            setattr(whole, name, sum(map(attrgetter(name), tallies)))
        # Reports without quality read fewer measures, so the lengths may differ.
        whole.counts = [*map(sum, zip(*(tally.counts for tally in tallies), strict=False))] or _NOTHING
        return whole

    def merge(self, other: Tally) -> None:
        self.counts = [*map(add, self.counts, other.counts)]
        self.units += other.units
        self.open += other.open
        self.unpriced += other.unpriced
        self.harness_turns += other.harness_turns
        self.harness_units += other.harness_units

    @property
    def turns(self) -> int:
        return self.counts[0] - self.counts[_EMPTIES]

    @property
    def tokens(self) -> Sequence[int]:
        """Tokens by kind, in the order of `USAGE_FIELDS`."""
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
        _, fresh, _, _, read, five, hour, *_ = self.counts
        context = fresh + read + five + hour
        return read / context if context else None

    @property
    def is_nothing(self) -> bool:
        return not (self.counts[0] or any(self.tokens) or self.units)

    def answer(self) -> dict[str, Any]:
        counts = self.counts
        empty = counts[_EMPTIES]
        turns, tokens = counts[0] - empty, counts[1:7]
        fresh, _, _, read, five, hour = tokens
        context = fresh + read + five + hour
        return {
            "turns": turns,
            "openTurns": self.open,
            "partialTurns": counts[_PARTIALS],
            "unpricedTurns": self.unpriced,
            "emptyTurns": empty,
            "usage": usage(tokens),
            "costUsd": self.units / UNITS_PER_USD if self.units or turns > self.unpriced else None,
            "harnessTurns": self.harness_turns,
            "harnessCostUsd": self.harness_units / UNITS_PER_USD if self.harness_turns else None,
            "cacheHitRate": read / context if context else None,
        }


def tallied(rows: Iterable[Parts], kinds: Kinds, label: Callable[[Row, Kind], Any]) -> dict[Any, Tally]:
    """Tallies by label, without unlogged usage."""
    tallies: defaultdict[Any, Tally] = defaultdict(Tally)
    by_id = kinds.by_id
    for keys, number, tier, counts in rows:
        kind = by_id[number]
        if not kind.is_unlogged:
            tallies[label(keys, kind)].add(kind, tier, counts)
    return tallies


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
