"""Spending that could have been avoided: what was found, alike findings together, the dearest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from burnd.attribution import Spent, add_up
from burnd.attribution.context_waste import SessionPrefix, in_project
from burnd.attribution.findings import MOST_EVIDENCE, Finding, FindingKind, advice_for, weight
from burnd.attribution.rail_entries import RailName
from burnd.classify.generated import generated_folder
from burnd.contract.reports import WasteParams
from burnd.queries import waste_search
from burnd.queries.costing import Cost, Costing, total
from burnd.queries.quotes import Quotes
from burnd.queries.spent import spent_in, unlogged_in
from burnd.queries.view import View
from burnd.queries.wording import within

# These mean the same wherever they are found, if they are about the same thing.
_ALIKE: Final[frozenset[FindingKind]] = frozenset(
    ("reread", "rode-far", "oversized", "retry-loop", "edit-revert", "cache-miss", "delegation")
)
_HIGH, _MEDIUM = 1.0, 0.1  # dollars
_USUAL_PRICE: Final = 3 / 1e6  # dollars for a token of plain input
_HEAVY: Final[frozenset[FindingKind]] = frozenset(("rode-far", "oversized"))  # each of them about one call
_MADE_ADVICE: Final = (
    "Tools make or install these files: have the agent leave the folder alone, or look only for the lines it needs."
)
_NAMED_BY_FILE: Final[frozenset[FindingKind]] = frozenset(("reread", "edit-revert"))
_FAILURES: Final[frozenset[FindingKind]] = frozenset(("retry-loop", "failure-run"))


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

    @property
    def kind(self) -> FindingKind:
        return self.findings[0].kind


def answer(view: View, quotes: Quotes, params: WasteParams, seen: waste_search.Seen) -> dict[str, Any]:
    """The answer of the method `waste`."""
    about, chosen, costing = _about(view, seen), seen.chosen.in_view(view), Costing(view.prices)
    single = [waste.finding for one in seen.found for waste in one.wasted]
    bloated = _bloated(seen, about)
    every = _lots([*single, *bloated], about, costing)
    lots = [lot for lot in every if params.kind in (None, lot.kind)]
    costly = [lot for lot in lots if params.min_cost <= (lot.cost.usd or 0.0)]
    listed = _first_of_each(costly, params.per_kind)[: params.limit]
    return {
        "filters": chosen.said,
        "totals": spent_in(view, chosen).answer(),
        "unlogged": unlogged_in(view, chosen),
        "families": len(seen.found),
        "avoidable": _avoidable(seen, bloated, costing).answer(),
        "severities": {"high": _HIGH, "medium": _MEDIUM},
        "kinds": _kinds(every),
        "findings": [_row(lot, about, quotes) for lot in listed],
        "moreFindings": len(costly) - len(listed),
        "cheaperFindings": len(lots) - len(costly),
    }


def _first_of_each(lots: Iterable[Lot], most: int) -> list[Lot]:
    counts: Counter[FindingKind] = Counter()
    listed = []
    for lot in lots:
        counts[lot.kind] += 1
        if counts[lot.kind] <= most:
            listed.append(lot)
    return listed


def _avoidable(seen: waste_search.Seen, bloated: Iterable[Finding], costing: Costing) -> Cost:
    """All findings together, no token twice: of prefixes only cache reads, since a cache miss may name the rest."""
    reads = [{rate: Spent(cache_read=spent.cache_read) for rate, spent in one.tokens.items()} for one in bloated]
    return costing.of(add_up([*(dict(one.avoidable) for one in seen.found), *reads]))


def _kinds(lots: Iterable[Lot]) -> list[dict[str, Any]]:
    """Each kind with the number and cost of its findings, the most expensive first."""
    by_kind: dict[FindingKind, list[Lot]] = {}
    for lot in lots:
        by_kind.setdefault(lot.kind, []).append(lot)
    costs = {kind: total([lot.cost for lot in some]) for kind, some in by_kind.items()}
    return [
        {"kind": kind, "findings": len(by_kind[kind]), **costs[kind].answer(), "advice": advice_for(kind)}
        for kind in sorted(costs, key=lambda kind: (-costs[kind].units, -sum(costs[kind].tokens), kind))
    ]


def _about(view: View, seen: waste_search.Seen) -> dict[str, About]:
    named = {session for one in seen.found for waste in one.wasted for session in waste.sessions}
    named |= {prefix.session_id for prefix in _prefixes(seen)}
    rows = view.keyed(_SESSIONS, [(session_id,) for session_id in sorted(named)])
    return {session_id: About(*facts) for session_id, *facts in rows}


def _prefixes(seen: waste_search.Seen) -> list[waste_search.Prefix]:
    """What sessions began with; what others of their projects did cost nothing here."""
    own = [one.prefix for one in seen.found if one.prefix is not None]
    return [*own, *(msgspec.structs.replace(prefix, spent=[]) for prefix in seen.others)]


def _bloated(seen: waste_search.Seen, about: Mapping[str, About]) -> list[Finding]:
    """Sessions that began with far more than others of their project did, in the same harness."""
    projects: dict[tuple[str | None, str | None], list[SessionPrefix]] = {}
    for prefix in _prefixes(seen):
        known = about[prefix.session_id]
        begun = SessionPrefix(prefix.session_id, prefix.tokens, dict(prefix.spent))
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
        is_alone = finding.kind not in _ALIKE and not finding.evidence.others
        alike = n if is_alone else _likeness(finding, about[finding.sessions[0]])
        together.setdefault(alike, []).append(finding)
    lots = []
    for one in together.values():
        heaviest = sorted(one, key=lambda finding: (-finding.weight, finding.sessions, finding.evidence.turns))
        lots.append(Lot(heaviest, costing.of(add_up([finding.tokens for finding in one]))))
    return sorted(lots, key=lambda lot: (-lot.cost.units, -lot.findings[0].weight, lot.findings[0].kind))


def _likeness(finding: Finding, about: About) -> tuple[Any, ...]:
    evidence, project = finding.evidence, about.project
    if evidence.others:
        return finding.kind, project, "others"
    # Where a cache was missed says nothing: why it was is what is alike.
    where = () if finding.kind == "cache-miss" else (project, evidence.tool, _thing(finding, about), evidence.files[:1])
    return finding.kind, evidence.reason, *where


def _thing(finding: Finding, about: About) -> str | None:
    """What it is about. Of files that tools made it is the folder that matters: there are always more of them.

    A project may itself be in a folder that is called like one of those.
    """
    target = finding.evidence.target
    if not target or finding.kind not in _HEAVY:
        return target
    inside = within(target, about.folder)
    made = generated_folder(inside)
    return target.removesuffix(inside) + made if made is not None else target


def _row(lot: Lot, about: Mapping[str, About], quotes: Quotes) -> dict[str, Any]:
    first = lot.findings[0]
    sessions = list(dict.fromkeys(session for finding in lot.findings for session in finding.sessions))
    where = about[first.sessions[0]]
    projects = {about[finding.sessions[0]].project for finding in lot.findings}
    targets = {finding.evidence.target for finding in lot.findings}
    thing = _thing(first, where)
    is_of_many = len(targets) > 1 and thing != first.evidence.target
    row: dict[str, Any] = {
        "kind": first.kind,
        "severity": _severity(lot),
        "project": where.project if len(projects) == 1 else None,
        "projectCount": len(projects - {None}),
        "sessions": sessions[:MOST_EVIDENCE],
        "sessionCount": len(sessions),
        "times": _times(lot.findings),
        "evidence": _evidence(lot.findings, where, thing if is_of_many else first.evidence.target),
        "tokens": sum(lot.cost.tokens[:-1]),
        **lot.cost.answer(),
        "advice": _MADE_ADVICE if is_of_many else first.advice,
    }
    if first.kind not in _NAMED_BY_FILE and not is_of_many and (quote := _quote(first, where, quotes)) is not None:
        row["evidence"]["quote"] = quote
    if first.kind in _FAILURES and (error := _error(first, where, quotes)) is not None:
        row["evidence"]["error"] = error
    return row


def _severity(lot: Lot) -> Literal["high", "medium", "low"]:
    """By what it cost; without a price, by what its tokens would at that of plain input."""
    usd = lot.cost.usd
    if usd is None:
        usd = weight(add_up([finding.tokens for finding in lot.findings])) * _USUAL_PRICE
    return "high" if usd >= _HIGH else "medium" if usd >= _MEDIUM else "low"


def _times(findings: Sequence[Finding]) -> int:
    """How often it happened; of an agent the evidence counts its turns."""
    if findings[0].kind == "delegation":
        return sum(finding.evidence.others or 1 for finding in findings)
    return sum(finding.evidence.count for finding in findings)


def _evidence(findings: Sequence[Finding], where: About, target: str | None) -> dict[str, Any]:
    """Of all that are in one place with the heaviest, in its session and on its rail; sizes are the largest of all."""
    first = findings[0].evidence
    here = sorted((one for one in findings if _place(one) == _place(findings[0])), key=lambda one: one.evidence.turns)
    told = [one.evidence for one in here]
    sized = [one.evidence for one in findings] if findings[0].kind in _HEAVY else told
    rails = {evidence.rail_id for evidence in told}
    return {
        "sessionId": findings[0].sessions[0],
        "railId": first.rail_id or None if len(rails) == 1 else None,
        "turns": sorted({turn for evidence in told for turn in evidence.turns})[:MOST_EVIDENCE],
        "calls": list(dict.fromkeys(call for evidence in told for call in evidence.calls))[:MOST_EVIDENCE],
        "files": [within(file, where.folder) for file in first.files],
        "tool": first.tool,
        "target": within(target, where.folder) if first.tool and target else target,
        "reason": first.reason,
        "count": sum(evidence.count for evidence in told),
        "entered": (max if sized is not told else sum)(evidence.entered for evidence in sized),
        "rides": max(evidence.rides for evidence in sized),
        "usual": first.usual,
        "others": sum(finding.evidence.others for finding in findings),
    }


def _place(finding: Finding) -> tuple[str, str]:
    """An agent's finding is about the turn that started it, whichever its own rail."""
    return finding.sessions[0], "" if finding.kind == "delegation" else finding.evidence.rail_id


def _quote(finding: Finding, where: About, quotes: Quotes) -> str | None:
    """What the first of the calls was told to do, where content is kept."""
    evidence, session_id = finding.evidence, finding.sessions[0]
    if not evidence.calls or not evidence.turns:
        return None
    rail_id = None if finding.kind == "delegation" else evidence.rail_id  # an agent was called on another than its own
    return quotes.call(where.row, session_id, rail_id, evidence.turns[0], evidence.calls[0])


def _error(finding: Finding, where: About, quotes: Quotes) -> str | None:
    """The first line of the first error, where content is kept."""
    evidence = finding.evidence
    rail = RailName(where.row, finding.sessions[0], evidence.rail_id)
    if not evidence.calls or not evidence.turns:
        return None
    return quotes.error(rail, evidence.turns[0], evidence.calls[0])


_SESSIONS = """
SELECT s.session_id, s.id, coalesce(k.name, p.name), p.name, n.name FROM sessions s
LEFT JOIN names p ON p.id = s.project LEFT JOIN names k ON k.id = s.project_key LEFT JOIN names n ON n.id = s.source
WHERE s.session_id IN ({keys})
"""
