"""Starts and stops the daemon: home, socket, sources, background tasks, signals, and systemd's protocol."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import TypeVar

import anyio
import structlog
from anyio.abc import TaskStatus

from burnd.clients.announcements import announced_roots
from burnd.clients.spool import Spool
from burnd.errors import HomeError, IndexDamaged, NotAllowed, NotNow
from burnd.harness.quick_pass import LogSettings
from burnd.harness.supervisor import SOURCES, Make, SourceContext, SourceSupervisor
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import HomeLock, as_storage_error, prepare_home
from burnd.limits import BudgetWatch
from burnd.paths import Home, socket_path, user_home
from burnd.recording.crash_guard import record_crashes
from burnd.recording.pipeline import Pipeline, open_pipeline
from burnd.recording.retention import Cleanup, Retention
from burnd.server.listener import Listener
from burnd.server.methods import METHODS
from burnd.server.metrics import Metrics
from burnd.server.service import Service
from burnd.settings.config import Settings
from burnd.tasks import BackgroundTask, backoff, sleep_until_tick
from burnd.totals.child import PassProcess
from burnd.totals.early import EarlyTotals, LogPass

T = TypeVar("T")
log = structlog.get_logger()
LAST_ANSWERS_S = 0.5
STOP_S = 10.0
EXIT_STUCK = 1
_EXTEND_S = 30.0
_NOTIFY_EVERY_S = 5.0
_PRICES_S = 30.0
_SETTINGS_S = 5.0


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
    # for a task that hangs; as safe as kill -9
    exit_timer = threading.Timer(STOP_S, os._exit, (EXIT_STUCK,))
    exit_timer.daemon = True
    try:
        notifier = Notifier(environ)
        service = Service(home, settings, socket=str(path), environ=environ, check_home=lock.check)
        listener = Listener(path, service, METHODS, adopted=adopt_sockets(environ, str(path)))
        try:
            async with anyio.create_task_group() as listening:
                # first and last, for signals during start and stop
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
        delays = backoff()
        while not await spool.try_drain():  # noqa: ASYNC110 - first: it may set a session's content mode to off
            await anyio.sleep(next(delays))
        for name in sources:
            service.roots[name] = await _when_possible(service, partial(announced_roots, pipeline.index, name))
        service.sources = {name: _supervised(service, pipeline, name, make) for name, make in sources.items()}
        service.open(pipeline, spool)
        service.background = _background_tasks(service)
        roots = {name: list(some) for name, some in service.roots.items()}
        log_settings = LogSettings(service.settings, service.environ, str(user_home(service.environ)), roots)
        log_pass = LogPass(service.home, log_settings, list(service.sources), pass_process)
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
    """Recording depends on none of them."""
    pipeline = service.pipeline
    retention = Retention(pipeline, lambda: service.settings.retention_ms, service.notices)
    address = service.settings.metrics_address
    return [
        *([BackgroundTask("metrics", Metrics(service, address).run)] if address else []),
        BackgroundTask("reading the spool", service.spool.run),
        BackgroundTask("search", service.search_indexer.run),
        BackgroundTask("attribution", service.explainer.run),
        BackgroundTask("retention", retention.run),
        BackgroundTask("emptying write-ahead logs", Cleanup(pipeline).run),
        BackgroundTask("recording readings of limits", service.quotas.run),
        BackgroundTask("noticing lost logs", service.lost_logs.run),
        BackgroundTask("following prices", partial(_follow_prices, service)),
        BackgroundTask("following settings", partial(_follow_settings, service)),
        BackgroundTask("watching budgets", partial(_watch_budgets, service)),
    ]


async def _follow_prices(service: Service) -> None:
    """Rebuilds sums when the user's prices have other context sizes."""
    while True:
        with contextlib.suppress(NotNow):  # reports then read more turns one by one
            await service.pipeline.adopt_prices(service.prices.table)
        await sleep_until_tick(_PRICES_S)


async def _follow_settings(service: Service) -> None:
    """For the setting that the pipeline stores; others are read where they are used."""
    while True:
        service.pipeline.disk.reserve = service.settings.reserve
        await sleep_until_tick(_SETTINGS_S)


async def _watch_budgets(service: Service) -> None:
    while True:
        settings = service.settings
        async with anyio.create_task_group() as watching:
            if settings.budgets:
                watching.start_soon(_watch, service, settings)
            watched = (settings.budgets, settings.budget_command)
            while (service.settings.budgets, service.settings.budget_command) == watched:
                await sleep_until_tick(_SETTINGS_S)
            watching.cancel_scope.cancel()


async def _watch(service: Service, settings: Settings) -> None:
    watch = BudgetWatch(
        service.home.crossings,
        settings.budgets,
        settings.budget_command,
        look=service.ask,
        announce=lambda budget: service.feed.announce({"budget": budget}),
        notices=service.notices,
    )
    with service.feed.following(lambda _turn: True) as follower:
        await watch.run(follower.take)


async def _when_possible(service: Service, work: Callable[[], Awaitable[T]]) -> T:
    """Retries while the disk is full or the index damaged."""
    delays = backoff()
    while True:
        try:
            return await work()
        except (NotNow, IndexDamaged) as error:
            log.warning("daemon.waiting", reason=str(error))
            service.waiting(error.what)
        await anyio.sleep(next(delays))


@contextlib.asynccontextmanager
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
    """Raises HomeError for wrong permissions, since waiting would hide them."""
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
    """SIGHUP is ignored under nohup."""
    signals = [signal.SIGTERM, signal.SIGINT]
    return signals if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [*signals, signal.SIGHUP]


async def _repair_index(pipeline: Pipeline) -> None:
    """For readers that find it damaged; writers rebuild it themselves."""
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


# systemd: readiness, watchdog and passed sockets

FIRST_FD = 3
_CHECKS_PER_TIMEOUT = 4  # one missed check does not restart the daemon
_PROBE = b'{"jsonrpc":"2.0","id":0,"method":"status"}\n'


class Notifier:
    def __init__(self, environ: MutableMapping[str, str]) -> None:
        name = environ.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name if name.startswith("/") else None
        microseconds, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        is_watched = microseconds.isdecimal() and pid in ("", str(os.getpid()))
        self.watchdog_s = int(microseconds) / 1e6 or None if is_watched else None  # timeout in seconds

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def starting(self, status: str, seconds: float) -> None:
        """Asks for more time."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}\nSTATUS={_one_line(status)}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(message.encode(), self._address)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def adopt_sockets(environ: MutableMapping[str, str], path: str) -> list[socket.socket]:
    """Listening sockets at `path` from systemd. Removes its variables: child processes must not get them."""
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if not pid and not count:
        return []
    if pid != str(os.getpid()):
        log.warning("socket.not_adopted", reason="LISTEN_PID is not ours")
        return []
    if not count.isdecimal() or len(count) > 4:
        log.warning("socket.not_adopted", reason="LISTEN_FDS is not a number")
        return []
    adopted = []
    for fd in range(FIRST_FD, FIRST_FD + int(count)):
        if (reason := _objection(fd, path)) is not None:
            log.warning("socket.not_adopted", fd=fd, reason=reason)
            continue
        os.set_inheritable(fd, False)
        adopted.append(socket.socket(fileno=fd))
    return adopted


def _objection(fd: int, path: str) -> str | None:
    """Why a descriptor is not our listening socket, or None."""
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return "not a socket"
        with socket.socket(fileno=os.dup(fd)) as sock:
            if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
                return "not a unix stream socket"
            if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return "not listening"
            at = sock.getsockname()
    except OSError as error:
        return os.strerror(error.errno or 0)
    is_named = bool(at) and isinstance(at, str)  # neither unnamed nor in the abstract namespace
    return None if is_named and os.path.realpath(at) == os.path.realpath(path) else "listening at another path"


class Watchdog:
    def __init__(self, service: Service, notifier: Notifier) -> None:
        self._service = service
        self._notifier = notifier
        self._beats: int | None = None

    async def run(self) -> None:
        timeout = self._notifier.watchdog_s
        if timeout is None:
            return
        while True:
            if self._is_pipeline_working() and await self._does_server_answer(timeout / _CHECKS_PER_TIMEOUT):
                self._notifier.alive()
            else:
                log.error("daemon.stuck")
            await anyio.sleep(timeout / _CHECKS_PER_TIMEOUT)

    def _is_pipeline_working(self) -> bool:
        if not self._service.is_open or not self._service.pipeline.writing:
            self._beats = None
            return True
        before, self._beats = self._beats, self._service.pipeline.status.heartbeat
        return before != self._beats

    async def _does_server_answer(self, seconds: float) -> bool:
        """An error such as "too many connections" counts as an answer."""
        try:
            with anyio.fail_after(seconds):
                async with await anyio.connect_unix(self._service.socket) as stream:
                    await stream.send(_PROBE)
                    return bool(await stream.receive())
        except (OSError, TimeoutError, anyio.BrokenResourceError, anyio.EndOfStream):
            return False
