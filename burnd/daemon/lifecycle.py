"""Starts and stops the daemon: opens the home, serves the socket, runs sources and background tasks."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio
import structlog
from anyio.abc import TaskStatus

from burnd.clients.announcements import announced_roots
from burnd.clients.spool import Spool
from burnd.daemon.service_manager import Notifier, Watchdog, adopt_sockets
from burnd.errors import HomeError, IndexDamaged, NotAllowed, NotNow
from burnd.harness.quick_pass import Places
from burnd.harness.supervisor import SOURCES, Make, SourceContext, SourceSupervisor
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import HomeLock, as_storage_error, prepare_home
from burnd.paths import Home, socket_path, user_home
from burnd.recording.crash_guard import record_crashes
from burnd.recording.pipeline import Pipeline, open_pipeline
from burnd.recording.retention import Cleanup, Retention
from burnd.server.listener import Listener
from burnd.server.methods import METHODS
from burnd.server.metrics import Metrics
from burnd.server.service import Service
from burnd.settings.config import Settings
from burnd.tasks import BackgroundTask, backoff
from burnd.totals.child import PassProcess
from burnd.totals.early import EarlyTotals, LogPass

T = TypeVar("T")
log = structlog.get_logger()
LAST_ANSWERS_S = 0.5
STOP_S = 10.0
EXIT_STUCK = 1
_EXTEND_S = 30.0
_NOTIFY_EVERY_S = 5.0


async def run(
    home: Home,
    settings: Settings,
    environ: MutableMapping[str, str] = os.environ,
    sources: Mapping[str, Make] = SOURCES,
    lock: HomeLock | None = None,
    pass_process: PassProcess | None = None,
) -> None:
    """Runs until a signal or a client stops it. Raises HomeBusy."""
    for warning in prepare_home(home.root):
        log.warning("home.warning", reason=warning)
    try:
        path = socket_path(home, environ)
    except ValueError as error:
        raise HomeError(str(error)) from error
    lock = lock or HomeLock(home.lock)
    # a task that hangs must not block the exit; this is as safe as kill -9
    exit_timer = threading.Timer(STOP_S, os._exit, (EXIT_STUCK,))
    exit_timer.daemon = True
    try:
        notifier = Notifier(environ)
        service = Service(home, settings, socket=str(path), environ=environ, check_home=lock.check)
        listener = Listener(path, service, METHODS, adopted=adopt_sockets(environ, str(path)))
        try:
            async with anyio.create_task_group() as listening:
                # first and last: handles a signal during start and stop, too
                await listening.start(_stop_on_signal, service)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(listener.serve)
                    tasks.start_soon(_work, service, notifier, sources, pass_process)
                    try:
                        await service.stopping.wait()
                    finally:  # also after a fatal error
                        exit_timer.start()
                    notifier.stopping()
                    with anyio.move_on_after(LAST_ANSWERS_S):
                        while service.clients.answering:  # noqa: ASYNC110 - at most half a second, at exit
                            await anyio.sleep(0.01)
                    tasks.cancel_scope.cancel()
                listening.cancel_scope.cancel()
        finally:
            listener.close()
    finally:
        exit_timer.cancel()
        lock.release()
    log.info("daemon.stopped")


async def _work(
    service: Service, notifier: Notifier, sources: Mapping[str, Make], pass_process: PassProcess | None
) -> None:
    async with _pipeline(service, notifier) as pipeline, anyio.create_task_group() as tasks:
        record_crashes(service.home.index)
        tasks.start_soon(_repair_index, pipeline)
        spool = Spool(service.home.spool, pipeline, sources)
        # the spool may set a session's content mode to off
        delays = backoff()
        while not await spool.try_drain():  # noqa: ASYNC110 - its failure has no event
            await anyio.sleep(next(delays))
        for name in sources:
            service.roots[name] = await _when_possible(service, partial(announced_roots, pipeline.index, name))
        service.sources = {name: _supervised(service, pipeline, name, make) for name, make in sources.items()}
        service.open(pipeline, spool)
        service.background = _background_tasks(service)
        roots = {name: list(some) for name, some in service.roots.items()}
        places = Places(service.settings, service.environ, str(user_home(service.environ)), roots)
        log_pass = LogPass(service.home, places, list(service.sources), pass_process)
        early = EarlyTotals(pipeline, log_pass, lambda: service.prices.table, lambda: service.backfill().done)
        service.early_totals = early
        tasks.start_soon(early.run)
        for source in service.sources.values():
            tasks.start_soon(source.run)
        for task in service.background:
            tasks.start_soon(task.run)
        tasks.start_soon(Watchdog(service, notifier).run)
        log.info("daemon.ready", ledger_bytes=pipeline.journal.end)
        notifier.ready(f"recording from {', '.join(sources)}")


def _supervised(service: Service, pipeline: Pipeline, name: str, make: Make) -> SourceSupervisor:
    def context() -> SourceContext:
        roots = service.roots.get(name, [])
        return SourceContext(pipeline, service.settings, service.environ, str(user_home(service.environ)), roots)

    return SourceSupervisor(name, lambda: make(context()))


def _background_tasks(service: Service) -> list[BackgroundTask]:
    """Recording does not depend on any of them."""
    retention = Retention(service.pipeline, lambda: service.settings.retention_ms, service.notices)
    address = service.settings.metrics_address
    return [
        *([BackgroundTask("metrics", Metrics(service, address).run)] if address else []),
        BackgroundTask("reading the spool", service.spool.run),
        BackgroundTask("search", service.search_indexer.run),
        BackgroundTask("attribution", service.explainer.run),
        BackgroundTask("retention", retention.run),
        BackgroundTask("emptying write-ahead logs", Cleanup(service.pipeline).run),
        *service.background_tasks(),
    ]


async def _when_possible(service: Service, work: Callable[[], Awaitable[T]]) -> T:
    """Retries while the disk is full or the index is being rebuilt."""
    delays = backoff()
    while True:
        try:
            return await work()
        except (NotNow, IndexDamaged) as error:
            log.warning("daemon.waiting", reason=str(error))
            service.waiting(error.what)
        await anyio.sleep(next(delays))


@asynccontextmanager
async def _pipeline(service: Service, notifier: Notifier) -> AsyncIterator[Pipeline]:
    """Asks the service manager for more time meanwhile."""

    async def extend_start() -> None:
        while True:
            notifier.starting(str(service.work), _EXTEND_S)
            await anyio.sleep(_NOTIFY_EVERY_S)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(extend_start)
        pipeline = await _when_possible(service, partial(_open, service))
        tasks.cancel_scope.cancel()
    try:
        yield pipeline
    finally:
        await pipeline.close()


async def _open(service: Service) -> Pipeline:
    """Raises HomeError for wrong permissions: waiting would hide them."""
    settings = service.settings
    service.check_home()
    try:
        return await open_pipeline(
            service.home,
            ContentModes(settings.content_mode),
            inline_bytes=settings.values["content.inline_bytes"],
            reserve=settings.reserve,
            report=service.opening,
            check_home=service.check_home,
        )
    except (OSError, NotAllowed) as caught:
        error = as_storage_error(caught, service.home.root) if isinstance(caught, OSError) else caught
        if not isinstance(error, NotAllowed):
            raise error from caught
        raise HomeError(error.what, error.thing, error.remedy) from caught


async def _stop_on_signal(service: Service, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """The second signal stops at once."""
    stop_signals = _stop_signals()
    with anyio.open_signal_receiver(*stop_signals) as signals:
        task_status.started()
        async for number in signals:
            if service.stopping.is_set():
                os._exit(128 + number)
            log.info("daemon.stopping", signal=signal.Signals(number).name)
            service.stop()
            for one in stop_signals if os.getpid() != 1 else ():  # PID 1 of a container has no default action
                signal.signal(one, signal.SIG_DFL)  # works even if the event loop hangs


def _stop_signals() -> list[signal.Signals]:
    """SIGHUP is among them unless it is ignored, as under nohup."""
    signals = [signal.SIGTERM, signal.SIGINT]
    return signals if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [*signals, signal.SIGHUP]


async def _repair_index(pipeline: Pipeline) -> None:
    """Rebuilds the index when a reader finds it damaged. Writers rebuild it themselves."""
    delays = backoff()
    while True:
        await pipeline.index.damaged.wait()
        try:
            await pipeline.mend_index()
        except (NotNow, IndexDamaged, OSError) as error:
            log.warning("index.waiting", error=type(error).__name__)
            await anyio.sleep(next(delays))
        else:
            delays = backoff()
