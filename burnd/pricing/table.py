"""The price list in use: the user's own prices over fetched ones over the shipped snapshot, and the finding in it."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

from burnd.ledger.files import read_plain
from burnd.pricing.cost import Card, Price, Tokens, price_of, usd
from burnd.pricing.names import LOCAL_PROVIDERS, MAKERS, Name, parse, provider_id
from burnd.pricing.pricefile import Listing, PriceFileError, UserLists, read_user_lists
from burnd.pricing.terms import stated_cost, turn_cost

SNAPSHOT = os.path.join(os.path.dirname(__file__), "prices.json")

_OTHER_REGION = 10
_NEAR = 0.75
_LONGEST_NAME = 512  # an ARN has some 200 characters; more is no name, and not worth taking apart


class Origin(NamedTuple):
    """Which list a price is from, and the day it was taken, where that is known."""

    listing: Literal["yours", "fetched", "shipped"]
    as_of: str | None


class PriceTable:
    """Finds what a model costs: first in what the user wrote, then in what was fetched, then in the snapshot."""

    def __init__(self, snapshot: Listing, user: UserLists | None = None, as_of: str = "") -> None:
        self.as_of = as_of
        self.problem = ""  # why these are not the prices that the user's file has now
        self._snapshot = snapshot
        self._user = user or UserLists({}, {})
        self._listings = (*self._user, snapshot)
        self._known = frozenset(provider for listing in self._listings for provider in listing)
        self._shelves: dict[str, tuple[_Shelf, ...]] = {}
        self._found: dict[tuple[str, str | None], Price | None] = {}

    @classmethod
    def load(cls, user_file: str | None = None) -> PriceTable:
        """The shipped snapshot, under `user_file` where there is one.

        Raises PriceFileError when the user's file is there but cannot be used.
        """
        with open(SNAPSHOT, "rb") as file:
            snapshot: dict[str, Any] = json.loads(file.read())
        user = None if user_file is None else _read_user_file(user_file)
        return cls(snapshot["providers"], user, snapshot["asOf"])

    def under(self, user: UserLists) -> PriceTable:
        """The same snapshot under other lists of the user's."""
        return PriceTable(self._snapshot, user, self.as_of)

    @property
    def fetched(self) -> str | None:
        """The newest day on which a price was fetched, where one was."""
        cards = (card for models in self._user.fetched.values() for card in models.values())
        return max((card["fetched"] for card in cards if "fetched" in card), default=None)

    @property
    def newest(self) -> str:
        """The day of the newest list: the shipped one, or what was fetched."""
        return max(self.as_of, self.fetched or "")

    @property
    def own(self) -> int:
        """How many prices the user wrote themselves."""
        return sum(map(len, self._user.own.values()))

    def find(self, model: str, provider: str | None = None) -> Price | None:
        """The price of a model as a log names it, or None when it is unpriced."""
        if len(model) > _LONGEST_NAME:
            return None
        asked = (model, provider)
        if asked not in self._found:
            self._found[asked] = self._search(model, provider)
        return self._found[asked]

    def turn_usd(
        self, model: str, provider: str | None, tokens: Tokens, *, terms: str | None, searches: int
    ) -> float | None:
        """The cost of a turn at API prices, else by its harness's figure; None if there is neither."""
        price = self.find(model, provider)
        units = stated_cost(tokens, terms) if price is None else turn_cost(price, tokens, terms, searches)
        return None if units is None else float(usd(units))

    def origin(self, price: Price) -> Origin:
        """Where a price that was found comes from."""
        own, fetched, _ = self._shelves_of(price.provider)
        if own.lists(price):
            return Origin("yours", None)
        if fetched.lists(price):
            return Origin("fetched", self._user.fetched[price.provider][price.model].get("fetched"))
        return Origin("shipped", self.as_of or None)

    def places(self, model: str, provider: str | None = None) -> list[str]:
        """The providers whose lists are looked into for this name, in order."""
        name = parse(model, self._known) if len(model) <= _LONGEST_NAME else None
        if name is None:
            return []
        given = provider_id(provider, self._known) if provider else None
        return [given] if given in LOCAL_PROVIDERS else list(dict.fromkeys(_places(name, given)))

    def sellers(self, model: str) -> list[str]:
        """The providers that list a model by this name, whoever makes it."""
        found = ((place, self.find(model, place)) for place in sorted(self._known))
        return [place for place, price in found if price is not None and price.provider == place]

    def near(self, model: str, most: int = 5) -> list[str]:
        """Names in your lists or a maker's that are spelled much like this one: none of them is the model."""
        of_users = (models for listing in self._user for models in listing.values())
        listed = [*of_users, *(self._snapshot.get(place, {}) for place in _makers())]
        names = {name.lower(): name for models in listed for name in models}
        bare = model.strip().lower()[:_LONGEST_NAME].rsplit("/", 1)[-1]
        names.pop(bare, None)
        return [names[name] for name in get_close_matches(bare, names, most, _NEAR)]

    def thresholds(self) -> tuple[int, ...]:
        """Every context size at which some price changes, in order.

        Tokens summed by (model, largest of these below the turn's gross input) can be priced under any
        list with these thresholds: the tier of such a sum is `price.tier_of(threshold + 1)`.
        """
        cards = (card for listing in self._listings for models in listing.values() for card in models.values())
        return tuple(sorted({tier["over"] for card in cards for tier in card.get("tiers", ())}))

    def _search(self, model: str, provider: str | None) -> Price | None:
        name = parse(model, self._known)
        if name is None:
            return None
        given = provider_id(provider, self._known) if provider else None
        if given in LOCAL_PROVIDERS:
            return self._look_in(given, model, name)
        for place in _places(name, given):
            if price := self._look_in(place, model, name):
                return price
        if name.maker:
            return None
        yours = self._user.own.keys() - self._snapshot.keys()
        return self._only_listing(model, name, _makers()) or self._only_listing(model, name, yours)

    def _only_listing(self, model: str, name: Name, places: Iterable[str]) -> Price | None:
        """A name of no known family, when exactly one of these providers lists it."""
        prices = [price for place in places if (price := self._look_in(place, model, name))]
        return prices[0] if len(prices) == 1 else None

    def _look_in(self, provider: str, model: str, name: Name) -> Price | None:
        """From the shipped list upwards: each list is over those beneath, but for models that these tell apart."""
        found: Price | None = None
        beneath: list[tuple[_Shelf, _Match]] = []
        for shelf in reversed(self._shelves_of(provider)):
            match = shelf.match(model, name)
            if match is None:
                continue
            if not any(other.tells_apart(exact, match) for other, exact in beneath):
                found = shelf.price(match.model)
            beneath.append((shelf, match))
        return found

    def _shelves_of(self, provider: str) -> tuple[_Shelf, ...]:
        if provider not in self._shelves:
            self._shelves[provider] = tuple(
                _Shelf(provider, listing.get(provider, {}), self._known) for listing in self._listings
            )
        return self._shelves[provider]


class _Match(NamedTuple):
    rank: int
    model: str


class _Shelf:
    """One provider's models in one listing, by their ids and by the parts of their names."""

    def __init__(self, provider: str, cards: Mapping[str, Card], known: Container[str]) -> None:
        self._provider = provider
        self._cards = cards
        self._by_id = {model.lower(): model for model in cards}
        self._by_parts: dict[tuple[str, str, str, str], list[tuple[Name, str]]] = {}
        own_maker = next((maker for maker, places in MAKERS.items() if provider in places), "")
        for model in cards:
            if name := parse(model, known):
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

    def tells_apart(self, exact: _Match, looser: _Match) -> bool:
        """Whether this list has the very name at one price, and the name that `looser` found at another.

        A user's price for `gpt-4o` must not re-price `gpt-4o-2024-05-13`, which always cost something
        else; but their price for `claude-sonnet-4-5` is meant for its dated name as well.
        """
        listed_id = self._by_id.get(looser.model.lower())
        if exact.rank > 0 or looser.rank == 0 or listed_id is None:
            return False
        return self.price(exact.model).standard != self.price(listed_id).standard

    def lists(self, price: Price) -> bool:
        return price.model in self._cards and self.price(price.model) == price

    def price(self, model: str) -> Price:
        name = parse(model, ())
        is_anthropic = self._provider == "anthropic" or (name is not None and name.maker == "anthropic")
        return price_of(self._provider, model, self._cards[model], is_anthropic=is_anthropic)


def _places(name: Name, given: str | None) -> Iterator[str]:
    """Where to look, in order: who served it, who the name says served it, who makes it."""
    if given:
        yield given
    if name.provider:
        yield name.provider
    yield from MAKERS.get(name.maker, ())


def _makers() -> Iterator[str]:
    return (place for places in MAKERS.values() for place in places)


def _read_user_file(path: str) -> UserLists | None:
    try:
        text = read_plain(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PriceFileError(path, f"cannot be read: {error.strerror}") from error
    return read_user_lists(text, path)
