"""Limits of a client in size and time, and isolation between clients."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.to_thread
import pytest

from burnd import protocol
from burnd.server.stream import Gone, Patience, Stream, TooLarge, TooSlow
from tests.server.wire import Daemon, noise, until

QUICK = Patience(idle=0.3, deliver=0.2, take=0.3)


@asynccontextmanager
async def pair(patience: Patience = QUICK) -> AsyncIterator[tuple[Stream, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    stream = Stream(ours, patience, anyio.CapacityLimiter(1))
    try:
        yield stream, theirs
    finally:
        stream.close()
        theirs.close()


async def test_lines_come_out_as_they_went_in() -> None:
    """In whatever pieces they arrive."""
    async with pair(Patience(idle=60, deliver=60, take=60)) as (stream, client):
        client.send(b"one\ntwo\nthr")
        assert await stream.line() == b"one"
        assert await stream.line() == b"two"
        client.send(b"ee\n")
        assert await stream.line() == b"three"
        client.close()
        assert await stream.line() is None


@pytest.mark.timed
async def test_an_idle_client_is_disconnected() -> None:
    """F67: idle connections are closed."""
    async with pair() as (stream, _client):
        begun = time.monotonic()
        assert await stream.line() is None
        assert 0.25 < time.monotonic() - begun < 3 * noise()


async def test_a_request_that_drips_in_is_given_up() -> None:
    """F67: the time runs from its first byte, however steadily the others follow."""
    async with pair() as (stream, client), anyio.create_task_group() as tasks:

        async def drip() -> None:
            while True:
                client.send(b"x")
                await anyio.sleep(0.02)

        tasks.start_soon(drip)
        with pytest.raises(TooSlow):
            await stream.line()
        tasks.cancel_scope.cancel()


async def test_an_answer_that_is_not_read_is_dropped() -> None:
    """F67: and the stream is of no use after it, since half a line is out."""
    async with pair() as (stream, _client):
        with pytest.raises(Gone):
            await stream.send(b"x" * (8 << 20))
        with pytest.raises(Gone):
            await stream.send(b"more\n")


async def test_the_limit_holds_while_reading() -> None:
    """F66: a line one byte too long is refused, one of exactly the limit is taken."""
    for extra, fits in ((0, True), (1, False)):
        async with pair(Patience(deliver=60)) as (stream, client), anyio.create_task_group() as tasks:
            data = b"x" * (protocol.REQUEST_BYTES + extra) + b"\n"
            client.settimeout(60)
            tasks.start_soon(send_in_thread, client, data)
            if fits:
                assert await stream.line() == data[:-1]
            else:
                with pytest.raises(TooLarge):
                    await stream.line()
                stream.close()


async def test_appending_to_a_session_may_be_larger() -> None:
    """Only if the method's name is in the first KiB, and only up to its own limit."""
    begin = b'{"jsonrpc":"2.0","id":1,"method":"sessions.append","params":{"text":"'
    for size, fits in ((5 << 20, True), (protocol.APPEND_BYTES + 1, False)):
        async with pair(Patience(deliver=60)) as (stream, client), anyio.create_task_group() as tasks:
            client.settimeout(60)

            tasks.start_soon(send_in_thread, client, begin + b"x" * size + b'"}}\n')
            if fits:
                line = await stream.line()
                assert line is not None
                assert len(line) > size
            else:
                with pytest.raises(TooLarge):
                    await stream.line()
                stream.close()


async def send_in_thread(client: socket.socket, data: bytes) -> None:
    """All of it, or as much as the other end takes."""
    with suppress(OSError):
        await anyio.to_thread.run_sync(client.sendall, data)


async def test_a_disconnect_differs_from_a_half_close() -> None:
    """F70: a client that closed is gone; one that only ended its own side is waiting for its answer."""
    async with pair() as (stream, client):
        client.shutdown(socket.SHUT_WR)
        with anyio.move_on_after(0.8) as waited:
            await stream.gone()
        assert waited.cancelled_caught
        client.close()
        with anyio.fail_after(60):
            await stream.gone()


async def test_leaving_is_seen_behind_what_was_sent() -> None:
    """F70: a disconnect is noticed even after unread requests."""
    async with pair() as (stream, client):
        client.send(b'{"jsonrpc"')
        with anyio.move_on_after(0.5) as waited:
            await stream.gone()
        assert waited.cancelled_caught
        client.close()
        with anyio.fail_after(60):
            await stream.gone()


def test_an_endless_request_costs_no_memory(daemon: Daemon) -> None:
    """F66: 1 GB without a newline is refused at 1 MiB, and the daemon is as large as before."""
    with daemon.wire() as wire:
        wire.call("status")
    before = daemon.rss()
    chunk = b"x" * (1 << 20)
    with daemon.wire() as wire:
        sent = 0
        try:
            while sent < 1 << 30:
                wire.send(chunk)
                sent += len(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = wire.line()
        assert answer is not None
        assert answer["error"]["data"]["name"] == "too_large"
        assert wire.line() is None
    assert sent < 8 << 20
    assert daemon.rss() - before < 5 << 20


@pytest.mark.timed
def test_endless_newlines_are_not_everything_the_daemon_does(daemon: Daemon) -> None:
    """F66: a client that sends nothing but newlines does not keep others from their answers."""
    with daemon.wire() as noisy, daemon.wire() as other:
        noisy.socket.setblocking(False)
        slowest = 0.0
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            with suppress(BlockingIOError):
                noisy.socket.send(b"\n" * 65536)
            begun = time.monotonic()
            other.call("config.show")
            slowest = max(slowest, time.monotonic() - begun)
        assert slowest < 1 * noise()


@pytest.mark.timed
def test_a_request_not_ended_in_time_is_refused(daemon: Daemon) -> None:
    """F67: five seconds for a request, then an error and the end."""
    with daemon.wire() as wire:
        wire.send(b'{"jsonrpc":')
        begun = time.monotonic()
        answer = wire.line()
        assert answer is not None
        assert answer["error"]["data"]["name"] == "too_long"
        assert 4 < time.monotonic() - begun < 9 * noise()
        assert wire.line() is None


@pytest.mark.slow
def test_who_asks_and_never_reads_is_dropped(daemon: Daemon) -> None:
    """F67: a client that sends on without taking its answers is let go, and its place is free again."""
    with daemon.wire() as wire, daemon.wire() as other:
        wire.socket.setblocking(False)
        dropped = False
        deadline = time.monotonic() + 30
        while not dropped and time.monotonic() < deadline:
            try:
                wire.socket.send(b'{"jsonrpc":"2.0","id":1,"method":"config.show"}\n' * 100)
            except BlockingIOError:
                time.sleep(0.1)
            except (BrokenPipeError, ConnectionResetError):
                dropped = True
        assert dropped
        until(lambda: other.call("status")["daemon"]["clients"] == 1)
