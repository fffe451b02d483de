"""Exact cost: a model's rates by tier and speed as whole numbers, and their product with tokens.

Amounts are integers of 10^-15 USD. `pricefile` rounds prices to seven decimals per million tokens, so every rate and
every multiple of one is a whole number of units per token, and sums stay exact.
"""

from __future__ import annotations

from bisect import bisect_left
from decimal import Context, Decimal
from operator import mul
from typing import NamedTuple, TypedDict

UNITS_PER_USD = 10**15
SEARCH_UNITS = UNITS_PER_USD // 100

_RATE_DIGITS = 9  # one USD per million tokens is 10^9 units per token
_EXACT = Context(prec=1000)

SixInts = tuple[int, int, int, int, int, int]


class Tokens(NamedTuple):
    """Billed tokens of a turn, or of turns with the same tier and speed. Each token is in one field."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_create_5m: int = 0
    cache_create_1h: int = 0

    @property
    def gross_input(self) -> int:
        """All tokens of the context; they decide the tier."""
        return self.input + self.cache_read + self.cache_create_5m + self.cache_create_1h


class Rates(NamedTuple):
    """Units per token, with the fields of `Tokens`."""

    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_create_5m: int
    cache_create_1h: int


class TierCard(TypedDict, total=False):
    """Prices of turns with a gross input above `over` tokens."""

    over: int
    input: str
    output: str
    reasoning: str
    cache_read: str
    cache_write: str


class Card(TypedDict, total=False):
    """A model in a price list: USD per million tokens, as decimal strings."""

    input: str
    output: str
    reasoning: str
    cache_read: str
    cache_write: str
    tiers: list[TierCard]
    retired_after: str
    fetched: str


class Price(NamedTuple):
    """Rates of a model. Tier 0 is the base price, tier n applies above `thresholds[n - 1]` gross tokens."""

    provider: str
    model: str
    thresholds: tuple[int, ...]
    standard: tuple[Rates, ...]
    fast: tuple[Rates, ...]
    retired_after: str | None = None

    def tier_of(self, gross_input: int) -> int:
        return bisect_left(self.thresholds, gross_input)

    def rates(self, tier: int = 0, fast: bool = False) -> Rates:
        return (self.fast if fast else self.standard)[tier]


def cost(tokens: SixInts, rates: Rates) -> int:
    """Units for tokens of one tier and speed. Works for sums of turns too."""
    return sum(map(mul, tokens, rates))


def usd(units: int) -> Decimal:
    return Decimal(units).scaleb(-15, _EXACT)


def usd_per_million(rate: int) -> Decimal:
    """A rate as price lists print it."""
    return Decimal(rate).scaleb(-_RATE_DIGITS, _EXACT)


def price_of(provider: str, model: str, card: Card, *, is_anthropic: bool) -> Price:
    tiers = sorted(card.get("tiers", ()), key=lambda tier: tier["over"])
    standard = (_base_rates(card, is_anthropic), *(_tier_rates(tier, card, is_anthropic) for tier in tiers))
    return Price(
        provider=provider,
        model=model,
        thresholds=tuple(tier["over"] for tier in tiers),
        standard=standard,
        fast=tuple(_doubled(rates) for rates in standard),
        retired_after=card.get("retired_after"),
    )


def _base_rates(card: Card, is_anthropic: bool) -> Rates:
    output = _units(card["output"])
    reasoning = _units(card["reasoning"]) if "reasoning" in card else output
    read, write = card.get("cache_read"), card.get("cache_write")
    return _with_cache(_units(card["input"]), output, reasoning, read, write, is_anthropic)


def _tier_rates(tier: TierCard, base: Card, is_anthropic: bool) -> Rates:
    """The rates of a tier, with defaults from the base.

    Two defaults come from the tier itself: reasoning that the base bills as output, and Anthropic's cache prices, which
    are multiples of the input price.
    """
    output = _units(tier.get("output", base["output"]))
    reasoning = output
    if "reasoning" in tier:
        reasoning = _units(tier["reasoning"])
    elif "reasoning" in base and base["reasoning"] != base["output"]:
        reasoning = _units(base["reasoning"])
    read, write = tier.get("cache_read"), tier.get("cache_write")
    if not is_anthropic:
        read, write = read or base.get("cache_read"), write or base.get("cache_write")
    return _with_cache(_units(tier.get("input", base["input"])), output, reasoning, read, write, is_anthropic)


def _with_cache(
    price: int, output: int, reasoning: int, read: str | None, write: str | None, is_anthropic: bool
) -> Rates:
    """Rates for the input price `price`, with defaults for missing cache prices.

    Anthropic publishes multiples of the input price: 0.1 to read, 1.25 to write for five minutes, 2 for an hour. Other
    providers bill a cached token without a price as input.
    """
    default_read = price // 10 if is_anthropic else price
    default_write = price * 5 // 4 if is_anthropic else price
    write_5m = default_write if write is None else _units(write)
    return Rates(
        input=price,
        output=output,
        reasoning=reasoning,
        cache_read=default_read if read is None else _units(read),
        cache_create_5m=write_5m,
        cache_create_1h=price * 2 if is_anthropic else write_5m,
    )


def _doubled(rates: Rates) -> Rates:
    return Rates(*(2 * rate for rate in rates))


def _units(price: str) -> int:
    return int(Decimal(price).scaleb(_RATE_DIGITS))
