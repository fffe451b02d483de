"""What each prompt led to: all selected turns that worked on it, whatever they paid for.

Whole days, and whole sessions where they are asked for, come from `prompt_sums`; over all sessions only the heaviest
are read there, found by what they weigh at most; where that tells too little, SQLite weighs all. What these do not have
yet, the sessions that wait to be counted, is read turn by turn, as is what lies at the edges of the selected time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import islice
from operator import mul
from typing import Any, NamedTuple

from burnd.causes.cause import EVERY
from burnd.causes.prompt_weights import PromptKey
from burnd.causes.prompts import NO_PROMPT, TOKENS
from burnd.index.grains import DAY, GRAINS, begin_of
from burnd.queries.cause_reading import Rates, whole_days, widened
from burnd.queries.periods import Stretch
from burnd.queries.prompt_ranking import Ranking
from burnd.queries.reading import Reader
from burnd.queries.scanning import By, Clause, Row, Scan, Table, as_json, during, weighed, within
from burnd.queries.selection import Selection
from burnd.queries.view import View
from burnd.records.times import to_iso

_COLUMNS = {name: f"x.{name}" for name in ("session", "class", "place", "branch", "activity", "subagent")}
_TURNS = Table(
    "turns",
    _COLUMNS | {"turn": "x.id", "branch": "coalesce(x.branch, 0)", "activity": "coalesce(x.activity, -1)"},
    ("count(*)", *(f"sum(x.{name})" for name in TOKENS)),
)
_SUMS = Table(
    "prompt_sums",
    {name: x for name, x in _COLUMNS.items() if name != "activity"},
    ("sum(x.turns)", *(f"sum(x.{name})" for name in TOKENS)),
)
_BY_SESSION = By(("session",))
_COUNTED = Clause("x.session NOT IN (SELECT session FROM changed)")
_NOT_COUNTED = "x.session IN (SELECT session FROM changed) AND +x.ts >= ? AND +x.ts < ?"
_ENTERED = len(TOKENS)  # where rates have what came in
_CAME_IN = ("input", "cache_create_5m", "cache_create_1h")
_AT_ONCE = 64  # prompts that are read together, beside as many as are wanted
_WORTH_IT = 24  # to weigh all prompts in SQLite takes about as long as to read one in so many of them
Weights = dict[int, list[int]]  # by class, what a token of each column weighs


class Worked(NamedTuple):
    """What turns of one class that worked on one prompt paid, as a `CauseSum` takes it: its calls are turns.

    What was paid in full has come in, what was read from the cache rode along.
    """

    prompt: PromptKey | None
    kind: int
    sums: tuple[int, ...]


def worked(view: View, selection: Selection, reader: Reader) -> Iterator[Worked]:
    """All prompts. Sessions that lie within the selected time come from what was counted, those across it do not."""
    if reader.begin >= reader.end:
        return
    scan = Scan(view, selection)
    late = frozenset(row[0] for row in view.rows("SELECT DISTINCT session FROM changed"))
    inside, across = reader.sessions()
    counted = [*scan.terms(_SUMS, selection.kinds), *_activity(selection)]
    if inside is None:
        counted += [_COUNTED] if late else []
    else:
        inside, across = inside - late, across | (late & inside)
    rows = scan.by_session(_SUMS, _BY_SESSION, counted, beside="x.prompt_id", sessions=inside)
    terms = [during(Stretch(reader.begin, reader.end)), *scan.terms(_TURNS, selection.kinds)]
    if one_by_one := across | late if inside is None else across:
        rows += scan.plain(_TURNS, _BY_SESSION, [*terms, *within("x.session", one_by_one)], beside="x.prompt_id")
    rows += scan.mixed(_TURNS, _BY_SESSION, terms, beside="x.prompt_id")
    yield from map(_worked, rows)


def _activity(selection: Selection) -> list[Clause]:
    """One is said to be that one, so that SQLite finds its prompts in order."""
    chosen = selection.activities if selection.activities is not None else frozenset((EVERY,))
    return [Clause(f"x.activity = {min(chosen)}")] if len(chosen) == 1 else within("x.activity", chosen)


def _worked(row: Row) -> Worked:
    session, kind, prompt, *counted = row
    return Worked((session, prompt) if prompt else None, kind, _sums(counted))


def _sums(counted: Sequence[int]) -> tuple[int, ...]:
    turns, *spent = counted
    fresh, _, _, _, five, hour, _ = spent
    return (*spent, fresh + five + hour, turns, 0)


class HeaviestPrompts(NamedTuple):
    """What the heaviest prompts led to, and turns without one; how many prompts there are; what all turns paid."""

    rows: list[Worked]
    of: int
    everything: list[tuple[int, tuple[int, ...]]]  # by kind


def heaviest(
    view: View, selection: Selection, reader: Reader, rank: str, rates: Rates, most: int
) -> HeaviestPrompts | None:
    """None where sums cannot tell. All prompts that were read turn by turn are among the heaviest."""
    if reader.begin >= reader.end or not selection.is_by_sums:
        return None
    scan = Scan(view, selection)
    (begin, end), edges = whole_days(*widened(selection, reader))
    own = scan.terms(_TURNS, selection.kinds)
    turns = [
        row for edge in edges for row in scan.plain(_TURNS, _BY_SESSION, [during(edge), *own], beside="x.prompt_id")
    ]
    terms = [*scan.terms(_SUMS, selection.kinds), *_activity(selection)]
    days = range(begin // GRAINS[DAY], end // GRAINS[DAY])
    is_cut = begin == end or selection.begin is not None or selection.end is not None
    terms += [Clause(f"x.day >= {days.start} AND x.day < {days.stop}")] if is_cut else []
    if begin < end and view.rows("SELECT 1 FROM changed LIMIT 1"):
        terms.append(_COUNTED)
        late = Clause(_NOT_COUNTED, (begin_of(begin), begin_of(end)))
        turns += scan.plain(_TURNS, _BY_SESSION, [late, *own], beside="x.prompt_id")
    one_by_one = [*map(_worked, turns)]
    beside = {worked.prompt for worked in one_by_one if worked.prompt is not None}
    weights = {kind: _weights(rate_of) for kind, rate_of in rates.items()}
    prompts = [*terms, Clause(f"x.prompt_id <> '{NO_PROMPT}'")]
    ranked = _Ranked(view, selection, days if is_cut else None, rank, weights)
    count = ranked.count() if selection.activities is None else _rows(view, _COUNT, prompts)[0][0]
    summed = ranked.heaviest(most, beside, count // _WORTH_IT + most)
    if summed is None:
        shown = beside.union(_heaviest(view, prompts, weights, most))
        summed = [*map(_worked, scan.plain(_SUMS, _BY_SESSION, [*prompts, _among(shown)], beside="x.prompt_id"))]
    without = [Worked(None, kind, _sums(counted)) for kind, *counted in _rows(view, _WITHOUT, terms)]
    count += len(beside - {worked.prompt for worked in summed})
    return HeaviestPrompts([*summed, *without, *one_by_one], count, _everything(reader))


class _Ranked:
    """Reads the sums of prompts in the order of what they can weigh at most, until no other can be among the first.

    Of an activity, a prompt weighs at most what it weighs in all.
    """

    def __init__(self, view: View, selection: Selection, days: range | None, rank: str, weights: Weights) -> None:
        self._view, self._chosen, self._days, self._weights = view, selection, days, weights
        self._activities = selection.activities if selection.activities is not None else frozenset((EVERY,))
        self._ranking = Ranking(view, selection, days, rank, weights)

    def heaviest(self, most: int, beside: set[PromptKey], patience: int) -> list[Worked] | None:
        """What the heaviest and those `beside` paid; None where many more would have to be read to be sure of them."""
        late = {session for (session,) in self._view.rows("SELECT DISTINCT session FROM changed")} if beside else set()
        found = self._read(prompt for prompt in beside if prompt[0] not in late)
        at_once, heaviest = _AT_ONCE + most, list[tuple[int, int, str]]()
        bounds = self._ranking.bounds(3 * (patience + at_once))  # more than are read before patience is at its end
        while some := list(islice(bounds, at_once)):
            if patience <= 0:
                return None
            read = self._read(bound.prompt for bound in some if bound.prompt not in beside)
            heaviest = nlargest(most, [*heaviest, *((self._weigh(rows), *key) for key, rows in read.items())])
            found |= read
            if len(heaviest) == most and heaviest[-1][0] >= some[-1].most:
                break
            patience -= len(some)
            at_once += at_once // 2
        shown = beside.union((session, prompt) for _, session, prompt in heaviest)
        return [worked for prompt, rows in found.items() if prompt in shown for worked in rows]

    def count(self) -> int:
        """How many prompts there are."""
        return self._ranking.certain() + len(self._read(self._ranking.uncertain()))

    def _read(self, prompts: Iterable[PromptKey]) -> dict[PromptKey, list[Worked]]:
        """The selected sums of these prompts, those that have any."""
        chosen, found = self._chosen, dict[PromptKey, list[Worked]]()
        keys = [(activity, *prompt) for prompt in prompts for activity in self._activities]
        for session, prompt, kind, place, day, *counted in self._view.keyed(_OF_PROMPTS, keys):
            if (
                (chosen.kinds is None or kind in chosen.kinds)
                and (chosen.places is None or place in chosen.places)
                and (self._days is None or day in self._days)
            ):
                found.setdefault((session, prompt), []).append(Worked((session, prompt), kind, _sums(counted)))
        return found

    def _weigh(self, rows: list[Worked]) -> int:
        return sum(sum(map(mul, row.sums, self._weights[row.kind])) for row in rows)


def _everything(reader: Reader) -> list[tuple[int, tuple[int, ...]]]:
    return [(kind, _sums(counts[: 1 + len(TOKENS)])) for _, kind, _, counts in reader.read(By())]


def _among(prompts: Iterable[PromptKey]) -> Clause:
    listed, keys = "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)", sorted(prompts)
    (sessions,) = within("x.session", frozenset(session for session, _ in keys))  # so SQLite looks nowhere else
    return Clause(f"{sessions.sql} AND (x.session, x.prompt_id) IN ({listed})", (*sessions.bound, as_json(keys)))


def _heaviest(view: View, terms: list[Clause], weights: Weights, most: int) -> Iterator[PromptKey]:
    weight = weighed(weights, TOKENS)
    sql = (
        f"SELECT x.session, x.prompt_id, total({weight}) FROM prompt_sums x WHERE {{terms}} "
        f"GROUP BY 1, 2 ORDER BY 3 DESC, 2, 1 LIMIT {most}"
    )
    return ((session, prompt) for session, prompt, _ in _rows(view, sql, terms))


def _weights(rate_of: tuple[int, ...]) -> list[int]:
    """By column of tokens; what came in weighs by itself, too."""
    return [rate_of[n] + (rate_of[_ENTERED] if name in _CAME_IN else 0) for n, name in enumerate(TOKENS)]


def _rows(view: View, sql: str, terms: list[Clause], *bound: Any) -> list[Row]:
    where = " AND ".join(clause.sql for clause in terms)
    return view.rows(sql.format(terms=where), [*bound, *(value for clause in terms for value in clause.bound)])


def places(view: View, prompts: Iterable[PromptKey]) -> dict[PromptKey, dict[str, Any]]:
    """Where prompts are found: session and rail, and the first turn that worked on each. A session is read once."""
    wanted = frozenset(prompts)
    rows = view.keyed(_FIRST, sorted({(session,) for session, _ in wanted}))
    return {
        (session, prompt): {"sessionId": session_id, "railId": rail, "turnIndex": turn_index, "at": to_iso(ts)}
        for session, prompt, session_id, rail, turn_index, ts, _ in rows
        if (session, prompt) in wanted
    }


_OF_PROMPTS = f"""
WITH w(activity, session, prompt_id) AS ({{keys}})
SELECT x.session, x.prompt_id, x.class, x.place, x.day, x.turns, {", ".join(f"x.{name}" for name in TOKENS)} FROM w
CROSS JOIN prompt_sums x ON x.activity = w.activity AND x.session = w.session AND x.prompt_id = w.prompt_id
"""
_WITHOUT = f"""
SELECT x.class, {", ".join(_SUMS.counted)} FROM prompt_sums x INDEXED BY prompt_sums_without
WHERE {{terms}} AND x.prompt_id = '{NO_PROMPT}' GROUP BY 1
"""
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM prompt_sums x WHERE {terms} GROUP BY x.session, x.prompt_id)"
# The other columns are those of the turn that is earliest; of several at one time, of the first on its rail.
_FIRST = """
WITH w(session) AS ({keys})
SELECT t.session, t.prompt_id, s.session_id, t.rail, t.turn_index, t.ts, min(t.ts * 1000000 + t.turn_index)
FROM w CROSS JOIN turns t ON t.session = w.session CROSS JOIN sessions s ON s.id = t.session
WHERE t.prompt IS NOT NULL GROUP BY t.session, t.prompt
"""
