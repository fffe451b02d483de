"""Price of a model: rates by tier, their list, or the reason for their absence."""

from __future__ import annotations

from typing import Any

import pytest

from burnd.contract.reports import PricingParams
from burnd.pricing import PriceTable
from burnd.pricing.pricefile import read_user_lists
from burnd.queries.spending import price_of_model
from burnd.queries.view import Refusal, View

SHIPPED = PriceTable.load()
OWN = b"""{
  "anthropic": {"models": {"claude-sonnet-4-5": {"cost": {"input": 1, "output": 2}},
                           "claude-opus-5": {"cost": {"input": 9, "output": 9}, "fetched": "2026-11-01"}}},
  "house": {"models": {"our-model": {"cost": {"input": 0, "output": 0}}}}
}"""


def shown(model: str, provider: str | None = None, prices: PriceTable = SHIPPED) -> dict[str, Any]:
    view = View(None, prices, 0)  # type: ignore[arg-type]
    return price_of_model(view, PricingParams(model=model, provider=provider))


def test_rates_of_every_kind() -> None:
    answer = shown("claude-sonnet-4-5-20250929")
    assert answer["priced"] is True
    assert answer["found"] == {
        "provider": "anthropic",
        "model": "claude-sonnet-4-5-20250929",
        "list": "shipped",
        "asOf": SHIPPED.as_of,
        "retiredAfter": None,
    }
    assert answer["tiers"] == [
        {
            "over": 0,
            "input": 3,
            "output": 15,
            "reasoning": 15,
            "cacheRead": 0.3,
            "cacheCreate5m": 3.75,
            "cacheCreate1h": 6,
        }
    ]
    assert answer["fast"][0]["input"] == 6
    assert answer["searchUsd"] == 0.01


def test_tiers() -> None:
    """A model that costs more for a long context has a row for each size."""
    answer = shown("gemini-2.5-pro")
    assert [(tier["over"], tier["input"], tier["output"]) for tier in answer["tiers"]] == [
        (0, 1.25, 10),
        (200_000, 2.5, 15),
    ]


def test_a_retired_model_says_since_when() -> None:
    assert shown("claude-3-opus-20240229")["found"]["retiredAfter"] == "2026-06-09"


def test_where_it_was_looked_for() -> None:
    """The provider, the provider named in the model, and the maker."""
    assert shown("claude-opus-4.1", "github-copilot")["lookedIn"] == ["github-copilot", "anthropic"]
    assert shown("us.anthropic.claude-opus-5")["lookedIn"] == ["amazon-bedrock", "anthropic"]


@pytest.mark.parametrize(
    ("model", "provider", "reason", "sold_by", "near"),
    [
        ("claude-haiku-5-5", None, "no list has a model of this name", [], "claude-haiku-4-5"),
        ("claude-sonet-4-5", None, "no list has a model of this name", [], "claude-sonnet-4-5"),
        ("qwen3-8b", "ollama", "it ran on your own machine", ["alibaba", "openrouter"], "qwen3-14b"),
        ("claude-haiku-5-5", "openrouter", "neither its provider nor its maker lists it", [], "claude-haiku-4-5"),
    ],
)
def test_a_missing_price_has_its_reason(
    model: str, provider: str | None, reason: str, sold_by: list[str], near: str
) -> None:
    answer = shown(model, provider)
    assert (answer["priced"], answer["reason"], answer["soldBy"]) == (False, reason, sold_by)
    assert near in answer["near"]
    assert "tiers" not in answer


def test_who_sells_what_its_maker_does_not() -> None:
    """A name that only resellers list can be priced once one of them is named."""
    answer = shown("gpt-oss-120b")
    assert answer["reason"] == "its maker does not sell it, and no provider is named"
    sellers = answer["soldBy"]
    assert "groq" in sellers
    assert all(shown("gpt-oss-120b", seller)["priced"] for seller in sellers)


def test_your_own_list_is_named_as_such() -> None:
    prices = SHIPPED.under(read_user_lists(OWN, "own"))
    assert shown("claude-sonnet-4-5", prices=prices)["found"]["list"] == "yours"
    fetched = shown("claude-opus-5", prices=prices)["found"]
    assert (fetched["list"], fetched["asOf"]) == ("fetched", "2026-11-01")
    assert shown("claude-haiku-4-5", prices=prices)["found"]["list"] == "shipped"
    free = shown("our-model", "house", prices)
    assert (free["priced"], free["tiers"][0]["input"]) == (True, 0)


@pytest.mark.parametrize("model", ["", "  "])
def test_no_name_is_refused(model: str) -> None:
    with pytest.raises(Refusal):
        shown(model)


@pytest.mark.parametrize("model", ["x" * 5000, "\0", "/", "arn:aws:bedrock:::application-inference-profile/x", "é" * 9])
def test_any_name_is_answered(model: str) -> None:
    assert shown(model)["priced"] is False
