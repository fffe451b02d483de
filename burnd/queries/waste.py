"""Spending that could have been avoided: what was found, alike findings together, the dearest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from burnd import protocol
from burnd.attribution import Cause, Explained, add_up
from burnd.attribution.finding import MOST_EVIDENCE, Evidence, Finding, FindingKind, severity
from burnd.attribution.findings import in_project
from burnd.queries import wasting
from burnd.queries.costing import Cost, Costing
from burnd.queries.filters import Chosen, Filters
from burnd.queries.quotes import Quotes
from burnd.queries.rails import RailEntries
from burnd.queries.spent import spent_in
from burnd.queries.view import Refusal, View
from burnd.queries.wording import within

USUAL_FINDINGS, MOST_FINDINGS = 50, 500
# These mean the same wherever they are found, if they are about the same thing.
_ALIKE: Final[frozenset[FindingKind]] = frozenset(
    ("reread", "rode-far", "oversized", "retry-loop", "edit-revert", "cache-miss", "delegation")
)
_FAILURES: Final[frozenset[FindingKind]] = frozenset(("retry-loop", "failure-run"))


class WasteParams(Filters, frozen=True, kw_only=True):
    """Where to look, how dear a finding must be in dollars to be told, and how many are told at most."""

    min_cost: float = 0.0
    limit: int = USUAL_FINDINGS

    def check(self) -> None:
        """Raises Refusal."""
        if not 0 < self.limit <= MOST_FINDINGS:
            raise Refusal(f"limit is from 1 to {MOST_FINDINGS}")
        if not 0 <= self.min_cost < 1e12:
            raise Refusal("minCost is in dollars, from 0 on")


class About(NamedTuple):
    """What answers say of a session beside its id."""

    row: int
    project: str | None
    folder: str | None
    source: str | None


class Lot(NamedTuple):
    """Findings that are alike, the heaviest first, and what they cost together."""

    findings: list[Finding]
    cost: Cost


def answer(
    view: View, quotes: Quotes, params: WasteParams, chosen: Chosen, found: Iterable[wasting.Found]
) -> dict[str, Any]:
    """The answer of the method `waste`."""
    every = list(found)
    about = _about(view, every)
    costing = Costing(view.prices)
    single = [waste.finding for one in every for waste in one.wasted]
    lots = _lots([*single, *_bloated(every, about)], about, costing)
    dear = [lot for lot in lots if params.min_cost <= (lot.cost.usd or 0.0)]
    return {
        "version": protocol.VERSION,
        "filters": chosen.said,
        "totals": spent_in(view, chosen).answer(),
        "families": len(every),
        "findings": [_row(lot, about, quotes) for lot in dear[: params.limit]],
        "moreFindings": max(0, len(dear) - params.limit),
    }


def _about(view: View, found: Sequence[wasting.Found]) -> dict[str, About]:
    named = {session for one in found for waste in one.wasted for session in waste.sessions}
    named |= {one.prefix.session_id for one in found if one.prefix is not None}
    rows = view.keyed(_SESSIONS, [(session_id,) for session_id in sorted(named)])
    return {session_id: About(*facts) for session_id, *facts in rows}


def _bloated(found: Iterable[wasting.Found], about: Mapping[str, About]) -> list[Finding]:
    """Sessions that began with far more than others of their project did, in the same harness."""
    projects: dict[tuple[str | None, str | None], list[Explained]] = {}
    for one in found:
        if one.prefix is None:
            continue
        known = about[one.prefix.session_id]
        cause = Cause(kind="prefix", spent=dict(one.prefix.spent))
        begun = Explained(session_id=one.prefix.session_id, causes=(cause,), prefix=one.prefix.tokens)
        projects.setdefault((known.project, known.source), []).append(begun)
    return [
        msgspec.structs.replace(finding, evidence=msgspec.structs.replace(finding.evidence, target=project))
        for (project, _), sessions in projects.items()
        if project is not None
        for finding in in_project(sessions)
    ]


def _lots(findings: Iterable[Finding], about: Mapping[str, About], costing: Costing) -> list[Lot]:
    """Alike findings of a project together; the dearest first."""
    together: dict[Any, list[Finding]] = {}
    for n, finding in enumerate(findings):
        alike = _likeness(finding, about[finding.sessions[0]].project) if finding.kind in _ALIKE else n
        together.setdefault(alike, []).append(finding)
    lots = []
    for one in together.values():
        heaviest = sorted(one, key=lambda finding: (-finding.weight, finding.sessions, finding.evidence.turns))
        lots.append(Lot(heaviest, costing.of(add_up([finding.tokens for finding in one]))))
    return sorted(lots, key=lambda lot: (-lot.cost.units, -lot.findings[0].weight, lot.findings[0].kind))


def _likeness(finding: Finding, project: str | None) -> tuple[Any, ...]:
    evidence = finding.evidence
    # Where a cache was missed says nothing: why it was is what is alike.
    where = () if finding.kind == "cache-miss" else (project, evidence.tool, evidence.target, evidence.files[:1])
    return finding.kind, evidence.reason, *where


def _row(lot: Lot, about: Mapping[str, About], quotes: Quotes) -> dict[str, Any]:
    first = lot.findings[0]
    sessions = list(dict.fromkeys(session for finding in lot.findings for session in finding.sessions))
    where = about[first.sessions[0]]
    tokens = add_up([finding.tokens for finding in lot.findings])
    row: dict[str, Any] = {
        "kind": first.kind,
        "severity": severity(tokens),
        "project": where.project,
        "sessions": sessions[:MOST_EVIDENCE],
        "sessionCount": len(sessions),
        "times": _times(lot.findings),
        "evidence": _evidence(first, where),
        "tokens": sum(lot.cost.tokens[:-1]),
        **lot.cost.answer(),
        "advice": first.advice,
    }
    if first.kind in _FAILURES and (error := _error(first, where, quotes)) is not None:
        row["evidence"]["error"] = error
    return row


def _times(findings: Sequence[Finding]) -> int:
    """How often it happened; of an agent the evidence counts its turns."""
    if findings[0].kind == "delegation":
        return len(findings)
    return sum(finding.evidence.count for finding in findings)


def _evidence(finding: Finding, where: About) -> dict[str, Any]:
    """Of the heaviest of them: the first session that is named."""
    evidence: Evidence = finding.evidence
    said: dict[str, Any] = {"sessionId": finding.sessions[0], "railId": evidence.rail_id or None}
    said |= {
        "turns": list(evidence.turns),
        "calls": list(evidence.calls),
        "files": [within(file, where.folder) for file in evidence.files],
        "tool": evidence.tool,
        "target": within(evidence.target, where.folder) if evidence.target is not None else None,
        "reason": evidence.reason,
        "count": evidence.count,
        "entered": evidence.entered,
        "rides": evidence.rides,
        "usual": evidence.usual,
    }
    return said


def _error(finding: Finding, where: About, quotes: Quotes) -> str | None:
    """The first line of the first error, where content is kept."""
    evidence = finding.evidence
    rail = RailEntries(where.row, finding.sessions[0], evidence.rail_id, [])
    if not evidence.calls or not evidence.turns:
        return None
    return quotes.error(rail, evidence.turns[0], evidence.calls[0])


_SESSIONS = """
SELECT s.session_id, s.id, coalesce(k.name, p.name), p.name, n.name FROM sessions s
LEFT JOIN names p ON p.id = s.project LEFT JOIN names k ON k.id = s.project_key LEFT JOIN names n ON n.id = s.source
WHERE s.session_id IN ({keys})
"""
