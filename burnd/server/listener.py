"""The listening socket: binds it privately, checks the user of each client, limits their number."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.abc
import anyio.lowlevel
import structlog

from burnd import protocol, tasks
from burnd.errors import HomeBusy, HomeError, SocketTaken, SyncFailed
from burnd.server import rpc
from burnd.server.connection import Connection
from burnd.server.method import AnyMethod
from burnd.server.service import Service
from burnd.server.stream import Patience, Stream

log = structlog.get_logger()

BACKLOG = 1024  # when this is full, a client that does not block is refused
LOOK_EVERY_S = 30.0
PAUSE_S = 1.0
LARGE_AT_ONCE = 2
_ACCEPTS_PER_STEP = 16
_LONGEST_PATH = 103  # bytes, on macOS; Linux allows four more
_PRIVATE = 0o600
_NO_FILE = (-1, -1)  # no file's identity, and not None
_NOT_A_SOCKET = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP}
# macOS and the BSDs: <sys/un.h>, which Python does not export.
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
_XUCRED_BYTES = 76

Identity = tuple[int, int]  # device and inode


class Peer(NamedTuple):
    """`pid` is 0 if unknown."""

    uid: int
    pid: int


def peer_of(connection: socket.socket) -> Peer:
    """Raises OSError if the kernel does not know the peer."""
    if sys.platform == "linux":
        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return Peer(uid, pid)
    _, uid = struct.unpack_from("=II", connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES))
    try:
        pid = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
    except OSError:
        pid = 0
    return Peer(uid, pid)


def is_allowed(peer: Peer, *, own_uid: int, allows_root: bool) -> bool:
    return peer.uid == own_uid or (allows_root and peer.uid == 0)


def bind(path: Path) -> socket.socket:
    """Listens at `path`, mode 0600. The caller must own the home's lock.

    Replaces a stale socket. Raises HomeBusy if a process listens at it, and SocketTaken if anything else is there.
    """
    check_folder(path)
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The umask makes the socket private before a client can connect.
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        if stat.S_IMODE(os.lstat(path).st_mode) != _PRIVATE:
            raise SocketTaken("cannot be made private there", str(path), "choose a local disk with BURND_SOCKET")
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise SocketTaken(f"the socket cannot be made: {os.strerror(error.errno or 0)}", str(path)) from error
    except BaseException:
        listening.close()
        raise
    return listening


def check_folder(path: Path) -> None:
    """Raises SocketTaken."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise SocketTaken("is too long for a socket", str(path), "set BURND_SOCKET to a shorter path")
    folder = path.parent
    try:
        facts = os.stat(folder)
    except OSError as error:
        raise SocketTaken(os.strerror(error.errno or 0), str(folder), "the socket's folder must exist") from error
    if not stat.S_ISDIR(facts.st_mode):
        raise SocketTaken("is not a folder", str(folder), "set BURND_SOCKET to a path in a folder of yours")
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise SocketTaken("others may write in it", str(folder), "put the socket into a folder of yours, mode 0700")


def _remove_stale(path: Path) -> None:
    """Removes a socket of this user without a listener."""
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(facts.st_mode):
        raise SocketTaken("is there and is no socket", str(path), "move it away")
    if facts.st_uid != os.geteuid():
        raise SocketTaken("is a socket of another user", str(path), "set BURND_SOCKET to another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(str(path))
        if code != errno.ECONNREFUSED:
            raise HomeBusy(str(path), peer_of(probe).pid if code == 0 else None)
    os.unlink(path)


def _identity(path: Path) -> Identity | None:
    try:
        facts = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return facts.st_dev, facts.st_ino


class Listener:
    """Accepts clients until cancelled, at the service manager's socket if there is one.

    Binds its own socket again if the path vanishes or is replaced, as by a cleaner of old files.
    """

    def __init__(
        self,
        path: Path,
        service: Service,
        methods: Mapping[str, AnyMethod],
        *,
        adopted: list[socket.socket],
        patience: Patience | None = None,
    ) -> None:
        self._path = path
        self._service = service
        self._methods = methods
        self._patience = patience or Patience()
        self._large = anyio.CapacityLimiter(LARGE_AT_ONCE)
        self._adopted = adopted
        self._own: socket.socket | None = None
        self._own_identity: Identity | None = None
        for listening in adopted:
            listening.setblocking(False)
        if not adopted:
            self._bind()
        self._last_identity = _identity(path) or _NO_FILE

    async def serve(self) -> None:
        async with anyio.create_task_group() as clients:
            for listening in self._adopted:
                clients.start_soon(self._accept, listening, clients, anyio.CancelScope())
            while True:
                scope = anyio.CancelScope()
                if self._own is not None:
                    clients.start_soon(self._accept, self._own, clients, scope)
                while _identity(self._path) == self._last_identity:
                    await tasks.sleep_until_tick(LOOK_EVERY_S)
                scope.cancel()
                self._bind_again()

    def close(self) -> None:
        """Removes its own socket, unless the path has been replaced."""
        for listening in self._adopted:
            listening.close()
        if self._own is not None:
            self._own.close()
        if self._own_identity is not None and _identity(self._path) == self._own_identity:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def _bind(self) -> None:
        self._own = bind(self._path)
        self._own_identity = _identity(self._path)

    def _bind_again(self) -> None:
        self._service.check_home()
        notice = "another file is at the socket's path"
        old = self._own
        try:
            self._bind()
        except HomeError as error:
            log.error("socket.taken", reason=error.what)
            self._service.notices[notice] = f"move it away: {self._path}"
        else:
            self._service.notices.pop(notice, None)
            log.warning("socket.bound_again")
            if old is not None:
                old.close()
        self._last_identity = _identity(self._path) or _NO_FILE

    async def _accept(self, listening: socket.socket, clients: anyio.abc.TaskGroup, scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                await anyio.wait_readable(listening)
                for _ in range(_ACCEPTS_PER_STEP):
                    try:
                        connection, _ = listening.accept()
                    except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                        break
                    except OSError as error:
                        if error.errno is None or error.errno in _NOT_A_SOCKET:
                            raise
                        # without a free descriptor the connection stays in the backlog
                        log.warning("socket.not_accepted", reason=os.strerror(error.errno))
                        await anyio.sleep(PAUSE_S)
                        break
                    self._admit(connection, clients)
                await anyio.lowlevel.checkpoint()

    def _admit(self, connection: socket.socket, clients: anyio.abc.TaskGroup) -> None:
        """Closes the connection if it is another user's or there are too many."""
        counts = self._service.clients
        try:
            peer = peer_of(connection)
        except OSError:
            counts.refused += 1
            connection.close()
            return
        allows_root = self._service.settings.values["socket.allow_root"]
        if not is_allowed(peer, own_uid=os.geteuid(), allows_root=allows_root):
            log.warning("client.refused", uid=peer.uid)
            counts.refused += 1
            connection.close()
        elif counts.connected >= protocol.CONNECTIONS:
            counts.turned_away += 1
            busy = rpc.Fault(protocol.BUSY, "too many clients at once", "try again in a moment")
            with contextlib.suppress(OSError), connection:
                connection.setblocking(False)
                connection.send(rpc.error(rpc.NO_ID, busy))
        else:
            counts.connected += 1
            clients.start_soon(self._serve, connection)

    async def _serve(self, connection: socket.socket) -> None:
        stream = Stream(connection, self._patience, self._large)
        try:
            await Connection(stream, self._service, self._methods).serve()
        except SyncFailed:
            raise  # the ledger may be incomplete
        except Exception as error:  # noqa: BLE001 - a client must never end the daemon
            log.error("client.failed", error=type(error).__name__)
        finally:
            stream.close()
            self._service.clients.connected -= 1
