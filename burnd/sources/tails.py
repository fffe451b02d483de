"""Last lines of logs that have no newline, and when each is looked at: whoever wrote it may have died over it."""

from __future__ import annotations

from typing import NamedTuple

from burnd.sources.cursor import Cursor

QUIET_S = 600.0


class Tail(NamedTuple):
    """A last line without a newline: which bytes of its log are not used yet, and when they are looked at."""

    root: str
    position: int
    due: float


class Tails:
    """One of each log that ends so, whatever else is kept of it. It opens none of them."""

    def __init__(self) -> None:
        self._waiting: dict[str, Tail] = {}

    def note(self, path: str, root: str, cursor: Cursor, now: float, *, is_old: bool) -> None:
        """A log was read up to its last line. It `is_old` if nobody has written to it for long: why wait longer?"""
        known = self._waiting.get(path)
        if known is None or known.position != cursor.position:
            self._waiting[path] = Tail(root, cursor.position, now if is_old else now + QUIET_S)

    def put_off(self, path: str, now: float) -> None:
        """It could not be looked at just now."""
        self._waiting[path] = self._waiting[path]._replace(due=now + QUIET_S)

    def drop(self, path: str) -> None:
        self._waiting.pop(path, None)

    def due(self, now: float, most: int) -> list[tuple[str, str]]:
        """Logs, with their roots, whose last lines are to be looked at now."""
        return [(path, tail.root) for path, tail in self._waiting.items() if tail.due <= now][:most]

    def next_due(self) -> float | None:
        return min((tail.due for tail in self._waiting.values()), default=None)
