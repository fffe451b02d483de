"""Spending of a period, of windows or of a session; the use of budgets; and the price of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from burnd import protocol
from burnd.contract.reports import PricingParams
from burnd.pricing import SEARCH_UNITS, UNITS_PER_USD, Price, PriceTable, Rates, usd, usd_per_million
from burnd.pricing.names import LOCAL_PROVIDERS, provider_id
from burnd.queries import names
from burnd.queries.money import Tally, classes_of, tallied, unlogged_of, whole_of
from burnd.queries.periods import Stretch
from burnd.queries.selection import Scope, Selection
from burnd.queries.sums import By, Reader
from burnd.queries.view import Mistaken, View
from burnd.records.times import to_iso


class Spending:
    """Without unlogged usage."""

    def __init__(self, view: View, source: str | None = None) -> None:
        self._view = view
        self._every = classes_of(view)
        self.classes = frozenset(
            one.id for one in self._every.values() if not one.is_unlogged and source in (None, one.source)
        )

    def within(self, begin: int, end: int) -> Tally:
        return self._sum(Selection(begin=begin, end=end, classes=self.classes))

    def within_each(self, windows: Sequence[Stretch]) -> list[Tally]:
        rows = Reader(self._view, Selection(classes=self.classes), self._every).windows(windows)
        tallies = tallied(rows, self._every, lambda keys, _: keys[0])
        return [tallies.get(number) or Tally() for number in range(len(windows))]

    def of_session(self, session_id: str) -> Tally:
        """With its subagents and child sessions."""
        own = [row for (row,) in self._view.rows("SELECT id FROM sessions WHERE session_id = ?", (session_id,))]
        return self.of_rows(names.below(self._view, own))

    def of_rows(self, sessions: Iterable[int]) -> Tally:
        """These sessions alone, by their numbers in the index."""
        return self._sum(Selection(sessions=frozenset(sessions), classes=self.classes))

    def _sum(self, selection: Selection) -> Tally:
        return whole_of(Reader(self._view, selection, self._every).read(By()), self._every)


def totals_of(view: View, scope: Scope) -> dict[str, Any]:
    rows = Reader(view, scope.selection, scope.classes).read(By())
    return {"totals": whole_of(rows, scope.classes).answer(), "unlogged": unlogged_of(rows, scope.classes)}


PERIODS: Final = ("daily", "weekly", "monthly")
_TOO_EARLY: Final = 20  # no projection before a twentieth of the period has passed


class Period(NamedTuple):
    """A day, a week from Monday, or a month in local time, in milliseconds since 1970."""

    name: str
    begin: int
    end: int


class BudgetUse(NamedTuple):
    period: Period
    limit: Decimal
    used: Tally
    now: int

    @property
    def crossed(self) -> bool:
        return self.used.units >= self.limit * UNITS_PER_USD

    @property
    def has_cost(self) -> bool:
        """False if there are turns and none of them has a price."""
        return self.used.has_price or not self.used.unpriced

    @property
    def projected(self) -> Decimal | None:
        """The cost of the whole period at the pace so far."""
        elapsed, whole = self.now - self.period.begin, self.period.end - self.period.begin
        if elapsed * _TOO_EARLY < whole or not self.has_cost:
            return None
        return usd(self.used.units * whole // elapsed)

    def answer(self) -> dict[str, Any]:
        return {
            "period": self.period.name,
            "from": to_iso(self.period.begin),
            "to": to_iso(self.period.end),
            "limitUsd": float(self.limit),
            "spentUsd": float(usd(self.used.units)) if self.has_cost else None,
            "leftUsd": float(max(self.limit - usd(self.used.units), Decimal(0))) if self.has_cost else None,
            "projectedUsd": None if self.projected is None else float(self.projected),
            "unpricedTurns": self.used.unpriced,
            "crossed": self.crossed,
        }


def budget_uses(view: View, budgets: Mapping[str, Decimal]) -> list[BudgetUse]:
    """The shortest period first."""
    if not budgets:
        return []
    spending = Spending(view)
    periods = [period_of(name, view.now) for name in PERIODS if name in budgets]
    return [BudgetUse(p, budgets[p.name], spending.within(p.begin, p.end), view.now) for p in periods]


def period_of(name: str, now: int) -> Period:
    today = datetime.fromtimestamp(now / 1000).replace(hour=0, minute=0, second=0, microsecond=0)
    if name == "daily":
        return Period(name, _ms(today), _ms(today + timedelta(days=1)))
    if name == "weekly":
        monday = today - timedelta(days=today.weekday())
        return Period(name, _ms(monday), _ms(monday + timedelta(days=7)))
    first = today.replace(day=1)
    return Period(name, _ms(first), _ms((first + timedelta(days=32)).replace(day=1)))


def _ms(local: datetime) -> int:
    return int(local.timestamp() * 1000)


def price_of_model(view: View, params: PricingParams) -> dict[str, Any]:
    """The price used for turns of this model; `priced` is false without one."""
    if not params.model.strip():
        raise Mistaken("a model's name must not be empty")
    prices = view.prices
    price = prices.find(params.model, params.provider)
    answer = {
        "model": params.model,
        "provider": params.provider,
        "priced": price is not None,
        "lookedIn": prices.searched_providers(params.model, params.provider),
    }
    if price is not None:
        return answer | _priced(prices, price)
    sellers = prices.sellers(params.model)
    return answer | {
        "reason": _reason(params, sellers),
        "soldBy": sellers,
        "near": prices.similar_names(params.model),
    }


def _priced(prices: PriceTable, price: Price) -> dict[str, Any]:
    origin = prices.origin(price)
    return {
        "found": {
            "provider": price.provider,
            "model": price.model,
            "list": origin.listing,
            "asOf": origin.as_of,
            "retiredAfter": price.retired_after,
        },
        "tiers": _tiers(price, price.standard),
        "fast": _tiers(price, price.fast),
        "searchUsd": float(usd(SEARCH_UNITS)),
    }


def _tiers(price: Price, rates: tuple[Rates, ...]) -> list[dict[str, Any]]:
    """Dollars per million tokens; a tier applies above `over` tokens of context."""
    sizes = (0, *price.thresholds)
    return [
        {"over": over, **{name: float(usd_per_million(rate)) for name, rate in zip(_KINDS, of_tier, strict=True)}}
        for over, of_tier in zip(sizes, rates, strict=True)
    ]


def _reason(params: PricingParams, sellers: list[str]) -> str:
    if params.provider is None:
        return "its maker does not sell it, and no provider is named" if sellers else "no list has a model of this name"
    if provider_id(params.provider, ()) in LOCAL_PROVIDERS:
        return "it ran on your own machine"
    return "neither its provider nor its maker lists it"


_KINDS = protocol.USAGE_FIELDS
