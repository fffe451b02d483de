"""Exact cost: rates by tier and billing terms as whole numbers, times tokens."""

from __future__ import annotations

from bisect import bisect_left
from decimal import Context, Decimal
from functools import lru_cache
from operator import mul
from typing import Final, NamedTuple, TypedDict

# `pricefile` rounds prices to seven decimals per million tokens, so every rate is a whole number of units per token.
UNITS_PER_USD = 10**15
SEARCH_UNITS = UNITS_PER_USD // 100

_RATE_DIGITS = 9  # one USD per million tokens is 10^9 units per token
_EXACT = Context(prec=1000)

SixInts = tuple[int, int, int, int, int, int]


class Tokens(NamedTuple):
    """Billed tokens of a turn, or of turns with the same tier and speed."""

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
    """Tier 0 is the base price, tier n applies above `thresholds[n - 1]` gross tokens."""

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
    """Works for sums of turns too."""
    return sum(map(mul, tokens, rates))


def usd(units: int) -> Decimal:
    return Decimal(units).scaleb(-15, _EXACT)


def usd_per_million(rate: int) -> Decimal:
    return Decimal(rate).scaleb(-_RATE_DIGITS, _EXACT)


def price_of(provider: str, model: str, card: Card, *, is_anthropic: bool) -> Price:
    tiers = sorted(card.get("tiers", ()), key=lambda tier: tier["over"])
    standard = (_rates(card, card, is_anthropic), *(_rates(tier, card, is_anthropic) for tier in tiers))
    return Price(
        provider=provider,
        model=model,
        thresholds=tuple(tier["over"] for tier in tiers),
        standard=standard,
        fast=tuple(Rates(*(2 * rate for rate in rates)) for rates in standard),
        retired_after=card.get("retired_after"),
    )


def _rates(tier: Card | TierCard, base: Card, is_anthropic: bool) -> Rates:
    """The rates of a tier, with defaults from the base.

    Two defaults come from the tier: reasoning that the base bills as output, and Anthropic's cache prices, which are
    multiples of the input price: 0.1 to read, 1.25 to write for five minutes, 2 for an hour. Other providers bill a
    cached token without a price as input.
    """
    price, output = _units(tier.get("input", base["input"])), _units(tier.get("output", base["output"]))
    reasoning = output
    if "reasoning" in tier:
        reasoning = _units(tier["reasoning"])
    elif "reasoning" in base and base["reasoning"] != base["output"]:
        reasoning = _units(base["reasoning"])
    read, write = tier.get("cache_read"), tier.get("cache_write")
    if is_anthropic:
        default_read, default_write = price // 10, price * 5 // 4
    else:
        read, write = read or base.get("cache_read"), write or base.get("cache_write")
        default_read = default_write = price
    write_5m = default_write if write is None else _units(write)
    return Rates(
        input=price,
        output=output,
        reasoning=reasoning,
        cache_read=default_read if read is None else _units(read),
        cache_create_5m=write_5m,
        cache_create_1h=price * 2 if is_anthropic else write_5m,
    )


def _units(price: str) -> int:
    return int(Decimal(price).scaleb(_RATE_DIGITS))


# Billing terms are words in one text: `fast`, `batch`, `flex`, `us`, and `=N`, the harness's own figure in units per
# token, for models without a listed price.
FAST: Final = "fast"
US_ONLY: Final = "us"

# Of the token price. Anthropic bills priority tiers at list price, and Codex calls OpenAI's fast.
_FACTORS: Final = {FAST: (2, 1), "batch": (1, 2), "flex": (1, 2), US_ONLY: (11, 10)}
_CACHE_SIZE: Final = 4096


class Terms(NamedTuple):
    """The factor of prices, as a fraction, and the harness's own figure or 0."""

    times: int = 1
    over: int = 1
    figure: int = 0


def terms_text(speed: str | None, service_tier: str | None, geo: str | None, figure: int = 0) -> str | None:
    """None for the usual terms."""
    return with_figure(" ".join([word for word in (speed, service_tier, geo) if word in _FACTORS]), figure)


def with_figure(text: str | None, figure: int) -> str | None:
    words = [word for word in (text or "").split() if not word.startswith("=")]
    return " ".join([*words, f"={figure}"] if figure else words) or None


@lru_cache(_CACHE_SIZE)
def terms_of(text: str | None) -> Terms:
    times, over, figure = 1, 1, 0
    for word in (text or "").split():
        if word.startswith("="):
            figure = int(word[1:])
        elif word in _FACTORS:
            times, over = times * _FACTORS[word][0], over * _FACTORS[word][1]
    return Terms(times, over, figure)


def figure_of(units: int, tokens: int) -> int:
    """Units per token; 0 without tokens or cost."""
    return (units + tokens // 2) // tokens if tokens > 0 and units > 0 else 0


def rates_over(price: Price | None, size: int, terms: str | None) -> Rates | None:
    """In contexts above `size` tokens; the harness's figure if there is no price."""
    billed = terms_of(terms)
    if price is None:
        return Rates(*[billed.figure] * 6) if billed.figure else None
    return _at_terms(price.rates(price.tier_of(size + 1 if size else 0)), billed)


def _at_terms(rates: Rates, billed: Terms) -> Rates:
    if billed.times == billed.over:
        return rates
    return Rates(*(rate * billed.times // billed.over for rate in rates))


def search_units(price: Price | None) -> int:
    """0 without a price, since a harness's figure includes its searches."""
    return SEARCH_UNITS if price is not None else 0


def turn_cost(price: Price, tokens: Tokens, terms: str | None = None, searches: int = 0) -> int:
    """With web searches."""
    rates = price.rates(price.tier_of(tokens.gross_input))
    return cost(tokens, _at_terms(rates, terms_of(terms))) + searches * SEARCH_UNITS


def stated_cost(tokens: Tokens, terms: str | None) -> int | None:
    """By the harness's figure; None without one."""
    rates = rates_over(None, 0, terms)
    return None if rates is None else cost(tokens, rates)
