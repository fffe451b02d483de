"""A client's socket as lines, with limits on size and time."""

from __future__ import annotations

import socket
from typing import NamedTuple

import anyio
import anyio.lowlevel

from burnd import protocol

CHUNK = 64 << 10
_LOOK_EVERY_S = 0.25


class Patience(NamedTuple):
    """Timeouts of a client, in seconds."""

    idle: float = 60.0  # from one request to the next
    deliver: float = 5.0  # from a request's first byte to its newline
    take: float = 10.0  # to take an answer


class Gone(Exception):
    """The client closed its end, or took too long to read."""


class TooLarge(Exception):
    pass


class TooSlow(Exception):
    pass


class Stream:
    """Reads on demand: a client that sends faster than it reads fills its own buffer.

    `large` limits the number of large requests, and so the memory for all clients.
    """

    def __init__(self, connection: socket.socket, patience: Patience, large: anyio.CapacityLimiter) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._patience = patience
        self._large = large
        self._buffer = bytearray()
        self._ended = False
        self._sending = anyio.Lock(fast_acquire=True)
        self._is_cut = False

    async def line(self) -> bytes | None:
        """Skips blank lines; None at the end."""
        while True:
            if not self._buffer:
                has_more = False
                with anyio.move_on_after(self._patience.idle):
                    has_more = await self._fill()
                if not has_more:
                    return None
            line = await self._whole_line()
            if line.strip():
                return line
            del self._buffer[: len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))]
            await anyio.lowlevel.checkpoint()  # lets other clients run

    async def send(self, data: bytes) -> None:
        """Raises Gone if the client does not read it."""
        async with self._sending:
            if self._is_cut:
                raise Gone  # half a line was sent
            self._is_cut = True
            view = memoryview(data)
            with anyio.move_on_after(self._patience.take):
                while view:
                    try:
                        view = view[self._socket.send(view) :]
                    except (BlockingIOError, InterruptedError):
                        await anyio.wait_writable(self._socket)
                    except OSError as error:
                        raise Gone from error
                self._is_cut = False
                return
        raise Gone

    async def gone(self) -> None:
        """Returns when the client has closed both directions.

        One that only shut down writing, as `socat` does, still waits for its answer.
        """
        await anyio.wait_readable(self._socket)
        while True:
            try:
                self._socket.send(b"")
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                return
            await anyio.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        self._socket.close()

    async def _whole_line(self) -> bytes:
        with anyio.move_on_after(self._patience.deliver):
            if (line := await self._up_to(protocol.REQUEST_BYTES)) is not None:
                return line
            if b'"sessions.append"' in self._buffer[:1024]:
                async with self._large:
                    if (line := await self._up_to(protocol.APPEND_BYTES)) is not None:
                        return line
            raise TooLarge
        raise TooSlow

    async def _up_to(self, limit: int) -> bytes | None:
        """None if the line is longer than the limit."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > limit:
                return None
            if self._ended or not await self._fill():
                end = len(self._buffer)  # the last line may lack its newline
                break
        if end > limit:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    async def _fill(self) -> bool:
        """False at the end."""
        while not self._ended:
            try:
                data = self._socket.recv(CHUNK)
            except (BlockingIOError, InterruptedError):
                await anyio.wait_readable(self._socket)
                continue
            except OSError as error:
                raise Gone from error
            self._buffer += data
            self._ended = not data
            return bool(data)
        return False
