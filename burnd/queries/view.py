"""View: the state of the index, prices and time that a query uses. Queries run in worker threads."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from burnd.index.store import keyed
from burnd.pricing import PriceTable

SqlRow = tuple[Any, ...]


class Refusal(ValueError):
    """A query that cannot be answered as given; `hint` gives a remedy."""

    def __init__(self, what: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(what)


class Mistaken(Refusal):
    """An invalid value, whatever is recorded."""


class Missing(Refusal):
    """Nothing of this name is recorded."""


class NoSession(Missing):
    """No session has this id."""


class Folder(NamedTuple):
    """A folder in a query: its names, and the keys of its repository's remotes.

    `is_inside`: below the root of its repository; None if not looked up on disk.
    """

    names: tuple[str, ...]
    keys: tuple[str, ...] = ()
    is_inside: bool | None = None

    @classmethod
    def unseen(cls, given: str) -> Folder:
        return cls((os.path.normpath(given),))


class View(NamedTuple):
    db: sqlite3.Connection
    prices: PriceTable
    now: int  # milliseconds since 1970
    # By name in the query. Looked up in advance, so that queries read no other files.
    folders: Mapping[str, Folder] = MappingProxyType({})

    def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[SqlRow]:
        return self.db.execute(sql, tuple(parameters)).fetchall()

    def numbered(self, sql: str, numbers: Iterable[int]) -> list[SqlRow]:
        """Runs `sql` with `{numbers}` replaced by a list of numbers: faster than `keyed` for many."""
        listed = msgspec.json.encode(sorted(numbers)).decode()
        return self.rows(sql.format(numbers="SELECT value FROM json_each(?)"), (listed,))

    def keyed(self, sql: str, keys: Iterable[SqlRow]) -> list[SqlRow]:
        """Runs `sql` with `{keys}` replaced by VALUES, in batches."""
        return keyed(self.db, sql, keys)
