"""Finds waste in many sessions: reads saved findings, and computes those that are missing or outdated.

A session is examined together with the sessions that it started, its family. If filters select only a part of a family,
only the selected turns are examined, and the findings are not saved. Other families of the same projects are read for
comparison, since the usual size of a prefix does not depend on filters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from burnd.attribution import Explained, Rate, Spent, explain
from burnd.attribution.blocks import INSTRUCTIONS
from burnd.attribution.causes import Selected
from burnd.attribution.context_waste import in_session
from burnd.attribution.findings import Evidence, Finding, FindingKind
from burnd.attribution.rail_entries import RailEntries, load
from burnd.attribution.saved_findings import Family, SavedFindings, sizes_of
from burnd.queries import families
from burnd.queries.selection import Chosen
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
    for root, members in families.by_root(view, selected).items():
        n = sum(turns.get(member, 0) for member in members)
        is_whole = n == sum(selected[member] for member in members)
        wanted.append(kept.family(root, members, n, is_whole=is_whole))
    if not compared:
        return Plan(chosen, wanted, [])
    own = {member for family in wanted for member in family.members}
    beside = {session for (session,) in view.keyed(_BESIDE, [(family.root,) for family in wanted])} - own
    others = [
        kept.family(root, members, n, is_whole=True)
        for root, members in families.by_root(view, beside).items()
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
