"""Decides which sidecars are old enough to be pruned, and when the clock cannot be trusted to say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from burnd.ledger.sidecars import Sidecar
from burnd.records.times import DAY_MS, to_ms

# NTP makes wall and boot time drift apart a little; more than this means that the clock was set.
_JUMP_MS = DAY_MS // 2
# Across a restart of the machine there is no boot time to compare with. It may have been off for weeks, but a year is
# more likely a clock that was years behind.
_JUMP_ACROSS_BOOTS_MS = 365 * DAY_MS
_PROBATION_MS = DAY_MS
# burnd is newer than 2026-01-01 and the logs it reads newer than 2020: an earlier clock or record is wrong.
EARLIEST_CLOCK_MS = to_ms("2026-01-01")
_EARLIEST_RECORD_MS = to_ms("2020-01-01")


class Pruned(NamedTuple):
    """The number of sidecars that a prune deleted, and the bytes freed."""

    files: int
    bytes: int


class ClockReading(msgspec.Struct, frozen=True):
    """Two clocks read together. `boot_ms` also runs while the machine sleeps, and cannot be set."""

    wall_ms: int
    boot_ms: int
    boot_id: str = ""


class ClockTrust(msgspec.Struct, frozen=True):
    """Tracks whether the wall clock can be trusted: the last sound reading, and one on probation.

    A clock that leaps ahead would let everything look old at once. Such a leap is not believed until the
    clock has run evenly for a day of real time after it: by then it was a correction, not an accident.
    The first reading is compared with the newest record, so that a clock that is wrong from the start is noticed.
    """

    sound: ClockReading
    suspect: ClockReading | None = None
    compared: bool = False

    def next(self, now: ClockReading, newest_ms: int | None = None) -> ClockTrust:
        """The state after one more reading. While `suspect` is set, nothing may be deleted by age.

        `newest_ms` is the time of the newest record.
        """
        trust = self._after(now)
        if trust.compared or trust.suspect is not None or newest_ms is None:
            return trust
        return ClockTrust(ClockReading(newest_ms, 0, "a record"), None, compared=True)._after(now)

    def _after(self, now: ClockReading) -> ClockTrust:
        if not _leapt(self.sound, now):
            return ClockTrust(now, None, self.compared)
        since = self.suspect
        if since is None or _leapt(since, now) or _leapt(now, since):
            return ClockTrust(self.sound, now, self.compared)
        is_same_boot = since.boot_id == now.boot_id
        even_ms = now.boot_ms - since.boot_ms if is_same_boot else now.wall_ms - since.wall_ms
        return ClockTrust(now, None, compared=True) if even_ms >= _PROBATION_MS else self


def candidates(sidecars: Iterable[Sidecar], older_than_ms: int, now_ms: int) -> list[Sidecar]:
    """The sidecars that look old by their file times. A wrong clock may have set these, so `date_of` decides."""
    return [sidecar for sidecar in sidecars if min(sidecar.mtime_ms, now_ms - 1) < now_ms - older_than_ms]


def date_of(sidecar: Sidecar, newest_ms: int | None, now_ms: int) -> int:
    """The date of a sidecar: `newest_ms`, the time of its newest record with a plausible time, if that has passed.

    If no record has one, as in a log with times of the year 1 or 9999, it is the file's last change.
    """
    return min(newest_ms if newest_ms is not None else sidecar.changed_ms, now_ms - 1)


def plausible_times(now_ms: int) -> tuple[int, int]:
    """The range of times in which a record's own time is trusted."""
    return _EARLIEST_RECORD_MS, now_ms + DAY_MS


def _leapt(before: ClockReading, now: ClockReading) -> bool:
    """Whether the wall clock ran ahead of real time, as far as is known across a restart of the machine."""
    if before.boot_id != now.boot_id:
        return now.wall_ms - before.wall_ms > _JUMP_ACROSS_BOOTS_MS
    real = now.boot_ms - before.boot_ms
    return (now.wall_ms - before.wall_ms) - real > _JUMP_MS
