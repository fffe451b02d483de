"""The daemon's life: takes the home, opens what is in it, keeps it in order, and lets go in good order."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from burnd.config import Settings
from burnd.errors import IndexDamaged, NotNow, StorageError
from burnd.index.store import CursorChange
from burnd.ledger.files import HomeLock, prepare_home
from burnd.ledger.keeping import Keeping
from burnd.ledger.retention import ClockReading, ClockTrust
from burnd.paths import Home, user_home
from burnd.pipeline import Batch, Pipeline, open_pipeline, wall_ms
from burnd.sources.base import Source
from burnd.sources.claude_code import ClaudeCode
from burnd.sources.roots import claude_roots

log = structlog.get_logger()
RETENTION_EVERY_S = 3600
FIRST_DELAY_S, LAST_DELAY_S = 1.0, 60.0


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
        tasks.start_soon(_supervise, lambda: _claude_code(pipeline, settings))
        log.info("daemon.ready", ledger_bytes=pipeline.journal.end)
        await anyio.sleep_forever()


@asynccontextmanager
async def _pipeline(home: Home, settings: Settings) -> AsyncIterator[Pipeline]:
    pipeline = await _open_when_possible(home, settings)
    try:
        yield pipeline
    finally:
        await pipeline.close()


def _claude_code(pipeline: Pipeline, settings: Settings) -> Source:
    return ClaudeCode(claude_roots(os.environ, str(user_home()), settings.claude_roots), pipeline)


async def _supervise(make: Callable[[], Source]) -> None:
    """Keeps a source running. One that fails is started again after a while; the others do not notice.

    A failure to write what is the truth is nobody's to swallow: it ends the daemon.
    """
    delay = FIRST_DELAY_S
    while True:
        source = make()
        begun = anyio.current_time()
        try:
            await source.run()
        except* (StorageError, IndexDamaged):
            raise
        except* Exception as failures:  # noqa: BLE001 - the one place that may swallow: it counts and says so
            names = sorted({type(error).__name__ for error in _leaves(failures)})
            log.error("source.failed", source=source.name, errors=names)
        if anyio.current_time() - begun > LAST_DELAY_S:
            delay = FIRST_DELAY_S
        await anyio.sleep(delay)
        delay = min(delay * 2, LAST_DELAY_S)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _open_when_possible(home: Home, settings: Settings) -> Pipeline:
    """Opens the pipeline; where there is no room for it, waits until there is."""
    delay = FIRST_DELAY_S
    while True:
        keeping = Keeping(settings.content_mode)
        try:
            return await open_pipeline(home, keeping, inline_bytes=settings.inline_bytes, reserve=settings.reserve)
        except NotNow as error:
            log.warning("daemon.waiting", reason=str(error))
        await anyio.sleep(delay)
        delay = min(delay * 2, LAST_DELAY_S)


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
        except NotNow as error:
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
