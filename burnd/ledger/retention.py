"""How long content is kept: which sidecars are due, and when the clock cannot be trusted to say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from burnd.ledger.sidecars import Sidecar
from burnd.records.times import DAY_MS

# Wall and boot time drift apart by what NTP slews and steps; more than this is somebody setting the clock.
_JUMP_MS = DAY_MS // 2
_PROBATION_MS = DAY_MS


class Pruned(NamedTuple):
    """What a prune did: how many sidecars went and how many bytes that freed."""

    files: int
    bytes: int


class ClockReading(msgspec.Struct, frozen=True):
    """Two clocks read together. `boot_ms` goes on while the machine sleeps, and nobody can set it."""

    wall_ms: int
    boot_ms: int
    boot_id: str = ""


class ClockTrust(msgspec.Struct, frozen=True):
    """What is believed of the wall clock: the last reading that was sound, and one that is on probation.

    A clock that leaps ahead would let everything look old at once. Such a leap is not believed until the
    clock has run evenly for a day of real time after it: by then it was a correction, not an accident.
    """

    sound: ClockReading
    suspect: ClockReading | None = None

    def next(self, now: ClockReading) -> ClockTrust:
        """The belief after one more reading; while `suspect` is set, nothing may be deleted by the clock."""
        if not _leapt(self.sound, now):
            return ClockTrust(now)
        since = self.suspect
        if since is None or _leapt(since, now) or _leapt(now, since):
            return ClockTrust(self.sound, now)
        if now.boot_ms - since.boot_ms >= _PROBATION_MS:
            return ClockTrust(now)
        return self


def due(sidecars: Iterable[Sidecar], older_than_ms: int, now_ms: int) -> list[Sidecar]:
    """The sidecars whose newest record is more than `older_than_ms` old."""
    return [sidecar for sidecar in sidecars if sidecar.mtime_ms < now_ms - older_than_ms]


def _leapt(before: ClockReading, now: ClockReading) -> bool:
    """Whether the wall clock ran ahead of real time; across a restart of the machine nobody can tell."""
    if before.boot_id != now.boot_id:
        return False
    real = now.boot_ms - before.boot_ms
    return (now.wall_ms - before.wall_ms) - real > _JUMP_MS
