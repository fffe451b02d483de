"""What a provider said of an account's windows, read by the window it is about: a year has very many readings."""

from __future__ import annotations

from typing import NamedTuple

from burnd.queries.limit_windows import LENGTHS, SAME_RESET_MS, Window, reported
from burnd.queries.view import Row, View


class Reading(NamedTuple):
    """What the provider said of a window at a time."""

    ts: int
    percent: float
    resets_at: int | None


class Account:
    """The readings of one source's account."""

    def __init__(self, view: View, source: str) -> None:
        self._view = view
        found = view.rows("SELECT id FROM names WHERE name = ?", (source,))
        self._source: int | None = found[0][0] if found else None

    def windows(self, name: str) -> list[Window]:
        """All that were told the end of, in order."""
        return self._windows(name, -(1 << 62))

    def newest_windows(self, name: str) -> list[Window]:
        """Those that may still run and the last that is over, with what may have cut them short."""
        now = self._view.now
        ((over,),) = self._view.rows(_LAST_OVER, (self._source, name, now))
        return self._windows(name, (now if over is None else over) - 2 * LENGTHS[name])

    def _windows(self, name: str, since: int) -> list[Window]:
        here = (self._source, name)
        found = self._view.rows(_RESETS, (*here, since, *here))
        return reported([row[0] for row in found], LENGTHS[name])

    def about(self, name: str, window: Window) -> list[Reading]:
        """The readings of this window: those that name its end, and those that name none."""
        rows = self._about(name, window, "")
        return [Reading(ts, percent, resets_at) for ts, _, percent, resets_at in sorted(rows)]

    def peak(self, name: str, window: Window) -> Reading | None:
        """What is used: quota is never given back within a window, but a session that idles shows an old figure."""
        rows = self._about(name, window, "ORDER BY used_percent DESC, ts, position LIMIT 1")
        found = [Reading(ts, percent, resets_at) for ts, _, percent, resets_at in rows]
        return max(found, key=lambda reading: (reading.percent, -reading.ts), default=None)

    def _about(self, name: str, window: Window, which: str) -> list[Row]:
        here = (self._source, name)
        named = (*here, window.end - SAME_RESET_MS, window.end + SAME_RESET_MS)
        unnamed = (*here, window.begin, window.end)
        return self._view.rows(f"{_NAMED} {which}", named) + self._view.rows(f"{_UNNAMED} {which}", unnamed)


_OF = "FROM quotas WHERE source = ? AND window = ?"
_LAST_OVER = f"SELECT max(resets_at) {_OF} AND resets_at <= ?"
_NEXT = f"SELECT min(resets_at) {_OF} AND resets_at >"
# Every end there is, stepping from one to the next.
_RESETS = f"""
WITH RECURSIVE ends(at) AS (
  SELECT ({_NEXT} ?) UNION ALL SELECT ({_NEXT} ends.at) FROM ends WHERE ends.at IS NOT NULL
) SELECT at FROM ends WHERE at IS NOT NULL
"""
_READ = f"SELECT ts, position, used_percent, resets_at {_OF} AND "
_NAMED = _READ + "resets_at BETWEEN ? AND ?"
_UNNAMED = _READ + "resets_at IS NULL AND ts >= ? AND ts < ?"
