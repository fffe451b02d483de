"""systemd's protocol: readiness, watchdog and passed sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import MutableMapping

import anyio
import structlog

from burnd.server.service import Service

log = structlog.get_logger()
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
        """Asks for this much more time."""
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
    """The listening sockets at `path` that the service manager opened for this process.

    Removes the variables from the environment: they are not meant for child processes.
    """
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
        before, self._beats = self._beats, self._service.pipeline.status.beats
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
