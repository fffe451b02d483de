"""What a query is given to look at: one state of the index, the prices, the time. It runs in a worker thread."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from burnd.index.store import keyed
from burnd.pricing import PriceTable

Row = tuple[Any, ...]


class Refusal(ValueError):
    """Raised when a question cannot be answered as it was asked; `hint` says what would work."""

    def __init__(self, what: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(what)


class Mistaken(Refusal):
    """Raised when a value means nothing here, whatever is recorded: the question itself is wrong."""


class Missing(Refusal):
    """Raised when what was asked for by name is not there."""


class NoSession(Missing):
    """Raised when there is no session of the name that was said."""


class Folder(NamedTuple):
    """A folder that a caller names: the names that lead to it, and the keys of the remotes of its repository.

    `is_inside`: it is a folder below the root of its repository; None if the disk was not looked at.
    """

    names: tuple[str, ...]
    keys: tuple[str, ...] = ()
    is_inside: bool | None = None

    @classmethod
    def unseen(cls, given: str) -> Folder:
        """As far as its name alone tells."""
        return cls((os.path.normpath(given),))


class View(NamedTuple):
    """One consistent look at everything that is known."""

    db: sqlite3.Connection
    prices: PriceTable
    now: int  # milliseconds since 1970
    # By how the caller names them. Looked at before anything is asked: a question waits for no disk but the index's.
    folders: Mapping[str, Folder] = MappingProxyType({})

    def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[Row]:
        return self.db.execute(sql, tuple(parameters)).fetchall()

    def keyed(self, sql: str, keys: Iterable[Row]) -> list[Row]:
        """Runs `sql` with `{keys}` standing for VALUES of the given keys, as many at once as SQLite takes well."""
        return keyed(self.db, sql, keys)
