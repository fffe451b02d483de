"""What each prompt led to: all selected turns that worked on it, whatever they paid for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from burnd.attribution.cause_keys import PROMPT
from burnd.attribution.tally import Sums
from burnd.queries.cause_reading import CAUSE_SUMS, CauseReader
from burnd.queries.selection import Selection
from burnd.queries.sums import TURNS, By, Clause, Parts, Reader, Table, during, selected
from burnd.queries.view import Row, View

PromptKey = tuple[int, str]  # a session's row, and the prompt's id in it
_BY_SESSION = By(("session",))
_TURNS = Table(
    "turns x",
    "1",
    TURNS.columns,
    (
        *(f"sum(x.{name})" for name in Sums._fields[:7]),
        "sum(x.input + x.cache_create_5m + x.cache_create_1h)",
        "count(*)",
        "0",
    ),
)
_MOST_CASES = 100
_TOKEN_COLUMNS = 6
_FIGURE = (
    "coalesce((SELECT CAST(substr(n.name, instr(n.name, '=') + 1) AS REAL) "
    "FROM classes c JOIN names n ON n.id = c.terms WHERE c.id = x.class AND instr(n.name, '=')), 0)"
)


class Worked(NamedTuple):
    """What turns of one class paid that worked on one prompt, or on none; each turn counts as a call."""

    prompt: PromptKey | None
    kind: int
    counts: tuple[int, ...]


class Prompts(NamedTuple):
    """What the heaviest prompts led to, with the turns that have none, and how many prompts there are."""

    rows: list[Worked]
    total: int


def heaviest(
    view: View, selection: Selection, reader: Reader, causes: CauseReader, rates: dict[int, Sums], most: int
) -> Prompts:
    """The heaviest prompts by these rates, and all of which a part lies in a day that the period cuts."""
    if reader.begin >= reader.end:
        return Prompts([], 0)
    first, end, edges = causes.days
    kinds = selection.kinds
    cut = [
        parts
        for edge in edges
        for parts in reader.select(_TURNS, _BY_SESSION, [during(edge)], extra="x.prompt_id", kinds=kinds)
    ]
    cut += reader.mixed(_TURNS, _BY_SESSION, kinds, "x.prompt_id")
    in_cut = {(session, prompt) for (session,), _, prompt, _ in cut if prompt}
    rows: list[Parts] = []
    total = 0
    if selection.is_of_all_sessions and first < end:
        terms = [*causes.terms(PROMPT, By(), first, end), *selected(selection, CAUSE_SUMS, kinds)]
        without = [cause for _, cause in _numbered(view, {(0, "")})]
        ranked, total = _ranked(view, [*terms, *(Clause(f"x.cause <> {cause}") for cause in without)], rates, most)
        shown = _among([*ranked, *_numbered(view, in_cut)])
        rows += causes.fine(PROMPT, _BY_SESSION, first, end, [shown])
        for cause in without:
            some = causes.fine(PROMPT, By(), first, end, [Clause(f"x.cause = {cause}")])
            rows += [((0,), kind, number, counts) for _, kind, number, counts in some]
    elif first < end:
        rows += causes.fine(PROMPT, _BY_SESSION, first, end)
    names: dict[int, str | None] = dict(view.keyed(_NAMES, sorted({(row[2],) for row in rows})))
    worked = [Worked(_key(keys[0], names[cause]), kind, tuple(counts)) for keys, kind, cause, counts in rows]
    among = {one.prompt for one in worked} - {None}
    worked += [Worked(_key(keys[0], prompt), kind, tuple(counts)) for keys, kind, prompt, counts in cut]
    return Prompts(worked, (total or len(among)) + len(in_cut - among))


def _key(session: int, prompt: str | None) -> PromptKey | None:
    return (session, prompt) if prompt else None


def _ranked(
    view: View, terms: Sequence[Clause], rates: dict[int, Sums], most: int
) -> tuple[list[tuple[int, int]], int]:
    """The heaviest prompts as (session, cause), weighed by SQLite, and how many there are."""
    where = " AND ".join(term.sql for term in terms)
    sql = (
        f"SELECT x.session, x.cause, total({weighed(rates, Sums._fields)}), count(*) OVER () FROM cause_sums x "
        f"WHERE {where} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT {most}"
    )
    rows = view.rows(sql, [value for term in terms for value in term.bound])
    return [(session, cause) for session, cause, *_ in rows], rows[0][3] if rows else 0


def _numbered(view: View, prompts: Iterable[PromptKey]) -> list[tuple[int, int]]:
    keys = {prompt for _, prompt in prompts}
    numbers: dict[str, int] = dict(view.keyed(_NUMBERS, [(prompt,) for prompt in sorted(keys)]))
    return [(session, numbers[prompt]) for session, prompt in prompts if prompt in numbers]


def _among(prompts: Iterable[tuple[int, int]]) -> Clause:
    listed = "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)"
    keys = sorted(set(prompts))
    sessions = "x.session IN (SELECT value FROM json_each(?))"  # so that SQLite looks nowhere else
    bound = (_json(sorted({session for session, _ in keys})), _json(keys))
    return Clause(f"{sessions} AND (x.session, x.cause) IN ({listed})", bound)


def places(view: View, prompts: Iterable[PromptKey]) -> dict[PromptKey, Row]:
    """The first turn that worked on each prompt: session id, rail, turn index, time and message id."""
    wanted = frozenset(prompts)
    rows = view.keyed(_FIRST, sorted({(session,) for session, _ in wanted}))
    return {(session, prompt): tuple(rest[:5]) for session, prompt, *rest in rows if (session, prompt) in wanted}


def weighed(rates: Mapping[int, Sequence[int]], columns: Sequence[str]) -> str:
    """What a row weighs, where rates by class tell what each of its columns weighs.

    Written as cases, since looking rates up in a table would take as long as all the rest. Only harness figures are
    looked up: there may be one for each turn.
    """
    classes: dict[tuple[int, ...], list[int]] = {}
    for kind, weights in rates.items():
        classes.setdefault(tuple(weights), []).append(kind)
    other = "0"
    if len(classes) > _MOST_CASES:
        other = f"{_FIGURE} * ({' + '.join(f'x.{name}' for name in columns[:_TOKEN_COLUMNS])})"
        classes = {weights: kinds for weights, kinds in classes.items() if not _is_figure(weights)}
    cases = []
    for weights, kinds in classes.items():
        parts = [f"x.{name} * {float(weight)}" for name, weight in zip(columns, weights, strict=True) if weight]
        cases.append(f"WHEN x.class IN ({','.join(map(str, kinds))}) THEN {' + '.join(parts) or '0'}")
    return f"CASE {' '.join(cases)} ELSE {other} END" if cases else other


def _is_figure(weights: Sequence[int]) -> bool:
    """Whether the weights are a harness's figure: equal for all tokens, and no search fee as list prices have."""
    tokens, rest = weights[:_TOKEN_COLUMNS], weights[_TOKEN_COLUMNS:]
    return len(set(tokens)) == 1 and any(tokens) and not any(rest)


def _json(values: Any) -> str:
    return msgspec.json.encode(values).decode()


_NAMES = "SELECT c.id, n.name FROM causes c LEFT JOIN names n ON n.id = c.target WHERE c.id IN ({keys})"
_NUMBERS = """
WITH w(prompt) AS ({keys})
SELECT w.prompt, c.id FROM w LEFT JOIN names n ON n.name = w.prompt
CROSS JOIN causes c ON c.kind = 'prompted' AND c.tool = 0 AND c.target = iif(w.prompt = '', 0, n.id) AND c.agent = 0
"""
# The other columns are those of the turn that is earliest; of several at one time, of the first on its rail.
_FIRST = """
WITH w(session) AS ({keys})
SELECT t.session, t.prompt_id, s.session_id, t.rail, t.turn_index, t.ts, t.message_id,
       min(t.ts * 1000000 + t.turn_index)
FROM w CROSS JOIN turns t ON t.session = w.session CROSS JOIN sessions s ON s.id = t.session
WHERE t.prompt IS NOT NULL GROUP BY t.session, t.prompt
"""
