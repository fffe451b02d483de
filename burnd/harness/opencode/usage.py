"""What a step of opencode's was billed: disjoint counts, whichever release wrote them down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from burnd.harness.opencode.rows import CacheTokens, Number, Tokens
from burnd.harness.tool_calls import release
from burnd.records import Usage

_MOST: Final = 1 << 40
_MOST_USD: Final = 1e6
_NET_SINCE: Final = (1, 3, 16)


def usage_of(message: Tokens | None, steps: Sequence[Tokens], version: str | None = None) -> Usage:
    """The tokens of a message and of its `step-finish` parts as one bill.

    A message has one step in practice. One of several steps says only what the last of them used, so these are
    added up; one whose row was not brought up to date before the end says nothing, and its step does.
    `version` is the release that began the session.
    """
    stated = net_usage(message, version) if message is not None else Usage()
    summed = Usage()
    for step in steps:
        summed += net_usage(step, version)
    return max(stated, summed, key=total)


def cost_of(message: Number, steps: Sequence[Number]) -> float | None:
    """The cost of a message as opencode states it, in USD; None for 0, which it writes if it has no price."""
    stated = max(_amount(message), sum(map(_amount, steps)))
    return stated or None


def _amount(usd: Number) -> float:
    return float(usd) if usd is not None and 0 < usd < _MOST_USD else 0.0


def net_usage(tokens: Tokens, version: str | None = None) -> Usage:
    """Output without reasoning. Before 1.3.16 it was counted within."""
    cache = tokens.cache or CacheTokens()
    given, output, reasoning = count(tokens.input), count(tokens.output), count(tokens.reasoning)
    read, written = count(cache.read), count(cache.write)
    if reasoning and _is_gross(tokens.total, given + output + read + written, version):
        output = max(0, output - reasoning)
    return Usage(input=given, output=output, reasoning=reasoning, cache_read=read, cache_create_5m=written)


def _is_gross(stated: Number, without_reasoning: int, version: str | None) -> bool:
    """Whether output holds the reasoning: the total tells, or where the first releases wrote none, the release."""
    if stated is not None:
        return count(stated) == without_reasoning
    begun_by = release(version)
    return begun_by is not None and begun_by < _NET_SINCE


def count(tokens: Number) -> int:
    """A count that can be added up; a number no model can have billed counts as none."""
    return int(tokens) if tokens is not None and 0 <= tokens < _MOST else 0


def total(usage: Usage) -> int:
    return usage.context + usage.output + usage.reasoning
