"""What a finding of waste is: its kind, where to look, what it cost in tokens, what to do about it.

Findings of different kinds may be about the same tokens, so they are not to be added up. Nothing here knows a price:
tokens are by rate, and the heaviest findings are those whose tokens would cost most relative to plain input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from burnd.attribution.cause import Cause
from burnd.attribution.rates import Rate, Spent, add_up

FindingKind = Literal[
    "reread",
    "rode-far",
    "oversized",
    "retry-loop",
    "failure-run",
    "edit-revert",
    "cache-miss",
    "prefix-bloat",
    "compaction-churn",
    "delegation",
]

MOST_OF_A_KIND: Final = 100
MOST_EVIDENCE: Final = 20

# Twentieths of an input token: what providers ask for a token of each class, roughly, whatever the model.
_WEIGHTS: Final = Spent(input=20, output=100, reasoning=100, cache_read=2, cache_create_5m=25, cache_create_1h=40)

_ADVICE: Final[dict[FindingKind, str]] = {
    "reread": "The file had not changed and was still in the context: ask for what is new, or for the lines needed.",
    "rode-far": "Let a subagent read what is this large, or ask for less of it: it is paid for in every later turn.",
    "oversized": "Ask for less at once: a range of lines, a narrower search, the end of a log.",
    "retry-loop": "The same call failed again and again: stop after the second time and look at the error.",
    "failure-run": "Many calls in a row failed: check paths, permissions and the working folder first.",
    "edit-revert": "Edits were made and taken back: settle what the file should be before editing it again.",
    "cache-miss": "The context had to be paid for again.",
    "prefix-bloat": "More than the project's other sessions began with is paid for in every turn: `burnctl overhead` "
    "names memory files by their size, and MCP servers that are never called.",
    "compaction-churn": "The context was compacted again and again: begin a new session for a new task, and keep large "
    "results out of it.",
    "delegation": "The agent cost more than doing its work directly would have: hand out larger pieces of work.",
}


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where to look: turn indexes, files, and whatever numbers a kind of finding has to show for itself.

    `others` is set where this stands for so many findings that are not told one by one.
    """

    rail_id: str = ""
    turns: tuple[int, ...] = ()
    calls: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    tool: str | None = None
    target: str | None = None
    reason: str | None = None
    count: int = 0
    entered: int = 0
    rides: int = 0
    usual: int = 0
    others: int = 0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of waste in one place. `tokens` are those it made to be spent, so that its dollars come from causes.

    `causes` are the causes whose tokens these are, if they are all the tokens of some causes.
    """

    kind: FindingKind
    sessions: tuple[str, ...]
    evidence: Evidence
    tokens: Mapping[Rate, Spent]
    advice: str
    causes: tuple[Cause, ...] = ()

    @property
    def weight(self) -> int:
        return weight(self.tokens)


def finding(
    kind: FindingKind,
    sessions: Iterable[str],
    evidence: Evidence,
    bills: Sequence[Mapping[Rate, Spent]],
    advice: str | None = None,
    causes: Iterable[Cause] = (),
) -> Finding:
    """A finding of some bills and some causes."""
    causes = tuple(causes)
    tokens = add_up([*bills, *(cause.spent for cause in causes)])
    cut = msgspec.structs.replace(
        evidence,
        turns=evidence.turns[:MOST_EVIDENCE],
        calls=evidence.calls[:MOST_EVIDENCE],
        files=evidence.files[:MOST_EVIDENCE],
    )
    return Finding(
        kind=kind,
        sessions=tuple(sessions)[:MOST_EVIDENCE],
        evidence=cut,
        tokens=tokens,
        advice=advice or _ADVICE[kind],
        causes=causes,
    )


def advice_for(kind: FindingKind) -> str:
    """What to do about findings of a kind, whatever their reason."""
    return _ADVICE[kind]


def weight(tokens: Mapping[Rate, Spent]) -> int:
    """How much this is in tokens of plain input."""
    return sum(sum(map(int.__mul__, spent, _WEIGHTS)) for spent in tokens.values()) // _WEIGHTS.input


def bounded(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """The heaviest of each kind, heaviest first, always in the same order; behind them what is left of each kind."""
    by_kind: dict[FindingKind, list[Finding]] = {}
    for one in sorted(found, key=_order):
        by_kind.setdefault(one.kind, []).append(one)
    chosen = [one for some in by_kind.values() for one in some[:MOST_OF_A_KIND]]
    left = [_together(some[MOST_OF_A_KIND:]) for some in by_kind.values() if len(some) > MOST_OF_A_KIND]
    return (*sorted(chosen, key=_order), *left)


def _together(found: Sequence[Finding]) -> Finding:
    """Findings of a kind as one that counts them."""
    sessions = dict.fromkeys(session for one in found for session in one.sessions)
    evidence = Evidence(
        others=len(found),
        count=sum(one.evidence.count for one in found),
        entered=sum(one.evidence.entered for one in found),
    )
    advices = {one.advice for one in found}
    advice = found[0].advice if len(advices) == 1 else None
    return finding(found[0].kind, sessions, evidence, [one.tokens for one in found], advice)


def _order(one: Finding) -> tuple[int, str, tuple[str, ...], str, tuple[int, ...], str, str]:
    evidence = one.evidence
    return (
        -one.weight,
        one.kind,
        one.sessions,
        evidence.rail_id,
        evidence.turns,
        evidence.target or "",
        evidence.reason or "",
    )
