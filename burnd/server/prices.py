"""The price list that is in use just now: read again when the user's own file changes."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from burnd.pricing import PriceFileError, PriceTable

log = structlog.get_logger()
_Looks = tuple[int, int, int] | None


class Prices:
    """Gives the table. A user's file that cannot be used leaves the last good table in place; `problem` says why."""

    def __init__(self, user_file: Path) -> None:
        self._file = user_file
        self._looks: _Looks = None
        self._table: PriceTable | None = None
        self.problem = ""

    @property
    def user_file(self) -> Path | None:
        """The user's own file, where there is one."""
        return self._file if self._looks is not None else None

    @property
    def table(self) -> PriceTable:
        looks = self._look()
        if self._table is None or looks != self._looks:
            self._looks = looks
            self._table = self._load()
        return self._table

    def _load(self) -> PriceTable:
        self.problem = ""
        if self._looks is None:
            return PriceTable.load()
        try:
            return PriceTable.load(str(self._file))
        except PriceFileError as error:
            self.problem = str(error)
            log.warning("prices.unusable", reason="the user's price file cannot be used")
            return self._table or PriceTable.load()

    def _look(self) -> _Looks:
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
