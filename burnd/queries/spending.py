"""Turns, tokens and exact cost of a period, of many windows or of a session; budgets and how far they are used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from burnd.pricing import UNITS_PER_USD, usd
from burnd.queries import session_ids
from burnd.queries.periods import Stretch
from burnd.queries.selection import Chosen, Selection
from burnd.queries.sums import By, Reader
from burnd.queries.tally import Kinds, Parts, Tally, kinds_of, tallied, usage
from burnd.queries.view import View
from burnd.records.times import to_iso


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
        return self._sum(Selection(sessions=frozenset(session_ids.below(self._view, own)), kinds=self.kinds))

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


PERIODS: Final = ("daily", "weekly", "monthly")
_TOO_EARLY: Final = 20  # before a twentieth of a period is over, nobody can say what all of it will cost


class Period(NamedTuple):
    """A day, a week from Monday on, or a month, of this machine's clock, in milliseconds since 1970."""

    name: str
    begin: int
    end: int


class Standing(NamedTuple):
    """A budget and what was spent of it."""

    period: Period
    limit: Decimal
    spent: Tally
    now: int

    @property
    def crossed(self) -> bool:
        return self.spent.units >= self.limit * UNITS_PER_USD

    @property
    def is_known(self) -> bool:
        """Not when turns were made and none of them has a price: nobody can say what they cost."""
        return self.spent.has_price or not self.spent.unpriced

    @property
    def projected(self) -> Decimal | None:
        """What the whole period comes to at the pace it had so far."""
        elapsed, whole = self.now - self.period.begin, self.period.end - self.period.begin
        if elapsed * _TOO_EARLY < whole or not self.is_known:
            return None
        return usd(self.spent.units * whole // elapsed)

    def answer(self) -> dict[str, Any]:
        """As answers show it."""
        return {
            "period": self.period.name,
            "from": to_iso(self.period.begin),
            "to": to_iso(self.period.end),
            "limitUsd": float(self.limit),
            "spentUsd": float(usd(self.spent.units)) if self.is_known else None,
            "leftUsd": float(max(self.limit - usd(self.spent.units), Decimal(0))) if self.is_known else None,
            "projectedUsd": None if self.projected is None else float(self.projected),
            "unpricedTurns": self.spent.unpriced,
            "crossed": self.crossed,
        }


def standings(view: View, budgets: Mapping[str, Decimal]) -> list[Standing]:
    """Every budget that is set, the shortest period first."""
    if not budgets:
        return []
    spending = Spending(view)
    periods = [period_of(name, view.now) for name in PERIODS if name in budgets]
    return [Standing(p, budgets[p.name], spending.within(p.begin, p.end), view.now) for p in periods]


def period_of(name: str, now: int) -> Period:
    """The period of that name that `now` is in."""
    today = datetime.fromtimestamp(now / 1000).replace(hour=0, minute=0, second=0, microsecond=0)
    if name == "daily":
        return Period(name, _ms(today), _ms(today + timedelta(days=1)))
    if name == "weekly":
        monday = today - timedelta(days=today.weekday())
        return Period(name, _ms(monday), _ms(monday + timedelta(days=7)))
    first = today.replace(day=1)
    return Period(name, _ms(first), _ms((first + timedelta(days=32)).replace(day=1)))


def _ms(local: datetime) -> int:
    """A moment of the local clock; one without a zone is taken as local, whatever summer time makes of it."""
    return int(local.timestamp() * 1000)
