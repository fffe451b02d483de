"""Findings of waste: kind, evidence, tokens and advice. Those of different kinds may count the same tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from burnd.attribution.causes import Cause
from burnd.attribution.misses import Proof
from burnd.attribution.rates import Rate, Spent, add_up
from burnd.records import PromptChange

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

# Typical price of each class, in twentieths of an input token.
_WEIGHTS: Final = Spent(input=20, output=100, reasoning=100, cache_read=2, cache_create_5m=25, cache_create_1h=40)

ADVICE: Final[dict[FindingKind, str]] = {
    "reread": "The file had not changed and was still in the context: ask for what is new, or for the lines needed.",
    "rode-far": "Let a subagent read what is this large, or ask for less of it: it is paid for in every later turn.",
    "oversized": "Ask for less at once: a range of lines, a narrower search, the end of a log.",
    "retry-loop": "The same call failed repeatedly: stop after the second time and look at the error.",
    "failure-run": "Many calls in a row failed: check paths, permissions and the working folder first.",
    "edit-revert": "Edits were made and undone: decide on the result before editing the file again.",
    "cache-miss": "The context had to be paid for again.",
    "prefix-bloat": "These sessions began with more than others of the project and paid for it in every turn: `burnctl "
    "overhead` lists memory files by size, and MCP servers that are never called.",
    "compaction-churn": "The context was compacted repeatedly: begin a new session for a new task, and keep large "
    "results out of it.",
    "delegation": "The agent cost more than doing its work directly would have: hand out larger pieces of work.",
}


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`others` is the number of findings that it replaces, or 0."""

    rail_id: str = ""
    turns: tuple[int, ...] = ()
    calls: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    tool: str | None = None
    target: str | None = None
    reason: str | None = None
    proof: Proof | None = None
    changes: tuple[PromptChange, ...] = ()
    count: int = 0
    entered: int = 0
    rides: int = 0
    usual: int = 0
    others: int = 0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`causes` are set if its tokens are all the tokens of some causes."""

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
    causes = tuple(causes)
    tokens = add_up([*bills, *(cause.spent for cause in causes)])
    cut = msgspec.structs.replace(
        evidence,
        turns=evidence.turns[:MOST_EVIDENCE],
        calls=evidence.calls[:MOST_EVIDENCE],
        files=evidence.files[:MOST_EVIDENCE],
        changes=evidence.changes[:MOST_EVIDENCE],
    )
    return Finding(
        kind=kind,
        sessions=tuple(sessions)[:MOST_EVIDENCE],
        evidence=cut,
        tokens=tokens,
        advice=advice or ADVICE[kind],
        causes=causes,
    )


def weight(tokens: Mapping[Rate, Spent]) -> int:
    """In tokens of plain input."""
    return sum(sum(map(int.__mul__, spent, _WEIGHTS)) for spent in tokens.values()) // _WEIGHTS.input


def bounded(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The heaviest findings of each kind, in a stable order; then one for the rest of each kind."""
    by_kind: dict[FindingKind, list[Finding]] = {}
    for one in sorted(findings, key=_order):
        by_kind.setdefault(one.kind, []).append(one)
    heaviest = [one for some in by_kind.values() for one in some[:MOST_OF_A_KIND]]
    rest = [_combined(some[MOST_OF_A_KIND:]) for some in by_kind.values() if len(some) > MOST_OF_A_KIND]
    return (*sorted(heaviest, key=_order), *rest)


def _combined(findings: Sequence[Finding]) -> Finding:
    sessions = dict.fromkeys(session for one in findings for session in one.sessions)
    evidence = Evidence(
        others=len(findings),
        count=sum(one.evidence.count for one in findings),
        entered=sum(one.evidence.entered for one in findings),
    )
    advices = {one.advice for one in findings}
    advice = findings[0].advice if len(advices) == 1 else None
    return finding(findings[0].kind, sessions, evidence, [one.tokens for one in findings], advice)


def _order(one: Finding) -> tuple[int, str, tuple[str, ...], str, tuple[int, ...], str, str, str]:
    evidence = one.evidence
    return (
        -one.weight,
        one.kind,
        one.sessions,
        evidence.rail_id,
        evidence.turns,
        evidence.target or "",
        evidence.reason or "",
        evidence.proof or "",
    )
