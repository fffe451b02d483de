"""What a Claude Code line says was billed, and how far that can be trusted."""

from __future__ import annotations

from typing import Final, NamedTuple

from burnd.harness.claude_code.lines import Iteration, Line, Message, ModelUsage, TokenCounts, UsageLine
from burnd.harness.tool_calls import release
from burnd.recording.candidate import NO_USAGE, Apart
from burnd.records import ServerTools, Usage

# The first release seen to write `stop_details` on every completed line. From it on, a stop reason
# alone proves nothing: a stream that died is logged with `end_turn` and a placeholder count.
_STOP_DETAILS_SINCE: Final = (2, 1, 150)
_BILLED_APART: Final = frozenset({"advisor_message", "compaction"})
_SERVICE_TIERS: Final = ("batch", "flex", "priority")  # tiers that may have another price
_US_ONLY: Final = "us"
_ABSURD: Final = 1 << 48


class Bill(NamedTuple):
    """All that a response's usage object says; `apart` are the model calls that it does not sum up itself."""

    usage: Usage = Usage()
    speed: str | None = None
    server_tools: ServerTools | None = None
    apart: tuple[Apart, ...] = ()
    service_tier: str | None = None
    inference_geo: str | None = None


def bill_of(usage: UsageLine | None) -> Bill:
    if usage is None:
        return Bill()
    speed = usage.speed if usage.speed != "standard" else None
    apart = _apart(usage.iterations) if usage.iterations else ()
    tier = usage.service_tier if usage.service_tier in _SERVICE_TIERS else None
    geo = usage.inference_geo if usage.inference_geo == _US_ONLY else None
    return Bill(usage_of(usage), speed, _server_tools(usage), apart, tier, geo)


def _apart(iterations: list[Iteration]) -> tuple[Apart, ...]:
    apart = [(n, one) for n, one in enumerate(iterations) if one.type in _BILLED_APART]
    return tuple(Apart(n, one.model, usage_of(one)) for n, one in apart)


def stated_output(usage: UsageLine | None) -> int:
    """The output tokens that a line states; of one whose usage is missing or empty, less than none."""
    if usage is None or (usage.output_tokens is None and usage_of(usage) == Usage()):
        return NO_USAGE
    return count(usage.output_tokens)


def usage_of(counts: TokenCounts) -> Usage:
    """Disjoint counts: thinking apart from output, and each life time of the cache for itself."""
    output = count(counts.output_tokens)
    details = counts.output_tokens_details
    reasoning = min(count(details.thinking_tokens), output) if details is not None else 0
    split = counts.cache_creation
    five, hour = _cache_writes(
        counts.cache_creation_input_tokens,
        split.ephemeral_5m_input_tokens if split is not None else None,
        split.ephemeral_1h_input_tokens if split is not None else None,
    )
    return Usage(
        input=count(counts.input_tokens),
        output=output - reasoning,
        reasoning=reasoning,
        cache_read=count(counts.cache_read_input_tokens),
        cache_create_5m=five,
        cache_create_1h=hour,
    )


def stated_usage(stated: ModelUsage) -> Usage:
    output = count(stated.output_tokens)
    reasoning = min(count(stated.thinking_tokens), output)
    five, hour = _cache_writes(stated.cache_creation_input_tokens, stated.five_minutes, stated.one_hour)
    return Usage(
        input=count(stated.input_tokens),
        output=output - reasoning,
        reasoning=reasoning,
        cache_read=count(stated.cache_read_input_tokens),
        cache_create_5m=five,
        cache_create_1h=hour,
    )


def _cache_writes(total: int | None, five: int | None, hour: int | None) -> tuple[int, int]:
    """The total is to be trusted: what the split leaves of it is the cheap kind."""
    if total is None:
        return count(five), count(hour)
    long_lived = min(count(hour), count(total))
    return count(total) - long_lived, long_lived


def count(tokens: int | None) -> int:
    """A token count that can be added up; a number no model can have billed counts as none."""
    return tokens if tokens is not None and 0 <= tokens < _ABSURD else 0


def _server_tools(usage: UsageLine) -> ServerTools | None:
    used = usage.server_tool_use
    if used is None:
        return None
    search, fetch = count(used.web_search_requests), count(used.web_fetch_requests)
    return ServerTools(search=search, fetch=fetch) if search or fetch else None


def is_final(line: Line, message: Message) -> bool:
    """Whether this line was written after the response had ended, so that its output count is the true one."""
    if message.stop_details:
        return True
    if message.stop_reason is None:
        return False
    version = release(line.version)
    return version is None or version < _STOP_DETAILS_SINCE
