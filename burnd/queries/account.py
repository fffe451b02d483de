"""What a provider said of an account's windows, read by the window it is about: a year has very many readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from burnd.queries.limit_windows import LENGTHS, SAME_RESET_MS, Window, reported
from burnd.queries.view import View


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
        here = (self._source, name)
        rows = self._view.rows(_NAMED, (*here, window.end - SAME_RESET_MS, window.end + SAME_RESET_MS))
        rows += self._view.rows(_UNNAMED, (*here, window.begin, window.end))
        return [Reading(ts, percent, resets_at) for ts, _, percent, resets_at in sorted(rows)]

    def peaks(self, name: str, windows: Sequence[Window]) -> list[Reading | None]:
        """The use of each window: never given back within one, though a session that idles shows an old figure."""
        bounds = msgspec.json.encode([(window.begin, window.end) for window in windows]).decode()
        peaks: list[Reading | None] = [None] * len(windows)
        for number, ts, percent, resets_at in self._view.rows(_PEAKS, (self._source, name, bounds)):
            before = peaks[number]
            if before is None or (percent, -ts) > (before.percent, -before.ts):
                peaks[number] = Reading(ts, percent, resets_at)
        return peaks


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
_HIGHEST = "SELECT position FROM quotas WHERE source = ?1 AND window = ?2 AND"
_FIRST_OF = "ORDER BY used_percent DESC, ts, position LIMIT 1"
_PEAKS = f"""
WITH peaks(number, position) AS (
  SELECT w.key, ({_HIGHEST} resets_at BETWEEN (w.value ->> 1) - {SAME_RESET_MS} AND (w.value ->> 1) + {SAME_RESET_MS}
                 {_FIRST_OF}) FROM json_each(?3) w
  UNION ALL
  SELECT w.key, ({_HIGHEST} resets_at IS NULL AND ts >= w.value ->> 0 AND ts < w.value ->> 1 {_FIRST_OF})
  FROM json_each(?3) w)
SELECT p.number, q.ts, q.used_percent, q.resets_at FROM peaks p JOIN quotas q ON q.position = p.position
"""
