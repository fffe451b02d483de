"""Last lines of logs that have no newline, and when each is looked at: whoever wrote it may have died over it."""

from __future__ import annotations

from typing import NamedTuple

from burnd.logfiles.cursor import Cursor

QUIET_S = 600.0


class Tail(NamedTuple):
    """A last line without a newline: which bytes of its log are not used yet, and when they are looked at.

    Where it is not whole by `due` it may still become so, by `last`.
    """

    root: str
    position: int
    due: float
    last: float


class Due(NamedTuple):
    """A log whose last line is to be looked at: if that is not whole, for good where this `is_last`."""

    path: str
    root: str
    is_last: bool


class Tails:
    """One of each log that ends so, whatever else is kept of it. It opens none of them."""

    def __init__(self) -> None:
        self._waiting: dict[str, Tail] = {}

    def note(self, path: str, root: str, cursor: Cursor, now: float, *, is_old: bool, is_found: bool) -> None:
        """A log was read up to its last line. It `is_old` if nobody has written to it for long: why wait longer?

        Nor is there anything to wait for in a log that `is_found`, there before we were, if the line is whole: tools
        that write logs all at once may leave the newline out.
        """
        known = self._waiting.get(path)
        if known is None or known.position != cursor.position:
            late = now if is_old else now + QUIET_S
            self._waiting[path] = Tail(root, cursor.position, now if is_found else late, late)

    def put_off(self, path: str, now: float) -> None:
        """It could not be looked at just now."""
        self._waiting[path] = self._waiting[path]._replace(due=now + QUIET_S, last=now + QUIET_S)

    def wait(self, path: str) -> None:
        """It is not whole yet."""
        known = self._waiting[path]
        self._waiting[path] = known._replace(due=known.last)

    def drop(self, path: str) -> None:
        self._waiting.pop(path, None)

    def due(self, now: float, most: int) -> list[Due]:
        """Logs whose last lines are to be looked at now."""
        due = [(path, tail) for path, tail in self._waiting.items() if tail.due <= now]
        return [Due(path, tail.root, tail.last <= now) for path, tail in due[:most]]

    def next_due(self) -> float | None:
        return min((tail.due for tail in self._waiting.values()), default=None)
