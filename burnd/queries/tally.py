"""Sums as reports show them: turns, tokens by kind, exact cost, how much came from the cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import add, attrgetter
from typing import Any

from burnd import protocol
from burnd.pricing import UNITS_PER_USD
from burnd.queries.kinds import Kind, Kinds
from burnd.queries.sums import Parts, Row

_COUNTS = (
    "edits",
    "empty",
    "harness_turns",
    "harness_units",
    "one_shot_prompts",
    "one_shots",
    "open",
    "partial",
    "prompts",
    "turns",
    "units",
    "unpriced",
)


class Tally:
    """A growing sum over turns. `units` is the cost of turns with a price, 10^-15 USD each.

    `harness_units` is the part of it that is the harness's figure, for models without a list price.
    """

    __slots__ = (*_COUNTS, "tokens")

    def __init__(self) -> None:
        self.turns = self.open = self.partial = self.empty = self.unpriced = 0
        self.tokens = [0] * 6
        self.units = self.edits = self.one_shots = self.harness_turns = self.harness_units = 0
        self.prompts = self.one_shot_prompts = 0

    def add(self, kind: Kind, tier: int | None, counts: Sequence[int]) -> None:
        """Takes in turns of one kind, as `reading` counts them."""
        n, i, o, r, read, five, hour, searches, partials, empties, edits, one_shots, prompts, firsts = counts
        tokens = self.tokens
        tokens[0] += i
        tokens[1] += o
        tokens[2] += r
        tokens[3] += read
        tokens[4] += five
        tokens[5] += hour
        rates = kind.own_rates if tier is None else kind.rates(tier)
        if rates is not None:
            a, b, c, d, e, f = rates
            units = i * a + o * b + r * c + read * d + five * e + hour * f + searches * kind.search_units
            self.units += units
            if kind.is_stated:
                self.harness_units += units
        if kind.is_unlogged:  # its partial turns are requests with a lower bound
            self.partial += partials
            return
        turns = n - empties
        self.turns += turns
        self.partial += partials
        self.empty += empties
        self.edits += edits
        self.one_shots += one_shots
        self.prompts += prompts
        self.one_shot_prompts += firsts
        if kind.is_open:
            self.open += turns
        if rates is None:
            self.unpriced += turns
        elif kind.is_stated:
            self.harness_turns += turns

    @classmethod
    def over(cls, tallies: Collection[Tally]) -> Tally:
        """All of them in one, a column at a time: there may be one for each of very many sessions."""
        whole = cls()
        for name in _COUNTS:
            setattr(whole, name, sum(map(attrgetter(name), tallies)))
        whole.tokens = [*map(sum, zip(*(tally.tokens for tally in tallies), strict=True))] or whole.tokens
        return whole

    def merge(self, other: Tally) -> None:
        self.turns += other.turns
        self.open += other.open
        self.partial += other.partial
        self.empty += other.empty
        self.unpriced += other.unpriced
        self.units += other.units
        self.harness_turns += other.harness_turns
        self.harness_units += other.harness_units
        self.edits += other.edits
        self.one_shots += other.one_shots
        self.prompts += other.prompts
        self.one_shot_prompts += other.one_shot_prompts
        self.tokens = [*map(add, self.tokens, other.tokens)]

    @property
    def priced(self) -> int:
        return self.turns - self.unpriced

    @property
    def has_price(self) -> bool:
        return bool(self.units) or self.turns > self.unpriced

    @property
    def cost_usd(self) -> float | None:
        """None where nothing has a price. A quotient of whole numbers is the nearest float there is."""
        return self.units / UNITS_PER_USD if self.has_price else None

    @property
    def cache_hit_rate(self) -> float | None:
        """The share of the context that came from the cache; None where there was no context."""
        fresh, _, _, read, five, hour = self.tokens
        context = fresh + read + five + hour
        return read / context if context else None

    @property
    def is_nothing(self) -> bool:
        return not (self.turns or self.empty or any(self.tokens) or self.units)

    def answer(self) -> dict[str, Any]:
        return {
            "turns": self.turns,
            "openTurns": self.open,
            "partialTurns": self.partial,
            "unpricedTurns": self.unpriced,
            "emptyTurns": self.empty,
            "usage": usage(self.tokens),
            "costUsd": self.cost_usd,
            "harnessTurns": self.harness_turns,
            "harnessCostUsd": self.harness_units / UNITS_PER_USD if self.harness_turns else None,
            "cacheHitRate": self.cache_hit_rate,
        }


def tallied(rows: Iterable[Parts], kinds: Kinds, label: Callable[[Row, Kind], Any]) -> dict[Any, Tally]:
    """Turns by their labels. What no turn accounts for is not among them."""
    told: defaultdict[Any, Tally] = defaultdict(Tally)
    for keys, number, tier, counts in rows:
        kind = kinds[number]
        if not kind.is_unlogged:
            told[label(keys, kind)].add(kind, tier, counts)
    return told


def usage(tokens: Sequence[int]) -> dict[str, int]:
    return dict(zip(protocol.USAGE_FIELDS, tokens, strict=True))
