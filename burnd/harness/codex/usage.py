"""Codex counts for a whole thread and says the sum again and again: what one response used is what the sum grew by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from burnd.harness.codex.lines import Tokens
from burnd.records import Usage

_MOST: Final = 1 << 40


class Totals(NamedTuple):
    """Tokens as Codex counts them: `cached` and `written` are parts of `input`, `reasoning` of `output`.

    `all` is what it says they come to, by which a sum that was said before is known where the parts are not told.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0
    all: int = 0

    @property
    def is_nothing(self) -> bool:
        return not self.input and not self.output

    def since(self, before: Totals) -> Totals:
        return Totals(*(max(0, now - then) for now, then in zip(self, before, strict=True)))

    def continues(self, before: Totals, last: Totals) -> bool:
        """Whether this is that sum and what one response used, part by part."""
        return all(now == then + more for now, then, more in zip(self[:-1], before, last, strict=False))


NONE: Final = Totals()


class Recorded(NamedTuple):
    """What a response used by a record of its own, and the thread's sum by that record, where it tells one."""

    used: Totals
    thread: Totals | None = None

    def is_metered(self, total: Totals | None, last: Totals | None) -> bool:
        """Whether the meter tells of the same response, part by part."""
        pairs = ((self.thread, total), (self.used, last))
        return any(mine is not None and its is not None and mine[:-1] == its[:-1] for mine, its in pairs)


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
        _count(tokens.total_tokens),
    )


def spent(sums: Sequence[Totals], total: Totals | None, last: Totals | None) -> Totals:
    """What was used since the newest of the sums; `last` is what Codex says the newest response used.

    Where the sum goes on from one that was said lately, or nothing is known from before (a fork goes on with its
    parent's sum), or the sum fell (it begins anew when a context has run over), `last` tells. Otherwise lines are
    missing, or `last` is, and the growth of the sum tells.
    """
    if total is None or total.is_nothing:
        return last or NONE
    if last is not None and any(total.continues(before, last) for before in sums):
        return last
    before = sums[-1] if sums else NONE
    if before.is_nothing or total.input < before.input or total.output < before.output:
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
