"""Lines of a log that could not be used: why, how many, and where the first of them stand. Never a byte of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from burnd.logfiles.log_reader import CUT

LINES_SHOWN = 20  # in status, of all logs of a source
PLACES_KEPT = 5  # for each reason: the rest is told by its number

TOO_LONG = "longer than a line may be"
TOO_LARGE = "the compressed log unpacks to more than is read"
FATAL = "reading it crashed again and again"
FATAL_WORDS = "storing the text before this place crashed again and again"
UNFINISHED = "unfinished"
_CUT = frozenset(CUT.values())


class Unused(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All lines of one log that were passed over for one reason; `places` has (offset, size) of the first."""

    reason: str
    count: int
    places: tuple[tuple[int, int], ...]


class UnusedLines:
    """Gathers them: what is known of a log, and what is met while it is read on."""

    def __init__(self, known: Iterable[Unused] = ()) -> None:
        self.skipped: list[tuple[str, int, int]] = []  # met now and not even looked at: (reason, offset, size)
        self._by_reason = {one.reason: one for one in known}

    def skip(self, reason: str, offset: int, size: int) -> None:
        self.skipped.append((reason, offset, size))
        self._add(reason, offset, size)

    def reject(self, reason: str, offset: int, size: int) -> None:
        """Adds a line that a reader could not use, or only in part. There may be very many."""
        self._add(reason if reason in _CUT else f"rejected {reason}", offset, size)

    def all(self) -> tuple[Unused, ...]:
        return tuple(self._by_reason.values())

    def _add(self, reason: str, offset: int, size: int) -> None:
        before = self._by_reason.get(reason) or Unused(reason, 0, ())
        places = (*before.places, (offset, size))[:PLACES_KEPT]
        self._by_reason[reason] = Unused(reason, before.count + 1, places)
