"""The types of all answers, as dicts with the names of docs/protocol.md.

Only type checkers and tests import these modules. A newer daemon may send more keys.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

# "from" is a keyword.
Span = TypedDict("Span", {"from": str, "to": str})


class Answer(TypedDict):
    version: int


class Backfill(TypedDict):
    """Whether all logs were read for the answer, and the progress if not.

    `exact`: the answer is complete although logs are still being read.
    """

    done: bool
    percent: int | None
    secondsLeft: int | None
    blocked: str | None
    exact: NotRequired[bool]


class Currency(TypedDict):
    """The currency for costs, which are in dollars: `rate` of it are one dollar."""

    code: str
    rate: float


class Plan(TypedDict):
    name: str
    source: str
    title: str
    monthlyUsd: float


class PartialAnswer(Answer):
    """An answer that is incomplete until `backfill` is done."""

    backfill: Backfill
    currency: NotRequired[Currency]
    plans: NotRequired[list[Plan]]


class PriceNotes(TypedDict):
    pricesProblem: NotRequired[str]
    stalePrices: NotRequired[str]


class Usage(TypedDict):
    input: int
    output: int
    reasoning: int
    cacheRead: int
    cacheCreate5m: int
    cacheCreate1h: int


class Cost(TypedDict):
    """Tokens and their cost at API prices; None if nothing has a price."""

    usage: Usage
    searches: NotRequired[int]
    costUsd: float | None


class Totals(TypedDict):
    turns: int
    openTurns: int
    partialTurns: int
    unpricedTurns: int
    emptyTurns: int
    usage: Usage
    costUsd: float | None
    harnessTurns: int
    harnessCostUsd: float | None
    cacheHitRate: float | None


class OptionalCounts(TypedDict, total=False):
    """The fields of `Totals` where they may be missing."""

    turns: int
    openTurns: int
    partialTurns: int
    unpricedTurns: int
    emptyTurns: int
    harnessTurns: int
    harnessCostUsd: float | None
    cacheHitRate: float | None


class Unlogged(TypedDict):
    usage: Usage
    costUsd: float | None
    models: list[str]
    requests: int


class Budget(Span):
    period: Literal["daily", "weekly", "monthly"]
    limitUsd: float
    spentUsd: float | None
    leftUsd: float | None
    projectedUsd: float | None
    unpricedTurns: int
    crossed: bool
