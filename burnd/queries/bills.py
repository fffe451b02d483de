"""A session with all that it started, explained and priced: the bills of its rails, as a tree."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from burnd.attribution import Branch, Cause, Explained, explain, nest
from burnd.attribution.causes import Selected
from burnd.causes.rails import RailEntries, load
from burnd.queries.costing import Cost, Costing, total
from burnd.queries.view import View
from burnd.records import ToolCall, Turn


class Item(msgspec.Struct, frozen=True, gc=False):
    """A cause and what it cost."""

    cause: Cause
    cost: Cost


class Bill:
    """What a rail paid for, the dearest first; `below` are the bills of the rails that it started."""

    def __init__(self, rail: RailEntries, explained: Explained, below: list[Bill], costing: Costing) -> None:
        self.rail = rail
        self.explained = explained
        price = costing.of
        self.items = [Item(cause, price(cause.spent)) for cause in explained.causes]
        self.items.sort(key=_weight if all(item.cost.is_priced for item in self.items) else _weight_without_price)
        self.below = below
        self.own = total([item.cost for item in self.items])
        self.whole: Cost = total([self.own, *(bill.whole for bill in below)])

    @cached_property
    def _turns(self) -> dict[str, Turn]:
        return {turn.message_id: turn for turn in self.rail.turns}

    def call(self, cause: Cause) -> ToolCall | None:
        """The call that a cause is."""
        turn = self._turns.get(cause.message_id)
        calls = turn.tool_calls if turn is not None else ()
        return next((call for call in calls if call.id == cause.call_id), None)

    def started(self) -> dict[str, list[Bill]]:
        """The rails that its calls started, by call."""
        found: dict[str, list[Bill]] = {}
        for bill in self.below:
            found.setdefault(bill.explained.started_by or "", []).append(bill)
        return found

    def every(self) -> Iterator[Bill]:
        """This one and all below it, each before those that it started."""
        waiting = [self]
        while waiting:
            bill = waiting.pop()
            yield bill
            waiting += reversed(bill.below)


class Explaining:
    """Explains the rails of sessions at the prices of a view."""

    def __init__(self, view: View, ledger: Path) -> None:
        self._db: sqlite3.Connection = view.db
        self._ledger = ledger
        self.costing = Costing(view.prices)

    def rails(self, sessions: Iterable[int], first: int) -> list[RailEntries]:
        """All their rails, those of the session `first` before the others'."""
        rails = load(self._db, self._ledger, sessions)
        return sorted(rails, key=lambda rail: rail.session != first)

    def bills(self, rails: Sequence[RailEntries], selected: Selected | None = None) -> list[Bill]:
        """What was paid for in the selected turns. A rail whose call is not known stands for itself."""
        by_name = {(rail.session_id, rail.rail_id): rail for rail in rails}
        thresholds = self.costing.thresholds({(turn.model, turn.provider) for rail in rails for turn in rail.turns})
        roots = nest([explain(rail.entries, thresholds, selected) for rail in rails])
        made: dict[int, Bill] = {}
        for branch in reversed(list(_every(roots))):
            rail = by_name[branch.explained.session_id, branch.explained.rail_id]
            below = [made.pop(id(one)) for one in branch.below]
            made[id(branch)] = Bill(rail, branch.explained, below, self.costing)
        return [made[id(root)] for root in roots]


def _every(roots: Sequence[Branch]) -> Iterator[Branch]:
    waiting = list(reversed(roots))
    while waiting:
        branch = waiting.pop()
        yield branch
        waiting += reversed(branch.below)


def _weight(item: Item) -> int:
    """The dearest first; what costs the same stays in the order in which it began."""
    return -item.cost.units


def _weight_without_price(item: Item) -> tuple[int, int]:
    """What has no price goes by its tokens, behind what has one."""
    return -item.cost.units, -sum(item.cost.tokens)


def billed(turns: Iterable[Turn]) -> int:
    """How many of them count: those without any usage do not."""
    return sum(turn.quality != "empty" for turn in turns)
