"""Readings of a plan's windows, as its provider gave them: which say something new, and their way into the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import anyio
import msgspec
import structlog

from burnd.errors import IndexDamaged, NotNow
from burnd.queries.limit_windows import LENGTHS, SAME_RESET_MS
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Quota
from burnd.records.times import canonical, to_ms

log = structlog.get_logger()

_MOST_PERCENT = 1000.0
_LOOKED_AT = 2000  # the newest readings of the ledger; a window has at most a thousand
_MOST_WAITING = 500
_TRY_AGAIN_S = 5.0


class Quotas:
    """Takes readings in, those of several sessions one after another."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._one_at_a_time = anyio.Lock()
        self._waiting: list[Quota] = []
        self._bell = anyio.Event()

    def hand_over(self, readings: Iterable[Quota]) -> None:
        """Leaves readings for `run` to record: nobody who draws a line on a screen waits for a disk."""
        known = {_said(reading) for reading in self._waiting}
        self._waiting += [reading for reading in readings if _said(reading) not in known]
        del self._waiting[:-_MOST_WAITING]
        self._bell.set()

    async def run(self) -> None:
        """Records what is handed over, for ever."""
        while True:
            await self._bell.wait()
            self._bell = anyio.Event()
            taken, self._waiting = self._waiting, []
            try:
                await self.record(taken)
            except (NotNow, IndexDamaged) as error:
                log.warning("quota.waiting", reason=type(error).__name__)
                self.hand_over(taken)
                await anyio.sleep(_TRY_AGAIN_S)

    async def record(self, readings: Sequence[Quota]) -> int:
        """Puts what is new of the readings into the ledger; returns how many. Durable when it returns."""
        async with self._one_at_a_time:
            rows = await self._pipeline.index.rows(_NEWEST, (_LOOKED_AT,))
            new = news(readings, [Known(*row) for row in rows])
            if new:
                await self._pipeline.commit(Batch(entries=list(new)))
            return len(new)


class Known(msgspec.Struct, frozen=True):
    """A reading that the ledger has."""

    source: str
    window: str
    percent: float
    resets_at: int | None


def news(readings: Iterable[Quota], known: list[Known]) -> list[Quota]:
    """The readings that raise what is known of their window; `known` has the newest first.

    Every open session shows the figure of its own last request, and repeats it for hours: one of a window that was over
    by then, or below what another session has seen before, is not news.
    """
    found: list[Quota] = []
    known = list(known)
    for reading in filter(None, map(_sound, readings)):
        resets = _reset_of(reading)
        same = [one for one in known if _is_of_window(one, reading, resets)]
        if resets is None:
            # A window without an end cannot be told from the next: any other figure is news.
            is_new = not same or same[0].percent != reading.used_percent
        else:
            is_new = resets > to_ms(reading.ts) and all(one.percent < reading.used_percent for one in same)
        if is_new:
            found.append(reading)
            known.insert(0, Known(reading.source, reading.window, reading.used_percent, resets))
    return found


def _sound(reading: Quota) -> Quota | None:
    """The reading in tenths of a percent, without an end that cannot be one; None for what is no reading."""
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


def _is_of_window(known: Known, reading: Quota, resets: int | None) -> bool:
    if (known.source, known.window) != (reading.source, reading.window):
        return False
    if known.resets_at is None or resets is None:
        return known.resets_at == resets
    return abs(known.resets_at - resets) <= SAME_RESET_MS


def _said(reading: Quota) -> tuple[str, str, float, str | None]:
    return (reading.source, reading.window, reading.used_percent, reading.resets_at)


_NEWEST = """
SELECT n.name, q.window, q.used_percent, q.resets_at FROM quotas q JOIN names n ON n.id = q.source
ORDER BY q.position DESC LIMIT ?
"""
