"""What each prompt led to: all selected turns that worked on it, whatever they paid for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from burnd.attribution.cause_keys import PROMPT
from burnd.attribution.tally import Sums
from burnd.queries.cause_reading import SUMS, CauseReader
from burnd.queries.scanning import By, Clause, Row, Scan, Table, as_json, during, weighed
from burnd.queries.selection import Selection
from burnd.queries.view import View
from burnd.records.times import to_iso

PromptKey = tuple[int, str]  # a session's row, and the prompt's id in it
_BY_SESSION = By(("session",))
_TURNS = Table(
    "turns",
    SUMS.columns
    | {
        "turn": "x.id",
        "branch": "coalesce(x.branch, 0)",
        "activity": "coalesce(x.activity, -1)",
        "version": "coalesce(x.version, 0)",
    },
    (
        *(f"sum(x.{name})" for name in Sums._fields[:7]),
        "sum(x.input + x.cache_create_5m + x.cache_create_1h)",
        "count(*)",
        "0",
    ),
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


def heaviest(view: View, selection: Selection, causes: CauseReader, rates: dict[int, Sums], most: int) -> Prompts:
    """The heaviest prompts by these rates, and all of which a part lies in a day that the selected time cuts."""
    scan, days = Scan(view, selection), causes.days
    turns = scan.terms(_TURNS, selection.kinds)
    edges = [row for edge in days.edges for row in scan.plain(_TURNS, _BY_SESSION, [during(edge), *turns], beside=_ID)]
    edges += scan.mixed(_TURNS, _BY_SESSION, [during(causes.stretch), *turns], beside=_ID)
    beside = {(session, prompt) for session, _, prompt, *_ in edges if prompt}
    terms = [*causes.terms(PROMPT), Clause(f"x.day >= {days.first} AND x.day < {days.end}")]
    if selection.is_by_sums:
        without = [cause for _, cause in _numbered(view, {(0, "")})]
        prompts = [*terms, *(Clause(f"x.cause <> {cause}") for cause in without)]
        ranked, count = _ranked(view, prompts, rates, most)
        rows = scan.plain(SUMS, _BY_SESSION, [*terms, _among([*ranked, *_numbered(view, beside)])], beside="x.cause")
        rows += [
            (0, *row)
            for cause in without
            for row in scan.plain(SUMS, By(), [*terms, Clause(f"x.cause = {cause}")], beside="x.cause")
        ]
    else:
        rows = scan.by_session(SUMS, _BY_SESSION, terms, beside="x.cause", sessions=causes.on_branches())
        count = 0
    names: dict[int, str | None] = dict(view.keyed(_NAMES, sorted({(row[2],) for row in rows})))
    worked = [Worked(_key(row[0], names[row[2]]), row[1], row[3:]) for row in rows]
    among = {one.prompt for one in worked} - {None}
    count = (count or len(among)) + len(beside - among)
    return Prompts([*worked, *(Worked(_key(row[0], row[2]), row[1], row[3:]) for row in edges)], count)


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
    bound = (as_json(sorted({session for session, _ in keys})), as_json(keys))
    return Clause(f"{sessions} AND (x.session, x.cause) IN ({listed})", bound)


def places(view: View, prompts: Iterable[PromptKey]) -> dict[PromptKey, Row]:
    """The first turn that worked on each prompt: session id, rail, turn index, time and message id."""
    wanted = frozenset(prompts)
    rows = view.keyed(_FIRST, sorted({(session,) for session, _ in wanted}))
    return {(session, prompt): tuple(rest[:5]) for session, prompt, *rest in rows if (session, prompt) in wanted}


def place_answer(place: Row) -> dict[str, Any]:
    session_id, rail, turn_index, ts, message_id = place
    return {
        "sessionId": session_id,
        "railId": rail,
        "turnIndex": turn_index,
        "at": to_iso(ts),
        "messageId": message_id,
    }


_ID = "x.prompt_id"
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
