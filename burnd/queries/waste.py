"""Finds waste in many sessions: reads saved findings, and computes those that are missing or outdated.

A session is examined together with the sessions that it started, its family. If filters select only a part of a family,
only the selected turns are examined, and the findings are not saved. Other families of the same projects are read for
comparison, since the usual size of a prefix does not depend on filters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from burnd.attribution import Explained, Rate, Spent, add_up, explain
from burnd.attribution.blocks import INSTRUCTIONS
from burnd.attribution.causes import Selected
from burnd.attribution.context_waste import SessionPrefix, in_project, in_session
from burnd.attribution.findings import MOST_EVIDENCE, Evidence, Finding, FindingKind, advice_for, weight
from burnd.attribution.rail_entries import RailEntries, RailName, load
from burnd.attribution.saved_findings import Family, SavedFindings, sizes_of
from burnd.classify.generated import generated_folder
from burnd.contract.reports import WasteParams
from burnd.queries import session_ids
from burnd.queries.bills import Cost, Pricer, total
from burnd.queries.cause_names import within
from burnd.queries.quotes import Quotes
from burnd.queries.selection import Chosen
from burnd.queries.spending import spent_in, unlogged_in
from burnd.queries.sums import By, Reader
from burnd.queries.view import View
from burnd.records import Turn
from burnd.records.content import MAIN

_TURNS_AT_ONCE: Final = 4000
Paid = list[tuple[Rate, Spent]]


class Prefix(msgspec.Struct, frozen=True, array_like=True):
    """The size of a session's prefix, and its cost in the selected turns, which may be none.

    `instructions` has the (path, bytes) of its instruction files as of `ts`, if the log lists them.
    """

    session_id: str
    tokens: int
    spent: Paid
    ts: str = ""
    instructions: tuple[tuple[str, int], ...] = ()


class Waste(msgspec.Struct, frozen=True, array_like=True):
    """One finding as it is saved."""

    kind: FindingKind
    sessions: tuple[str, ...]
    evidence: Evidence
    spent: Paid
    advice: str

    @property
    def finding(self) -> Finding:
        return Finding(
            kind=self.kind,
            sessions=self.sessions,
            evidence=self.evidence,
            tokens=dict(self.spent),
            advice=self.advice,
        )


class Found(msgspec.Struct, frozen=True, array_like=True):
    """The findings of one family."""

    wasted: tuple[Waste, ...] = ()
    prefix: Prefix | None = None
    avoidable: Paid = []  # all of it together, no token twice


class Seen(NamedTuple):
    """The findings of the selected families, and the prefixes of other families of their projects."""

    chosen: Chosen
    found: list[Found]
    others: list[Prefix]


class Plan(NamedTuple):
    """The selected families, and others to compare them with."""

    chosen: Chosen
    families: list[Family]
    others: list[Family]

    @property
    def every(self) -> list[Family]:
        return [*self.families, *self.others]

    def seen(self, looked_at: Mapping[int, bytes]) -> Seen:
        """All findings, given those of the examined families by their roots. A family that vanished is left out."""
        known = [(n, looked_at.get(family.root, family.saved)) for n, family in enumerate(self.every)]
        found = [(n, _found.decode(kept)) for n, kept in known if kept is not None]
        selected = [one for n, one in found if n < len(self.families)]
        others = [one.prefix for n, one in found if n >= len(self.families) and one.prefix is not None]
        return Seen(self.chosen, selected, others)

    def portions(self) -> Iterator[list[Family]]:
        """The families to examine, in portions that take a fraction of a second."""
        some: list[Family] = []
        size = 0
        for family in self.every:
            if family.saved is not None:
                continue
            some.append(family)
            size += family.turns
            if size >= _TURNS_AT_ONCE:
                yield some
                some, size = [], 0
        if some:
            yield some


_encode = msgspec.msgpack.Encoder().encode
_found = msgspec.msgpack.Decoder(Found)


def plan(view: View, chosen: Chosen, *, compared: bool) -> Plan:
    """The families with a selected turn, and those to compare them with, each with its saved findings."""
    selected: defaultdict[int, int] = defaultdict(int)
    for (session,), kind, _, (n, *_) in Reader(view, chosen.selection, chosen.kinds).read(By(("session",))):
        if not chosen.kinds[kind].is_unlogged:
            selected[session] += n
    turns: dict[int, int] = dict(view.rows(_TURNS_OF))
    kept = SavedFindings(view.db, sizes_of(view.prices))
    wanted = []
    for root, members in session_ids.by_root(view, selected).items():
        n = sum(turns.get(member, 0) for member in members)
        is_whole = n == sum(selected[member] for member in members)
        wanted.append(kept.family(root, members, n, is_whole=is_whole))
    if not compared:
        return Plan(chosen, wanted, [])
    own = {member for family in wanted for member in family.members}
    beside = {session for (session,) in view.keyed(_BESIDE, [(family.root,) for family in wanted])} - own
    others = [
        kept.family(root, members, n, is_whole=True)
        for root, members in session_ids.by_root(view, beside).items()
        if own.isdisjoint(members) and (n := sum(turns.get(member, 0) for member in members))
    ]
    return Plan(chosen, wanted, others)


def look(view: View, ledger: Path, chosen: Chosen, families: Sequence[Family]) -> list[tuple[Family, bytes]]:
    """The findings of these families, to be saved."""
    chosen, thresholds = chosen.in_view(view), view.prices.thresholds()
    rails: defaultdict[int, list[RailEntries]] = defaultdict(list)
    for rail in load(view.db, ledger, [member for family in families for member in family.members]):
        rails[rail.session].append(rail)
    found = []
    for family in families:
        selected = None if family.is_whole else _selected(view, chosen, family)
        own = [rail for member in family.members for rail in rails[member]]
        explained = [(explain(rail.entries, thresholds, selected), _known(rail.turns, selected)) for rail in own]
        found.append((family, _encode(_in_family(explained))))
    return found


def _known(turns: Sequence[Turn], selected: Selected | None) -> Sequence[Turn]:
    """All turns up to the last selected one: earlier content may still be paid for, later turns do not count."""
    if selected is None:
        return turns
    end = next((n for n in range(len(turns), 0, -1) if selected(turns[n - 1])), 0)
    return turns[:end]


def _in_family(rails: Sequence[tuple[Explained, Sequence[Turn]]]) -> Found:
    findings, avoidable = in_session(rails)
    wasted = tuple(
        Waste(one.kind, one.sessions, one.evidence, list(one.tokens.items()), one.advice)
        for one in findings
        if one.tokens
    )
    together = list(avoidable.items())
    main, turns = next((rail for rail in rails if rail[0].rail_id == MAIN), (None, ()))
    if main is None or main.agent is not None or not main.prefix:
        return Found(wasted, None, together)
    spent = [pair for cause in main.causes if cause.kind == "prefix" for pair in cause.spent.items()]
    files = [(block.name, block.bytes) for turn in turns[:1] for block in turn.entered if block.kind == INSTRUCTIONS]
    named = tuple((name, size) for name, size in files if name is not None)
    prefix = Prefix(main.session_id, main.prefix, spent, turns[0].ts if turns else "", named)
    return Found(wasted, prefix, together)


def _selected(view: View, chosen: Chosen, family: Family) -> Selected:
    wanted, members = chosen.selection.sessions, frozenset(family.members)
    selection = chosen.selection._replace(sessions=members if wanted is None else members & wanted)
    turns = Reader(view, selection, chosen.kinds).turns()
    keys = set(view.keyed(_NAMED, [(turn,) for turn in turns]))
    return lambda turn: (turn.source, turn.message_id) in keys


_TURNS_OF = "SELECT session, sum(n) FROM sums GROUP BY session"
# Sessions of the same projects.
_BESIDE = """
WITH own(project) AS (SELECT DISTINCT coalesce(project_key, project) FROM sessions WHERE id IN ({keys}))
SELECT s.id FROM own JOIN sessions s ON coalesce(s.project_key, s.project) = own.project
"""
_NAMED = "SELECT n.name, t.message_id FROM turns t JOIN names n ON n.id = t.source WHERE t.id IN ({keys})"


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


def answer(view: View, quotes: Quotes, params: WasteParams, seen: Seen) -> dict[str, Any]:
    """The answer of the method `waste`."""
    about, chosen, pricer = _about(view, seen), seen.chosen.in_view(view), Pricer(view.prices)
    single = [waste.finding for one in seen.found for waste in one.wasted]
    bloated = _bloated(seen, about)
    every = _lots([*single, *bloated], about, pricer)
    lots = [lot for lot in every if params.kind in (None, lot.kind)]
    costly = [lot for lot in lots if params.min_cost <= (lot.cost.usd or 0.0)]
    listed = _first_of_each(costly, params.per_kind)[: params.limit]
    return {
        "filters": chosen.said,
        "totals": spent_in(view, chosen).answer(),
        "unlogged": unlogged_in(view, chosen),
        "families": len(seen.found),
        "avoidable": _avoidable(seen, bloated, pricer).answer(),
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


def _avoidable(seen: Seen, bloated: Iterable[Finding], pricer: Pricer) -> Cost:
    """All findings together, no token twice: of prefixes only cache reads, since a cache miss may name the rest."""
    reads = [{rate: Spent(cache_read=spent.cache_read) for rate, spent in one.tokens.items()} for one in bloated]
    return pricer.of(add_up([*(dict(one.avoidable) for one in seen.found), *reads]))


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


def _about(view: View, seen: Seen) -> dict[str, About]:
    named = {session for one in seen.found for waste in one.wasted for session in waste.sessions}
    named |= {prefix.session_id for prefix in _prefixes(seen)}
    rows = view.keyed(_SESSIONS, [(session_id,) for session_id in sorted(named)])
    return {session_id: About(*facts) for session_id, *facts in rows}


def _prefixes(seen: Seen) -> list[Prefix]:
    """What sessions began with; what others of their projects did cost nothing here."""
    own = [one.prefix for one in seen.found if one.prefix is not None]
    return [*own, *(msgspec.structs.replace(prefix, spent=[]) for prefix in seen.others)]


def _bloated(seen: Seen, about: Mapping[str, About]) -> list[Finding]:
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


def _lots(findings: Iterable[Finding], about: Mapping[str, About], pricer: Pricer) -> list[Lot]:
    """Alike findings of a project together; the dearest first."""
    together: dict[Any, list[Finding]] = {}
    for n, finding in enumerate(findings):
        is_alone = finding.kind not in _ALIKE and not finding.evidence.others
        alike = n if is_alone else _likeness(finding, about[finding.sessions[0]])
        together.setdefault(alike, []).append(finding)
    lots = []
    for one in together.values():
        heaviest = sorted(one, key=lambda finding: (-finding.weight, finding.sessions, finding.evidence.turns))
        lots.append(Lot(heaviest, pricer.of(add_up([finding.tokens for finding in one]))))
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
