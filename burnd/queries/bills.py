"""A session with all that it started, explained and priced: the bills of its rails, as a tree."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from burnd.attribution import Branch, Cause, Explained, nest
from burnd.attribution.causes import Selected, explain
from burnd.attribution.rail import CauseOrigin
from burnd.attribution.rail_entries import RailEntries, RailName, load
from burnd.queries.costing import Cost, Costing, total
from burnd.queries.view import View
from burnd.records import Turn

Group = TypeVar("Group")


class Item(msgspec.Struct, frozen=True, gc=False):
    """A cause and what it cost."""

    cause: Cause
    cost: Cost


class Bill:
    """What a rail paid for; `below` are the bills of the rails that it started."""

    def __init__(self, rail: RailName, explained: Explained, below: list[Bill], costing: Costing) -> None:
        self.rail = rail
        self.explained = explained
        self.below = below
        self._priced = costing.each(explained.causes)
        self.own = self._total()
        self.whole: Cost = total([self.own, *(bill.whole for bill in below)])

    def dearest(self, most: int, but: AbstractSet[int] = frozenset()) -> list[Item]:
        """So many of its causes without some of them, the dearest first; else in the order in which they began.

        What has no price goes by its tokens, behind what has one.
        """
        units, unpriced = self._priced
        if unpriced:
            order = sorted(range(len(units)), key=lambda n: (-units[n], -sum(self._tokens(n))))
        else:
            order = sorted(range(len(units)), key=units.__getitem__, reverse=True)
        return [self.item(n) for n in islice((n for n in order if n not in but), most)]

    def item(self, n: int) -> Item:
        """The n-th of its causes."""
        units, unpriced = self._priced
        return Item(self.explained.causes[n], Cost(self._tokens(n), units[n], n not in unpriced))

    def count_priced(self, but: AbstractSet[int]) -> int:
        """How many of its causes have a price, without some of them."""
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

    def grouped(self, name: Callable[[CauseOrigin], Group]) -> dict[Group, tuple[int, Cost]]:
        """How many causes there are of each name that `name` gives them, and what these cost together."""
        numbers: dict[Group, list[int]] = {}
        for n, origin in enumerate(self.explained.causes.origins()):
            numbers.setdefault(name(origin), []).append(n)
        units, unpriced = self._priced
        return {
            group: (
                len(some),
                Cost(
                    tuple(map(sum, zip(*map(self._tokens, some), strict=True))),
                    sum(units[n] for n in some),
                    not unpriced.issuperset(some),
                ),
            )
            for group, some in numbers.items()
        }

    def started(self) -> dict[int, list[Bill]]:
        """The rails that its causes started, by the number of the cause."""
        if not self.below:
            return {}
        found: dict[str | None, list[Bill]] = {}
        for bill in self.below:
            found.setdefault(bill.explained.started_by, []).append(bill)
        numbers = dict(self.explained.causes.calls())
        return {numbers[call_id]: bills for call_id, bills in found.items() if call_id is not None}

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
        return sorted(load(self._db, self._ledger, sessions), key=lambda rail: rail.session != first)

    def bills(self, rails: Sequence[RailEntries], selected: Selected | None = None) -> list[Bill]:
        """What was paid for in the selected turns. A rail whose call is not known stands for itself."""
        by_name = {(rail.session_id, rail.rail_id): rail for rail in rails}
        models = {(turn.model, turn.provider) for rail in rails for turn in rail.turns}
        thresholds = self.costing.thresholds(models)
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


def billed(turns: Iterable[Turn]) -> int:
    """How many of them count: those without any usage do not."""
    return sum(turn.quality != "empty" for turn in turns)
