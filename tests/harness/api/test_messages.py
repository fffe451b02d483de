"""Usage objects of providers as disjoint counts."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from burnd.harness.api.messages import API_SOURCES, ApiSource, InvalidUsage, bill, source_of
from burnd.harness.api.product import SOURCES
from burnd.records import ServerTools, Usage

ANTHROPIC = {
    "input_tokens": 10,
    "output_tokens": 50,
    "cache_read_input_tokens": 300,
    "cache_creation_input_tokens": 70,
    "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 10},
    "server_tool_use": {"web_search_requests": 2},
    "service_tier": "standard",
}
CHAT = {
    "prompt_tokens": 1000,
    "completion_tokens": 200,
    "total_tokens": 1200,
    "prompt_tokens_details": {"cached_tokens": 600, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 150, "accepted_prediction_tokens": 0},
}
RESPONSES = {
    "input_tokens": 1000,
    "input_tokens_details": {"cached_tokens": 600},
    "output_tokens": 200,
    "output_tokens_details": {"reasoning_tokens": 150},
    "total_tokens": 1200,
}
GEMINI = {
    "promptTokenCount": 1000,
    "cachedContentTokenCount": 400,
    "candidatesTokenCount": 80,
    "thoughtsTokenCount": 20,
    "toolUsePromptTokenCount": 30,
    "totalTokenCount": 1130,
}
RESPONSES_WITH_WRITES = {
    "input_tokens": 40_000,
    "input_tokens_details": {"cached_tokens": 6_000, "cache_write_tokens": 33_000},
    "output_tokens": 200,
    "output_tokens_details": {"reasoning_tokens": 150},
    "total_tokens": 40_200,
}
CHAT_WITH_WRITES = {
    "prompt_tokens": 2000,
    "completion_tokens": 100,
    "prompt_tokens_details": {"cached_tokens": 1500, "cache_write_tokens": 350},
    "cost": 0.0125,
    "is_byok": False,
}
REALTIME = {
    "total_tokens": 253,
    "input_tokens": 132,
    "output_tokens": 121,
    "input_token_details": {"text_tokens": 119, "audio_tokens": 13, "cached_tokens": 64},
    "output_token_details": {"text_tokens": 30, "audio_tokens": 91},
}
CHAT_REASONED_BESIDE = {
    "prompt_tokens": 37,
    "completion_tokens": 530,
    "total_tokens": 800,
    "prompt_tokens_details": {"cached_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 233},
}
CHAT_WITH_A_REST = {"completion_tokens": 102, "prompt_tokens": 758, "total_tokens": 1725}
GEMINI_LIVE = {
    "promptTokenCount": 300,
    "responseTokenCount": 120,
    "toolUsePromptTokenCount": 10,
    "thoughtsTokenCount": 5,
    "totalTokenCount": 435,
    "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 300}],
}
INTERACTION = {
    "total_input_tokens": 1000,
    "total_cached_tokens": 400,
    "total_output_tokens": 80,
    "total_thought_tokens": 20,
    "total_tool_use_tokens": 30,
    "total_tokens": 1130,
    "input_tokens_by_modality": [{"modality": "text", "tokens": 1000}],
}
GEMINI_PYTHON = {"prompt_token_count": 1000, "cached_content_token_count": None, "candidates_token_count": 80}


@pytest.mark.parametrize(
    ("source", "usage", "expected"),
    [
        (
            "anthropic-api",
            ANTHROPIC,
            Usage(input=10, output=50, cache_read=300, cache_create_5m=60, cache_create_1h=10),
        ),
        ("openai-api", CHAT, Usage(input=400, output=50, reasoning=150, cache_read=600)),
        ("openai-api", RESPONSES, Usage(input=400, output=50, reasoning=150, cache_read=600)),
        (
            "openai-api",
            RESPONSES_WITH_WRITES,
            Usage(input=1000, output=50, reasoning=150, cache_read=6000, cache_create_5m=33_000),
        ),
        ("openai-api", CHAT_WITH_WRITES, Usage(input=150, output=100, cache_read=1500, cache_create_5m=350)),
        ("openai-api", REALTIME, Usage(input=68, output=121, cache_read=64)),
        ("openai-api", CHAT_REASONED_BESIDE, Usage(input=29, output=530, reasoning=233, cache_read=8)),
        ("openai-api", CHAT_WITH_A_REST, Usage(input=758, output=102, reasoning=865)),
        ("openai-api", {"prompt_tokens": 7, "total_tokens": 7}, Usage(input=7)),
        ("openai-api", {"prompt_tokens": 7, "total_tokens": 9}, Usage(input=7, output=2)),
        ("openai-api", {"completion_tokens": 2, "total_tokens": 9}, Usage(input=7, output=2)),
        ("anthropic-api", {"input_tokens": 7, "output_tokens": 2}, Usage(input=7, output=2)),
        ("gemini-api", GEMINI, Usage(input=630, output=80, reasoning=20, cache_read=400)),
        ("gemini-api", GEMINI_LIVE, Usage(input=310, output=120, reasoning=5)),
        ("gemini-api", INTERACTION, Usage(input=630, output=80, reasoning=20, cache_read=400)),
        ("gemini-api", GEMINI_PYTHON, Usage(input=1000, output=80)),
        ("openai-api", {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 99}}, Usage(cache_read=5)),
    ],
)
def test_each_token_is_counted_once(source: ApiSource, usage: dict[str, Any], expected: Usage) -> None:
    """Input without cache reads and output without reasoning, however the provider counts."""
    assert bill(source, usage).usage == expected
    assert source_of(usage) == source


def test_an_ambiguous_usage_object_has_the_given_provider() -> None:
    """Two names that both Anthropic and OpenAI have, and nothing else."""
    assert bill("openai-api", {"input_tokens": 7, "output_tokens": 2}).usage == Usage(input=7, output=2)


def test_searches_are_billed_too() -> None:
    assert bill("anthropic-api", ANTHROPIC).server_tools == ServerTools(search=2)


@pytest.mark.parametrize(
    ("source", "usage"),
    [
        ("anthropic-api", {}),
        ("anthropic-api", {"input_tokens": "many"}),
        ("anthropic-api", CHAT),
        ("openai-api", GEMINI),
        ("openai-api", {"prompt_tokens": "1000"}),
        ("openai-api", {"prompt_tokens": True}),
        ("openai-api", ANTHROPIC),
        ("anthropic-api", RESPONSES),
        ("openai-api", {"prompt_tokens": -1}),
        ("openai-api", {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": -1}}),
        ("anthropic-api", ANTHROPIC | {"output_tokens": -3}),
        ("gemini-api", {"promptTokenCount": 1 << 60}),
        ("gemini-api", ANTHROPIC),
        ("openai-api", INTERACTION),
        ("anthropic-api", REALTIME),
        ("gemini-api", {"promptTokenCount": 1.5}),
    ],
)
def test_another_object_is_refused(source: ApiSource, usage: dict[str, Any]) -> None:
    """Usage of another provider is neither taken as no usage nor read by the wrong rule."""
    with pytest.raises(InvalidUsage):
        bill(source, usage)


def test_it_is_not_guessed_whose_it_is() -> None:
    assert source_of({}) is None
    assert source_of({"tokens": 3}) is None


def test_the_sources_are_those_of_the_registry() -> None:
    """One list: the type of the parameter `source` is made of it."""
    assert get_args(ApiSource) == API_SOURCES == SOURCES
