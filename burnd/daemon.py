"""The daemon's life: takes the home, answers at its socket, keeps everything running, and lets go in good order."""

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

from burnd.clients.announcing import announced_roots
from burnd.clients.spool import Spool
from burnd.errors import HomeError, IndexDamaged, NotAllowed, NotNow
from burnd.harness.supervisor import SOURCES, Make, SourceContext, SourceSupervisor
from burnd.health import Health
from burnd.ledger.files import HomeLock, as_storage_error, prepare_home
from burnd.ledger.keeping import Keeping
from burnd.notify import Notifier, adopt_sockets
from burnd.paths import Home, socket_path, user_home
from burnd.recording.crash_guard import record_crashes
from burnd.recording.pipeline import Pipeline, open_pipeline
from burnd.recording.retention import Cleanup, Retention
from burnd.restarting import Minded
from burnd.server.listener import Listener
from burnd.server.methods import METHODS
from burnd.server.service import Service
from burnd.server.watching import watches
from burnd.settings.config import Settings

T = TypeVar("T")
log = structlog.get_logger()
FIRST_DELAY_S, LAST_DELAY_S = 1.0, 60.0
LAST_ANSWERS_S = 0.5
STOP_S = 10.0
EXIT_STUCK = 1
_STILL_S = 30.0
_TOLD_EVERY_S = 5.0


async def run(
    home: Home,
    settings: Settings,
    environ: MutableMapping[str, str] = os.environ,
    sources: Mapping[str, Make] = SOURCES,
    lock: HomeLock | None = None,
) -> None:
    """Runs until it is told to stop, holding the home by `lock`. Raises HomeBusy when another daemon has it."""
    for warning in prepare_home(home.root):
        log.warning("home.warning", reason=warning)
    try:
        path = socket_path(home, environ)
    except ValueError as error:
        raise HomeError(str(error)) from error
    lock = lock or HomeLock(home.lock)
    # However something hangs, the end comes: nothing is torn by it that kill -9 would not tear.
    last_resort = threading.Timer(STOP_S, os._exit, (EXIT_STUCK,))
    last_resort.daemon = True
    try:
        notifier = Notifier(environ)
        service = Service(home, settings, socket=str(path), environ=environ, check_home=lock.check)
        listener = Listener(path, service, METHODS, adopted=adopt_sockets(environ, str(path)))
        try:
            async with anyio.create_task_group() as listening:
                # First of all, and to the last: no signal may kill outright while old logs are read in, or be lost.
                await listening.start(_stop_when_told, service)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(listener.serve)
                    tasks.start_soon(_work, service, notifier, sources)
                    try:
                        await service.stopping.wait()
                    finally:  # also when something failed that nothing can go on without
                        last_resort.start()
                    notifier.stopping()
                    await _finish_answers(service)
                    tasks.cancel_scope.cancel()
                listening.cancel_scope.cancel()
        finally:
            listener.close()
    finally:
        last_resort.cancel()
        lock.release()
    log.info("daemon.stopped")


async def _work(service: Service, notifier: Notifier, sources: Mapping[str, Make]) -> None:
    """Everything the daemon does of itself, once its storage is open."""
    async with _pipeline(service, notifier) as pipeline, anyio.create_task_group() as tasks:
        record_crashes(service.home.index)
        tasks.start_soon(_mend_index, pipeline)
        spool = Spool(service.home.spool, pipeline, sources)
        # Before any source is read: what was left may say that a session's text must not be kept.
        await _until_done(spool)
        for name in sources:
            service.roots[name] = await _when_possible(service, partial(announced_roots, pipeline.index, name))
        service.sources = {name: _kept(service, pipeline, name, make) for name, make in sources.items()}
        service.open(pipeline, spool)
        service.minded = _minded(service)
        for kept in service.sources.values():
            tasks.start_soon(kept.run)
        for minded in service.minded:
            tasks.start_soon(minded.run)
        tasks.start_soon(Health(service, notifier).watch)
        log.info("daemon.ready", ledger_bytes=pipeline.journal.end)
        notifier.ready(f"recording from {', '.join(sources)}")


def _kept(service: Service, pipeline: Pipeline, name: str, make: Make) -> SourceSupervisor:
    def fresh() -> SourceContext:
        roots = service.roots.get(name, [])
        return SourceContext(pipeline, service.settings, service.environ, str(user_home(service.environ)), roots)

    return SourceSupervisor(name, lambda: make(fresh()))


def _minded(service: Service) -> list[Minded]:
    """What goes on beside the sources: recording does not depend on any of it."""
    retention = Retention(service.pipeline, service.settings, service.notices)
    return [
        Minded("taking in the spool", service.spool.keep_taking_in),
        Minded("search", service.search_indexer.run),
        Minded("counting causes", service.explainer.run),
        Minded("retention", retention.run),
        Minded("emptying write-ahead logs", Cleanup(service.pipeline).run),
        *watches(service),
    ]


async def _until_done(spool: Spool) -> None:
    delay = FIRST_DELAY_S
    while not await spool.try_to_take_in():
        await anyio.sleep(delay)
        delay = min(delay * 2, LAST_DELAY_S)


async def _when_possible(service: Service, work: Callable[[], Awaitable[T]]) -> T:
    """What work gives; where there is no room for it, or the index is being made anew, waits for that."""
    delay = FIRST_DELAY_S
    while True:
        try:
            return await work()
        except (NotNow, IndexDamaged) as error:
            log.warning("daemon.waiting", reason=str(error))
            service.waiting(error.what)
        await anyio.sleep(delay)
        delay = min(delay * 2, LAST_DELAY_S)


@asynccontextmanager
async def _pipeline(service: Service, notifier: Notifier) -> AsyncIterator[Pipeline]:
    """The pipeline, open for as long as the block runs. The service manager is told that opening it may take long."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_ask_for_time, service, notifier)
        pipeline = await _open_when_possible(service)
        tasks.cancel_scope.cancel()
    try:
        yield pipeline
    finally:
        await pipeline.close()


async def _ask_for_time(service: Service, notifier: Notifier) -> None:
    while True:
        notifier.starting(str(service.work), _STILL_S)
        await anyio.sleep(_TOLD_EVERY_S)


async def _open_when_possible(service: Service) -> Pipeline:
    """Opens the pipeline; where there is no room for it, waits until there is."""
    settings = service.settings

    async def open_it() -> Pipeline:
        service.check_home()
        try:
            return await open_pipeline(
                service.home,
                Keeping(settings.content_mode),
                inline_bytes=settings.inline_bytes,
                reserve=settings.reserve,
                report=service.opening,
                check_home=service.check_home,
            )
        except (OSError, NotAllowed) as caught:
            error = as_storage_error(caught, service.home.root) if isinstance(caught, OSError) else caught
            if not isinstance(error, NotAllowed):
                raise error from caught
            # Nobody works yet whom waiting would help, and somebody is there to be told.
            raise HomeError(error.what, error.thing, error.remedy) from caught

    return await _when_possible(service, open_it)


async def _stop_when_told(service: Service, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """The first signal stops in good order; the second at once, which kill -9 could do as well."""
    heeded = _stopping_signals()
    with anyio.open_signal_receiver(*heeded) as signals:
        task_status.started()
        async for number in signals:
            if service.stopping.is_set():
                os._exit(128 + number)
            log.info("daemon.stopping", signal=signal.Signals(number).name)
            service.stop()
            for one in heeded if os.getpid() != 1 else ():  # a container's first process is not killed by default
                signal.signal(one, signal.SIG_DFL)  # the next one needs nobody who listens


def _stopping_signals() -> list[signal.Signals]:
    """Whoever started us with nohup wants us to outlive the terminal; else its end is ours."""
    stopping = [signal.SIGTERM, signal.SIGINT]
    return stopping if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [*stopping, signal.SIGHUP]


async def _finish_answers(service: Service) -> None:
    """Lets the answers go out that are on their way."""
    with anyio.move_on_after(LAST_ANSWERS_S):
        while service.visitors.answering:  # noqa: ASYNC110 - at most half a second, once in a life
            await anyio.sleep(0.01)


async def _mend_index(pipeline: Pipeline) -> None:
    """Makes the index anew when somebody finds it damaged; what writes to it mends it by itself."""
    delay = FIRST_DELAY_S
    while True:
        await pipeline.index.damaged.wait()
        try:
            await pipeline.mend_index()
        except (NotNow, IndexDamaged, OSError) as error:
            log.warning("index.waiting", error=type(error).__name__)
            await anyio.sleep(delay)
            delay = min(delay * 2, LAST_DELAY_S)
        else:
            delay = FIRST_DELAY_S
