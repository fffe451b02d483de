"""How long content is kept: which sidecars are due, and when the clock cannot be trusted to say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from burnd.ledger.sidecars import Sidecar

DAY_MS = 86_400_000
# Wall and boot time drift apart by what NTP slews and steps; more than this is somebody setting the clock.
_JUMP_MS = DAY_MS // 2


class Pruned(NamedTuple):
    """What a prune did: how many sidecars went and how many bytes that freed."""

    files: int
    bytes: int


class ClockReading(NamedTuple):
    """Two clocks read together. `boot_ms` goes on while the machine sleeps and nobody can set it."""

    wall_ms: int
    boot_ms: int


def due(sidecars: Iterable[Sidecar], older_than_ms: int, now_ms: int) -> list[Sidecar]:
    """The sidecars whose newest record is more than `older_than_ms` old."""
    return [sidecar for sidecar in sidecars if sidecar.mtime_ms < now_ms - older_than_ms]


def clock_jumped(before: ClockReading, now: ClockReading) -> bool:
    """Whether the wall clock ran ahead of real time since `before`: then nothing may be deleted by its word.

    A machine that was off or restarted has a boot clock that began anew; there is nothing to compare then.
    """
    real = now.boot_ms - before.boot_ms
    return real >= 0 and (now.wall_ms - before.wall_ms) - real > _JUMP_MS
