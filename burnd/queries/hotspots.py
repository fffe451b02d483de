"""Where the money went: causes of all selected turns, rolled up by tool, file, command or whatever else is asked.

The rows add up to the summary of the same filters, to the token and to the last digit of the cost: what is none of what
was asked for is there as `other`, and so is what has not been counted yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from operator import mul
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from burnd.attribution.sums import Sums
from burnd.causes.cause import COMMAND, FILE, MISS, NAMED, NAMED_CAUSES, TOOL, CauseKey
from burnd.causes.prompt_weights import PromptKey
from burnd.classify.tools import kind as tool_kind
from burnd.classify.tools import mcp_server
from burnd.contract.reports import HotspotsParams
from burnd.protocol import NOT_COUNTED, NOT_MISSED, OTHER, UNKNOWN_AGENT
from burnd.queries import dimensions
from burnd.queries.cause_reading import CauseReader, Spent
from burnd.queries.cause_sum import CauseSum, rates_of
from burnd.queries.filters import choose
from burnd.queries.kinds import Kinds
from burnd.queries.prompts import Worked, places, worked
from burnd.queries.prompts import heaviest as heaviest_prompts
from burnd.queries.reading import Reader
from burnd.queries.selection import Selection
from burnd.queries.summary import Added, add_up, unlogged
from burnd.queries.tally import Tally
from burnd.queries.view import View

OTHER_TOOLS: Final = "other tools"
NO_PROMPT: Final = "no prompt"
By = Literal["tool", "file", "command", "mcp", "skill", "subagent", "prompt", "prefix", "cache-miss"]
Rank = Literal["cost", "tokens", "rides"]

# The level at which subjects are read, and of which kind they must be.
_SUBJECTS: Final[dict[str, tuple[int, str]]] = {
    "file": (FILE, "file"),
    "command": (COMMAND, "command"),
    "skill": (NAMED, "skill"),
    "subagent": (NAMED, "agent"),
    "cache-miss": (MISS, "miss"),
}
_CALLS: Final = Sums._fields.index("calls")
_TOOLS_OF: Final = {"skill": "skill", "subagent": "delegate"}


class Label(NamedTuple):
    """What a row is about: its kind, which is `other` for what was not asked for, and its name."""

    kind: str
    key: str
    prompt: PromptKey | None = None


def hotspots(view: View, ledger: Path, params: HotspotsParams) -> dict[str, Any]:
    """The answer of the method `hotspots`."""
    chosen = choose(view, params)
    reader = Reader(view, chosen.selection, chosen.kinds)
    by_model = dimensions.dimension(view, "model", chosen.selection)
    added = add_up(reader.read(by_model.by), chosen, by_model)
    causes = CauseReader(view, ledger, chosen.selection, reader)
    rolled = _Rolled(view, params, chosen.kinds)
    if params.by == "prompt":
        rolled.read_prompts(chosen.selection, reader)
    else:
        rolled.read(causes)
    rows = rolled.rows(added.total)
    return {
        "filters": chosen.said,
        "by": params.by,
        "rank": params.rank,
        "totals": added.total.answer(),
        "unpricedModels": added.unpriced,
        "harnessModels": added.by_harness,
        "unlogged": unlogged(added),
        "rows": _answers(view, rows, added),
        "moreRows": rolled.left_out,
        "pending": view.rows("SELECT count(*) FROM changed")[0][0],
    }


def _answers(view: View, rows: Sequence[tuple[Label, CauseSum]], added: Added) -> list[dict[str, Any]]:
    where = places(view, [label.prompt for label, _ in rows if label.prompt is not None])
    return [_answer(label, paid, added, where.get(label.prompt, {}) if label.prompt else {}) for label, paid in rows]


def _answer(label: Label, paid: CauseSum, added: Added, where: dict[str, Any]) -> dict[str, Any]:
    whole = added.total.units
    share = paid.units / whole if whole and paid.is_priced else None
    return {"key": label.key, "kind": label.kind, **where, **paid.answer(), "share": share}


class _Rolled:
    """Heaps by what was asked for. Subjects are known by number, since there may be very many, until they are shown."""

    def __init__(self, view: View, params: HotspotsParams, kinds: Kinds) -> None:
        self._view = view
        self._by = params.by
        self._rank = params.rank
        self._limit = params.limit
        self._kinds = kinds
        self._subjects: dict[int, CauseSum] = {}
        self._prompts: dict[PromptKey, CauseSum] = {}
        self._labelled: dict[Label, CauseSum] = {}
        self._keys: dict[int, CauseKey] = {}
        self._rest = CauseSum()  # of the subjects that are not shown: all of their tools' causes less those that are
        self.left_out = 0

    def read(self, causes: CauseReader) -> None:
        if self._by in _SUBJECTS:
            self._add_subjects(causes, *_SUBJECTS[self._by])
        if self._by == "prefix":
            self._add_prefixes(causes)
        if self._by != "cache-miss":
            self._add_tools(causes.read(TOOL))

    def _add_prefixes(self, causes: CauseReader) -> None:
        numbers = frozenset(row[0] for row in self._view.rows("SELECT id FROM causes WHERE kind = 'prefix'"))
        places: dict[int, str] = dict(self._view.rows(_PLACES))
        for place, number, _, sums in causes.by_place(TOOL, numbers):
            label = Label(self._by, places.get(place, "(no project)"))
            self._labelled.setdefault(label, CauseSum()).add(self._kinds[number], sums)

    def read_prompts(self, selection: Selection, reader: Reader) -> None:
        rates = rates_of(self._rank, self._kinds)
        found = heaviest_prompts(self._view, selection, reader, self._rank, rates, self._limit)
        if found is None:
            self._add_prompts(worked(self._view, selection, reader))
            return
        self._add_prompts(found.rows)
        self.left_out = found.of - len(self._prompts)
        for number, sums in found.everything:
            if not self._kinds[number].is_unlogged:
                self._rest.add(self._kinds[number], sums)
        for paid in (*self._prompts.values(), *self._labelled.values()):
            self._rest.take_off(paid)

    def _add_prompts(self, found: Iterable[Worked]) -> None:
        for prompt, number, sums in found:
            if prompt is None:
                paid = self._labelled.setdefault(Label(OTHER, NO_PROMPT), CauseSum())
            else:
                paid = self._prompts.setdefault(prompt, CauseSum())
            paid.add(self._kinds[number], sums)

    def _add_subjects(self, causes: CauseReader, level: int, kind: str) -> None:
        """Weighs all subjects, of which there may be very many, and keeps the heaviest."""
        rates = rates_of(self._rank, self._kinds)
        heaviest = causes.heaviest(level, rates, self._limit) if self._by in ("file", "command") else None
        rows = heaviest.rows if heaviest is not None else [*causes.read(level)]
        if self._by in _TOOLS_OF:  # agents and skills are at one level
            self._learn(row[2] for row in rows)
            rows = [row for row in rows if self._keys[row[2]].kind == kind]
        weights: dict[int, int] = {}
        for _, number, cause, sums in rows:
            weights[cause] = weights.get(cause, 0) + sum(map(mul, sums, rates[number]))
        most = len(weights) if self._by in ("subagent", "cache-miss") else self._limit  # several may have one name
        shown = nsmallest(most, weights, key=lambda cause: (-weights[cause], cause))
        self.left_out = (heaviest.of if heaviest is not None else len(weights)) - len(shown)
        self._subjects = {cause: CauseSum() for cause in shown}
        for _, number, cause, sums in rows:
            if cause in self._subjects:
                self._subjects[cause].add(self._kinds[number], sums)
            if self._by == "cache-miss":  # all others are part of their tools, which are read for themselves
                self._rest.add(self._kinds[number], sums)

    def _add_tools(self, found: Iterable[Spent]) -> None:
        rows = list(found)
        self._learn(row[2] for row in rows)
        sums_of = {cause: self._sum_of(self._keys[cause]) for cause in {row[2] for row in rows}}
        for _, number, cause, sums in rows:
            paid, is_agents = sums_of[cause]
            if paid is not None:
                # How often an agent was called says the call, not the agent's own calls.
                paid.add(self._kinds[number], (*sums[:_CALLS], 0, 0) if is_agents else sums)

    def _sum_of(self, key: CauseKey) -> tuple[CauseSum | None, bool]:
        """Where a cause is added, and whether it is an agent's own; nowhere where it was read for itself."""
        if self._by == "prefix" and key.kind == "prefix":
            return None, False
        label = self._label(key)
        if label is None:
            return self._rest, False
        return self._labelled.setdefault(label, CauseSum()), label.kind == "subagent"

    def _label(self, key: CauseKey) -> Label | None:
        """Which row a cause belongs to; None where its subjects are told apart."""
        by, is_call = self._by, key.kind == "call"
        level, _ = _SUBJECTS.get(by, (TOOL, ""))
        if is_call and level != TOOL and key.level == level and _TOOLS_OF.get(by) in (None, tool_kind(key.tool)):
            return None
        if by == "subagent" and key.agent:
            return Label(by, key.agent)
        if not is_call:
            return Label(OTHER, key.kind)
        if by == "tool":
            return Label(by, key.tool or "(unknown tool)")
        server = mcp_server(key.tool) if by == "mcp" else None
        return Label(by, server) if server is not None else Label(OTHER, OTHER_TOOLS)

    def _learn(self, causes: Iterable[int]) -> None:
        missing = sorted({cause for cause in causes if cause not in self._keys})
        sql = NAMED_CAUSES + "WHERE c.id IN ({keys})"
        for number, *key in self._view.keyed(sql, [(number,) for number in missing]):
            self._keys[number] = CauseKey(*key)

    def rows(self, total: Tally) -> list[tuple[Label, CauseSum]]:
        """The heaviest first, what was not asked for last, and then what is missing to the total."""
        self._take_in_subjects()
        asked = [(label, paid) for label, paid in self._labelled.items() if label.kind != OTHER]
        asked.sort(key=self._order)
        asked, beyond = asked[: self._limit], asked[self._limit :]
        others = sorted(
            ((label, paid) for label, paid in self._labelled.items() if label.kind == OTHER), key=self._order
        )
        rest = _merged(paid for _, paid in beyond)
        if self.left_out:
            rest.merge(self._rest)
        self.left_out += len(beyond)
        if self.left_out:
            others.insert(0, (Label(OTHER, f"{self.left_out:,} more"), rest))
        missing = CauseSum.of(total)
        for _, paid in (*asked, *others):
            missing.take_off(paid)
        missing.calls = missing.errors = missing.entered = 0  # the total does not count these
        if missing:
            others.append((Label(OTHER, NOT_MISSED if self._by == "cache-miss" else NOT_COUNTED), missing))
        return [*asked, *others]

    def _take_in_subjects(self) -> None:
        """Gives subjects their names; there may be an agent of the same name as one that was called."""
        for prompt, paid in self._prompts.items():
            self._labelled[Label(self._by, prompt[1], prompt)] = paid
        self._learn(self._subjects)
        for cause, paid in self._subjects.items():
            self._rest.take_off(paid)
            self._labelled.setdefault(self._named(self._keys[cause]), CauseSum()).merge(paid)

    def _named(self, key: CauseKey) -> Label:
        if self._by == "cache-miss":
            return Label(self._by, key.tool)
        missing = UNKNOWN_AGENT if self._by == "subagent" else f"(no {self._by})"
        return Label(self._by, key.target or missing)

    def _order(self, row: tuple[Label, CauseSum]) -> tuple[Any, ...]:
        """What weighs the same, as all that has no price does, by its tokens."""
        label, paid = row
        return -paid.weight(self._rank), -sum(paid.tokens), label.key, label.prompt or ()


def _merged(several: Iterable[CauseSum]) -> CauseSum:
    whole = CauseSum()
    for paid in several:
        whole.merge(paid)
    return whole


_PLACES = """
SELECT p.id, coalesce(k.name, d.name) FROM places p LEFT JOIN names k ON k.id = p.project_key
LEFT JOIN names d ON d.id = p.project WHERE k.name IS NOT NULL OR d.name IS NOT NULL
"""
