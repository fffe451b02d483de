"""What was spent in a stretch of time or by a session: turns, tokens and exact cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from burnd.queries import families
from burnd.queries.kinds import Kinds, kinds_of
from burnd.queries.periods import Stretch
from burnd.queries.selection import Chosen, Selection
from burnd.queries.sums import By, Parts, Reader
from burnd.queries.tally import Tally, tallied, usage
from burnd.queries.view import View


class Spending:
    """Sums over turns, of one source or of all. What a harness claims beyond its turns is not among them."""

    def __init__(self, view: View, source: str | None = None) -> None:
        self._view = view
        self._every = kinds_of(view)
        self.kinds = frozenset(
            kind.id for kind in self._every if not kind.is_unlogged and source in (None, kind.source)
        )

    def within(self, begin: int, end: int) -> Tally:
        """From this time on, up to but not including that one."""
        return self._sum(Selection(begin=begin, end=end, kinds=self.kinds))

    def within_each(self, windows: Sequence[Stretch]) -> list[Tally]:
        """The same for many windows of time."""
        rows = Reader(self._view, Selection(kinds=self.kinds), self._every).windows(windows)
        found = tallied(rows, self._every, lambda keys, _: keys[0])
        return [found.get(number) or Tally() for number in range(len(windows))]

    def of_session(self, session_id: str) -> Tally:
        """A session with its subagents and the sessions it started."""
        own = [row for (row,) in self._view.rows("SELECT id FROM sessions WHERE session_id = ?", (session_id,))]
        return self._sum(Selection(sessions=frozenset(families.below(self._view, own)), kinds=self.kinds))

    def _sum(self, selection: Selection) -> Tally:
        return _all_of(Reader(self._view, selection, self._every), self._every)


def spent_in(view: View, chosen: Chosen) -> Tally:
    """What the turns came to that filters select."""
    return _all_of(Reader(view, chosen.selection, chosen.kinds), chosen.kinds)


def _all_of(reader: Reader, kinds: Kinds) -> Tally:
    return tallied(reader.read(By()), kinds, lambda *_: None).get(None) or Tally()


def unlogged_in(view: View, chosen: Chosen) -> dict[str, Any] | None:
    """Unlogged usage within the filters."""
    return unlogged_of(Reader(view, chosen.selection, chosen.kinds).read(By()), chosen.kinds)


def unlogged_of(rows: Iterable[Parts], kinds: Kinds) -> dict[str, Any] | None:
    """Unlogged usage among these rows."""
    beyond, models = Tally(), set()
    for _, number, tier, counts in rows:
        kind = kinds[number]
        if kind.is_unlogged:
            beyond.add(kind, tier, counts)
            models.add(kind.model)
    return unlogged_answer(beyond, models)


def unlogged_answer(beyond: Tally, models: Iterable[str]) -> dict[str, Any] | None:
    """Unlogged usage, which is not in the totals: from running totals of harnesses, and requests without a response.

    The tokens and the cost of these `requests` are a lower bound.
    """
    if beyond.is_nothing and not beyond.partial:
        return None
    return {
        "usage": usage(beyond.tokens),
        "costUsd": beyond.cost_usd,
        "models": sorted(filter(None, models)),
        "requests": beyond.partial,
    }
