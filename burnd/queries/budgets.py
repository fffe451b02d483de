"""Budgets: what a day, a week or a month may cost at API prices, and how far the one that runs now has come."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from burnd.pricing import UNITS_PER_USD, usd
from burnd.queries.spent import Spending
from burnd.queries.tally import Tally
from burnd.queries.view import View
from burnd.records.times import to_iso

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
