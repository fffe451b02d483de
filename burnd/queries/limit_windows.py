"""Where a plan's windows begin and end: as its provider reported it, else as turns tell. Pure.

A plan counts from the first request after the last window was over. Claude's windows were seen to begin at the full
hour before it; where a reading of the account says when a window resets, that is believed over any reckoning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from burnd.records.times import HOUR_MS

LENGTHS: dict[str, int] = {"5h": 5 * HOUR_MS, "7d": 7 * 24 * HOUR_MS}
SAME_RESET_MS = 120_000  # two readings of one window may differ by a rounded minute

_EARLIEST = -(1 << 62)

Basis = Literal["reported", "counted"]
NextTurn = Callable[[int], int | None]


class Window(NamedTuple):
    """From this millisecond on, up to but not including that one; `reported` when the provider said its end."""

    begin: int
    end: int
    basis: Basis


def reported(resets: Iterable[int], length: int) -> list[Window]:
    """The windows that readings told the end of. One that was told to end later than it did gave way to the next."""
    windows: list[Window] = []
    for end in sorted(resets):
        if windows and end - windows[-1].end <= SAME_RESET_MS:
            continue
        begin = max(end - length, windows[-1].end if windows else end - length)
        windows.append(Window(begin, end, "reported"))
    return windows


def windows(next_turn: NextTurn, known: list[Window], length: int, since: int = _EARLIEST) -> Iterator[Window]:
    """Every window that holds a turn, in order; `next_turn(t)` is the first turn at or after t.

    `since` may be the end of a known window: none goes on beyond it, so what came before does not matter.
    """
    known = list(known)
    at = next_turn(since)
    free_from = since
    while at is not None:
        while known and known[0].end <= at:
            free_from = max(free_from, known.pop(0).end)
        window = _holding(at, known[0] if known else None, free_from, length)
        yield window
        free_from = window.end
        at = next_turn(window.end)


def _holding(at: int, coming: Window | None, free_from: int, length: int) -> Window:
    """The window that the turn at `at` is in, with what is told of the next one that is known."""
    if coming is not None and coming.begin <= at:
        return coming
    begin = max(at - at % HOUR_MS, free_from)
    end = begin + length
    # Two windows never overlap: one that was only reckoned was over when a reported one began.
    return Window(begin, min(end, coming.begin) if coming is not None else end, "counted")
