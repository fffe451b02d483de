"""Looks up prices: first in the user's own list, then in the fetched list, then in the shipped snapshot."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

from burnd.ledger.files import read_plain
from burnd.pricing.cost import Card, Price, Tokens, price_of, stated_cost, turn_cost, usd
from burnd.pricing.names import LOCAL_PROVIDERS, MAKERS, Name, parse, provider_id
from burnd.pricing.pricefile import Listing, PriceFileError, UserLists, read_user_lists

SNAPSHOT = os.path.join(os.path.dirname(__file__), "prices.json")

_OTHER_REGION = 10
_NEAR = 0.75
_LONGEST_NAME = 512  # an ARN has some 200 characters
_MAKER_PROVIDERS = tuple(provider for providers in MAKERS.values() for provider in providers)


class PriceOrigin(NamedTuple):
    listing: Literal["yours", "fetched", "shipped"]
    as_of: str | None


class PriceTable:
    def __init__(self, snapshot: Listing, user: UserLists | None = None, as_of: str = "") -> None:
        self.as_of = as_of
        self.problem = ""  # why the user's file could not be read; older prices are in use then
        self._snapshot = snapshot
        self._user = user or UserLists({}, {})
        self._listings = (*self._user, snapshot)
        self._providers = frozenset(provider for listing in self._listings for provider in listing)
        self._sections: dict[str, tuple[_Section, ...]] = {}
        self._cache: dict[tuple[str, str | None], Price | None] = {}

    @classmethod
    def load(cls, user_file: str | None = None) -> PriceTable:
        """Raises PriceFileError if `user_file` exists and cannot be used."""
        with open(SNAPSHOT, "rb") as file:
            snapshot: dict[str, Any] = json.loads(file.read())
        user = None
        try:
            if user_file is not None:
                user = read_user_lists(read_plain(user_file), user_file)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise PriceFileError(str(user_file), f"cannot be read: {error.strerror}") from error
        return cls(snapshot["providers"], user, snapshot["asOf"])

    def under(self, user: UserLists) -> PriceTable:
        """With other lists of the user."""
        return PriceTable(self._snapshot, user, self.as_of)

    @property
    def fetched(self) -> str | None:
        cards = (card for models in self._user.fetched.values() for card in models.values())
        return max((card["fetched"] for card in cards if "fetched" in card), default=None)

    @property
    def newest(self) -> str:
        """Shipped or fetched."""
        return max(self.as_of, self.fetched or "")

    @property
    def own(self) -> int:
        return sum(map(len, self._user.own.values()))

    def find(self, model: str, provider: str | None = None) -> Price | None:
        """None if no list has the model."""
        if len(model) > _LONGEST_NAME:
            return None
        key = (model, provider)
        if key not in self._cache:
            self._cache[key] = self._search(model, provider)
        return self._cache[key]

    def turn_usd(
        self, model: str, provider: str | None, tokens: Tokens, *, terms: str | None, searches: int
    ) -> float | None:
        """At API prices, else as the harness stated it."""
        price = self.find(model, provider)
        units = stated_cost(tokens, terms) if price is None else turn_cost(price, tokens, terms, searches)
        return None if units is None else float(usd(units))

    def origin(self, price: Price) -> PriceOrigin:
        own, fetched, _ = self._sections_of(price.provider)
        if own.has(price):
            return PriceOrigin("yours", None)
        if fetched.has(price):
            return PriceOrigin("fetched", self._user.fetched[price.provider][price.model].get("fetched"))
        return PriceOrigin("shipped", self.as_of or None)

    def searched_providers(self, model: str, provider: str | None = None) -> list[str]:
        """In order."""
        name = parse(model, self._providers) if len(model) <= _LONGEST_NAME else None
        if name is None:
            return []
        first = provider_id(provider, self._providers) if provider else None
        return [first] if first in LOCAL_PROVIDERS else list(dict.fromkeys(_providers_of(name, first)))

    def sellers(self, model: str) -> list[str]:
        prices = ((provider, self.find(model, provider)) for provider in sorted(self._providers))
        return [provider for provider, price in prices if price is not None and price.provider == provider]

    def similar_names(self, model: str, most: int = 5) -> list[str]:
        """In the user's lists or a maker's."""
        of_users = (models for listing in self._user for models in listing.values())
        candidates = [*of_users, *(self._snapshot.get(provider, {}) for provider in _MAKER_PROVIDERS)]
        names = {name.lower(): name for models in candidates for name in models}
        bare = model.strip().lower()[:_LONGEST_NAME].rsplit("/", 1)[-1]
        names.pop(bare, None)
        return [names[name] for name in get_close_matches(bare, names, most, _NEAR)]

    def thresholds(self) -> tuple[int, ...]:
        """All context sizes at which a price changes, in order.

        Tokens are summed by model and the largest threshold below the gross input of their turn.
        """
        cards = (card for listing in self._listings for models in listing.values() for card in models.values())
        return tuple(sorted({tier["over"] for card in cards for tier in card.get("tiers", ())}))

    def _search(self, model: str, provider: str | None) -> Price | None:
        name = parse(model, self._providers)
        if name is None:
            return None
        first = provider_id(provider, self._providers) if provider else None
        if first in LOCAL_PROVIDERS:
            return self._price_at(first, model, name)
        for candidate in _providers_of(name, first):
            if price := self._price_at(candidate, model, name):
                return price
        if name.maker:
            return None
        own = self._user.own.keys() - self._snapshot.keys()
        return self._only_price(model, name, _MAKER_PROVIDERS) or self._only_price(model, name, own)

    def _only_price(self, model: str, name: Name, providers: Iterable[str]) -> Price | None:
        """For a model of unknown maker, if exactly one of the providers lists it."""
        prices = [price for provider in providers if (price := self._price_at(provider, model, name))]
        return prices[0] if len(prices) == 1 else None

    def _price_at(self, provider: str, model: str, name: Name) -> Price | None:
        """That of the first list, unless a lower one has a more exact name."""
        price: Price | None = None
        lower: list[tuple[_Section, _Match]] = []
        for section in reversed(self._sections_of(provider)):
            match = section.match(model, name)
            if match is None:
                continue
            if not any(other.distinguishes(exact, match) for other, exact in lower):
                price = section.price(match.model)
            lower.append((section, match))
        return price

    def _sections_of(self, provider: str) -> tuple[_Section, ...]:
        if provider not in self._sections:
            self._sections[provider] = tuple(
                _Section(provider, listing.get(provider, {}), self._providers) for listing in self._listings
            )
        return self._sections[provider]


class _Match(NamedTuple):
    rank: int
    model: str


class _Section:
    """The models of one provider in one list, by id and by the parts of their names."""

    def __init__(self, provider: str, cards: Mapping[str, Card], providers: Container[str]) -> None:
        self._provider = provider
        self._cards = cards
        self._by_id = {model.lower(): model for model in cards}
        self._by_parts: dict[tuple[str, str, str, str], list[tuple[Name, str]]] = {}
        own_maker = next((maker for maker, sellers in MAKERS.items() if provider in sellers), "")
        for model in cards:
            if name := parse(model, providers):
                for maker in {name.maker, name.maker or own_maker}:
                    parts = (name.region, maker, name.stem, name.tag)
                    self._by_parts.setdefault(parts, []).append((name, model))

    def match(self, model: str, name: Name) -> _Match | None:
        if listed_id := self._by_id.get(model.strip().lower()):
            return _Match(0, listed_id)
        for region, penalty in ((name.region, 0), ("", _OTHER_REGION)):
            same = self._by_parts.get((region, name.maker, name.stem, name.tag), ())
            ranked = [
                (rank, -int(listed.date or 0), listed_id)
                for listed, listed_id in same
                if (rank := name.rank_of(listed)) is not None
            ]
            if ranked:
                rank, _, listed_id = min(ranked)
                return _Match(rank + penalty, listed_id)
        return None

    def distinguishes(self, exact: _Match, looser: _Match) -> bool:
        """Whether this list prices the exact name and the looser match differently.

        A user's price for `gpt-4o` must not change that of `gpt-4o-2024-05-13`, which always differed; their price for
        `claude-sonnet-4-5` also applies to its dated name.
        """
        listed_id = self._by_id.get(looser.model.lower())
        if exact.rank > 0 or looser.rank == 0 or listed_id is None:
            return False
        return self.price(exact.model).standard != self.price(listed_id).standard

    def has(self, price: Price) -> bool:
        return price.model in self._cards and self.price(price.model) == price

    def price(self, model: str) -> Price:
        name = parse(model, ())
        is_anthropic = self._provider == "anthropic" or (name is not None and name.maker == "anthropic")
        return price_of(self._provider, model, self._cards[model], is_anthropic=is_anthropic)


def _providers_of(name: Name, first: str | None) -> Iterator[str]:
    """That of the log, that in the name, those of the maker."""
    if first:
        yield first
    if name.provider:
        yield name.provider
    yield from MAKERS.get(name.maker, ())
