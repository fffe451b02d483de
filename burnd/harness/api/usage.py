"""What a provider's own usage object says was billed: disjoint counts, from Anthropic's, OpenAI's and Gemini's forms.

Anthropic counts input beside what came from and went to the cache. OpenAI and Gemini count what came from the cache
within the input, and OpenAI what went there too; OpenAI counts reasoning within the output, Gemini beside it, and so do
some that speak OpenAI's language: then their total is more than input and output. Gemini's Python SDK writes the same
names in snake case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from burnd.harness.claude_code.lines import UsageLine
from burnd.harness.claude_code.usage import Bill, bill_of, count
from burnd.records import Usage

ApiSource = Literal["anthropic-api", "openai-api", "gemini-api"]
API_SOURCES: Final[tuple[ApiSource, ...]] = get_args(ApiSource)

_CACHE_BESIDE: Final = {"cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"}
_GIVEN: Final = ("promptTokenCount", "prompt_token_count", "total_input_tokens", "totalInputTokens")
_MADE: Final = (
    *("candidatesTokenCount", "candidates_token_count", "responseTokenCount", "response_token_count"),
    *("total_output_tokens", "totalOutputTokens"),
)
_CACHED: Final = (
    *("cachedContentTokenCount", "cached_content_token_count"),
    *("total_cached_tokens", "totalCachedTokens"),
)
_THOUGHT: Final = ("thoughtsTokenCount", "thoughts_token_count", "total_thought_tokens", "totalThoughtTokens")
_BY_TOOLS: Final = (
    *("toolUsePromptTokenCount", "tool_use_prompt_token_count"),
    *("total_tool_use_tokens", "totalToolUseTokens"),
)
_OPENAIS: Final = {"prompt_tokens", "input_tokens_details", "input_token_details", "total_tokens"}
_MOST: Final = 1 << 40


class NotUsage(ValueError):
    """Raised when an object is not a usage object of the provider it is said to be of; says what is wrong."""


def bill(source: ApiSource, usage: Mapping[str, Any]) -> Bill:
    """The usage object as one bill. Raises NotUsage."""
    _check(source, usage)
    if source == "anthropic-api":
        return _anthropic(usage)
    return Bill(_openai(usage) if source == "openai-api" else _gemini(usage))


def _check(source: ApiSource, usage: Mapping[str, Any]) -> None:
    """Raises NotUsage where another provider's object would be read as this one's, and be billed wrong."""
    whose = source_of(usage)
    is_bare = whose == "anthropic-api" and not usage.keys() & _CACHE_BESIDE  # OpenAI's newer form has these names too
    if whose not in (None, source) and not (is_bare and source == "openai-api"):
        raise NotUsage(f"the usage object is one of {whose}")
    _check_counts(usage)


def _check_counts(usage: Mapping[str, Any]) -> None:
    for name, value in usage.items():
        if isinstance(value, Mapping):
            _check_counts(value)
        elif isinstance(value, int | float) and not 0 <= value <= _MOST:
            raise NotUsage(f"{name} is no count of tokens: {str(value)[:40]}")


def source_of(usage: Mapping[str, Any]) -> ApiSource | None:
    """Whose usage object this is, told by the names in it; None where it could be anybody's."""
    if not usage.keys().isdisjoint(_GIVEN):
        return "gemini-api"
    if usage.keys() & _OPENAIS:
        return "openai-api"
    return "anthropic-api" if "input_tokens" in usage else None


def _anthropic(usage: Mapping[str, Any]) -> Bill:
    try:
        line = msgspec.convert(usage, UsageLine)
    except msgspec.ValidationError as error:
        raise NotUsage(f"the usage object is not one of Anthropic's: {error}") from None
    if line.input_tokens is None and line.output_tokens is None:
        raise NotUsage("Anthropic's usage object has input_tokens and output_tokens")
    return bill_of(line)


def _openai(usage: Mapping[str, Any]) -> Usage:
    """All of its forms: `prompt_tokens` of chat completions, `input_tokens` of responses and of realtime sessions."""
    given = _number(usage, "prompt_tokens", "input_tokens")
    made = _number(usage, "completion_tokens", "output_tokens")
    if given is None and made is None:
        raise NotUsage(
            "OpenAI's usage object has prompt_tokens and completion_tokens, or input_tokens and output_tokens"
        )
    read = _details(usage, "prompt_tokens_details", "input_tokens_details", "input_token_details")
    said = _details(usage, "completion_tokens_details", "output_tokens_details", "output_token_details")
    cached, written = count(_number(read, "cached_tokens")), count(_number(read, "cache_write_tokens"))
    reasoning = count(_number(said, "reasoning_tokens"))
    rest = max(0, count(_number(usage, "total_tokens")) - count(given) - count(made))
    if given is None or made is None:  # then the rest is what is not told
        return _net(rest if given is None else given, rest if made is None else made, cached, reasoning, written)
    return _net(given, made + rest, cached, max(reasoning, rest), written)


def _gemini(usage: Mapping[str, Any]) -> Usage:
    """All of its forms: what is generated, live sessions, interactions.

    What a tool put into the prompt is counted beside the prompt, and billed as input too.
    """
    given, made = _number(usage, *_GIVEN), _number(usage, *_MADE)
    if given is None and made is None:
        raise NotUsage(
            "Gemini's usage object has promptTokenCount and candidatesTokenCount, or total_input_tokens and "
            "total_output_tokens"
        )
    cached, thoughts, by_tools = (count(_number(usage, *names)) for names in (_CACHED, _THOUGHT, _BY_TOOLS))
    return _net(count(given) + by_tools, count(made) + thoughts, cached, thoughts)


def _net(given: int, made: int, cached: int, reasoning: int, written: int = 0) -> Usage:
    cached, reasoning = min(cached, given), min(reasoning, made)
    written = min(written, given - cached)
    return Usage(
        input=given - cached - written,
        output=made - reasoning,
        reasoning=reasoning,
        cache_read=cached,
        cache_create_5m=written,
    )


def _number(usage: Mapping[str, Any], *names: str) -> int | None:
    """The first of these counts that is there. Raises NotUsage when it is no number."""
    for name in names:
        value = usage.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise NotUsage(f"{name} is a whole number, not {str(value)[:40]!r}")
        return value
    return None


def _details(usage: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    found = next((usage[name] for name in names if isinstance(usage.get(name), Mapping)), None)
    return found if found is not None else {}
