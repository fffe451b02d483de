"""Looks for waste in many sessions: what was found in one is kept in the index, and looked for again when it changed.

A session is looked at with all that it started, its family. Of a family that filters select only in part, the selected
turns alone are looked at, and nothing is kept.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from burnd.attribution import Explained, Rate, Spent, explain
from burnd.attribution.causes import Selected
from burnd.attribution.finding import Evidence, Finding, FindingKind
from burnd.attribution.findings import in_session
from burnd.queries import families
from burnd.queries.filters import Chosen
from burnd.queries.rails import RailEntries, load
from burnd.queries.reading import Reader
from burnd.queries.scanning import TURNS, By
from burnd.queries.view import View
from burnd.records import Turn

MAIN: Final = "main"
_TURNS_AT_ONCE: Final = 4000
_NOT_COUNTED: Final = -1
Paid = list[tuple[Rate, Spent]]


class Prefix(msgspec.Struct, frozen=True, array_like=True):
    """How large a session's prefix was, and what it cost."""

    session_id: str
    tokens: int
    spent: Paid


class Waste(msgspec.Struct, frozen=True, array_like=True):
    """One finding as it is kept."""

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
    """What was found in one family."""

    wasted: tuple[Waste, ...] = ()
    prefix: Prefix | None = None


class Family(NamedTuple):
    """A session and those it started, by their rows; `kept` is what was found in it, if that still holds.

    `changes` is how often each of them had changed, `is_whole` whether all of their turns are selected.
    """

    root: int
    members: tuple[int, ...]
    turns: int
    is_whole: bool
    changes: tuple[int, ...]
    kept: bytes | None


class Plan(NamedTuple):
    """The families that filters select."""

    chosen: Chosen
    families: list[Family]

    def portions(self) -> Iterator[list[Family]]:
        """Families that must be looked at, so many at once as take a fraction of a second."""
        some: list[Family] = []
        size = 0
        for family in self.families:
            if family.kept is not None:
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


def decoded(kept: bytes) -> Found:
    return _found.decode(kept)


def begin(db: sqlite3.Connection) -> None:
    """From now on changes of every session are counted. To be run inside a transaction, before anything is planned."""
    db.execute(_BEGIN)


def plan(view: View, chosen: Chosen) -> Plan:
    """Which families have a turn that is selected, and what is known of each."""
    selected: defaultdict[int, int] = defaultdict(int)
    for session, kind, _, n, *_ in Reader(view, chosen.selection, chosen.kinds).read(By(("session",))):
        if not chosen.kinds[kind].is_unlogged:
            selected[session] += n
    turns: dict[int, int] = dict(view.rows(_TURNS_OF))
    kept = {session: row for session, *row in view.rows(_KEPT)}
    sizes = sizes_of(view)
    wanted = []
    for root, members in families.by_root(view, selected).items():
        n = sum(turns.get(member, 0) for member in members)
        is_whole = n == sum(selected[member] for member in members)
        rows = [kept.get(member, (_NOT_COUNTED, None, None, None)) for member in members]
        holds = is_whole and all(row[1] == root and row[2] == sizes for row in rows)
        found = next((row[3] for member, row in zip(members, rows, strict=True) if member == root), None)
        wanted.append(Family(root, members, n, is_whole, tuple(row[0] for row in rows), found if holds else None))
    return Plan(chosen, wanted)


def look(view: View, ledger: Path, chosen: Chosen, families: Sequence[Family]) -> list[tuple[Family, bytes]]:
    """What there is to be found in these families."""
    thresholds = view.prices.thresholds()
    rails: defaultdict[int, list[RailEntries]] = defaultdict(list)
    for rail in load(view.db, ledger, [member for family in families for member in family.members]):
        rails[rail.session].append(rail)
    told = []
    for family in families:
        selected = None if family.is_whole else _selected(view, chosen, family)
        own = [rail for member in family.members for rail in rails[member]]
        explained = [(explain(rail.entries, thresholds, selected), _known(rail.turns, selected)) for rail in own]
        told.append((family, _encode(_in_family(explained))))
    return told


def _known(turns: Sequence[Turn], selected: Selected | None) -> Sequence[Turn]:
    """All up to the last one that is selected: what came before may still be paid for, what came later is not known."""
    if selected is None:
        return turns
    end = next((n for n in range(len(turns), 0, -1) if selected(turns[n - 1])), 0)
    return turns[:end]


def _in_family(rails: Sequence[tuple[Explained, Sequence[Turn]]]) -> Found:
    wasted = tuple(
        Waste(one.kind, one.sessions, one.evidence, list(one.tokens.items()), one.advice)
        for one in in_session(rails)
        if one.tokens
    )
    main = next((explained for explained, _ in rails if explained.rail_id == MAIN), None)
    if main is None or main.agent is not None:
        return Found(wasted)
    spent = [pair for cause in main.causes if cause.kind == "prefix" for pair in cause.spent.items()]
    return Found(wasted, Prefix(main.session_id, main.prefix, spent) if main.prefix and spent else None)


def _selected(view: View, chosen: Chosen, family: Family) -> Selected:
    selection = chosen.selection._replace(sessions=frozenset(family.members))
    rows = Reader(view, selection, chosen.kinds).read_facts(TURNS, By(("turn",)))
    keys = set(view.keyed(_NAMED, {(row[0],) for row in rows}))
    return lambda turn: (turn.source, turn.message_id) in keys


def keep(db: sqlite3.Connection, sizes: str, told: Iterable[tuple[Family, bytes]]) -> None:
    """Remembers what was found, unless one of the family has changed since. To be run inside a transaction."""
    for family, found in told:
        if not family.is_whole:
            continue
        sessions = list(zip(family.members, family.changes, strict=True))
        now = dict(db.execute(_CHANGES, (msgspec.json.encode(family.members).decode(),)).fetchall())
        if all(now.get(session) == change for session, change in sessions):
            rows = [(family.root, sizes, found if session == family.root else None, session) for session, _ in sessions]
            db.executemany(_KEEP, rows)


def sizes_of(view: View) -> str:
    """The context sizes at which prices change: what is kept tells rates apart by them."""
    return msgspec.json.encode(view.prices.thresholds()).decode()


_TURNS_OF = """
SELECT s.session, sum(s.n) FROM session_sums s JOIN classes c ON c.id = s.class
WHERE s.grain = 1 AND c.unlogged = 0 GROUP BY s.session
"""
_KEPT = "SELECT session, change, root, sizes, found FROM findings"
_NAMED = "SELECT n.name, t.message_id FROM turns t JOIN names n ON n.id = t.source WHERE t.id IN ({keys})"
_BEGIN = "INSERT INTO findings(session) SELECT id FROM sessions WHERE id NOT IN (SELECT session FROM findings)"
_CHANGES = "SELECT session, change FROM findings WHERE session IN (SELECT value FROM json_each(?))"
_KEEP = "UPDATE findings SET root = ?, sizes = ?, found = ? WHERE session = ?"
