"""Records how much of a plan's limit windows is used, as the provider reports it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import anyio
import msgspec
import structlog

from burnd.errors import IndexDamaged, NotNow
from burnd.queries.limits import LENGTHS, SAME_RESET_MS
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Quota
from burnd.records.times import canonical, to_ms

log = structlog.get_logger()

_MOST_PERCENT = 1000.0
_NEWEST_READINGS = 2000  # a window has at most a thousand
_MOST_WAITING = 500
_RETRY_S = 5.0


class Quotas:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._lock = anyio.Lock()
        self._waiting: list[Quota] = []
        self._wake = anyio.Event()

    def enqueue(self, readings: Iterable[Quota]) -> None:
        """A status line does not wait for the disk."""
        queued = {_key(reading) for reading in self._waiting}
        self._waiting += [reading for reading in readings if _key(reading) not in queued]
        del self._waiting[:-_MOST_WAITING]
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            readings, self._waiting = self._waiting, []
            try:
                await self.record(readings)
            except (NotNow, IndexDamaged) as error:
                log.warning("quota.waiting", reason=type(error).__name__)
                self.enqueue(readings)
                await anyio.sleep(_RETRY_S)

    async def record(self, readings: Sequence[Quota]) -> int:
        """Durable when it returns; returns the number of new readings."""
        async with self._lock:
            rows = await self._pipeline.index.rows(_NEWEST, (_NEWEST_READINGS,))
            new = new_readings(readings, [Recorded(*row) for row in rows])
            if new:
                await self._pipeline.commit(Batch(entries=list(new)))
            return len(new)


class Recorded(msgspec.Struct, frozen=True):
    source: str
    window: str
    percent: float
    resets_at: int | None


def new_readings(readings: Iterable[Quota], recorded: list[Recorded]) -> list[Quota]:
    """The readings higher than every recorded one of their window; `recorded` has the newest first.

    Every open session repeats the figure of its last request for hours, so figures of windows that are over and lower
    figures are skipped.
    """
    new: list[Quota] = []
    recorded = list(recorded)
    for reading in filter(None, map(_normalized, readings)):
        resets = _reset_of(reading)
        same = [one for one in recorded if _is_same_window(one, reading, resets)]
        if resets is None:
            # without its end a window looks like the next one
            is_new = not same or same[0].percent != reading.used_percent
        else:
            is_new = resets > to_ms(reading.ts) and all(one.percent < reading.used_percent for one in same)
        if is_new:
            new.append(reading)
            recorded.insert(0, Recorded(reading.source, reading.window, reading.used_percent, resets))
    return new


def _normalized(reading: Quota) -> Quota | None:
    """None if the percentage is invalid."""
    percent = reading.used_percent
    if not math.isfinite(percent) or not 0 <= percent <= _MOST_PERCENT:
        return None
    resets = _reset_of(reading)
    if resets is not None and resets > to_ms(reading.ts) + 2 * LENGTHS[reading.window]:
        resets = None
    resets_at = canonical(reading.resets_at) if resets is not None and reading.resets_at is not None else None
    return msgspec.structs.replace(reading, used_percent=round(percent, 1), resets_at=resets_at)


def _reset_of(reading: Quota) -> int | None:
    try:
        return None if reading.resets_at is None else to_ms(reading.resets_at)
    except ValueError:
        return None


def _is_same_window(recorded: Recorded, reading: Quota, resets: int | None) -> bool:
    if (recorded.source, recorded.window) != (reading.source, reading.window):
        return False
    if recorded.resets_at is None or resets is None:
        return recorded.resets_at == resets
    return abs(recorded.resets_at - resets) <= SAME_RESET_MS


def _key(reading: Quota) -> tuple[str, str, float, str | None]:
    return (reading.source, reading.window, reading.used_percent, reading.resets_at)


_NEWEST = """
SELECT n.name, q.window, q.used_percent, q.resets_at FROM quotas q JOIN names n ON n.id = q.source
ORDER BY q.position DESC LIMIT ?
"""
