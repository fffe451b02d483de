"""Retention on a timer: prunes old content at start and every hour, unless the clock cannot be trusted."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import msgspec
import structlog

from burnd.errors import NotNow
from burnd.index.change import CursorChange
from burnd.ledger.retention import EARLIEST_CLOCK_MS, ClockReading, ClockTrust
from burnd.recording.batch import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records.times import DAY_MS, wall_ms
from burnd.settings.config import Settings

log = structlog.get_logger()
EVERY_S = 3600
_NEWEST_SESSION = "SELECT max(updated_at) FROM sessions WHERE updated_at < ?"
_SUSPECT = "the clock ran ahead of real time, so nothing is deleted by its word"
_BEHIND = "the clock is years behind, so old content is not pruned"


class Retaining:
    """Prunes by the settings. Adds to `notices` while the clock is not trusted."""

    def __init__(self, pipeline: Pipeline, settings: Settings, notices: dict[str, str]) -> None:
        self._pipeline = pipeline
        self._keep_ms = settings.retention_ms
        self._notices = notices

    async def run(self) -> None:
        if self._keep_ms is None:
            return
        while True:
            try:
                await self._prune(self._keep_ms)
            except NotNow as error:
                log.warning("retention.waiting", reason=str(error))
            await anyio.sleep(EVERY_S)

    async def _prune(self, keep_ms: int) -> None:
        now = read_clocks()
        trust = await self._trust_after(now)
        for notice in (_SUSPECT, _BEHIND):
            self._notices.pop(notice, None)
        if now.wall_ms < EARLIEST_CLOCK_MS:
            log.error("retention.refused", reason="the clock is years behind")
            self._notices[_BEHIND] = "set the clock"
            return
        if trust.suspect is not None:
            log.error("retention.refused", reason="the clock ran ahead of real time")
            self._notices[_SUSPECT] = "mend the clock; one that runs evenly for a day is believed again"
            return
        pruned = await self._pipeline.prune_content(keep_ms)
        if pruned.files:
            log.info("retention.pruned", files=pruned.files, bytes=pruned.bytes)

    async def _trust_after(self, now: ClockReading) -> ClockTrust:
        """The trust in the clock after this reading, saved across restarts of the daemon."""
        saved = await self._pipeline.index.cursor("retention", "clock")
        before = (_loaded(saved) if saved else None) or ClockTrust(now)
        ((newest_ms,),) = await self._pipeline.index.rows(_NEWEST_SESSION, (now.wall_ms + DAY_MS,))
        trust = before.next(now, newest_ms)
        await self._pipeline.commit(Batch(cursors=[CursorChange("retention", "clock", msgspec.json.encode(trust))]))
        return trust


def _loaded(saved: bytes) -> ClockTrust | None:
    """What was remembered; None for what cannot be read, as after damage."""
    try:
        return msgspec.json.decode(saved, type=ClockTrust)
    except (msgspec.MsgspecError, ValueError):
        return None


def read_clocks() -> ClockReading:
    boot = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return ClockReading(wall_ms(), time.clock_gettime_ns(boot) // 1_000_000, _boot_id())


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
