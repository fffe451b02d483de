"""Reads the usage of a response: token counts, price terms, and calls that are billed separately."""

from __future__ import annotations

from typing import Final, NamedTuple

from burnd.harness.claude_code.lines import Line, Message, ModelUsage, TokenCounts, UsageLine
from burnd.harness.tool_calls import release
from burnd.recording.candidate import NO_USAGE, BilledCall
from burnd.records import ServerTools, Usage
from burnd.records.turn import token_count

# The first release that writes `stop_details` on every completed line. Since then a stop reason alone proves
# nothing: a stream that died is logged with `end_turn` and a placeholder count.
_STOP_DETAILS_SINCE: Final = (2, 1, 150)
_BILLED_APART: Final = frozenset({"advisor_message", "compaction"})
_SERVICE_TIERS: Final = ("batch", "flex", "priority")  # tiers that may have another price
_US_ONLY: Final = "us"


class Bill(NamedTuple):
    """The usage of a response and its price terms; `billed_calls` are model calls that its counts do not include."""

    usage: Usage = Usage()
    speed: str | None = None
    server_tools: ServerTools | None = None
    billed_calls: tuple[BilledCall, ...] = ()
    service_tier: str | None = None
    inference_geo: str | None = None


def bill_of(usage: UsageLine | None) -> Bill:
    if usage is None:
        return Bill()
    iterations = enumerate(usage.iterations) if usage.iterations else ()
    return Bill(
        usage_of(usage),
        speed=usage.speed if usage.speed != "standard" else None,
        server_tools=_server_tools(usage),
        billed_calls=tuple(
            [BilledCall(n, one.model, usage_of(one)) for n, one in iterations if one.type in _BILLED_APART]
        ),
        service_tier=usage.service_tier if usage.service_tier in _SERVICE_TIERS else None,
        inference_geo=usage.inference_geo if usage.inference_geo == _US_ONLY else None,
    )


def _server_tools(usage: UsageLine) -> ServerTools | None:
    tools = usage.server_tool_use
    if tools is None:
        return None
    search, fetch = token_count(tools.web_search_requests), token_count(tools.web_fetch_requests)
    return ServerTools(search=search, fetch=fetch) if search or fetch else None


def stated_output(usage: UsageLine | None) -> int:
    """The output tokens that a line states, NO_USAGE if its usage is missing or empty."""
    if usage is None or (usage.output_tokens is None and usage_of(usage) == Usage()):
        return NO_USAGE
    return token_count(usage.output_tokens)


def usage_of(counts: TokenCounts) -> Usage:
    details, split = counts.output_tokens_details, counts.cache_creation
    return _usage(
        counts,
        reasoning=details.thinking_tokens if details is not None else None,
        five=split.ephemeral_5m_input_tokens if split is not None else None,
        hour=split.ephemeral_1h_input_tokens if split is not None else None,
    )


def total_of(model: ModelUsage) -> Usage:
    """The running total of a model as usage."""
    return _usage(model, reasoning=model.thinking_tokens, five=model.five_minutes, hour=model.one_hour)


def _usage(counts: TokenCounts | ModelUsage, *, reasoning: int | None, five: int | None, hour: int | None) -> Usage:
    """Disjoint counts: thinking apart from output, cache writes by lifetime.

    The total of cache writes is right where it is given; the part without a lifetime counts as the cheaper one.
    """
    output, total = token_count(counts.output_tokens), counts.cache_creation_input_tokens
    thinking = min(token_count(reasoning), output)
    one_hour = token_count(hour) if total is None else min(token_count(hour), token_count(total))
    return Usage(
        input=token_count(counts.input_tokens),
        output=output - thinking,
        reasoning=thinking,
        cache_read=token_count(counts.cache_read_input_tokens),
        cache_create_5m=token_count(five) if total is None else token_count(total) - one_hour,
        cache_create_1h=one_hour,
    )


def is_final(line: Line, message: Message) -> bool:
    """Whether a line was written after the response had ended, so that its output count is final."""
    if message.stop_details:
        return True
    if message.stop_reason is None:
        return False
    version = release(line.version)
    return version is None or version < _STOP_DETAILS_SINCE
