"""Maps model names in logs to the price list."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.pricing import Price, PriceTable, usd_per_million
from burnd.pricing.names import MAKERS, parse
from burnd.pricing.table import SNAPSHOT

TABLE = PriceTable.load()

with open(SNAPSHOT, "rb") as file:
    LISTED = [(provider, model) for provider, models in json.load(file)["providers"].items() for model in models]


def found(model: str, provider: str | None = None) -> str | None:
    price = TABLE.find(model, provider)
    return f"{price.provider} {price.model}" if price else None


def input_price(price: Price | None) -> Decimal | None:
    return usd_per_million(price.rates().input) if price else None


def test_exact_id() -> None:
    """Every id in the list is found as itself at the provider that lists it."""
    for provider, model in LISTED:
        assert found(model, provider) == f"{provider} {model}"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # a provider before a slash
        ("anthropic/claude-opus-5", "anthropic claude-opus-5"),
        ("openai/gpt-5", "openai gpt-5"),
        ("x-ai/grok-4.5", "xai grok-4.5"),
        ("z-ai/glm-5.2", "zai glm-5.2"),
        ("zai-org/GLM-5.2", "zai glm-5.2"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax MiniMax-M2.5"),
        ("gemini/gemini-2.5-pro", "google gemini-2.5-pro"),
        ("models/gemini-2.5-pro", "google gemini-2.5-pro"),
        ("openrouter/anthropic/claude-sonnet-4.5", "openrouter anthropic/claude-sonnet-4.5"),
        ("openrouter/owl-alpha", "openrouter openrouter/owl-alpha"),
        ("github-copilot/claude-opus-5", "github-copilot claude-opus-5"),
        ("accounts/fireworks/models/kimi-k3", "fireworks-ai accounts/fireworks/models/kimi-k3"),
        # a gateway before a slash, whatever it is called
        ("litellm/claude-sonnet-4-5", "anthropic claude-sonnet-4-5"),
        ("litellm/anthropic/claude-sonnet-4-5", "anthropic claude-sonnet-4-5"),
        ("our-proxy/deepseek/deepseek-chat", "deepseek deepseek-chat"),
        ("our-proxy/team/gpt-5", "openai gpt-5"),
        (
            "bedrock/converse/anthropic.claude-3-5-sonnet-20241022-v2:0",
            "amazon-bedrock anthropic.claude-3-5-sonnet-20241022-v2:0",
        ),
        # Bedrock: regions, versions, ARNs
        (
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "amazon-bedrock us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
        ("anthropic.claude-opus-5-v1:0", "amazon-bedrock anthropic.claude-opus-5"),
        ("eu.anthropic.claude-sonnet-4-5", "amazon-bedrock eu.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        (
            "apac.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "amazon-bedrock anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
        (
            "us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "amazon-bedrock anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
        ("global.anthropic.claude-opus-5", "amazon-bedrock global.anthropic.claude-opus-5"),
        ("us.anthropic.claude-opus-4-6-v1:0", "amazon-bedrock us.anthropic.claude-opus-4-6-v1"),
        ("us.anthropic.claude-opus-5-20270101-v1:0", "amazon-bedrock us.anthropic.claude-opus-5"),
        ("bedrock/us.anthropic.claude-opus-5", "amazon-bedrock us.anthropic.claude-opus-5"),
        ("us.anthropic.claude-3-sonnet-20240229-v1:0:28k", "anthropic claude-3-sonnet-20240229"),
        (
            "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-opus-5",
            "amazon-bedrock eu.anthropic.claude-opus-5",
        ),
        (
            "arn:aws-us-gov:bedrock:us-gov-west-1::foundation-model/anthropic.claude-haiku-4-5-20251001-v1:0",
            "amazon-bedrock anthropic.claude-haiku-4-5-20251001-v1:0",
        ),
        ("nova-lite", "amazon-bedrock amazon.nova-lite-v1:0"),
        # Vertex
        ("claude-sonnet-4-5@20250929", "google-vertex claude-sonnet-4-5@20250929"),
        ("claude-3-5-sonnet-v2@20241022", "google-vertex claude-3-5-sonnet@20241022"),
        ("claude-opus-5@default", "google-vertex claude-opus-5@default"),
        ("publishers/anthropic/models/claude-opus-5", "google-vertex claude-opus-5@default"),
        (
            "projects/p/locations/global/publishers/google/models/gemini-2.5-pro",
            "google-vertex gemini-2.5-pro",
        ),
        ("vertex_ai/claude-haiku-4-5@20251001", "google-vertex claude-haiku-4-5@20251001"),
        ("claude-3-haiku@20240307", "anthropic claude-3-haiku-20240307"),
        # a date on one side only
        ("gpt-5-2025-08-07", "openai gpt-5"),
        ("claude-sonnet-4-6-20260217", "anthropic claude-sonnet-4-6"),
        ("claude-opus-4-1-2025-08-05", "anthropic claude-opus-4-1-20250805"),
        ("claude-opus-4", "anthropic claude-opus-4-20250514"),
        ("claude-3-5-sonnet", "anthropic claude-3-5-sonnet-20241022"),
        # -latest, [1m], dots, case, blanks
        ("claude-sonnet-4-5-latest", "anthropic claude-sonnet-4-5"),
        ("claude-3-7-sonnet-latest", "anthropic claude-3-7-sonnet-20250219"),
        ("claude-3-5-haiku", "anthropic claude-3-5-haiku-latest"),
        ("mistral-large", "mistral mistral-large-latest"),
        ("claude-opus-4-6[1m]", "anthropic claude-opus-4-6"),
        ("claude-sonnet-4-5-20250929[1m]", "anthropic claude-sonnet-4-5-20250929"),
        ("claude-sonnet-4.5", "anthropic claude-sonnet-4-5"),
        ("gpt-5-1", "openai gpt-5.1"),
        ("Claude-Opus-4-5-20251101", "anthropic claude-opus-4-5-20251101"),
        ("minimax-m2.5", "minimax MiniMax-M2.5"),
        (" gpt-5 ", "openai gpt-5"),
        # a Claude's version before its name or behind it, as Anthropic wrote it itself in turn
        ("claude-4.5-sonnet", "anthropic claude-sonnet-4-5"),
        ("claude-4-opus", "anthropic claude-opus-4-20250514"),
        ("claude-4-5-opus-20251101", "anthropic claude-opus-4-5-20251101"),
        ("claude-sonnet-3.5", "anthropic claude-3-5-sonnet-20241022"),
        # a p between digits for the point
        ("accounts/fireworks/models/kimi-k2p6", "fireworks-ai accounts/fireworks/models/kimi-k2p6"),
        ("fireworks/kimi-k2.6", "fireworks-ai accounts/fireworks/models/kimi-k2p6"),
        ("kimi-k2p6", "moonshotai kimi-k2.6"),
        ("k2p5", "moonshotai kimi-k2.5"),
        ("k3[1m]", "moonshotai kimi-k3"),
        ("kimi/k3", "moonshotai kimi-k3"),
        # a maker before two dashes
        ("anthropic--claude-4.6-sonnet", "anthropic claude-sonnet-4-6"),
        ("anthropic/anthropic--claude-4.5-haiku", "anthropic claude-haiku-4-5"),
        # a variant after a colon is a separate model
        ("z-ai/glm-5.2:free", "openrouter z-ai/glm-5.2:free"),
        ("openrouter/qwen/qwen3-coder:exacto", "openrouter qwen/qwen3-coder:exacto"),
        # an unknown family with one maker
        ("text-embedding-3-small", "openai text-embedding-3-small"),
        ("openai/text-embedding-3-small", "openai text-embedding-3-small"),
        ("open-mixtral-8x7b", "mistral open-mixtral-8x7b"),
    ],
)
def test_spellings_without_a_provider(model: str, expected: str) -> None:
    assert found(model) == expected


@pytest.mark.parametrize(
    ("model", "provider", "expected"),
    [
        ("claude-sonnet-4-5", None, "anthropic claude-sonnet-4-5"),
        ("claude-sonnet-4-5", "anthropic", "anthropic claude-sonnet-4-5"),
        ("claude-sonnet-4-5", "opencode", "opencode claude-sonnet-4-5"),
        ("claude-sonnet-4.5", "github-copilot", "github-copilot claude-sonnet-4.5"),
        ("claude-sonnet-4-5-20250929", "github-copilot", "github-copilot claude-sonnet-4.5"),
        ("anthropic/claude-sonnet-4.5", "openrouter", "openrouter anthropic/claude-sonnet-4.5"),
        ("claude-sonnet-4-5", "openrouter", "openrouter anthropic/claude-sonnet-4.5"),
        (
            "claude-sonnet-4-5",
            "amazon-bedrock",
            "amazon-bedrock anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
        ("claude-opus-5", "google-vertex-anthropic", "google-vertex-anthropic claude-opus-5@default"),
        # a provider that does not list the model leaves it to the maker
        ("claude-opus-4.1", "github-copilot", "anthropic claude-opus-4-1"),
        ("claude-opus-5", "litellm", "anthropic claude-opus-5"),
        ("claude-opus-5", "openai", "anthropic claude-opus-5"),
        ("glm-5.2", "zhipuai", "zai glm-5.2"),
        ("kimi-k3", "moonshotai-cn", "moonshotai kimi-k3"),
        # a maker may resell another's model
        ("glm-5.2", None, "zai glm-5.2"),
        ("glm-5.2", "alibaba", "alibaba glm-5.2"),
        # other names of providers
        ("us.anthropic.claude-opus-5", "bedrock", "amazon-bedrock us.anthropic.claude-opus-5"),
        ("gemini-2.5-pro", "vertex_ai", "google-vertex gemini-2.5-pro"),
        ("gpt-5", "Azure_OpenAI", "azure gpt-5"),
        # the provider that served it is believed over the one the name is spelled like
        ("us.anthropic.claude-opus-5", "anthropic", "anthropic claude-opus-5"),
    ],
)
def test_maker_and_reseller(model: str, provider: str | None, expected: str) -> None:
    """A reseller's own listing prices what it served; everything else is priced by the maker."""
    assert found(model, provider) == expected


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-opus-5-6", None),
        ("claude-opus-5.6", "openrouter"),
        ("claude-opus-50", None),
        ("claude-opus", None),
        ("claude-opus-latest", None),
        ("claude", None),
        ("gpt-5-turbo", None),
        ("gpt-5.11", None),
        ("gpt-51", None),
        ("gpt", None),
        ("my-claude-opus-5", None),
        ("claude-opus-5-thinking", None),
        ("claude-4.5-sonnet-thinking", None),
        ("claude-4.6-haiku", None),
        ("somebody--claude-opus-5", None),
        ("openai/claude-opus-5", None),
        # two different dates, or two different versions, are two models
        ("claude-3-5-haiku-20991231", None),
        ("claude-3-7-sonnet-20250220", None),
        ("amazon.nova-lite-v2:0", None),
        ("claude-opus-5-20251399", None),
        # the paid model is not the free one, nor a local one
        ("anthropic/claude-opus-5:free", None),
        ("anthropic/claude-opus-5:free", "openrouter"),
        ("claude-opus-5:thinking", "openrouter"),
        ("qwen3:8b", None),
        ("qwen3-8b", "ollama"),
        ("gpt-oss-120b", "lmstudio"),
        ("deepseek-chat", "LM Studio"),
        ("deepseek-chat", "lm-studio"),
        ("deepseek-chat", "lm_studio"),
        ("ollama/deepseek/deepseek-chat", None),
        ("somebody/deepseek-chat", None),  # open weights: fine-tuned or served by others
        ("somebody/house-model", None),
        # only resellers have it, and none was named
        ("gpt-oss-120b", None),
        ("meta-llama/llama-3.3-70b-instruct", None),
        ("big-pickle", None),
        # names that do not say which model
        ("arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123", None),
        ("projects/p/locations/global/endpoints/123", None),
        ("<synthetic>", None),
        ("unknown", None),
        ("", None),
        ("-20250929", None),
        (":free", None),
        ("/", None),
        ("[1m]", None),
        ("claude-opus-5-" + "-v1:" * 100_000, None),
    ],
)
def test_unpriced(model: str, provider: str | None) -> None:
    """A similar name is not the model, and an unlisted name has no price."""
    assert TABLE.find(model, provider) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [("gpt-5", "gpt-5-mini"), ("gpt-5", "gpt-5-pro"), ("claude-opus-4", "claude-opus-4-5"), ("o1", "o1-pro")],
)
def test_neighbours_keep_their_own_price(one: str, other: str) -> None:
    assert input_price(TABLE.find(one)) != input_price(TABLE.find(other))


@pytest.mark.parametrize("suffix", ["-5", "-x", "5", "-mini-2", ".9", "-2512", "-20250101x", "-preview-2", "~"])
def test_no_listed_name_lends_its_price_to_a_longer_one(suffix: str) -> None:
    for provider, model in LISTED:
        assert found(model + suffix, provider) != f"{provider} {model}"


def test_a_makers_model_is_never_priced_by_a_reseller() -> None:
    """Without a provider, every id of a maker's own family is found at that maker."""
    for provider, model in LISTED:
        name = parse(model, ())
        if name and name.provider is None and provider in MAKERS.get(name.maker, ()):
            assert found(model) == f"{provider} {model}"


def test_regional_prices_differ() -> None:
    """Bedrock's European profiles cost a tenth more, and are found as such."""
    assert input_price(TABLE.find("eu.anthropic.claude-sonnet-4-5-20250929-v1:0")) == Decimal("3.3")
    assert input_price(TABLE.find("global.anthropic.claude-sonnet-4-5-20250929-v1:0")) == 3


def test_a_retired_model_keeps_its_price() -> None:
    price = TABLE.find("claude-3-opus-20240229")
    assert price is not None
    assert price.retired_after == "2026-06-09"
    assert input_price(price) == 15


def test_a_free_model_is_priced() -> None:
    """Free is a price of nothing, which is not the same as no price."""
    price = TABLE.find("glm-4.7-flash", "zai")
    assert price is not None
    assert set(price.rates()) == {0}


def test_no_two_ids_of_a_provider_are_one_name() -> None:
    """Dots for dashes and the other spellings never fold two listed models into one."""
    names = [(provider, parse(model, {provider})) for provider, model in LISTED]
    assert len(set(names)) == len(names)


def test_thresholds() -> None:
    assert TABLE.thresholds() == (32_000, 128_000, 200_000, 256_000, 272_000, 512_000)


@given(st.text(max_size=60), st.none() | st.text(max_size=20))
def test_find_takes_any_text(model: str, provider: str | None) -> None:
    TABLE.find(model, provider)


FORMS = """
    anthropic/ openrouter/ us. anthropic. claude-opus-5 gpt-5 -latest -v1 :0 :free @ 20250929 -2025-09-29 [1m]
    arn:aws:bedrock: :inference-profile/ publishers/ /models/ . - / @default
"""


@given(st.lists(st.sampled_from(FORMS.split()), max_size=8).map("".join))
def test_find_takes_any_mixture_of_the_forms(model: str) -> None:
    price = TABLE.find(model)
    assert price is None or parse(price.model, ()) is not None


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-opus-5-5[1m]", "gpt-6-sol", "gpt-6-luna", "gpt-6-astra"])
def test_the_default_models_of_the_newest_clients_are_listed(model: str) -> None:
    assert TABLE.find(model) is not None
