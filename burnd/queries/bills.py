"""Bills: the tokens that each cause of a rail paid and their prices; names and groups of causes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from burnd.attribution.causes import Branch, Cause, Explained, Selected, explain, nest
from burnd.attribution.rail import CauseOrigin
from burnd.attribution.rail_entries import RailEntries, RailName, load
from burnd.attribution.row import CauseKind
from burnd.classify.shell_programs import UNKNOWN_GOAL, word_set
from burnd.classify.tools import Kind as ToolKind
from burnd.classify.tools import kind as tool_kind
from burnd.queries.money import Cost, Pricer, total
from burnd.queries.view import View
from burnd.records import Turn

Name = TypeVar("Name")


class Item(msgspec.Struct, frozen=True, gc=False):
    cause: Cause
    cost: Cost


class Bill:
    """The causes that a rail paid for; `below` are the bills of the rails it started."""

    def __init__(self, rail: RailName, explained: Explained, below: list[Bill], pricer: Pricer) -> None:
        self.rail = rail
        self.explained = explained
        self.below = below
        self._priced = pricer.each(explained.causes)
        self.own = self._total()
        self.whole: Cost = total([self.own, *(bill.whole for bill in below)])

    def most_expensive(self, most: int, but: AbstractSet[int] = frozenset()) -> list[Item]:
        """Equal ones in order of appearance, unpriced ones last by tokens."""
        units, unpriced = self._priced
        if unpriced:
            order = sorted(range(len(units)), key=lambda n: (-units[n], -sum(self._tokens(n))))
        else:
            order = sorted(range(len(units)), key=units.__getitem__, reverse=True)
        return [self.item(n) for n in islice((n for n in order if n not in but), most)]

    def item(self, n: int) -> Item:
        units, unpriced = self._priced
        return Item(self.explained.causes[n], Cost(self._tokens(n), units[n], n not in unpriced))

    def count_priced(self, but: AbstractSet[int]) -> int:
        units, unpriced = self._priced
        return len(units) - len(unpriced | but)

    def _tokens(self, n: int) -> tuple[int, ...]:
        columns = self.explained.causes.paid.values()
        return tuple(map(sum, zip(*(column[n] for column in columns), strict=True)))

    def _total(self) -> Cost:
        columns = self.explained.causes.paid.values()
        by_class = zip(*(map(sum, zip(*column, strict=True)) for column in columns), strict=True)
        units, unpriced = self._priced
        return Cost(tuple(map(sum, by_class)), sum(units), len(unpriced) < len(units)) if units else Cost()

    def grouped(self, name: Callable[[CauseKind, str | None, str | None], Name]) -> dict[Name, tuple[int, Cost]]:
        alike: dict[tuple[CauseKind, str | None, str | None], list[int]] = {}
        for n, origin in enumerate(self.explained.causes.origins()):
            alike.setdefault((origin.kind, origin.tool, origin.target), []).append(n)
        numbers: dict[Name, list[int]] = {}
        for described, some in alike.items():
            numbers.setdefault(name(*described), []).extend(some)
        units, unpriced = self._priced
        columns = self.explained.causes.paid.values()
        return {
            group: (
                len(some),
                Cost(
                    tuple(map(sum, zip(*(column[n] for column in columns for n in some), strict=True))),
                    sum(units[n] for n in some),
                    not unpriced.issuperset(some),
                ),
            )
            for group, some in numbers.items()
        }

    def started(self) -> dict[int, list[Bill]]:
        """By number of the cause."""
        if not self.below:
            return {}
        by_call: dict[str | None, list[Bill]] = {}
        for bill in self.below:
            by_call.setdefault(bill.explained.started_by, []).append(bill)
        numbers = dict(self.explained.causes.calls())
        return {numbers[call_id]: bills for call_id, bills in by_call.items() if call_id is not None}

    def every(self) -> Iterator[Bill]:
        """Parents first."""
        stack = [self]
        while stack:
            bill = stack.pop()
            yield bill
            stack += reversed(bill.below)


class BillReader:
    def __init__(self, view: View, ledger: Path) -> None:
        self._db: sqlite3.Connection = view.db
        self._ledger = ledger
        self.pricer = Pricer(view.prices)

    def rails(self, sessions: Iterable[int], first: int) -> list[RailEntries]:
        """All rails of these sessions, those of `first` before the others."""
        return sorted(load(self._db, self._ledger, sessions), key=lambda rail: rail.session != first)

    def bills(self, rails: Sequence[RailEntries], selected: Selected | None = None) -> list[Bill]:
        """A rail is a root if the call that started it is unknown."""
        by_name = {(rail.session_id, rail.rail_id): rail for rail in rails}
        models = {(turn.model, turn.provider) for rail in rails for turn in rail.turns}
        thresholds = self.pricer.thresholds(models)
        roots = nest([explain(rail.entries, thresholds, selected) for rail in rails])
        bills: dict[int, Bill] = {}
        for branch in reversed(list(_every(roots))):
            rail = by_name[branch.explained.session_id, branch.explained.rail_id]
            below = [bills.pop(id(one)) for one in branch.below]
            bills[id(branch)] = Bill(rail, branch.explained, below, self.pricer)
        return [bills[id(root)] for root in roots]


def _every(roots: Sequence[Branch]) -> Iterator[Branch]:
    stack = list(reversed(roots))
    while stack:
        branch = stack.pop()
        yield branch
        stack += reversed(branch.below)


def billed(turns: Iterable[Turn]) -> int:
    return sum(turn.quality != "empty" for turn in turns)


GroupKey = Literal[
    "prefix", "files", "shell", "edits", "answers", "prompts", "web", "mcp", "agents", "compaction", "history", "rest"
]
SUBAGENTS: Final = "agents"

_BY_CAUSE: Final[dict[str, GroupKey]] = {
    "prefix": "prefix",
    "answer": "answers",
    "thinking": "answers",
    "prompt": "prompts",
    "attachment": "prompts",
    "summary": "compaction",
    "inherited": "history",
}
_BY_TOOL: Final[dict[ToolKind, GroupKey]] = {
    "read": "files",
    "search": "files",
    "shell": "shell",
    "edit": "edits",
    "web": "web",
    "mcp": "mcp",
    "delegate": "agents",
}
# Programs that only read files.
_FILE_READERS: Final = word_set(
    "cat head tail less more nl bat grep egrep fgrep rg ag ack find fd ls tree wc sed awk cut sort uniq stat file"
)


def group_of(kind: str, tool: str | None, target: str | None) -> GroupKey:
    if kind != "call":
        return _BY_CAUSE.get(kind, "rest")
    if tool is None:
        return "rest"
    group = _BY_TOOL.get(tool_kind(tool), "rest")
    return group_of_command(target) if group == "shell" else group


def group_of_command(target: str | None) -> GroupKey:
    """Commands that only read files count as file reads."""
    return "files" if program_of(target) in _FILE_READERS else "shell"


def part_of(kind: str, tool: str | None, target: str | None) -> str:
    """The name of a cause within its group: its tool, the program that a shell ran to read files, or its kind."""
    if kind != "call" or tool is None:
        return kind
    is_program = tool_kind(tool) == "shell" and program_of(target) in _FILE_READERS
    return program_of(target) if is_program else tool


def program_of(target: str | None) -> str:
    return (target or "").partition(" ")[0]


_FIXED_LABELS: Final = {
    "prefix": "system prompt, tools and memory files",
    "inherited": "history from before this session",
    "unexplained": "what no block accounts for",
}
_TURN_LABELS: Final = {
    "prompt": "prompt of turn {}",
    "answer": "answer of turn {}",
    "thinking": "thinking of turn {}",
    "reminder": "what the harness added in turn {}",
    "attachment": "files attached in turn {}",
    "summary": "summary of the compaction before turn {}",
}
_LONGEST: Final = 200


def label(cause: Cause | CauseOrigin, project: str | None) -> str:
    """`Read src/app.py`, `Bash npm test`, `prompt of turn 3`; files relative to the project."""
    if cause.kind in _FIXED_LABELS:
        return _FIXED_LABELS[cause.kind]
    if cause.kind != "call":
        return _TURN_LABELS[cause.kind].format(cause.turn_index)
    text = f"{cause.tool or 'a call that the log does not show'} {about(cause.tool, cause.target, project) or ''}"
    return text.strip()[:_LONGEST]


def about(tool: str | None, target: str | None, project: str | None) -> str | None:
    """The target for display: a file relative to the project, a command without a placeholder goal."""
    if target is not None and tool is not None and tool_kind(tool) == "shell":
        return target.removesuffix(f" {UNKNOWN_GOAL}")
    return within(target, project) if target is not None else None


def within(path: str, project: str | None) -> str:
    """The path relative to the project, `.` for the project itself; other paths are unchanged."""
    folder = (project or "").rstrip("/") + "/"
    if not project or not path or not (path + "/").startswith(folder):
        return path
    return path[len(folder) :] or "."
