"""The daemon's life: takes the home, opens what is in it, keeps it in order, and lets go in good order."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from burnd.config import Settings
from burnd.errors import NoSpace
from burnd.index.store import CursorChange
from burnd.ledger.files import HomeLock, prepare_home
from burnd.ledger.keeping import Keeping
from burnd.ledger.retention import ClockReading, ClockTrust
from burnd.paths import Home
from burnd.pipeline import Batch, Pipeline, open_pipeline, wall_ms

log = structlog.get_logger()
RETENTION_EVERY_S = 3600


async def run(home: Home, settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT. Raises HomeBusy when another daemon has the home."""
    for warning in prepare_home(home.root):
        log.warning("home.warning", reason=warning)
    lock = HomeLock(home.lock)
    try:
        async with anyio.create_task_group() as tasks:
            # Listening first: a signal that comes while old logs are read in must not kill outright.
            await tasks.start(_stop_when_told, tasks.cancel_scope)
            await _serve(home, settings)
    finally:
        lock.release()
    log.info("daemon.stopped")


async def _serve(home: Home, settings: Settings) -> None:
    async with _pipeline(home, settings) as pipeline, anyio.create_task_group() as tasks:
        tasks.start_soon(_prune_on_a_timer, pipeline, settings)
        log.info("daemon.ready", ledger_bytes=pipeline.journal.end)
        await anyio.sleep_forever()


@asynccontextmanager
async def _pipeline(home: Home, settings: Settings) -> AsyncIterator[Pipeline]:
    pipeline = await open_pipeline(
        home, Keeping(settings.content_mode), inline_bytes=settings.inline_bytes, reserve=settings.reserve
    )
    try:
        yield pipeline
    finally:
        await pipeline.close()


async def _stop_when_told(
    everything: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            log.info("daemon.stopping", signal=signal.Signals(number).name)
            everything.cancel()
            return


async def _prune_on_a_timer(pipeline: Pipeline, settings: Settings) -> None:
    """Content older than its time goes at start and every hour, unless the clock cannot be trusted."""
    if settings.retention_ms is None:
        return
    while True:
        try:
            await _prune(pipeline, settings.retention_ms)
        except NoSpace as error:
            log.warning("retention.waiting", reason=str(error))
        await anyio.sleep(RETENTION_EVERY_S)


async def _prune(pipeline: Pipeline, retention_ms: int) -> None:
    trust = await _trust_after(pipeline, read_clocks())
    if trust.suspect is not None:
        log.error("retention.refused", reason="the clock ran ahead of real time")
        return
    pruned = await pipeline.prune_content(retention_ms)
    if pruned.files:
        log.info("retention.pruned", files=pruned.files, bytes=pruned.bytes)


async def _trust_after(pipeline: Pipeline, now: ClockReading) -> ClockTrust:
    """What to believe of the clock, remembered across restarts of the daemon."""
    saved = await pipeline.index.cursor("retention", "clock")
    trust = msgspec.json.decode(saved, type=ClockTrust).next(now) if saved else ClockTrust(now)
    await pipeline.commit(Batch(cursors=[CursorChange("retention", "clock", msgspec.json.encode(trust))]))
    return trust


def read_clocks() -> ClockReading:
    boot = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return ClockReading(wall_ms(), time.clock_gettime_ns(boot) // 1_000_000, _boot_id())


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
