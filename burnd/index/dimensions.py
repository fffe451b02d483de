"""Numbers the dimensions of turns: price class, place and subagent."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from burnd.index.store import keyed
from burnd.pricing import UNITS_PER_USD, PriceTable, terms_text
from burnd.pricing.cost import figure_of
from burnd.records import Turn

Key = tuple[Any, ...]
_CACHE_SIZE = 50_000  # cached numbers; a fuller cache is cleared


class Dimensions(NamedTuple):
    kind: int
    place: int
    subagent: int


class Tiers(NamedTuple):
    """The context sizes at which a model's price changes, and whether a list has its price."""

    sizes: tuple[int, ...]
    is_listed: bool


@cache
def shipped_prices() -> PriceTable:
    return PriceTable.load()


class DimensionNumbers:
    """Assigns numbers to classes, places and subagents, and caches them."""

    def __init__(self, prices: PriceTable | None) -> None:
        self._prices = prices or shipped_prices()
        self._tiers: dict[Key, Tiers] = {}
        self._classes: dict[Key, int] = {}
        self._places: dict[Key, int] = {}
        self._subagents: dict[Key, int] = {}
        self._terms: dict[Key, int] = {}

    def forget(self) -> None:
        for cache_ in (self._tiers, self._classes, self._places, self._subagents, self._terms):
            cache_.clear()

    def number(
        self, db: sqlite3.Connection, turns: Sequence[tuple[Turn, bool]], names: dict[str, int]
    ) -> list[Dimensions]:
        """The dimensions of turns, given with whether each is open; `names` has the numbers of all their texts."""
        self._load_tiers(db, {(turn.model, turn.provider) for turn, _ in turns}, names)
        terms: list[str | None] = []
        places: list[Key] = []
        subagents: list[Key | None] = []
        for turn, _ in turns:
            terms.append(self._terms_of(turn))
            places.append((_id(names, turn.project), _id(names, turn.project_key)))
            if turn.subagent is not None:
                subagents.append((turn.subagent.agent_id or turn.rail_id, _id(names, turn.subagent.type)))
            else:  # a named agent on a main rail has no id
                subagents.append(None if turn.agent is None else ("", names[turn.agent]))
        numbers = self.terms(db, terms)
        kinds: list[Key] = []
        for (turn, is_open), text in zip(turns, terms, strict=True):
            sizes = self._tiers[turn.model, turn.provider].sizes
            below = bisect_left(sizes, turn.usage.context) if sizes else 0
            tier = sizes[below - 1] if below else 0
            provider = _id(names, turn.provider)
            kinds.append((names[turn.source], names[turn.model], provider, numbers[text], tier, int(is_open), 0))
        self.classes(db, kinds)
        _fill(db, self._places, places, "places", _PLACE_COLUMNS)
        _fill(db, self._subagents, filter(None, subagents), "subagents", _SUBAGENT_COLUMNS)
        return [
            Dimensions(self._classes[kind], self._places[place], self._subagents[subagent] if subagent else 0)
            for kind, place, subagent in zip(kinds, places, subagents, strict=True)
        ]

    def _terms_of(self, turn: Turn) -> str | None:
        figure, usage = 0, turn.usage
        if turn.stated_usd is not None and not self._tiers[turn.model, turn.provider].is_listed:
            tokens = usage.context + usage.output + usage.reasoning
            figure = figure_of(round(turn.stated_usd * UNITS_PER_USD), tokens)  # per token
        elif turn.speed is turn.service_tier is turn.inference_geo is None:
            return None
        return terms_text(turn.speed, turn.service_tier, turn.inference_geo, figure)

    def classes(self, db: sqlite3.Connection, keys: Iterable[Key]) -> dict[Key, int]:
        """The numbers of these (source, model, provider, terms, tier, open, unlogged)."""
        _fill(db, self._classes, keys, "classes", CLASS_COLUMNS)
        return self._classes

    def terms(self, db: sqlite3.Connection, texts: Iterable[str | None]) -> dict[str | None, int]:
        """The numbers of billing terms; standard terms are 0."""
        names = {text for text in texts if text is not None}
        _fill(db, self._terms, [(text,) for text in names], "names", ("name",))
        return {None: 0, **{text: self._terms[text,] for text in names}}

    def place(self, db: sqlite3.Connection, key: tuple[int, int]) -> int:
        _fill(db, self._places, [key], "places", _PLACE_COLUMNS)
        return self._places[key]

    def is_listed(self, db: sqlite3.Connection, model: int, name: str) -> bool:
        """Whether a list has a price for a model without a provider."""
        self._load_tiers(db, {(name, None)}, {name: model})
        return self._tiers[name, None].is_listed

    def _load_tiers(self, db: sqlite3.Connection, models: set[tuple[str, str | None]], names: dict[str, int]) -> None:
        """Loads the tiers of models from the index, for new models from the price list."""
        for model, provider in sorted(models - self._tiers.keys(), key=repr):
            key = (names[model], _id(names, provider))
            rows = db.execute("SELECT sizes, listed FROM tiers WHERE model = ? AND provider = ?", key).fetchall()
            tiers = [
                Tiers(msgspec.json.decode(sizes, type=tuple[int, ...]), bool(is_listed)) for sizes, is_listed in rows
            ]
            if not tiers:
                price = self._prices.find(model, provider)
                tiers = [Tiers(price.thresholds if price is not None else (), price is not None)]
                sizes = msgspec.json.encode(tiers[0].sizes).decode()
                db.execute("INSERT INTO tiers VALUES(?,?,?,?)", (*key, sizes, tiers[0].is_listed))
            self._tiers[model, provider] = tiers[0]


def _id(names: dict[str, int], text: str | None) -> int:
    return 0 if text is None else names[text]


CLASS_COLUMNS = ("source", "model", "provider", "terms", "tier", "open", "unlogged")
_PLACE_COLUMNS = ("project", "project_key")
_SUBAGENT_COLUMNS = ("agent_id", "type")


def _fill(
    db: sqlite3.Connection, cache_: dict[Key, int], keys: Iterable[Key], table: str, columns: tuple[str, ...]
) -> None:
    needed = set(keys)
    if len(cache_) > _CACHE_SIZE:
        cache_.clear()
    missing = sorted(needed - cache_.keys())
    if not missing:
        return
    names, marks = ",".join(columns), ",".join("?" * len(columns))
    db.executemany(f"INSERT OR IGNORE INTO {table}({names}) VALUES({marks})", missing)
    same = " AND ".join(f"t.{column} = w.{column}" for column in columns)
    sql = (
        f"WITH w({names}) AS ({{keys}}) SELECT {','.join('t.' + c for c in columns)}, t.id "
        f"FROM w CROSS JOIN {table} t ON {same}"
    )
    rows = keyed(db, sql, missing)
    cache_.update((tuple(row[:-1]), row[-1]) for row in rows)
