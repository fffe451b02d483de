"""What a query is given to look at: one state of the index, the prices, the time. It runs in a worker thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from burnd.pricing import PriceTable
from burnd.records.base import camel

Row = tuple[Any, ...]
_KEYS_AT_ONCE = 500


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=camel):
    """The base of every method's parameters: what is not known is refused, so that a typo is never ignored."""


class Refusal(ValueError):
    """Raised when a question cannot be answered as it was asked; `hint` says what would work."""

    def __init__(self, what: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(what)


class Mistaken(Refusal):
    """Raised when a value means nothing here, whatever is recorded: the question itself is wrong."""


class Missing(Refusal):
    """Raised when what was asked for by name is not there."""


class View(NamedTuple):
    """One consistent look at everything that is known."""

    db: sqlite3.Connection
    prices: PriceTable
    now: int  # milliseconds since 1970

    def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[Row]:
        return self.db.execute(sql, tuple(parameters)).fetchall()

    def keyed(self, sql: str, keys: Iterable[Sequence[Any]]) -> list[Row]:
        """Runs `sql` with `{keys}` standing for VALUES of the given keys, as many at once as SQLite takes well."""
        wanted = [tuple(key) for key in keys]
        found: list[Row] = []
        for begin in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[begin : begin + _KEYS_AT_ONCE]
            marks = "(" + ",".join("?" * len(some[0])) + ")"
            values = "VALUES " + ",".join([marks] * len(some))
            found += self.rows(sql.format(keys=values), chain.from_iterable(some))
        return found
