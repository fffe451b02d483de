"""Where the money went: what all selected turns paid for, by tool, file, command, prompt and so on.

The rows add up to the summary of the same filters, to the token and to the last digit of the cost: everything that was
not asked for is a row of the kind `other`, and so is what is not explained yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from heapq import nsmallest
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from burnd.attribution.cause_keys import COMMAND, FILE, MISS, NAMED, NAMED_CAUSES, PROMPT, TOOL, CauseKey
from burnd.attribution.rail import CauseOrigin
from burnd.attribution.rail_entries import RailName
from burnd.attribution.tally import Sums
from burnd.classify.tools import kind as tool_kind
from burnd.classify.tools import mcp_server
from burnd.contract.reports import CAUSES, HotspotsParams
from burnd.protocol import NOT_COUNTED, NOT_MISSED, OTHER, UNKNOWN_AGENT
from burnd.queries import dimensions
from burnd.queries.cause_names import group_of, group_of_command
from burnd.queries.cause_sums import CAUSE_SUMS, CauseReader, CauseSum, Spent, rates_of
from burnd.queries.dimensions import Dimension
from burnd.queries.quotes import Quotes
from burnd.queries.selection import Selection, choose
from burnd.queries.summary import add_up, unlogged
from burnd.queries.sums import TURNS, By, Clause, Reader, Table, during, selected
from burnd.queries.tally import Kinds, Parts, Tally
from burnd.queries.view import Mistaken, Row, View
from burnd.records.times import to_iso

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


OTHER_TOOLS: Final = "other tools"
NO_PROMPT: Final = "no prompt"
NO_SECOND: Final = ("no second dimension",)

# The level at which subjects are read, and their kind.
_SUBJECTS: Final[dict[str, tuple[int, str]]] = {
    "file": (FILE, "file"),
    "command": (COMMAND, "command"),
    "skill": (NAMED, "skill"),
    "subagent": (NAMED, "agent"),
    "cache-miss": (MISS, "miss"),
}
_TOOLS_OF: Final = {"skill": "skill", "subagent": "delegate"}  # both are at one level
_CALLS: Final = -2  # where counts have calls and errors


class Label(NamedTuple):
    """What a row is about: its kind, which is `other` for what was not asked for, and its name.

    `second` is its key in the second dimension, if there is one.
    """

    kind: str
    key: str
    prompt: PromptKey | None = None
    second: Any = NO_SECOND


def hotspots(view: View, ledger: Path, params: HotspotsParams, quotes: Quotes | None = None) -> dict[str, Any]:
    """The answer of the method `hotspots`."""
    way, second = _ways(params.by)
    chosen = choose(view, params, dimensions.tag_keys(second))
    reader = Reader(view, chosen.selection, chosen.kinds)
    by_model = dimensions.dimension(view, ["model"], chosen.selection)
    added = add_up(reader.read(by_model.by), chosen, by_model)
    causes = CauseReader(view, ledger, chosen.selection, reader)
    dimension = dimensions.dimension(view, second, chosen.selection) if second else None
    table = _Rows(view, way, params, chosen.kinds, dimension)
    if way == "prompt":
        table.add_prompts(chosen.selection, reader, causes)
    else:
        table.add_causes(causes)
    rows = table.ranked(added.total)
    first_turns = places(view, [label.prompt for label, _ in rows if label.prompt is not None])
    names = _second_names(dimension, rows)
    whole = added.total.units
    return {
        "filters": chosen.said,
        "by": params.by,
        "rank": params.rank,
        "totals": added.total.answer(),
        "unpricedModels": added.unpriced,
        "harnessModels": added.by_harness,
        "unlogged": unlogged(added),
        "rows": [
            {
                "key": label.key,
                "kind": label.kind,
                "group": _group(label),
                **({"keys": {way: label.key, second[0]: names[label.second]}} if label.second in names else {}),
                **(_prompt_answer(label.prompt, first_turns.get(label.prompt), quotes) if label.prompt else {}),
                **paid.answer(),
                "share": paid.units / whole if whole and paid.is_priced else None,
            }
            for label, paid in rows
        ],
        "moreRows": table.left_out,
        "pending": view.rows("SELECT count(*) FROM changed")[0][0],
    }


def _ways(by: str) -> tuple[str, list[str]]:
    """The way of adding up that a caller names, like `tool`, and the second dimension of `tool,model`."""
    way, comma, second = by.partition(",")
    if way not in CAUSES:
        close = get_close_matches(way[:40], CAUSES, 1)
        hint = f"did you mean: {close[0]}" if close else f"one of: {', '.join(CAUSES)}"
        raise Mistaken(f"unknown by value {way[:40]!r}", f"{hint}; or with a dimension of summary, like tool,model")
    if not comma:
        return way, []
    if way == "prompt":
        raise Mistaken("prompts cannot be grouped by a second dimension", "use by prompt, with filters if needed")
    if len(dimension := dimensions.split(second)) > 1:
        raise Mistaken(f"by {by[:80]!r} has more than two dimensions", "use two, like tool,model")
    return way, dimension


def _second_names(dimension: Dimension | None, rows: Sequence[tuple[Label, CauseSum]]) -> dict[Any, Any]:
    if dimension is None:
        return {}
    keys = [*dict.fromkeys(label.second for label, _ in rows if label.second != NO_SECOND)]
    return {key: named["key"] for key, named in zip(keys, dimension.named(keys), strict=True)}


def _prompt_answer(prompt: PromptKey, first_turn: tuple[Any, ...] | None, quotes: Quotes | None) -> dict[str, Any]:
    """Where the first turn of a prompt is, and how the prompt begins, if its content is stored."""
    if first_turn is None:
        return {}
    session_id, rail_id, turn_index, ts, message_id = first_turn
    answer = {"sessionId": session_id, "railId": rail_id, "turnIndex": turn_index, "at": to_iso(ts)}
    if quotes is not None:
        rail = RailName(prompt[0], session_id, rail_id)
        quote = quotes.of(rail, CauseOrigin("prompt", turn_index=turn_index, message_id=message_id))
        answer |= {"quote": quote} if quote is not None else {}
    return answer


def _group(label: Label) -> str | None:
    """The group that `why` counts a tool, a command or a kind of cause in; None for other rows."""
    if label.kind == "tool":
        return group_of("call", label.key, None)
    if label.kind == "command":
        return group_of_command(label.key)
    return group_of(label.key, None, None) if label.kind == OTHER else None


class _Rows:
    """The rows of an answer as they grow."""

    def __init__(self, view: View, way: str, params: HotspotsParams, kinds: Kinds, dimension: Dimension | None) -> None:
        self._view = view
        self._by = way
        self._dimension = dimension
        self._keys_read = dimension.by if dimension is not None else By()
        self._rank = params.rank
        self._limit = params.limit
        self._kinds = kinds
        self._sums: dict[Label, CauseSum] = {}
        self._rest: CauseSum | None = None  # of what is left out; None if the total has to tell
        self.left_out = 0

    def add_prompts(self, selection: Selection, reader: Reader, causes: CauseReader) -> None:
        found = heaviest(self._view, selection, reader, causes, rates_of(self._rank, self._kinds), self._limit)
        for prompt, kind, counts in found.rows:
            label = Label(OTHER, NO_PROMPT) if prompt is None else Label(self._by, prompt[1], prompt)
            self._sum(label).add(self._kinds[kind], counts)
        self.left_out = found.total - sum(label.prompt is not None for label in self._sums)

    def add_causes(self, causes: CauseReader) -> None:
        self._rest = CauseSum()
        if self._by in _SUBJECTS:
            self._add_subjects(causes, *_SUBJECTS[self._by])
        if self._by != "cache-miss":
            self._add_tools(causes)

    def _add_subjects(self, causes: CauseReader, level: int, kind: str) -> None:
        """Adds the heaviest subjects; there may be very many, so only these are given their names."""
        sums: dict[tuple[int, Any], CauseSum] = {}
        for spent in causes.read(level, self._keys_read):
            row = spent.cause, self._second(spent)
            paid = sums.get(row)
            if paid is None:
                paid = sums[row] = CauseSum()
            paid.add(self._kinds[spent.kind], spent.counts)
        if self._by in _TOOLS_OF:
            keys = self._keys({cause for cause, _ in sums})
            sums = {row: paid for row, paid in sums.items() if keys[row[0]].kind == kind}
        # Several agents, or misses of several agents, may have one name.
        most = len(sums) if self._by in ("subagent", "cache-miss") else self._limit
        shown = nsmallest(most, sums, key=lambda row: (-sums[row].weight(self._rank), row[0], repr(row[1])))
        self.left_out = len(sums) - len(shown)
        keys = self._keys({cause for cause, _ in shown})
        for row in shown:
            cause, second = row
            self._sum(Label(self._by, self._subject(keys[cause]), None, second)).merge(sums[row])

    def _second(self, spent: Spent) -> Any:
        if self._dimension is None:
            return NO_SECOND
        return self._dimension.label(spent.keys[: len(self._dimension.by.keys)], self._kinds[spent.kind])

    def _subject(self, key: CauseKey) -> str:
        if self._by == "cache-miss":
            return key.tool
        return key.target or (UNKNOWN_AGENT if self._by == "subagent" else f"(no {self._by})")

    def _add_tools(self, causes: CauseReader) -> None:
        """Adds all causes by tool: as rows where tools are asked for, as `other` and as what is left out else."""
        is_prefix = self._by == "prefix"
        by = self._keys_read.plus(By(("place",))) if is_prefix else self._keys_read
        spent = [*causes.read(TOOL, by)]
        keys = self._keys({one.cause for one in spent})
        projects: dict[int, str] = dict(self._view.rows(_PROJECTS)) if is_prefix else {}
        tools = _one_spelling(key.tool for key in keys.values())
        listed = CauseSum()
        for one in spent:
            project = projects.get(one.keys[by.keys.index("place")]) if is_prefix else None
            label = self._label(keys[one.cause], project, tools)
            kind = self._kinds[one.kind]
            if label is None:
                listed.add(kind, one.counts)
            else:
                # An agent's own calls are not calls of the agent.
                is_agent = label.kind == "subagent"
                label = label._replace(second=self._second(one))
                self._sum(label).add(kind, (*one.counts[:_CALLS], 0, 0) if is_agent else one.counts)
        for label, paid in self._sums.items():
            if label.kind == self._by and self._by in ("file", "command", "skill"):
                listed.take_off(paid)
        self._rest = listed

    def _label(self, key: CauseKey, project: str | None, tools: Callable[[str], str]) -> Label | None:
        """The row that a cause belongs to; None if its subjects are rows of their own."""
        by, is_call = self._by, key.kind == "call"
        level, _ = _SUBJECTS.get(by, (TOOL, ""))
        if is_call and level != TOOL and key.level == level and _TOOLS_OF.get(by) in (None, tool_kind(key.tool)):
            return None
        if by == "subagent" and key.agent:
            return Label(by, key.agent)
        if by == "prefix" and key.kind == "prefix":
            return Label(by, project or "(no project)")
        if not is_call:
            return Label(OTHER, key.kind)
        if by == "tool":
            return Label(by, tools(key.tool) or "(unknown tool)")
        server = mcp_server(key.tool) if by == "mcp" else None
        return Label(by, server) if server is not None else Label(OTHER, OTHER_TOOLS)

    def _keys(self, causes: Iterable[int]) -> dict[int, CauseKey]:
        rows = self._view.keyed(NAMED_CAUSES + "WHERE c.id IN ({keys})", [(cause,) for cause in causes])
        return {number: CauseKey(*key) for number, *key in rows}

    def _sum(self, label: Label) -> CauseSum:
        return self._sums.setdefault(label, CauseSum())

    def ranked(self, total: Tally) -> list[tuple[Label, CauseSum]]:
        """The heaviest rows first, then what was not asked for, then what is missing from the total."""
        ordered = sorted(self._sums.items(), key=self._order)
        asked = [row for row in ordered if row[0].kind != OTHER]
        others = [row for row in ordered if row[0].kind == OTHER]
        asked, beyond = asked[: self._limit], asked[self._limit :]
        missing = CauseSum.of(total)
        for _, paid in (*asked, *others):
            missing.take_off(paid)
        missing.calls = missing.errors = missing.entered = 0  # the total does not count these
        if more := self.left_out + len(beyond):
            rest = self._rest if self._rest is not None else missing
            rest = rest if self.left_out else CauseSum()
            for _, paid in beyond if rest is not missing else ():
                rest.merge(paid)
            self.left_out = more
            others.insert(0, (Label(OTHER, f"{more:,} more"), rest))
            if rest is missing:  # prompts, whose fresh input and cache writes count as entered, and turns as calls
                fresh, _, _, _, five, hour = rest.tokens
                rest.entered = fresh + five + hour
                rest.calls = total.turns + total.empty - sum(paid.calls for _, paid in (*asked, *others[1:]))
                return [*asked, *others]
            missing.take_off(rest)
            missing.calls = missing.errors = missing.entered = 0
        if missing:
            others.append((Label(OTHER, NOT_MISSED if self._by == "cache-miss" else NOT_COUNTED), missing))
        return [*asked, *others]

    def _order(self, row: tuple[Label, CauseSum]) -> tuple[Any, ...]:
        """By weight; what weighs the same, as all without a price does, by tokens."""
        label, paid = row
        return -paid.weight(self._rank), -sum(paid.tokens), label.key, label.prompt or (), repr(label.second)


def _one_spelling(names: Iterable[str]) -> Callable[[str], str]:
    """Gives tools whose names differ only in case (`Bash`, `bash`) one name: the one with most capitals."""
    shown: dict[str, str] = {}
    for name in sorted(set(names)):
        shown.setdefault(name.casefold(), name)
    return lambda name: shown[name.casefold()]


_PROJECTS = """
SELECT p.id, coalesce(k.name, d.name) FROM places p LEFT JOIN names k ON k.id = p.project_key
LEFT JOIN names d ON d.id = p.project WHERE k.name IS NOT NULL OR d.name IS NOT NULL
"""
