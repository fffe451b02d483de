"""Accepts clients at the socket: only our own user's, only so many, and for as long as the daemon lives."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel
import structlog

from burnd import protocol, tasks
from burnd.errors import HomeError, SyncFailed
from burnd.server import place, rpc
from burnd.server.connection import Connection
from burnd.server.method import AnyMethod
from burnd.server.peers import is_welcome, peer_of
from burnd.server.service import Service
from burnd.server.stream import Patience, Stream

log = structlog.get_logger()

LOOK_EVERY_S = 30.0
PAUSE_S = 1.0
LARGE_AT_ONCE = 2
_AT_ONCE = 16  # connections taken before others have their turn
_NOWHERE = (-1, -1)  # unlike any file's identity, and unlike that of none
_NO_SOCKET = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP}


class Listener:
    """The socket and those who come to it. A socket that the service manager opened is used, and left when we go."""

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
        self._ours: place.Identity | None = None  # of the socket that we put there ourselves
        for listening in adopted:
            listening.setblocking(False)
        if not adopted:
            self._bind()
        self._standing = place.identity(path) or _NOWHERE

    async def serve(self) -> None:
        """Accepts until cancelled."""
        async with anyio.create_task_group() as tasks:
            for listening in self._adopted:
                tasks.start_soon(self._accept, listening, tasks)
            while True:
                scope = anyio.CancelScope()
                tasks.start_soon(self._accept_own, scope, tasks)
                await self._until_lost()
                scope.cancel()
                self._bind_again()

    def close(self) -> None:
        """Takes the socket away, if we made it and it is still ours."""
        for listening in self._adopted:
            listening.close()
        if self._own is not None:
            self._own.close()
        place.remove(self._path, self._ours)

    def _bind(self) -> None:
        self._own = place.bind(self._path)
        self._ours = place.identity(self._path)

    async def _until_lost(self) -> None:
        """Returns when the socket's name is not there any more, or is another's: a cleaner of old files may do that."""
        while True:
            await tasks.sleep_until_tick(LOOK_EVERY_S)
            if place.identity(self._path) != self._standing:
                return

    def _bind_again(self) -> None:
        self._service.check_home()
        notice = "something else stands at the socket's path"
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
        self._standing = place.identity(self._path) or _NOWHERE

    async def _accept_own(self, scope: anyio.CancelScope, tasks: anyio.abc.TaskGroup) -> None:
        with scope:
            if self._own is not None:
                await self._accept(self._own, tasks)

    async def _accept(self, listening: socket.socket, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            await anyio.wait_readable(listening)
            for _ in range(_AT_ONCE):
                try:
                    connection, _ = listening.accept()
                except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                    break
                except OSError as error:
                    await self._pause(error)
                    break
                self._welcome(connection, tasks)
            await anyio.lowlevel.checkpoint()

    async def _pause(self, error: OSError) -> None:
        """Without a descriptor to spare the connection stays waiting: accepting again at once would only spin.

        So it is with whatever else the kernel may say of one connection. A socket that is none any more is the end.
        """
        if error.errno is None or error.errno in _NO_SOCKET:
            raise error
        log.warning("socket.not_accepted", reason=os.strerror(error.errno))
        await anyio.sleep(PAUSE_S)

    def _welcome(self, connection: socket.socket, tasks: anyio.abc.TaskGroup) -> None:
        visitors = self._service.visitors
        if not self._is_welcome(connection):
            visitors.refused += 1
            connection.close()
        elif visitors.present >= protocol.CONNECTIONS:
            visitors.turned_away += 1
            _turn_away(connection)
        else:
            visitors.present += 1
            tasks.start_soon(self._serve, connection)

    def _is_welcome(self, connection: socket.socket) -> bool:
        try:
            peer = peer_of(connection)
        except OSError:
            return False
        if is_welcome(peer, own_uid=os.geteuid(), root_too=self._service.settings.allows_root):
            return True
        log.warning("client.refused", uid=peer.uid)
        return False

    async def _serve(self, connection: socket.socket) -> None:
        stream = Stream(connection, self._patience, self._large)
        try:
            await Connection(stream, self._service, self._methods).serve()
        except SyncFailed:
            raise  # nothing may go on from here
        except Exception as error:  # noqa: BLE001 - one client must never end the daemon
            log.error("client.failed", error=type(error).__name__)
        finally:
            stream.close()
            self._service.visitors.present -= 1


def _turn_away(connection: socket.socket) -> None:
    busy = rpc.Fault(protocol.BUSY, "too many clients at once", "try again in a moment")
    with contextlib.suppress(OSError), connection:
        connection.setblocking(False)
        connection.send(rpc.error(rpc.NO_ID, busy))
