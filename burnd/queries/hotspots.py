"""Hotspots: the cost of all selected turns by tool, file, command, prompt and so on.

Rows add up to the summary of the same filters: causes outside the grouping, and turns that are not attributed yet, are
rows of the kind `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from burnd.attribution.cause_keys import COMMAND, FILE, MISS, NAMED, NAMED_CAUSES, PROMPT, TOOL, CauseKey
from burnd.attribution.rail import CauseOrigin
from burnd.attribution.rail_entries import RailName
from burnd.attribution.rates import Sums
from burnd.classify.tools import kind as tool_kind
from burnd.classify.tools import mcp_server
from burnd.contract.reports import CAUSES, HotspotsParams
from burnd.protocol import NOT_COUNTED, NOT_MISSED, OTHER, UNKNOWN_AGENT
from burnd.queries import dimensions
from burnd.queries.bills import group_of, group_of_command
from burnd.queries.dimensions import Dimension
from burnd.queries.money import CauseSum, SumRow, TurnClasses, rates_of, unlogged_of
from burnd.queries.names import short_ids
from burnd.queries.quotes import Quotes
from burnd.queries.selection import Selection, choose
from burnd.queries.summary import add_up
from burnd.queries.sums import TURNS, By, CauseReader, CauseRow, Ranking, Reader, Table, during
from burnd.queries.view import Mistaken, SqlRow, View
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
    "FROM classes c JOIN names n ON n.id = c.terms WHERE c.id = {} AND instr(n.name, '=')), 0)"
)


class PromptSum(NamedTuple):
    """Turns of one class that worked on one prompt, or on none; each counts as a call."""

    prompt: PromptKey | None
    turn_class: int
    counts: tuple[int, ...]


class Prompts(NamedTuple):
    """Sums of the heaviest prompts and of turns without a prompt; `total` is the number of all prompts."""

    rows: list[PromptSum]
    total: int


def heaviest(
    view: View, selection: Selection, reader: Reader, causes: CauseReader, rates: dict[int, Sums], most: int
) -> Prompts:
    """The heaviest prompts by these rates, and all with turns in a partial day of the period."""
    if reader.begin >= reader.end:
        return Prompts([], 0)
    begin, end, edges = causes.buckets(By())
    classes = selection.classes
    cut = [
        parts
        for edge in edges
        for parts in reader.select(_TURNS, _BY_SESSION, [during(edge)], extra="x.prompt_id", classes=classes)
    ]
    cut += reader.mixed(_TURNS, _BY_SESSION, classes, "x.prompt_id")
    in_cut = {(session, prompt) for (session,), _, prompt, _ in cut if prompt}
    rows: list[SumRow] = []
    total = 0
    if selection.is_of_all_sessions and begin < end:
        without = [cause for _, cause in _numbered(view, {(0, "")})]
        ranking = Ranking(partial(weight_sql, rates, Sums._fields), most, separate=without)
        ranked, total = causes.ranked(PROMPT, _BY_SESSION, ranking)
        keys = {*(key for key in ranked if key[1] not in without), *_numbered(view, in_cut)}
        rows += causes.of_groups(PROMPT, _BY_SESSION, begin, end, causes.among(_BY_SESSION, keys))
        for cause in without:
            some = causes.of_groups(PROMPT, By(), begin, end, causes.among(By(), [(cause,)]))
            rows += [((0,), turn_class, number, counts) for _, turn_class, number, counts in some]
    elif begin < end:
        rows += causes.of_groups(PROMPT, _BY_SESSION, begin, end)
    names: dict[int, str | None] = dict(view.keyed(_NAMES, sorted({(row[2],) for row in rows})))
    sums = [PromptSum(_key(keys[0], names[cause]), one, tuple(counts)) for keys, one, cause, counts in rows]
    among = {one.prompt for one in sums} - {None}
    sums += [PromptSum(_key(keys[0], prompt), one, tuple(counts)) for keys, one, prompt, counts in cut]
    return Prompts(sums, (total or len(among)) + len(in_cut - among))


def _key(session: int, prompt: str | None) -> PromptKey | None:
    return (session, prompt) if prompt else None


def _numbered(view: View, prompts: Iterable[PromptKey]) -> list[tuple[int, int]]:
    keys = {prompt for _, prompt in prompts}
    numbers: dict[str, int] = dict(view.keyed(_NUMBERS, [(prompt,) for prompt in sorted(keys)]))
    return [(session, numbers[prompt]) for session, prompt in prompts if prompt in numbers]


def first_turns_of(view: View, prompts: Iterable[PromptKey]) -> dict[PromptKey, SqlRow]:
    """Session id, rail, turn index, time and message id."""
    keys = frozenset(prompts)
    rows = view.keyed(_FIRST, sorted({(session,) for session, _ in keys}))
    return {(session, prompt): tuple(rest[:5]) for session, prompt, *rest in rows if (session, prompt) in keys}


def weight_sql(rates: Mapping[int, Sequence[int]], columns: Sequence[str], turn_class: str) -> str:
    """SQL for the weight of a row, given the weights of its columns by class, and the column of the class.

    CASE, since joining a table of rates doubles the time. Only harness figures are looked up: each turn may have its
    own.
    """
    classes: dict[tuple[int, ...], list[int]] = {}
    for number, weights in rates.items():
        classes.setdefault(tuple(weights), []).append(number)
    other = "0"
    if len(classes) > _MOST_CASES:
        other = f"{_FIGURE.format(turn_class)} * ({' + '.join(f'x.{name}' for name in columns[:_TOKEN_COLUMNS])})"
        classes = {weights: numbers for weights, numbers in classes.items() if not _is_figure(weights)}
    cases = []
    for weights, numbers in classes.items():
        parts = [f"x.{name} * {float(weight)}" for name, weight in zip(columns, weights, strict=True) if weight]
        cases.append(f"WHEN {turn_class} IN ({','.join(map(str, numbers))}) THEN {' + '.join(parts) or '0'}")
    return f"CASE {' '.join(cases)} ELSE {other} END" if cases else other


def _is_figure(weights: Sequence[int]) -> bool:
    """Equal for all tokens, and without the search fee of list prices."""
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
# The other columns come from the earliest turn; at equal times, from the first on its rail.
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

# The level of subjects, and their kind.
SUBJECTS: Final[dict[str, tuple[int, str]]] = {
    "file": (FILE, "file"),
    "command": (COMMAND, "command"),
    "skill": (NAMED, "skill"),
    "subagent": (NAMED, "agent"),
    "cache-miss": (MISS, "miss"),
}
LEVELS_OF: Final = {by: level for by, (level, _) in SUBJECTS.items()}
TOOLS_OF: Final = {"skill": "skill", "subagent": "delegate"}  # both at level NAMED
_IN_FULL: Final = ("prefix", "subagent")
_CALLS: Final = -2  # index of calls and errors in counts


class Label(NamedTuple):
    """Identifies a row: kind (`other` for causes outside the grouping), key, and key in the second dimension.

    `proof`: whether the reason of cache misses is proved.
    """

    kind: str
    key: str
    prompt: PromptKey | None = None
    second: Any = NO_SECOND
    proof: str = ""


def hotspots(view: View, ledger: Path, params: HotspotsParams, quotes: Quotes | None = None) -> dict[str, Any]:
    cause, second = split_cause(params.by)
    scope = choose(view, params, dimensions.tag_keys(second))
    reader = Reader(view, scope.selection, scope.classes)
    by_model = dimensions.dimension(view, ["model"], scope.selection)
    summed = reader.read(by_model.by)
    added = add_up(summed, scope, by_model)
    causes = CauseReader(view, ledger, scope.selection, reader)
    dimension = dimensions.dimension(view, second, scope.selection) if second else None
    table = _IndexRows(view, cause, params, scope.classes, dimension)
    if cause == "prompt":
        table.add_prompts(scope.selection, reader, causes)
    else:
        table.add_causes(causes)
    rows = table.ranked(CauseSum.of(added.total), added.total.turns + added.total.empty)
    first_turns = first_turns_of(view, [label.prompt for label, _ in rows if label.prompt is not None])
    enough = short_ids(view, {str(turn[0]) for turn in first_turns.values()})
    names = _second_names(dimension, rows)
    whole = added.total.units

    def about(label: Label) -> dict[str, Any]:
        return _prompt_answer(label.prompt, first_turns.get(label.prompt), quotes, enough) if label.prompt else {}

    return {
        "filters": scope.filters,
        "by": params.by,
        "rank": params.rank,
        "totals": added.total.answer(),
        "unpricedModels": added.unpriced,
        "harnessModels": added.by_harness,
        "unlogged": unlogged_of(summed, scope.classes),
        "rows": row_answers(rows, whole, cause, second, names, about),
        "moreRows": table.left_out,
        "pending": view.rows("SELECT count(*) FROM changed")[0][0],
    }


def row_answers(
    rows: Sequence[tuple[Label, CauseSum]],
    whole: int,
    cause: str,
    second: Sequence[str],
    names: Mapping[Any, Any],
    about: Callable[[Label], dict[str, Any]],
) -> list[dict[str, Any]]:
    """`whole` is the cost of all, `names` are those of the second dimension, `about` adds facts."""
    return [
        {
            "key": label.key,
            "kind": label.kind,
            "group": _group(label),
            **({"proof": label.proof} if label.proof else {}),
            **({"keys": {cause: label.key, second[0]: names[label.second]}} if label.second in names else {}),
            **about(label),
            **row_sum.answer(),
            "share": row_sum.units / whole if whole and row_sum.is_priced else None,
        }
        for label, row_sum in rows
    ]


def split_cause(by: str, split: Callable[[str], list[str]] = dimensions.split) -> tuple[str, list[str]]:
    """Parses a grouping like `tool`, or with a second dimension like `tool,model`. Raises Mistaken."""
    cause, comma, second = by.partition(",")
    if cause not in CAUSES:
        close = get_close_matches(cause[:40], CAUSES, 1)
        hint = f"did you mean: {close[0]}" if close else f"one of: {', '.join(CAUSES)}"
        raise Mistaken(f"unknown by value {cause[:40]!r}", f"{hint}; or with a dimension of summary, like tool,model")
    if not comma:
        return cause, []
    if cause == "prompt":
        raise Mistaken("prompts cannot be grouped by a second dimension", "use by prompt, with filters if needed")
    if len(dimension := split(second)) > 1:
        raise Mistaken(f"by {by[:80]!r} has more than two dimensions", "use two, like tool,model")
    return cause, dimension


def _second_names(dimension: Dimension | None, rows: Sequence[tuple[Label, CauseSum]]) -> dict[Any, Any]:
    if dimension is None:
        return {}
    keys = [*dict.fromkeys(label.second for label, _ in rows if label.second != NO_SECOND)]
    return {key: facts["key"] for key, facts in zip(keys, dimension.describe(keys), strict=True)}


def _prompt_answer(
    prompt: PromptKey, first_turn: tuple[Any, ...] | None, quotes: Quotes | None, enough: Mapping[str, str]
) -> dict[str, Any]:
    if first_turn is None:
        return {}
    session_id, rail_id, turn_index, ts, message_id = first_turn
    answer = {"sessionId": session_id, "shortId": enough[session_id], "railId": rail_id}
    answer |= {"turnIndex": turn_index, "at": to_iso(ts)}
    if quotes is not None:
        rail = RailName(prompt[0], session_id, rail_id)
        quote = quotes.of(rail, CauseOrigin("prompt", turn_index=turn_index, message_id=message_id))
        answer |= {"quote": quote} if quote is not None else {}
    return answer


def _group(label: Label) -> str | None:
    """The group in `why`; None for other rows than tools, commands and kinds of causes."""
    if label.kind == "tool":
        return group_of("call", label.key, None)
    if label.kind == "command":
        return group_of_command(label.key)
    return group_of(label.key, None, None) if label.kind == OTHER else None


LabelSums = dict[tuple[Label | None, Any], CauseSum]  # by row and key in the second dimension


class HotspotRows:
    def __init__(self, by: str, rank: str, limit: int) -> None:
        self._by, self._rank, self._limit = by, rank, limit
        self._sums: dict[Label, CauseSum] = {}
        self._rest: CauseSum | None = None  # sum of the rows beyond the limit; None if computed from the total
        self.left_out = 0

    def _label(self, key: CauseKey, project: str | None, tools: Callable[[str], str]) -> Label | None:
        """The row of a cause; None if its subjects have rows of their own."""
        by, is_call = self._by, key.kind == "call"
        level, _ = SUBJECTS.get(by, (TOOL, ""))
        if is_call and level != TOOL and key.level == level and TOOLS_OF.get(by) in (None, tool_kind(key.tool)):
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

    def _sum(self, label: Label) -> CauseSum:
        return self._sums.setdefault(label, CauseSum())

    def ranked(self, total: CauseSum, turns: int) -> list[tuple[Label, CauseSum]]:
        """The heaviest rows, then those of kind `other`, then the difference to the total of all turns."""
        ordered = sorted(self._sums.items(), key=self._order)
        ranked = [row for row in ordered if row[0].kind != OTHER]
        others = [row for row in ordered if row[0].kind == OTHER]
        ranked, beyond = ranked[: self._limit], ranked[self._limit :]
        divided = [row for row in others if row[0].second != NO_SECOND]  # some for each day or session
        if divided:
            merged = {label: row_sum for label, row_sum in others if label.second == NO_SECOND}
            for label, row_sum in divided[self._limit :]:
                merged.setdefault(label._replace(second=NO_SECOND), CauseSum()).merge(row_sum)
            others = [*divided[: self._limit], *sorted(merged.items(), key=self._order)]
        missing = CauseSum()
        missing.merge(total)
        for _, row_sum in (*ranked, *others):
            missing.subtract(row_sum)
        missing.calls = missing.errors = missing.entered = 0  # the total has no such counts
        if more := self.left_out + len(beyond):
            rest = self._rest if self._rest is not None else missing
            rest = rest if self.left_out else CauseSum()
            for _, row_sum in beyond if rest is not missing else ():
                rest.merge(row_sum)
            self.left_out = more
            others.insert(0, (Label(OTHER, f"{more:,} more"), rest))
            if rest is missing:  # prompts: fresh input and cache writes count as entered, turns as calls
                fresh, _, _, _, five, hour = rest.tokens
                rest.entered = fresh + five + hour
                rest.calls = turns - sum(row_sum.calls for _, row_sum in (*ranked, *others[1:]))
                return [*ranked, *others]
            missing.subtract(rest)
            missing.calls = missing.errors = missing.entered = 0
        if missing:
            others.append((Label(OTHER, NOT_MISSED if self._by == "cache-miss" else NOT_COUNTED), missing))
        return [*ranked, *others]

    def _order(self, row: tuple[Label, CauseSum]) -> tuple[Any, ...]:
        """By weight, then by tokens, as for all rows without a price."""
        label, row_sum = row
        return (
            -row_sum.weight(self._rank),
            -sum(row_sum.tokens),
            label.key,
            label.proof,
            label.prompt or (),
            repr(label.second),
        )


class _IndexRows(HotspotRows):
    def __init__(
        self, view: View, cause: str, params: HotspotsParams, classes: TurnClasses, dimension: Dimension | None
    ) -> None:
        super().__init__(cause, params.rank, params.limit)
        self._view = view
        self._dimension = dimension
        self._keys_read = dimension.by if dimension is not None else By()
        self._classes = classes

    def add_prompts(self, selection: Selection, reader: Reader, causes: CauseReader) -> None:
        prompts = heaviest(self._view, selection, reader, causes, rates_of(self._rank, self._classes), self._limit)
        for prompt, turn_class, counts in prompts.rows:
            label = Label(OTHER, NO_PROMPT) if prompt is None else Label(self._by, prompt[1], prompt)
            self._sum(label).add(self._classes[turn_class], counts)
        self.left_out = prompts.total - sum(label.prompt is not None for label in self._sums)

    def add_causes(self, causes: CauseReader) -> None:
        self._rest = CauseSum()
        if self._by in SUBJECTS:
            self._add_subjects(causes, *SUBJECTS[self._by])
        if self._by != "cache-miss":
            self._add_tools(causes)

    def _heaviest(
        self, causes: CauseReader, level: int, same: Mapping[int, int] | None = None, others: Collection[int] = ()
    ) -> tuple[list[CauseRow], int]:
        weight = partial(weight_sql, rates_of(self._rank, self._classes), Sums._fields)
        return causes.heaviest(level, self._keys_read, Ranking(weight, self._limit, same or {}, others))

    @property
    def _is_ranked_by_sql(self) -> bool:
        """Rows by a second dimension may be very many: only the heaviest are read."""
        return self._dimension is not None and self._dimension.is_many

    def _add_subjects(self, causes: CauseReader, level: int, kind: str) -> None:
        """Names only the heaviest subjects, since there may be very many."""
        sums: dict[tuple[int, Any], CauseSum] = {}
        if self._is_ranked_by_sql and self._by in ("file", "command"):
            rows_read, number = self._heaviest(causes, level)
        else:
            rows_read, number = [*causes.read(level, self._keys_read)], 0
        for one in rows_read:
            row = one.cause, self._second(one)
            row_sum = sums.get(row)
            if row_sum is None:
                row_sum = sums[row] = CauseSum()
            row_sum.add(self._classes[one.turn_class], one.counts)
        if self._by in TOOLS_OF:
            keys = self._keys({cause for cause, _ in sums})
            sums = {row: row_sum for row, row_sum in sums.items() if keys[row[0]].kind == kind}
        # Several agents, or cache misses of several agents, may have the same name.
        limit = len(sums) if self._by in ("subagent", "cache-miss") else self._limit
        ranks = {row: (-row_sum.weight(self._rank), -sum(row_sum.tokens)) for row, row_sum in sums.items()}
        last = nsmallest(limit, ranks.values())[-1:]
        top = [row for row, rank in ranks.items() if [rank] <= last]  # more than the limit if equal: ordered by name
        self.left_out = max(number, len(sums)) - len(top)
        keys = self._keys({cause for cause, _ in top})
        for row in top:
            cause, second = row
            proof = keys[cause].target if self._by == "cache-miss" else ""
            self._sum(Label(self._by, self._subject(keys[cause]), None, second, proof)).merge(sums[row])

    def _second(self, rows_read: CauseRow) -> Any:
        if self._dimension is None:
            return NO_SECOND
        return self._dimension.label(
            rows_read.keys[: len(self._dimension.by.keys)], self._classes[rows_read.turn_class]
        )

    def _subject(self, key: CauseKey) -> str:
        if self._by == "cache-miss":
            return key.tool
        return key.target or (UNKNOWN_AGENT if self._by == "subagent" else f"(no {self._by})")

    def _add_tools(self, causes: CauseReader) -> None:
        """Adds all causes by tool: as rows if grouped by tool, else as `other` and as the rest."""
        is_prefix, is_ranked = self._by == "prefix", self._is_ranked_by_sql
        by = By() if is_ranked else self._keys_read
        by = by.plus(By(("place",))) if is_prefix else by
        rows_read = [*causes.read(TOOL, by)]
        labels = self._labels(rows_read, by)
        sums: LabelSums = {}
        for one in rows_read:
            place = one.keys[by.keys.index("place")] if is_prefix else None
            self._add_row(sums, labels[one.cause, place], NO_SECOND if is_ranked else self._second(one), one)
        rest = CauseSum()
        for (label, _), row_sum in [*sums.items()]:
            if label is None:
                rest.merge(row_sum)
        if is_ranked:
            # Prefixes differ by project, and agents also added by their calls: their rows are read in full.
            full = {cause for (cause, _), label in labels.items() if label is not None and label.kind in _IN_FULL}
            other_labels = {cause: label for (cause, _), label in labels.items() if cause not in full}
            if other_labels:
                self._add_heaviest(causes, other_labels, sums, rest)
            sums = {row: row_sum for row, row_sum in sums.items() if row[0] is None or row[0].kind not in _IN_FULL}
            for one in causes.of_causes(TOOL, self._keys_read.plus(by), full) if full else ():
                place = one.keys[-1] if is_prefix else None
                self._add_row(sums, labels[one.cause, place], self._second(one), one)
        for (label, second), row_sum in sums.items():
            if label is not None and (second != NO_SECOND or row_sum or not is_ranked):
                self._sum(label._replace(second=second)).merge(row_sum)
        for label, row_sum in self._sums.items():
            if label.kind == self._by and self._by in ("file", "command", "skill"):
                rest.subtract(row_sum)
        self._rest = rest

    def _add_heaviest(
        self, causes: CauseReader, labels: Mapping[int, Label | None], sums: LabelSums, rest: CauseSum
    ) -> None:
        """Divides the heaviest rows of `sums` by the second dimension; what is left stays undivided, or is the rest."""
        first: dict[Label | None, int] = {}
        same = {cause: first.setdefault(label, cause) for cause, label in sorted(labels.items())}
        own = {label for label in first if label is not None and label.kind == self._by}
        rows_read, number = self._heaviest(causes, TOOL, same, {first[label] for label in first.keys() - own})
        divided: LabelSums = {}
        for one in rows_read:
            if (label := labels.get(one.cause)) is not None:
                self._add_row(divided, label, self._second(one), one)
        for (label, _), row_sum in divided.items():
            sums[label, NO_SECOND].subtract(row_sum)
        for label in own:
            rest.merge(sums.pop((label, NO_SECOND)))
        self.left_out += max(0, number - sum(label in own for label, _ in divided))
        sums |= divided

    def _add_row(self, sums: LabelSums, label: Label | None, second: Any, one: CauseRow) -> None:
        row_sum = sums.get((label, second))
        if row_sum is None:
            row_sum = sums[label, second] = CauseSum()
        # Calls made by an agent are not calls of the agent.
        is_agent = label is not None and label.kind == "subagent"
        row_sum.add(self._classes[one.turn_class], (*one.counts[:_CALLS], 0, 0) if is_agent else one.counts)

    def _labels(self, rows_read: Sequence[CauseRow], by: By) -> dict[tuple[int, int | None], Label | None]:
        """By cause, and by place if prefixes are grouped."""
        keys = self._keys({one.cause for one in rows_read})
        tools = one_spelling(key.tool for key in keys.values())
        if self._by != "prefix":
            return {(cause, None): self._label(key, None, tools) for cause, key in keys.items()}
        projects: dict[int, str] = dict(self._view.rows(_PROJECTS))
        at = by.keys.index("place")
        return {
            (cause, place): self._label(keys[cause], projects.get(place), tools)
            for cause, place in {(one.cause, one.keys[at]) for one in rows_read}
        }

    def _keys(self, causes: Iterable[int]) -> dict[int, CauseKey]:
        rows = self._view.keyed(NAMED_CAUSES + "WHERE c.id IN ({keys})", [(cause,) for cause in causes])
        return {number: CauseKey(*key) for number, *key in rows}


def one_spelling(names: Iterable[str]) -> Callable[[str], str]:
    """Maps tool names that differ only in case (`Bash`, `bash`) to the one with most capitals."""
    names_shown: dict[str, str] = {}
    for name in sorted(set(names)):
        names_shown.setdefault(name.casefold(), name)
    return lambda name: names_shown[name.casefold()]


_PROJECTS = """
SELECT p.id, coalesce(k.name, d.name) FROM places p LEFT JOIN names k ON k.id = p.project_key
LEFT JOIN names d ON d.id = p.project WHERE k.name IS NOT NULL OR d.name IS NOT NULL
"""
