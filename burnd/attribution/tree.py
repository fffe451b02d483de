"""Hangs the rails of subagents under the calls that started them: their bill is what those calls cost, opened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from burnd.attribution.causes import Explained
from burnd.attribution.rates import Rate, Spent, add_up


class Branch(msgspec.Struct, frozen=True):
    """A rail with the rails that its calls started; each of these names its call (`started_by`)."""

    explained: Explained
    below: tuple[Branch, ...] = ()

    @property
    def spent(self) -> dict[Rate, Spent]:
        """The rail's bill with all that was started from it."""
        return add_up([self.explained.spent, *(branch.spent for branch in self.below)])

    def started_by(self, call_id: str) -> tuple[Branch, ...]:
        """The rails that one call started: what it cost beside its own tokens."""
        return tuple(branch for branch in self.below if branch.explained.started_by == call_id)


def nest(rails: Sequence[Explained]) -> tuple[Branch, ...]:
    """The rails as a tree, in the order given. One whose call is not among them stands for itself."""
    above = _above(rails)
    below: dict[int | None, list[int]] = {}
    for n, parent in enumerate(above):
        below.setdefault(parent, []).append(n)
    grown: dict[int, Branch] = {}
    for n in _deepest_first(below):
        grown[n] = Branch(rails[n], tuple(grown[child] for child in below.get(n, ())))
    return tuple(grown[n] for n in below.get(None, ()))


def _above(rails: Sequence[Explained]) -> list[int | None]:
    """The rail each rail was started from. A log that makes a circle of them has it cut at its first rail."""
    if len(rails) == 1:
        return [None]
    caller = {call_id: n for n, one in enumerate(rails) for call_id, _ in one.causes.calls()}
    above = [caller.get(one.started_by) if one.started_by is not None else None for one in rails]
    free: set[int] = set()
    for n in range(len(rails)):
        climbed: set[int] = set()
        at: int | None = n
        while at is not None and at not in free and at not in climbed:
            climbed.add(at)
            at = above[at]
        if at is not None and at in climbed:
            above[at] = None
        free |= climbed
    return above


def _deepest_first(below: dict[int | None, list[int]]) -> Iterable[int]:
    order: list[int] = []
    waiting = list(below.get(None, ()))
    while waiting:
        n = waiting.pop()
        order.append(n)
        waiting += below.get(n, ())
    return reversed(order)
