"""Billing terms of a request, which decide its price together with model and context size.

Terms are words in one text: `fast`, `batch`, `flex`, `us`, and `=N`, the harness's own figure in units per token, which
counts only if no list has a price.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from burnd.pricing.cost import SEARCH_UNITS, Price, Rates, Tokens, cost

FAST: Final = "fast"
US_ONLY: Final = "us"

# Factors of the token price. Priority tiers have no word: Anthropic bills them at list price, and Codex calls OpenAI's
# fast.
_FACTORS: Final = {FAST: (2, 1), "batch": (1, 2), "flex": (1, 2), US_ONLY: (11, 10)}
_CACHE_SIZE: Final = 4096


class Terms(NamedTuple):
    """The factor that prices are multiplied by, as a fraction, and the harness's own figure or 0."""

    times: int = 1
    over: int = 1
    figure: int = 0


def terms_text(speed: str | None, service_tier: str | None, geo: str | None, figure: int = 0) -> str | None:
    """The terms of a request as text; None for the usual ones."""
    if not (speed or service_tier or geo or figure):
        return None
    words = [word for word in (speed, service_tier, geo) if word in _FACTORS]
    return " ".join([*words, f"={figure}"] if figure else words) or None


def with_figure(text: str | None, figure: int) -> str | None:
    """The same terms with another figure, or with none."""
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
    """Units per token for a stated cost; 0 without tokens or cost."""
    return (units + tokens // 2) // tokens if tokens > 0 and units > 0 else 0


def rates_over(price: Price | None, size: int, terms: str | None) -> Rates | None:
    """Units per token in contexts above `size` tokens; the harness's figure if there is no price."""
    billed = terms_of(terms)
    if price is None:
        return Rates(*[billed.figure] * 6) if billed.figure else None
    return _at_terms(price.rates(price.tier_of(size + 1 if size else 0)), billed)


def _at_terms(rates: Rates, billed: Terms) -> Rates:
    if billed.times == billed.over:
        return rates
    return Rates(*(rate * billed.times // billed.over for rate in rates))


def search_units(price: Price | None) -> int:
    """Units for a web search; 0 without a price, since a harness's figure includes its searches."""
    return SEARCH_UNITS if price is not None else 0


def turn_cost(price: Price, tokens: Tokens, terms: str | None = None, searches: int = 0) -> int:
    """Units for a turn, web searches included."""
    rates = price.rates(price.tier_of(tokens.gross_input))
    return cost(tokens, _at_terms(rates, terms_of(terms))) + searches * SEARCH_UNITS


def stated_cost(tokens: Tokens, terms: str | None) -> int | None:
    """Units for a turn by its harness's figure; None without one."""
    rates = rates_over(None, 0, terms)
    return None if rates is None else cost(tokens, rates)
