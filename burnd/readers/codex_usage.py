"""Codex counts for a whole thread and says the sum again and again: what one response used is what the sum grew by."""

from __future__ import annotations

from typing import Final, NamedTuple

from burnd.readers.codex_lines import Tokens
from burnd.records import Usage

_MOST: Final = 1 << 40


class Totals(NamedTuple):
    """Tokens as Codex counts them: `cached` and `written` are parts of `input`, `reasoning` of `output`."""

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0

    def since(self, before: Totals) -> Totals:
        return Totals(*(max(0, now - then) for now, then in zip(self, before, strict=True)))


NONE: Final = Totals()


def totals_of(tokens: Tokens | None) -> Totals | None:
    if tokens is None:
        return None
    cached = tokens.cached_input_tokens
    return Totals(
        _count(tokens.input_tokens),
        _count(tokens.cache_read_input_tokens if cached is None else cached),
        _count(tokens.cache_write_input_tokens),
        _count(tokens.output_tokens),
        _count(tokens.reasoning_output_tokens),
    )


def spent(before: Totals | None, total: Totals | None, last: Totals | None) -> Totals:
    """What was used between two sums; `last` is what Codex says the newest response used.

    Where nothing is known from before (a fork goes on with its parent's sum), and where the sum fell (it begins anew
    when a context has run over), only `last` can tell. Otherwise the growth of the sum does, which `last` agrees with
    unless lines are missing.
    """
    if total is None:
        return last or NONE
    if before is None or total.input < before.input or total.output < before.output:
        return total if last is None else last
    return total.since(before)


def usage_of(used: Totals) -> Usage:
    """The same, disjoint."""
    cached = min(used.cached, used.input)
    written = min(used.written, used.input - cached)
    reasoning = min(used.reasoning, used.output)
    return Usage(
        input=used.input - cached - written,
        output=used.output - reasoning,
        reasoning=reasoning,
        cache_read=cached,
        cache_create_5m=written,
    )


def _count(number: int | None) -> int:
    return min(max(number or 0, 0), _MOST)
