"""The kinds of turns that sums tell apart: each with its price, and the names under which it is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import msgspec

from burnd.pricing import Price, PriceTable, Rates, rates_over, search_units
from burnd.pricing.names import parse
from burnd.queries.view import View

_DATE = re.compile(r"[-@]20\d\d-?\d\d-?\d\d$")
_BEDROCK = re.compile(r"(?:[a-z-]+\.)?[a-z0-9]+\.([a-z].*?)(?:-v\d+)?(?::\d+)?")
_REMEMBERED = 1024
_REMEMBERED_KINDS = 32_768  # each turn priced by its harness has one
_BESIDE_THE_NAME = ("-latest", "@latest", "@default")


class Kind(NamedTuple):
    """One class of turns. `model` and `provider` are as shown; `logged` is the model as its log has it."""

    id: int
    source: str
    logged: str
    model: str
    provider: str | None
    terms: str | None
    tier: int
    is_open: bool
    is_unlogged: bool
    price: Price | None
    sizes: tuple[int, ...]  # at which contexts of this model are told apart
    own_rates: Rates | None  # units per token of its own contexts
    search_units: int  # for a web search

    def rates(self, tier: int | None = None) -> Rates | None:
        """Units per token, for contexts over `tier` tokens; without one, for those this kind is made of."""
        return self.own_rates if tier is None else rates_over(self.price, tier, self.terms)

    @property
    def is_stated(self) -> bool:
        """Whether its cost is the harness's figure, since no list has a price."""
        return self.price is None and self.own_rates is not None


class Kinds:
    """All kinds there are, by number."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._by_id = {kind.id: kind for kind in kinds}

    def __getitem__(self, number: int) -> Kind:
        return self._by_id[number]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_id.values())


def kinds_of(view: View) -> Kinds:
    """The kinds of turns in the index, priced by the view's prices."""
    return Kinds(_kind(view.prices, *row) for row in view.rows(_KINDS))


@lru_cache(_REMEMBERED_KINDS)
def _kind(
    prices: PriceTable,
    number: int,
    source: str,
    model: str,
    provider: str | None,
    terms: str | None,
    tier: int,
    is_open: int,
    is_unlogged: int,
    sizes: str | None,
) -> Kind:
    price = prices.find(model, provider)
    return Kind(
        id=number,
        source=source,
        logged=model,
        model=shown_model(prices, model, provider),
        provider=shown_provider(prices, model, provider),
        terms=terms,
        tier=tier,
        is_open=bool(is_open),
        is_unlogged=bool(is_unlogged),
        price=price,
        sizes=msgspec.json.decode(sizes, type=tuple[int, ...]) if sizes is not None else (),
        own_rates=rates_over(price, tier, terms),
        search_units=search_units(price),
    )


@lru_cache(_REMEMBERED)
def shown_model(prices: PriceTable, model: str, provider: str | None = None) -> str:
    """The maker's plain name of a model, where the price list knows it; else the name as the log has it.

    `anthropic/claude-sonnet-4-5`, `claude-sonnet-4-5-20250929` and Bedrock's form are all `claude-sonnet-4-5`. A date
    stays where it tells models apart: when the plain name means another date or has another price.
    """
    price = prices.find(model, provider)
    name = parse(price.model, ()) if price else None
    if price is None or name is None:
        return model
    plain = prices.find(f"{name.stem}:{name.tag}" if name.tag else name.stem)
    found = parse(plain.model, ()) if plain else None
    if plain is None or found is None or (found.stem, found.tag) != (name.stem, name.tag):
        return _undated(price.model)
    dated = prices.find(f"{name.stem}-{name.date}") if name.date else None
    if dated is not None and _is_another(dated, name.date, plain, found.date):
        return dated.model
    return _undated(plain.model)


def _is_another(dated: Price, date: str, plain: Price, plain_date: str) -> bool:
    """Whether a dated name is another model than the plain one."""
    return plain_date != date if plain_date else dated.standard != plain.standard


@lru_cache(_REMEMBERED)
def shown_provider(prices: PriceTable, model: str, provider: str | None) -> str | None:
    """Who served it: as the log says, by the price list's name for them; else who the price list says makes it."""
    if provider:
        return next(iter(prices.searched_providers(model, provider)), provider.strip().lower())
    price = prices.find(model)
    return price.provider if price else None


def _undated(listed: str) -> str:
    """A listed name without seller, region and date."""
    name = listed.rpartition("/")[2]
    bedrock = _BEDROCK.fullmatch(name)
    for suffix in _BESIDE_THE_NAME:
        name = name.removesuffix(suffix)
    return _DATE.sub("", bedrock[1] if bedrock else name)


_KINDS = """
SELECT c.id, s.name, m.name, p.name, f.name, c.tier, c.open, c.unlogged, t.sizes FROM classes c
JOIN names s ON s.id = c.source JOIN names m ON m.id = c.model LEFT JOIN names p ON p.id = c.provider
LEFT JOIN names f ON f.id = c.terms LEFT JOIN tiers t ON t.model = c.model AND t.provider = c.provider
"""
