"""The user's models.dev.json: what it overrides, and how its mistakes are named."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from burnd.pricing import PriceFileError, PriceTable, usd_per_million
from burnd.pricing.pricefile import read_listing


def table(tmp_path: Path, content: Any) -> PriceTable:
    file = tmp_path / "models.dev.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return PriceTable.load(str(file))


def partial(provider: str, model: str, **cost: Any) -> dict[str, Any]:
    return {provider: {"models": {model: {"cost": cost}}}}


def input_price(prices: PriceTable, model: str, provider: str | None = None) -> float | None:
    price = prices.find(model, provider)
    return float(usd_per_million(price.rates().input)) if price else None


def test_without_the_file_the_snapshot_applies(tmp_path: Path) -> None:
    prices = PriceTable.load(str(tmp_path / "models.dev.json"))
    assert input_price(prices, "claude-opus-5") == 5
    assert prices.as_of == "2026-09-28"


def test_a_part_of_a_list_prices_a_new_model(tmp_path: Path) -> None:
    prices = table(tmp_path, partial("anthropic", "claude-haiku-5-5", input=4, output=20))
    assert input_price(prices, "claude-haiku-5-5") == 4
    assert input_price(prices, "claude-haiku-5-5[1m]") == 4
    assert input_price(prices, "claude-opus-5") == 5


def test_a_gateway_of_your_own_prices_no_makers_model(tmp_path: Path) -> None:
    """A gateway's price applies to its own requests only."""
    prices = table(tmp_path, partial("our-gateway", "claude-opus-5", input=999, output=999))
    assert input_price(prices, "claude-opus-5") == 5
    assert input_price(prices, "claude-opus-5", "our-gateway") == 999


@pytest.mark.parametrize(("maker", "model"), [("xiaomi", "mimo-v2.5-pro"), ("stepfun", "step-3.5-flash")])
def test_a_maker_that_only_the_users_list_has(tmp_path: Path, maker: str, model: str) -> None:
    """A plain name has its maker's price, even for makers unknown to the shipped list."""
    prices = table(tmp_path, partial(maker, model, input=2, output=3) | partial("openrouter", model, input=9, output=9))
    assert input_price(prices, model) == input_price(prices, f"{maker}/{model}") == 2


def test_the_whole_list_as_published(tmp_path: Path) -> None:
    whole = {
        "_about": "a remark",
        "anthropic": {
            "id": "anthropic",
            "name": "Anthropic",
            "env": ["ANTHROPIC_API_KEY"],
            "models": {
                "claude-opus-5": {
                    "id": "claude-opus-5",
                    "name": "Claude Opus 5",
                    "cost": {"input": 6, "output": 30, "input_audio": 1, "tiers": None},
                    "limit": {"context": 1_000_000, "output": 64_000},
                },
                "claude-with-no-price": {"id": "claude-with-no-price", "limit": {}},
            },
        },
        "empty": {"models": {}},
    }
    prices = table(tmp_path, whole)
    assert input_price(prices, "claude-opus-5") == 6
    assert input_price(prices, "claude-with-no-price") is None
    assert input_price(prices, "claude-3-opus-20240229") == 15


@pytest.mark.parametrize("spelling", ["claude-sonnet-4-5", "claude-sonnet-4.5", "claude-sonnet-4-5-20250929"])
def test_a_users_price_holds_for_every_spelling(tmp_path: Path, spelling: str) -> None:
    prices = table(tmp_path, partial("anthropic", spelling, input=9, output=9))
    for asked in ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4.5"):
        assert input_price(prices, asked) == 9
    assert input_price(prices, "anthropic/claude-sonnet-4.5", "openrouter") == 3


def test_a_users_price_leaves_a_dated_model_of_another_price_alone(tmp_path: Path) -> None:
    prices = table(tmp_path, partial("openai", "gpt-4o", input=2, output=8))
    assert input_price(prices, "gpt-4o") == 2
    assert input_price(prices, "gpt-4o-2024-08-06") == 2
    assert input_price(prices, "gpt-4o-2024-05-13") == 5


def test_groups_of_one_provider_are_one(tmp_path: Path) -> None:
    """However the provider is written, none of its models is lost."""
    own = partial("anthropic", "claude-opus-5", input=50, output=1) | partial("ANTHROPIC", "house", input=7, output=1)
    prices = table(tmp_path, own)
    assert (input_price(prices, "claude-opus-5"), input_price(prices, "house")) == (50, 7)


def test_a_provider_of_ones_own(tmp_path: Path) -> None:
    """A model of no known family has the user's price, also in logs without a provider, such as Claude Code's."""
    own = partial("my-gateway", "fast-model", input=1, output=2) | partial("ollama", "qwen3:8b", input=0, output=0)
    prices = table(tmp_path, own)
    assert input_price(prices, "fast-model", "my-gateway") == 1
    assert input_price(prices, "my-gateway/fast-model") == 1
    assert input_price(prices, "fast-model") == 1
    assert input_price(prices, "qwen3:8b", "ollama") == 0
    two = own | partial("another", "fast-model", input=4, output=2)
    assert input_price(table(tmp_path, two), "fast-model") is None


def test_an_unknown_name_under_a_maker_needs_no_provider(tmp_path: Path) -> None:
    prices = table(tmp_path, partial("anthropic", "house-model", input=1, output=2))
    assert input_price(prices, "house-model") == 1


def test_decimals_are_read_exactly(tmp_path: Path) -> None:
    prices = table(tmp_path, partial("openai", "gpt-x", input=0.1, output=0.049999999999999996))
    price = prices.find("gpt-x")
    assert price is not None
    assert price.rates()[:2] == (100_000_000, 50_000_000)


@pytest.mark.parametrize(
    ("content", "model", "key", "reason"),
    [
        (partial("a", "m", output=1), "a/m", "cost.input", "is missing"),
        (partial("a", "m", input=1), "a/m", "cost.output", "is missing"),
        (partial("a", "m", input=-1, output=1), "a/m", "cost.input", "between 0"),
        (partial("a", "m", input=1, output=1e9), "a/m", "cost.output", "between 0"),
        (partial("a", "m", input=1, output=1e-9), "a/m", "cost.output", "must be 0 or at least 0.0000001"),
        (partial("a", "m", input="1", output=1), "a/m", "cost.input", "must be a number"),
        (partial("a", "m", input=True, output=1), "a/m", "cost.input", "must be a number"),
        (partial("a", "m", input=1, output=1, cache_read=-1), "a/m", "cost.cache_read", "between 0"),
        (partial("a", "m", input=1, output=1, tiers={}), None, None, None),
        (partial("a", "m", input=1, output=1, tiers={"x": 1}), "a/m", "cost.tiers", "must be a list"),
        (partial("a", "m", input=1, output=1, tiers=[{}]), "a/m", "cost.tiers[0].tier", "must be an object"),
        (
            partial("a", "m", input=1, output=1, tiers=[{"tier": {"type": "hour", "size": 3}}]),
            "a/m",
            "cost.tiers[0].tier.type",
            "must be",
        ),
        (
            partial("a", "m", input=1, output=1, tiers=[{"tier": {"size": 1.5}}]),
            "a/m",
            "cost.tiers[0].tier.size",
            "whole number",
        ),
        (
            partial("a", "m", input=1, output=1, tiers=[{"tier": {"size": 1}}, {"tier": {"size": 1}}]),
            "a/m",
            "cost.tiers",
            "same size",
        ),
        (
            partial("a", "m", input=1, output=1, context_over_200k={"input": -2}),
            "a/m",
            "cost.context_over_200k.input",
            "between 0",
        ),
        ({"a": {"models": {"m": {"cost": 3}}}}, "a/m", "cost", "must be an object"),
        ({"a": {"models": {"m": 3}}}, "a/m", None, "must be an object"),
        ({"a": {"models": []}}, "a", "models", "must be an object"),
        ({"a": {"m": {}}}, "a", None, 'no "models"'),
        ({"a": 3}, "a", None, "must be an object"),
        ([], None, None, "must be an object"),
        ('{"a":{"models":{"m":{"cost":{"input":NaN,"output":1}}}}}', None, None, "NaN"),
        ('{"a":{"models":{"m":{"cost":{"input":1e999999,"output":1}}}}}', "a/m", "cost.input", "between 0"),
        ("{", None, None, "not JSON"),
        ("[" * 100_000, None, None, "not JSON"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, content: Any, model: str | None, key: str | None, reason: str | None
) -> None:
    """The error names file, model, key and reason."""
    if reason is None:
        table(tmp_path, content)
        return
    with pytest.raises(PriceFileError, match=r"models\.dev\.json") as caught:
        table(tmp_path, content)
    assert reason in caught.value.reason
    assert caught.value.key == key
    assert model is None or caught.value.model == model
    for part in (model, key, reason):
        assert part is None or part in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PriceFileError, match="cannot be read"):
        PriceTable.load(str(tmp_path))


def test_text_that_is_not_utf_8() -> None:
    with pytest.raises(PriceFileError, match="not JSON"):
        read_listing(b'{"a":"\xff"}', "models.dev.json")


def test_loading_is_quick() -> None:
    """The daemon loads prices at start and again whenever the file changes."""

    def seconds() -> float:
        start = time.process_time()
        PriceTable.load().find("claude-opus-5")
        return time.process_time() - start

    assert min(seconds() for _ in range(5)) < 0.1
