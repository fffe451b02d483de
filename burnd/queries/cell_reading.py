"""Whole sessions where activities matter: their sums and their prompts, read as they are packed by session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from burnd.index.cells import cells_in, counts_of, mark_of, prompts_in
from burnd.queries.scanning import AGENT_TYPE, By, Clause, Row, Scan, Table, within
from burnd.queries.selection import OUT, Selection

_NAMES = ("session", "class", "place", "branch", "subagent")
_COLUMNS = {name: f"x.{name}" for name in _NAMES}
_COLUMNS["agent_type"] = AGENT_TYPE
_Found = Iterable[tuple[int, Row, bytes]]  # a group, the other keys and the kind, and what is packed
_Added = Mapping[tuple[int, Row], Mapping[int, int]]  # by group and other keys: activities with their numbers


def read_sums(scan: Scan, by: By, kinds: frozenset[int] | None, sessions: frozenset[int] | None) -> list[Row]:
    """Sums by these keys and by kind, of turns of these kinds, over these sessions or all of them."""
    added = _added(_found(scan, "session_cells", by, kinds, sessions), scan.chosen.activities)
    keys, by_activity = _places(by), "activity" in by.keys
    rows = []
    for (group, others), sums in added.items():
        for activity, number in sums.items() if by_activity else ((0, sum(sums.values())),):
            values = (group, activity, *others)
            rows.append((*[values[key] for key in keys], None, *counts_of(number)))
    return rows


def _added(found: _Found, activities: frozenset[int] | None) -> _Added:
    added: defaultdict[tuple[int, Row], defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    as_number = int.from_bytes
    for group, others, packed in found:
        if activities is None:
            sums = added[group, others]
            for activity, number in cells_in(packed):
                sums[activity] += as_number(number, "little")
        else:
            for activity, number in cells_in(packed):
                if activity in activities:
                    added[group, others][activity] += as_number(number, "little")
    return added


def read_prompts(scan: Scan, by: By, kinds: frozenset[int] | None, sessions: frozenset[int] | None) -> list[Row]:
    """Prompts with edits by these keys and by kind, with their retries beside it, and how many there are."""
    counts: defaultdict[tuple[int, Row, int, int], int] = defaultdict(int)
    activities, by_activity = scan.chosen.activities, "activity" in by.keys
    for group, others, packed in _found(scan, "session_prompts", by, kinds, sessions):
        for activity, retries, count in prompts_in(packed):
            if activities is None or activity in activities:
                counts[group, others, activity if by_activity else 0, retries] += count
    keys = _places(by)
    rows = []
    for (group, others, activity, retries), count in counts.items():
        values = (group, activity, *others)
        rows.append((*[values[key] for key in keys], retries, count))
    return rows


def _others(by: By) -> list[str]:
    return [key for key in by.keys if key not in ("group", "activity")]


def _places(by: By) -> list[int]:
    """Where the keys that were asked for, and the kind, stand in a group, an activity and the others."""
    names = ["group", "activity", *_others(by), "class"]
    return [names.index(key) for key in (*by.keys, "class")]


def _holding(chosen: Selection) -> list[Clause]:
    """Only what may hold one of the wanted activities, so that the rest need not be taken apart."""
    if chosen.activities is None:
        return []
    marks = tuple(mark_of(activity) for activity in chosen.activities)
    return [Clause(f"({' OR '.join(['instr(x.cells, ?)'] * len(marks)) or '0'})", marks)]


def _found(
    scan: Scan, table: str, by: By, kinds: frozenset[int] | None, sessions: frozenset[int] | None
) -> Iterator[tuple[int, Row, bytes]]:
    groups = scan.chosen.groups
    of = {} if groups is None else groups.whole | dict.fromkeys(groups.mixed, OUT)
    rest = 0 if groups is None else groups.rest
    if rest == OUT:  # then these are few
        grouped = frozenset(session for session, group in of.items() if group != OUT)
        sessions = grouped if sessions is None else grouped & sessions
    terms = [*within("x.session", sessions), *scan.terms(Table(table, _COLUMNS, ()), kinds), *_holding(scan.chosen)]
    if scan.chosen.agent_groups == frozenset():
        terms += within("x.subagent", scan.chosen.subagents)
    columns = ("x.session", "x.subagent", "x.cells", *(_COLUMNS[key] for key in _others(by)), "x.class")
    sql = f"SELECT {','.join(columns)} FROM {table} x WHERE {' AND '.join(term.sql for term in terms) or '1'}"
    takes, of_all = scan.chosen.takes, scan.chosen.agent_groups is None
    # One by one as they are found: all at once they would take up many megabytes.
    for row in scan.view.db.execute(sql, [value for term in terms for value in term.bound]):
        group = of.get(row[0], rest)
        if group != OUT and (of_all or takes(group, row[1])):
            yield group, row[3:], row[2]
