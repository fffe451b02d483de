"""Usage objects of providers: what they say was billed, in disjoint counts."""

from __future__ import annotations

from typing import Any

import pytest

from burnd.readers.api_usage import ApiSource, NotUsage, bill, source_of
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
        ("openai-api", {"prompt_tokens": 7, "total_tokens": 7}, Usage(input=7)),
        ("anthropic-api", {"input_tokens": 7, "output_tokens": 2}, Usage(input=7, output=2)),
        ("gemini-api", GEMINI, Usage(input=630, output=80, reasoning=20, cache_read=400)),
        ("gemini-api", GEMINI_PYTHON, Usage(input=1000, output=80)),
        ("openai-api", {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 99}}, Usage(cache_read=5)),
    ],
)
def test_each_token_is_counted_once(source: ApiSource, usage: dict[str, Any], expected: Usage) -> None:
    """Input without what came from the cache, output without reasoning, whichever way the provider counts."""
    assert bill(source, usage).usage == expected
    assert source_of(usage) == source


def test_the_shortest_form_is_whose_it_is_said_to_be() -> None:
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
        ("gemini-api", {"promptTokenCount": 1.5}),
    ],
)
def test_another_object_is_refused(source: ApiSource, usage: dict[str, Any]) -> None:
    """What is not this provider's usage is neither taken for no usage nor read by the wrong rule."""
    with pytest.raises(NotUsage):
        bill(source, usage)


def test_it_is_not_guessed_whose_it_is() -> None:
    assert source_of({}) is None
    assert source_of({"tokens": 3}) is None
