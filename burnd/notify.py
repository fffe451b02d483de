"""What a service manager and the daemon tell each other: how it is, on the way out; sockets, on the way in.

Without a service manager all of this is silent. It does not import systemd's library: the protocol is a datagram.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import MutableMapping

import structlog

log = structlog.get_logger()
FIRST_FD = 3


class Notifier:
    """Tells the service manager how the daemon is; nobody hears it where there is none."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = _address(environ.pop("NOTIFY_SOCKET", ""))
        self.watchdog_s = _watchdog(environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", ""))

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={_one_line(status)}")

    def starting(self, status: str, still_s: float) -> None:
        """Not ready yet, but getting on: asks for so much more time."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(still_s * 1e6)}\nSTATUS={_one_line(status)}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        # Not to be waited for: a manager that does not listen must not hold up the daemon.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(message.encode(), self._address)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _address(name: str) -> str | None:
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else None


def _watchdog(microseconds: str, pid: str) -> float | None:
    """Within how many seconds a sign of life is expected; None when nobody expects one of this process."""
    if not microseconds.isdecimal() or int(microseconds) == 0:
        return None
    return int(microseconds) / 1e6 if pid in ("", str(os.getpid())) else None


def adopt_sockets(environ: MutableMapping[str, str], path: str) -> list[socket.socket]:
    """The listening sockets at `path` that the service manager opened for this process. Others are not touched.

    The variables are taken out of the environment, so that no child process believes they are meant for it.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if not pid and not count:
        return []
    if pid != str(os.getpid()):
        log.warning("socket.not_adopted", reason="LISTEN_PID is not ours")
        return []
    if not count.isdecimal() or len(count) > 4:
        log.warning("socket.not_adopted", reason="LISTEN_FDS is no number")
        return []
    adopted = (_adopt(fd, path) for fd in range(FIRST_FD, FIRST_FD + int(count)))
    return [found for found in adopted if found is not None]


def _adopt(fd: int, path: str) -> socket.socket | None:
    if (reason := _objection(fd, path)) is not None:
        log.warning("socket.not_adopted", fd=fd, reason=reason)
        return None
    os.set_inheritable(fd, False)
    return socket.socket(fileno=fd)


def _objection(fd: int, path: str) -> str | None:
    """Why a descriptor is not our listening socket, or None."""
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return "it is no socket"
        with socket.socket(fileno=os.dup(fd)) as found:
            if found.family != socket.AF_UNIX or found.type != socket.SOCK_STREAM:
                return "it is no unix stream socket"
            if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return "it does not listen"
            at = found.getsockname()
    except OSError as error:
        return os.strerror(error.errno or 0)
    return None if _same_place(at, path) else "it listens at another path"


def _same_place(at: str | bytes, path: str) -> bool:
    if not at or isinstance(at, bytes):
        return False  # unnamed, or a name in the abstract namespace
    return at == path or os.path.realpath(at) == os.path.realpath(path)
