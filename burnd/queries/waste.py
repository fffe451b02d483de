"""Finds waste in many sessions, and the cost of their prefixes, from saved findings or new ones.

A session is examined with the sessions that it started, its family. If filters select a part of a family, only the
selected turns are examined, and nothing is saved. Other families of the same projects are read for comparison, since
the usual size of a prefix does not depend on filters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import Any, Final, Literal, NamedTuple

import msgspec

from burnd.attribution.causes import Explained, Selected, explain
from burnd.attribution.findings import ADVICE, MOST_EVIDENCE, Evidence, Finding, FindingKind, weight
from burnd.attribution.misses import CacheBills
from burnd.attribution.rail_entries import RailEntries, RailName, load
from burnd.attribution.rates import Rate, Spent, add_up
from burnd.attribution.row import INSTRUCTIONS
from burnd.attribution.saved_findings import Family, SavedFindings, sizes_of
from burnd.attribution.waste import SessionPrefix, in_project, in_session
from burnd.classify.tools import generated_folder
from burnd.contract.reports import WasteParams
from burnd.pricing import usd
from burnd.queries import names
from burnd.queries.bills import within
from burnd.queries.money import Cost, Pricer, total
from burnd.queries.quotes import Quotes
from burnd.queries.selection import Scope
from burnd.queries.spending import totals_of
from burnd.queries.sums import By, Reader
from burnd.queries.view import View
from burnd.queries.why import ttl_answer
from burnd.records import Turn
from burnd.records.content import MAIN

_TURNS_AT_ONCE: Final = 4000
RatedTokens = list[tuple[Rate, Spent]]


class Prefix(msgspec.Struct, frozen=True, array_like=True):
    """The size of a session's prefix, and its cost in the selected turns, which may be none.

    `instructions` has the (path, bytes) of its instruction files as of `ts`, if the log lists them.
    """

    session_id: str
    tokens: int
    spent: RatedTokens
    ts: str = ""
    instructions: tuple[tuple[str, int], ...] = ()


class Waste(msgspec.Struct, frozen=True, array_like=True):
    kind: FindingKind
    sessions: tuple[str, ...]
    evidence: Evidence
    spent: RatedTokens
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


class FamilyFindings(msgspec.Struct, frozen=True, array_like=True):
    wasted: tuple[Waste, ...] = ()
    prefix: Prefix | None = None
    avoidable: RatedTokens = []  # all findings together, no token twice
    caching: tuple[RatedTokens, ...] = ()  # the contexts as billed, with writes for five minutes, for an hour


class WasteFindings(NamedTuple):
    """The findings of the selected families, and the prefixes of other families of their projects."""

    scope: Scope
    families: list[FamilyFindings]
    others: list[Prefix]


class WastePlan(NamedTuple):
    """The selected families, and others to compare them with."""

    scope: Scope
    families: list[Family]
    others: list[Family]

    @property
    def every(self) -> list[Family]:
        return [*self.families, *self.others]

    def findings(self, examined: Mapping[int, bytes]) -> WasteFindings:
        """`examined` has new findings by root. Skips families that no longer exist."""
        saved = [(n, examined.get(family.root, family.saved)) for n, family in enumerate(self.every)]
        decoded = [(n, _decoder.decode(data)) for n, data in saved if data is not None]
        selected = [one for n, one in decoded if n < len(self.families)]
        others = [one.prefix for n, one in decoded if n >= len(self.families) and one.prefix is not None]
        return WasteFindings(self.scope, selected, others)

    def portions(self) -> Iterator[list[Family]]:
        """Each takes a fraction of a second."""
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
_decoder = msgspec.msgpack.Decoder(FamilyFindings)


def plan(view: View, scope: Scope, *, compared: bool) -> WastePlan:
    """The families with a selected turn, and those to compare them with, each with its saved findings."""
    selected: defaultdict[int, int] = defaultdict(int)
    for (session,), number, _, (n, *_) in Reader(view, scope.selection, scope.classes).read(By(("session",))):
        if not scope.classes[number].is_unlogged:
            selected[session] += n
    turns: dict[int, int] = dict(view.rows(_TURNS_OF))
    saved = SavedFindings(view.db, sizes_of(view.prices))
    selected_families = []
    for root, members in names.by_root(view, selected).items():
        n = sum(turns.get(member, 0) for member in members)
        is_whole = n == sum(selected[member] for member in members)
        selected_families.append(saved.family(root, members, n, is_whole=is_whole))
    if not compared:
        return WastePlan(scope, selected_families, [])
    own = {member for family in selected_families for member in family.members}
    beside = {session for (session,) in view.keyed(_BESIDE, [(family.root,) for family in selected_families])} - own
    others = [
        saved.family(root, members, n, is_whole=True)
        for root, members in names.by_root(view, beside).items()
        if own.isdisjoint(members) and (n := sum(turns.get(member, 0) for member in members))
    ]
    return WastePlan(scope, selected_families, others)


def examine(view: View, ledger: Path, scope: Scope, families: Sequence[Family]) -> list[tuple[Family, bytes]]:
    """Encoded for saving."""
    scope, thresholds = scope.in_view(view), view.prices.thresholds()
    rails: defaultdict[int, list[RailEntries]] = defaultdict(list)
    for rail in load(view.db, ledger, [member for family in families for member in family.members]):
        rails[rail.session].append(rail)
    findings = []
    for family in families:
        selected: Selected | None = None
        if not family.is_whole:
            sessions, members = scope.selection.sessions, frozenset(family.members)
            selection = scope.selection._replace(sessions=members if sessions is None else members & sessions)
            turns = Reader(view, selection, scope.classes).turns()
            keys = set(view.keyed(_NAMED, [(turn,) for turn in turns]))
            selected = partial(_is_among, keys)
        explained = []
        for rail in (rail for member in family.members for rail in rails[member]):
            end = len(rail.turns)
            # Content before the last selected turn may still be paid for; later turns do not count.
            while selected is not None and end and not selected(rail.turns[end - 1]):
                end -= 1
            explained.append((explain(rail.entries, thresholds, selected), rail.turns[:end]))
        findings.append((family, _encode(_in_family(explained))))
    return findings


def _is_among(keys: AbstractSet[tuple[str, str]], turn: Turn) -> bool:
    return (turn.source, turn.message_id) in keys


def _in_family(rails: Sequence[tuple[Explained, Sequence[Turn]]]) -> FamilyFindings:
    findings, avoidable = in_session(rails)
    wasted = tuple(
        Waste(one.kind, one.sessions, one.evidence, list(one.tokens.items()), one.advice)
        for one in findings
        if one.tokens
    )
    together = list(avoidable.items())
    caching = tuple(list(bill.items()) for bill in CacheBills.total(explained.caching for explained, _ in rails))
    main, turns = next((rail for rail in rails if rail[0].rail_id == MAIN), (None, ()))
    if main is None or main.agent is not None or not main.prefix:
        return FamilyFindings(wasted, None, together, caching)
    tokens = [pair for cause in main.causes if cause.kind == "prefix" for pair in cause.spent.items()]
    files = [(block.name, block.bytes) for turn in turns[:1] for block in turn.entered if block.kind == INSTRUCTIONS]
    instructions = tuple((name, size) for name, size in files if name is not None)
    prefix = Prefix(main.session_id, main.prefix, tokens, turns[0].ts if turns else "", instructions)
    return FamilyFindings(wasted, prefix, together, caching)


_TURNS_OF = "SELECT session, sum(n) FROM sums GROUP BY session"
# Sessions of the same projects.
_BESIDE = """
WITH own(project) AS (SELECT DISTINCT coalesce(project_key, project) FROM sessions WHERE id IN ({keys}))
SELECT s.id FROM own JOIN sessions s ON coalesce(s.project_key, s.project) = own.project
"""
_NAMED = "SELECT n.name, t.message_id FROM turns t JOIN names n ON n.id = t.source WHERE t.id IN ({keys})"


# Kinds whose findings are grouped if they concern the same thing.
_GROUPED: Final[frozenset[FindingKind]] = frozenset(
    ("reread", "rode-far", "oversized", "retry-loop", "edit-revert", "cache-miss", "delegation")
)
_HIGH, _MEDIUM = 1.0, 0.1  # dollars
_USUAL_PRICE: Final = 3 / 1e6  # dollars per token of uncached input
_HEAVY: Final[frozenset[FindingKind]] = frozenset(("rode-far", "oversized"))  # each about one call
_GENERATED_ADVICE: Final = (
    "Tools make or install these files: have the agent leave the folder alone, or look only for the lines it needs."
)
_NAMED_BY_FILE: Final[frozenset[FindingKind]] = frozenset(("reread", "edit-revert"))
_FAILURES: Final[frozenset[FindingKind]] = frozenset(("retry-loop", "failure-run"))


class FindingSession(NamedTuple):
    row: int
    project: str | None
    folder: str | None
    source: str | None


class FindingGroup(NamedTuple):
    """Similar findings, the heaviest first, and their total cost."""

    findings: list[Finding]
    cost: Cost

    @property
    def kind(self) -> FindingKind:
        return self.findings[0].kind


def answer(view: View, quotes: Quotes, params: WasteParams, seen: WasteFindings) -> dict[str, Any]:
    scope, pricer = seen.scope.in_view(view), Pricer(view.prices)
    single = [waste.finding for one in seen.families for waste in one.wasted]
    ids = {session for finding in single for session in finding.sessions}
    ids |= {prefix.session_id for prefix in _prefixes(seen)}
    rows = view.keyed(_SESSIONS, [(session_id,) for session_id in sorted(ids)])
    about = {session_id: FindingSession(*facts) for session_id, *facts in rows}
    bloated = _bloated(seen, about)
    # No token twice: of prefixes only cache reads, since a cache miss may cover the rest; or else the prefixes alone.
    reads = [{rate: Spent(cache_read=tokens.cache_read) for rate, tokens in one.tokens.items()} for one in bloated]
    together = add_up([*(dict(one.avoidable) for one in seen.families), *reads])
    avoidable = max(map(pricer.of, (together, add_up([one.tokens for one in bloated]))), key=lambda cost: cost.units)
    every = _group([*single, *bloated], about, pricer)
    groups = [group for group in every if params.kind in (None, group.kind)]
    costly = [group for group in groups if params.min_cost <= (group.cost.usd or 0.0)]
    counts: Counter[FindingKind] = Counter()
    first: list[FindingGroup] = []
    for group in costly:
        counts[group.kind] += 1
        if counts[group.kind] <= params.per_kind and len(first) < params.limit:
            first.append(group)
    short_ids = names.short_ids(view, {group.findings[0].sessions[0] for group in first})
    return {
        "filters": scope.filters,
        **totals_of(view, scope),
        "families": len(seen.families),
        "avoidable": avoidable.answer(),
        "cacheTtl": ttl_answer(
            CacheBills.total(CacheBills(*map(dict, one.caching)) for one in seen.families if one.caching), pricer
        ),
        "severities": {"high": _HIGH, "medium": _MEDIUM},
        "kinds": _kinds(every),
        "findings": [_row(group, about, quotes, short_ids) for group in first],
        "moreFindings": len(costly) - len(first),
        "cheaperFindings": len(groups) - len(costly),
    }


def _kinds(groups: Iterable[FindingGroup]) -> list[dict[str, Any]]:
    """The most expensive first."""
    by_kind: dict[FindingKind, list[FindingGroup]] = {}
    for group in groups:
        by_kind.setdefault(group.kind, []).append(group)
    costs = {kind: total([group.cost for group in some]) for kind, some in by_kind.items()}
    return [
        {"kind": kind, "findings": len(by_kind[kind]), **costs[kind].answer(), "advice": ADVICE[kind]}
        for kind in sorted(costs, key=lambda kind: (-costs[kind].units, -sum(costs[kind].tokens), kind))
    ]


def _prefixes(seen: WasteFindings) -> list[Prefix]:
    """Those of other families of the projects have no cost here."""
    own = [one.prefix for one in seen.families if one.prefix is not None]
    return [*own, *(msgspec.structs.replace(prefix, spent=[]) for prefix in seen.others)]


def _bloated(seen: WasteFindings, about: Mapping[str, FindingSession]) -> list[Finding]:
    projects: dict[tuple[str | None, str | None], list[SessionPrefix]] = {}
    for prefix in _prefixes(seen):
        facts = about[prefix.session_id]
        session = SessionPrefix(prefix.session_id, prefix.tokens, dict(prefix.spent))
        projects.setdefault((facts.project, facts.source), []).append(session)
    return [
        msgspec.structs.replace(finding, evidence=msgspec.structs.replace(finding.evidence, target=project))
        for (project, _), sessions in projects.items()
        if project is not None
        for finding in in_project(sessions)
    ]


def _group(findings: Iterable[Finding], about: Mapping[str, FindingSession], pricer: Pricer) -> list[FindingGroup]:
    """Groups similar findings of a project, the most expensive first."""
    together: dict[Any, list[Finding]] = {}
    for n, finding in enumerate(findings):
        is_alone = finding.kind not in _GROUPED and not finding.evidence.others
        key = n if is_alone else _group_key(finding, about[finding.sessions[0]])
        together.setdefault(key, []).append(finding)
    groups = []
    for one in together.values():
        heaviest = sorted(one, key=lambda finding: (-finding.weight, finding.sessions, finding.evidence.turns))
        groups.append(FindingGroup(heaviest, pricer.of(add_up([finding.tokens for finding in one]))))
    return sorted(groups, key=lambda group: (-group.cost.units, -group.findings[0].weight, group.findings[0].kind))


def _group_key(finding: Finding, about: FindingSession) -> tuple[Any, ...]:
    evidence, project = finding.evidence, about.project
    if evidence.others:
        return finding.kind, project, "others"
    # Cache misses are similar if they have the same reason, wherever they occurred.
    where = (
        () if finding.kind == "cache-miss" else (project, evidence.tool, _subject(finding, about), evidence.files[:1])
    )
    return finding.kind, evidence.reason, evidence.proof, *where


def _subject(finding: Finding, about: FindingSession) -> str | None:
    """The target, or its folder for generated files; a project may itself be in a folder of such a name."""
    target = finding.evidence.target
    if not target or finding.kind not in _HEAVY:
        return target
    inside = within(target, about.folder)
    folder = generated_folder(inside)
    return target.removesuffix(inside) + folder if folder is not None else target


def _row(
    group: FindingGroup, about: Mapping[str, FindingSession], quotes: Quotes, short_ids: Mapping[str, str]
) -> dict[str, Any]:
    first = group.findings[0]
    sessions = list(dict.fromkeys(session for finding in group.findings for session in finding.sessions))
    where = about[first.sessions[0]]
    projects = {about[finding.sessions[0]].project for finding in group.findings}
    targets = {finding.evidence.target for finding in group.findings}
    subject = _subject(first, where)
    is_of_many = len(targets) > 1 and subject != first.evidence.target
    row: dict[str, Any] = {
        "kind": first.kind,
        "severity": _severity(group),
        "project": where.project if len(projects) == 1 else None,
        "projectCount": len(projects - {None}),
        "sessions": sessions[:MOST_EVIDENCE],
        "sessionCount": len(sessions),
        # For an agent the evidence counts its turns.
        "times": sum(
            finding.evidence.others or 1 if first.kind == "delegation" else finding.evidence.count
            for finding in group.findings
        ),
        "evidence": {
            "shortId": short_ids[first.sessions[0]],
            **_evidence(group.findings, where, subject if is_of_many else first.evidence.target),
        },
        "tokens": sum(group.cost.tokens[:-1]),
        **group.cost.answer(),
        "advice": _GENERATED_ADVICE if is_of_many else first.advice,
    }
    evidence = first.evidence
    if not evidence.calls or not evidence.turns:
        return row
    call = evidence.turns[0], evidence.calls[0]
    texts: dict[str, str | None] = {}
    if first.kind not in _NAMED_BY_FILE and not is_of_many:
        rail_id = None if first.kind == "delegation" else evidence.rail_id  # an agent is called from another rail
        texts["quote"] = quotes.call(where.row, first.sessions[0], rail_id, *call)
    if first.kind in _FAILURES:
        texts["error"] = quotes.error(RailName(where.row, first.sessions[0], evidence.rail_id), *call)
    row["evidence"] |= {name: text for name, text in texts.items() if text is not None}
    return row


def _severity(group: FindingGroup) -> Literal["high", "medium", "low"]:
    """By cost; without a price, by the cost of its tokens as uncached input."""
    usd = group.cost.usd
    if usd is None:
        usd = weight(add_up([finding.tokens for finding in group.findings])) * _USUAL_PRICE
    return "high" if usd >= _HIGH else "medium" if usd >= _MEDIUM else "low"


def _evidence(findings: Sequence[Finding], where: FindingSession, target: str | None) -> dict[str, Any]:
    """The evidence of findings in the session and rail of the heaviest; sizes are the maximum of all."""
    first = findings[0].evidence
    here = sorted(
        (one for one in findings if _session_and_rail(one) == _session_and_rail(findings[0])),
        key=lambda one: one.evidence.turns,
    )
    evidences = [one.evidence for one in here]
    sized = [one.evidence for one in findings] if findings[0].kind in _HEAVY else evidences
    rails = {evidence.rail_id for evidence in evidences}
    changes = dict.fromkeys(change for finding in findings for change in finding.evidence.changes)
    proof = {"proof": first.proof, "changes": [msgspec.to_builtins(change) for change in changes][:MOST_EVIDENCE]}
    return {
        "sessionId": findings[0].sessions[0],
        "railId": first.rail_id or None if len(rails) == 1 else None,
        "turns": sorted({turn for evidence in evidences for turn in evidence.turns})[:MOST_EVIDENCE],
        "calls": list(dict.fromkeys(call for evidence in evidences for call in evidence.calls))[:MOST_EVIDENCE],
        "files": [within(file, where.folder) for file in first.files],
        "tool": first.tool,
        "target": within(target, where.folder) if first.tool and target else target,
        "reason": first.reason,
        **(proof if first.proof else {}),
        "count": sum(evidence.count for evidence in evidences),
        "entered": (max if sized is not evidences else sum)(evidence.entered for evidence in sized),
        "rides": max(evidence.rides for evidence in sized),
        "usual": first.usual,
        "others": sum(finding.evidence.others for finding in findings),
    }


def _session_and_rail(finding: Finding) -> tuple[str, str]:
    """An agent's finding concerns the turn that started it, not its own rail."""
    return finding.sessions[0], "" if finding.kind == "delegation" else finding.evidence.rail_id


_SESSIONS = """
SELECT s.session_id, s.id, coalesce(k.name, p.name), p.name, n.name FROM sessions s
LEFT JOIN names p ON p.id = s.project LEFT JOIN names k ON k.id = s.project_key LEFT JOIN names n ON n.id = s.source
WHERE s.session_id IN ({keys})
"""


def overhead(view: View, seen: WasteFindings) -> dict[str, Any]:
    scope = seen.scope.in_view(view)
    prefixes = [one.prefix for one in seen.families if one.prefix is not None and one.prefix.spent]
    sources: dict[str, str] = dict(view.keyed(_SOURCES, [(prefix.session_id,) for prefix in prefixes]))
    by_source: defaultdict[str, list[Prefix]] = defaultdict(list)
    for prefix in prefixes:
        by_source[sources.get(prefix.session_id) or ""].append(prefix)
    pricer = Pricer(view.prices)
    return {
        "filters": scope.filters,
        **totals_of(view, scope),
        "sources": [_source(name, some, pricer) for name, some in sorted(by_source.items())],
        "servers": _servers(view, scope),
    }


def _source(name: str, prefixes: list[Prefix], pricer: Pricer) -> dict[str, Any]:
    """`usdPerToken` is the cost of one more token in every one of these prefixes."""
    costs = [(prefix.tokens, pricer.of(dict(prefix.spent))) for prefix in prefixes]
    sizes = [tokens for tokens, _ in costs]
    per_token = sum(cost.units / tokens for tokens, cost in costs)
    whole = total([cost for _, cost in costs])
    return {
        "source": name,
        "sessions": len(prefixes),
        "prefix": {"median": median_low(sizes), "smallest": min(sizes), "largest": max(sizes)},
        "rides": sum(sum(tokens.context for _, tokens in prefix.spent) // prefix.tokens for prefix in prefixes),
        **whole.answer(),
        "usdPerToken": float(usd(round(per_token))) if whole.is_priced else None,
        "instructions": _instructions(prefixes),
    }


def _instructions(prefixes: Iterable[Prefix]) -> list[dict[str, Any]]:
    """Instruction files in logs, with their size in the newest session that started with each."""
    sizes: dict[str, int] = {}
    sessions: defaultdict[str, int] = defaultdict(int)
    for prefix in sorted(prefixes, key=lambda one: (one.ts, one.session_id)):
        for path, size in prefix.instructions:
            sizes[path] = size
            sessions[path] += 1
    return [{"path": path, "bytes": sizes[path], "sessions": sessions[path]} for path in sorted(sizes)]


def _servers(view: View, scope: Scope) -> list[dict[str, Any]]:
    """The busiest first."""
    sessions = {keys for keys, *_ in Reader(view, scope.selection, scope.classes).read(By(("session",)))}
    calls: defaultdict[str, int] = defaultdict(int)
    for name, times in view.keyed(_CALLED, sessions):
        calls[name.split("__")[1]] += times
    return [{"server": name, "calls": calls[name]} for name in sorted(calls, key=lambda name: (-calls[name], name))]


_SOURCES = """
SELECT s.session_id, n.name FROM sessions s JOIN names n ON n.id = s.source WHERE s.session_id IN ({keys})
"""
_CALLED = """
WITH w(session) AS ({keys}) SELECT n.name, count(*) FROM w CROSS JOIN turns t ON t.session = w.session
CROSS JOIN tool_calls c ON c.turn = t.id CROSS JOIN names n ON n.id = c.name AND n.name GLOB 'mcp__?*__*'
GROUP BY n.name
"""
