"""Parses and checks a price list in the format of models.dev."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

from burnd.pricing.cost import Card, TierCard

Listing = dict[str, dict[str, Card]]

# lists contain float noise, and `cost` needs whole units
_FINEST = Decimal("1e-7")
_HIGHEST = Decimal(1_000_000)
_OPTIONAL = ("reasoning", "cache_read", "cache_write")
_DAYS = ("retired_after", "fetched")
# an entry without any of these was written by the user
_PUBLISHED = ("fetched", "last_updated", "release_date")


class UserLists(NamedTuple):
    own: Listing
    fetched: Listing


class PriceFileError(ValueError):
    def __init__(self, file: str, reason: str, *, model: str | None = None, key: str | None = None) -> None:
        where = ": ".join(part for part in (file, model, key) if part)
        super().__init__(f"{where}: {reason} (correct or remove the entry or the file)")
        self.file = file
        self.model = model
        self.key = key
        self.reason = reason


def read_listing(text: str | bytes, file: str) -> Listing:
    """Keys that begin with `_` or `$` are remarks."""
    listing: Listing = {}
    for provider, model, _, card in _priced(text, file):
        listing.setdefault(provider, {})[model] = card
    return listing


def read_user_lists(text: str | bytes, file: str) -> UserLists:
    lists = UserLists({}, {})
    for provider, model, entry, card in _priced(text, file):
        listing = lists.own if is_own(entry) else lists.fetched
        listing.setdefault(provider, {})[model] = card
    return lists


def is_own(entry: Mapping[str, Any]) -> bool:
    """Such a price is never replaced."""
    return not any(key in entry for key in _PUBLISHED)


def _priced(text: str | bytes, file: str) -> Iterator[tuple[str, str, Mapping[str, Any], Card]]:
    """Provider, model, entry and card of every model that has a price."""

    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a number")

    try:
        providers = json.loads(text, parse_float=Decimal, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise PriceFileError(file, f"is not JSON: {error}") from error
    for provider, section in _members(providers, file, "the top level").items():
        if provider.startswith(("_", "$")):
            continue
        models = _members(section, file, provider).get("models")
        if models is None:
            raise PriceFileError(file, 'has no "models"', model=provider)
        for model, entry in _members(models, file, provider, "models").items():
            reader = _CostReader(file, f"{provider}/{model}")
            fields = _members(entry, file, reader.model)
            if fields.get("cost") is not None:
                yield provider.lower(), model, fields, reader.card(fields["cost"], fields)


def _members(value: Any, file: str, name: str, key: str | None = None) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise PriceFileError(file, "must be an object", model=name, key=key)
    return value


class _CostReader:
    """Errors name the model and the key."""

    def __init__(self, file: str, model: str) -> None:
        self.file = file
        self.model = model

    def card(self, cost: Any, entry: Mapping[str, Any]) -> Card:
        cost = self._object(cost, "cost")
        card: Card = {"input": self._required(cost, "input"), "output": self._required(cost, "output")}
        card.update(self._optional(cost, _OPTIONAL, "cost"))  # type: ignore[typeddict-item]
        if tiers := self._tiers(cost):
            card["tiers"] = tiers
        card.update({key: str(entry[key]) for key in _DAYS if entry.get(key) is not None})  # type: ignore[typeddict-item]
        return card

    def _tiers(self, cost: Mapping[str, Any]) -> list[TierCard]:
        tier_list = cost.get("tiers") or []
        if not isinstance(tier_list, list):
            self._refuse("cost.tiers", "must be a list")
        tiers = [self._tier(tier, f"cost.tiers[{n}]") for n, tier in enumerate(tier_list)]
        over_200k = cost.get("context_over_200k")
        if not tiers and over_200k is not None:
            tiers = [self._tier_card(200_000, over_200k, "cost.context_over_200k")]
        if len({tier["over"] for tier in tiers}) < len(tiers):
            self._refuse("cost.tiers", "has two tiers of the same size")
        return sorted(tiers, key=lambda tier: tier["over"])

    def _tier(self, value: Any, key: str) -> TierCard:
        tier = self._object(self._object(value, key).get("tier"), f"{key}.tier")
        if tier.get("type", "context") != "context":
            self._refuse(f"{key}.tier.type", f'must be "context", not {tier["type"]!r}')
        size = tier.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
            self._refuse(f"{key}.tier.size", "must be a whole number of tokens above zero")
        return self._tier_card(size, value, key)

    def _tier_card(self, over: int, value: Any, key: str) -> TierCard:
        card: TierCard = {"over": over}
        card.update(self._optional(self._object(value, key), ("input", "output", *_OPTIONAL), key))  # type: ignore[typeddict-item]
        return card

    def _required(self, cost: Mapping[str, Any], key: str) -> str:
        if cost.get(key) is None:
            self._refuse(f"cost.{key}", "is missing")
        return self._price(cost[key], f"cost.{key}")

    def _optional(self, values: Mapping[str, Any], keys: tuple[str, ...], where: str) -> dict[str, str]:
        return {key: self._price(values[key], f"{where}.{key}") for key in keys if values.get(key) is not None}

    def _price(self, value: Any, key: str) -> str:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            self._refuse(key, "must be a number of USD per million tokens")
        price = Decimal(value)
        if not 0 <= price <= _HIGHEST:
            self._refuse(key, f"must be between 0 and {_HIGHEST} USD per million tokens")
        rounded = price.quantize(_FINEST)
        if price and not rounded:
            self._refuse(key, f"must be 0 or at least {_FINEST:f} USD per million tokens")
        return format(rounded.normalize(), "f")

    def _object(self, value: Any, key: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self._refuse(key, "must be an object")
        return value

    def _refuse(self, key: str, reason: str) -> NoReturn:
        raise PriceFileError(self.file, reason, model=self.model, key=key)
