"""The price list that is in use just now: read again when the user's own file changes."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from burnd.pricing import PriceFileError, PriceTable

log = structlog.get_logger()
_Looks = tuple[int, int, int] | None


class Prices:
    """Gives the table. While a user's file cannot be used the last good table stays, and its `problem` says why."""

    def __init__(self, user_file: Path) -> None:
        self._file = user_file
        self._looks: _Looks = None
        self._table: PriceTable | None = None

    @property
    def problem(self) -> str:
        return self.table.problem

    @property
    def table(self) -> PriceTable:
        looks = self._look()
        if self._table is None or looks != self._looks:
            self._looks = looks
            self._table = self._load()
        return self._table

    def _load(self) -> PriceTable:
        if self._looks is None:
            return PriceTable.load()
        try:
            return PriceTable.load(str(self._file))
        except PriceFileError as error:
            log.warning("prices.unusable", reason="the user's price file cannot be used")
            table = self._table or PriceTable.load()
            meanwhile = "what it said before" if self._table else "only the list shipped with burnd"
            table.problem = f"{error}; until then {meanwhile} counts"
            return table

    def _look(self) -> _Looks:
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
