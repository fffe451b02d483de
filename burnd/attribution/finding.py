"""What a finding of waste is: its kind, where to look, what it cost in tokens, what to do about it.

Findings of different kinds may be about the same tokens, so they are not to be added up. Nothing here knows a price:
tokens are by rate, and the heaviest findings are those whose tokens would cost most relative to plain input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from burnd.attribution.causes import Cause
from burnd.attribution.rates import Rate, Spent, add_up
from burnd.records import Turn

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


class Lineage:
    """Knows of any two turns whether one stands above the other."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        known = {turn.message_id for turn in turns}
        below: dict[str | None, list[str]] = {}
        before: str | None = None
        for turn in turns:
            parent = turn.parent if turn.parent in known and turn.parent != turn.message_id else before
            below.setdefault(parent, []).append(turn.message_id)
            before = turn.message_id
        self._begun: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._number(below)

    def _number(self, below: dict[str | None, list[str]]) -> None:
        """Number each turn before and after all that stand below it."""
        waiting: list[tuple[str, bool]] = [(name, False) for name in reversed(below.get(None, []))]
        count = 0
        while waiting:
            name, done = waiting.pop()
            count += 1
            if done:
                self._ended[name] = count
            elif name not in self._begun:
                self._begun[name] = count
                waiting.append((name, True))
                waiting += [(child, False) for child in reversed(below.get(name, []))]

    def is_above(self, one: str, other: str) -> bool:
        """Whether `one` was in the context of `other`, as far as parents tell."""
        if one not in self._begun or other not in self._begun:
            return False
        return self._begun[one] <= self._begun[other] and self._ended[other] <= self._ended[one]
