"""Costs of tokens; every amount was computed by hand from published prices."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.pricing import (
    SEARCH_UNITS,
    UNITS_PER_USD,
    Price,
    PriceTable,
    Rates,
    Tokens,
    cost,
    terms_text,
    turn_cost,
    usd,
)
from burnd.pricing.cost import Card, price_of
from burnd.pricing.table import SNAPSHOT

TABLE = PriceTable.load()
MILLION = 1_000_000


def price(model: str, provider: str | None = None) -> Price:
    found = TABLE.find(model, provider)
    assert found is not None
    return found


def per_million(rates: Rates) -> list[str]:
    return [format(Decimal(rate).scaleb(-9).normalize(), "f") for rate in rates]


@pytest.mark.parametrize(
    ("model", "provider", "expected"),
    # input, output, reasoning, cache read, 5-minute write, 1-hour write
    [
        ("claude-opus-4-5-20251101", None, "5 25 25 0.5 6.25 10"),
        ("claude-opus-4-1-20250805", None, "15 75 75 1.5 18.75 30"),
        ("claude-sonnet-4-5-20250929", None, "3 15 15 0.3 3.75 6"),
        ("claude-haiku-4-5-20251001", None, "1 5 5 0.1 1.25 2"),
        ("claude-opus-5", None, "5 25 25 0.5 6.25 10"),
        ("claude-sonnet-5", None, "2 10 10 0.2 2.5 4"),
        ("claude-3-haiku-20240307", None, "0.25 1.25 1.25 0.03 0.3 0.5"),
        ("claude-3-haiku", "amazon-bedrock", "0.25 1.25 1.25 0.025 0.3125 0.5"),  # lists no cache prices
        ("claude-sonnet-4.5", "github-copilot", "3 15 15 0.3 3.75 6"),  # Anthropic's, from any provider
        ("gpt-5", "openai", "1.25 10 10 0.125 1.25 1.25"),  # lists no write price
        ("gpt-5-pro", None, "15 120 120 15 15 15"),  # lists no cache prices
        ("gpt-5.6", None, "4 20 20 0.4 5 5"),
        ("gemini-2.5-pro", None, "1.25 10 10 0.125 1.25 1.25"),
        ("qwen3-32b", None, "0.7 2.8 8.4 0.7 0.7 0.7"),  # lists a reasoning price
        ("glm-5.2", None, "1.4 4.4 4.4 0.26 0 0"),  # lists a write price of nothing
        (
            "google/gemma-3-12b-it",
            "openrouter",
            "0.05 0.15 0.15 0.05 0.05 0.05",
        ),  # binary noise in the list
        ("gemma-3-27b-it", "google", "0 0 0 0 0 0"),
    ],
)
def test_rates(model: str, provider: str | None, expected: str) -> None:
    assert per_million(price(model, provider).rates()) == expected.split()


@pytest.mark.parametrize(
    ("model", "tokens", "expected"),
    [
        ("claude-opus-4-5-20251101", Tokens(MILLION, MILLION, 0, MILLION, MILLION, MILLION), "46.75"),
        ("claude-opus-4-1-20250805", Tokens(12, 850, 0, 48_211, 1_900, 0), "0.1718715"),
        ("claude-sonnet-4-5-20250929", Tokens(7, 312, 0, 15_000, 0, 1_200), "0.0164010"),
        ("claude-sonnet-4-6", Tokens(38, 38, 0, 3_800, 380, 0), "0.003249"),
        ("claude-haiku-4-5-20251001", Tokens(3, 4, 0, 1, 0, 0), "0.0000231"),
        ("claude-3-5-haiku-20241022", Tokens(1_000, 1_000, 0, 1_000, 1_000, 1_000), "0.00748"),
        ("gpt-5", Tokens(1_000, 200, 300, 9_000, 0, 0), "0.007375"),
        ("deepseek-chat", Tokens(1, 0, 0, 1, 0, 0), "0.0000001428"),
        ("glm-4.7-flash", Tokens(MILLION, MILLION, MILLION, MILLION, MILLION, MILLION), "0"),
    ],
)
def test_cost_of_a_turn(model: str, tokens: Tokens, expected: str) -> None:
    assert usd(turn_cost(price(model), tokens)) == Decimal(expected)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (Tokens(input=200_000), "0.25"),
        (Tokens(input=200_001), "0.5000025"),
        (Tokens(input=1, cache_read=199_999), "0.025001125"),
        (Tokens(input=1, cache_read=200_000), "0.0500025"),
        (Tokens(input=100_000, cache_create_5m=50_000, cache_create_1h=50_001), "0.5000025"),
        (Tokens(input=200_000, output=9_000, reasoning=9_000), "0.43"),  # output does not count for the tier
        (Tokens(input=200_001, output=1_000, reasoning=1_000), "0.5300025"),
    ],
)
def test_the_tier_begins_over_its_size(tokens: Tokens, expected: str) -> None:
    """gemini-2.5-pro costs $1.25/$10 up to 200,000 tokens of gross input and $2.50/$15 over that."""
    assert usd(turn_cost(price("gemini-2.5-pro", "google"), tokens)) == Decimal(expected)


def test_tiers_beat_context_over_200k() -> None:
    """gpt-5.4 lists both; its own tier at 272,000 is the one that counts."""
    gpt = price("gpt-5.4", "openai")
    assert gpt.thresholds == (272_000,)
    assert [gpt.tier_of(gross) for gross in (0, 200_001, 272_000, 272_001)] == [0, 0, 0, 1]


def test_context_over_200k_alone() -> None:
    gemini = price("gemini-3-pro-preview", "google-vertex")
    assert gemini.thresholds == (200_000,)
    assert per_million(gemini.rates(1)) == ["4", "18", "18", "0.4", "4", "4"]


def test_several_tiers() -> None:
    qwen = price("qwen/qwen3-coder-plus", "openrouter")
    assert [qwen.tier_of(gross) for gross in (32_000, 32_001, 128_000, 128_001)] == [0, 1, 1, 2]
    assert [per_million(qwen.rates(tier))[0] for tier in range(3)] == ["0.65", "1.17", "1.95"]


def test_an_hours_write_costs_twice_the_input_of_its_tier() -> None:
    sonnet = price("anthropic/claude-sonnet-4.5", "openrouter")
    assert per_million(sonnet.rates(1)) == ["6", "22.5", "22.5", "0.6", "7.5", "12"]


TIERED: Card = {
    "input": "2",
    "output": "8",
    "cache_read": "0.2",
    "cache_write": "2.4",
    "tiers": [{"over": 100, "input": "4", "output": "16"}],
}


@pytest.mark.parametrize(
    ("card", "is_anthropic", "expected"),
    [
        (TIERED, False, "4 16 16 0.2 2.4 2.4"),
        (TIERED, True, "4 16 16 0.4 5 8"),
        ({**TIERED, "reasoning": "8"}, False, "4 16 16 0.2 2.4 2.4"),
        ({**TIERED, "reasoning": "9"}, False, "4 16 9 0.2 2.4 2.4"),
        ({**TIERED, "tiers": [{"over": 100, "output": "9"}]}, False, "2 9 9 0.2 2.4 2.4"),
        ({"input": "2", "output": "8", "tiers": [{"over": 1, "input": "3"}]}, False, "3 8 8 3 3 3"),
        ({**TIERED, "tiers": [{"over": 1, "reasoning": "7", "cache_read": "0"}]}, False, "2 8 7 0 2.4 2.4"),
    ],
)
def test_what_a_tier_leaves_out(card: Card, is_anthropic: bool, expected: str) -> None:
    tiered = price_of("provider", "model", card, is_anthropic=is_anthropic)
    assert per_million(tiered.rates(1)) == expected.split()


def test_fast_mode_doubles_the_tokens_but_not_the_searches() -> None:
    tokens = Tokens(71, 171, 0, 7_100, 710, 60)
    opus = price("claude-opus-5")
    standard = turn_cost(opus, tokens)
    assert turn_cost(opus, tokens, "fast", searches=3) == 2 * standard + 3 * SEARCH_UNITS


@pytest.mark.parametrize(
    ("given", "times"),
    [
        (("fast", None, None), Decimal(2)),
        ((None, "batch", None), Decimal("0.5")),
        ((None, "flex", None), Decimal("0.5")),
        ((None, "priority", None), Decimal(1)),
        ((None, None, "us"), Decimal("1.1")),
        (("fast", "batch", "us"), Decimal("1.1")),
        (("turbo", "standard", "eu"), Decimal(1)),
    ],
)
def test_terms_multiply_the_tokens_but_not_the_searches(
    given: tuple[str | None, str | None, str | None], times: Decimal
) -> None:
    tokens, opus = Tokens(71, 171, 0, 7_100, 710, 60), price("claude-opus-5")
    assert turn_cost(opus, tokens, terms_text(*given), searches=3) - 3 * SEARCH_UNITS == times * turn_cost(opus, tokens)


def test_a_harness_figure_counts_only_where_no_list_has_a_price() -> None:
    tokens, terms = Tokens(input=30, output=70), terms_text(None, None, None, figure=12)
    assert TABLE.turn_usd("a-model-of-no-list", None, tokens, terms=terms, searches=5) == 1200e-15
    assert TABLE.turn_usd("a-model-of-no-list", None, tokens, terms=None, searches=5) is None
    listed = TABLE.turn_usd("claude-opus-5", None, tokens, terms=None, searches=0)
    assert TABLE.turn_usd("claude-opus-5", None, tokens, terms=terms, searches=0) == listed


def test_a_web_search_costs_a_cent() -> None:
    assert usd(turn_cost(price("claude-opus-5"), Tokens(), searches=1)) == Decimal("0.01")
    assert SEARCH_UNITS * 1_000 == 10 * UNITS_PER_USD


def test_every_listed_price_is_whole_in_units() -> None:
    """No rate, and no multiple that the rules take of one, is ever rounded."""
    with open(SNAPSHOT, "rb") as file:
        providers = json.load(file)["providers"]
    names = ("input", "output", "reasoning", "cache_read", "cache_write")
    for models in providers.values():
        for card in models.values():
            for prices in (card, *card.get("tiers", ())):
                for price in (prices[name] for name in names if name in prices):
                    assert Decimal(price).scaleb(7) % 1 == 0
                    assert Decimal(price) >= 0


def test_usd_is_exact_however_large() -> None:
    assert str(usd(10**40 + 1)) == "1" + "0" * 25 + ".000000000000001"
    assert str(usd(1)) == "1E-15"
    assert usd(0) == 0


counts = st.integers(min_value=0, max_value=10**9)
turns = st.builds(Tokens, counts, counts, counts, counts, counts, counts)
prices = st.sampled_from(
    [
        price("claude-opus-5"),
        price("gemini-2.5-pro"),
        price("qwen/qwen3-coder-plus", "openrouter"),
        price("gpt-5"),
    ]
)


def total(many: list[Tokens]) -> Tokens:
    return Tokens(*map(sum, zip(Tokens(), *many, strict=True)))


@given(prices, st.lists(turns), st.booleans())
def test_turns_of_one_tier_may_be_summed_before_pricing(price: Price, many: list[Tokens], fast: bool) -> None:
    for tier in range(len(price.standard)):
        rates = price.rates(tier, fast)
        assert cost(total(many), rates) == sum(cost(turn, rates) for turn in many)


@given(prices, st.lists(turns))
def test_sums_by_threshold_price_like_the_turns(price: Price, many: list[Tokens]) -> None:
    """Tokens summed by any superset of the price's thresholds cost what their turns cost one by one."""
    thresholds = (0, *TABLE.thresholds())
    sums: dict[int, list[Tokens]] = {}
    for turn in many:
        threshold = max((t for t in thresholds if t < turn.gross_input), default=0)
        sums.setdefault(threshold, []).append(turn)
    rolled_up = sum(cost(total(same), price.rates(price.tier_of(t + 1))) for t, same in sums.items())
    assert rolled_up == sum(turn_cost(price, turn) for turn in many)


@given(prices, turns, st.integers(min_value=0, max_value=1000))
def test_cost_is_linear_and_never_negative(price: Price, turn: Tokens, times: int) -> None:
    rates = price.rates()
    once = cost(turn, rates)
    assert once >= 0
    assert cost(total([turn] * times), rates) == once * times


@given(prices, counts)
def test_a_tier_holds_over_its_threshold_and_not_at_it(price: Price, gross: int) -> None:
    tier = price.tier_of(gross)
    assert all(gross > threshold for threshold in price.thresholds[:tier])
    assert all(gross <= threshold for threshold in price.thresholds[tier:])


@given(st.integers())
def test_usd_keeps_every_unit(units: int) -> None:
    numerator, denominator = usd(units).as_integer_ratio()
    assert numerator * UNITS_PER_USD == units * denominator
