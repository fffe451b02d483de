"""Service manager protocol: readiness, watchdog pings, and sockets passed to the daemon."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from burnd.daemon import lifecycle
from burnd.daemon.lifecycle import Notifier, Watchdog, adopt_sockets
from burnd.paths import Home
from burnd.server.service import Service
from tests import warm
from tests.conftest import Opened
from tests.faults import tally
from tests.faults.watched import Watched, answers, whole
from tests.server.wire import Daemon, Wire, environment, running, until


class Manager:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self.heard: list[dict[str, str]] = []

    def listen(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                message = self._socket.recv(4096).decode()
            except TimeoutError:
                return
            self.heard.append(dict(line.split("=", 1) for line in message.splitlines()))

    def until(self, key: str, seconds: float = 60.0) -> dict[str, str]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for message in self.heard:
                if key in message:
                    return message
            self.listen(0.05)
        raise AssertionError(f"never heard {key}: {self.heard}")

    def pings(self) -> int:
        """Number of watchdog pings since the last call."""
        self.listen(0.01)
        count = sum("WATCHDOG" in message for message in self.heard)
        self.heard.clear()
        return count

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(home: Home) -> Iterator[Manager]:
    manager = Manager(home.root.parent / "notify")
    yield manager
    manager.close()


def test_readiness_and_stopping_are_notified(home: Home, manager: Manager) -> None:
    """READY only when everything can be asked; then STOPPING; with words for `systemctl status`."""
    with running(home, ready=False, NOTIFY_SOCKET=str(manager.path)) as daemon:
        first = manager.until("READY")
        assert first["READY"] == "1"
        assert "claude-code" in first["STATUS"]
        with daemon.wire() as wire:
            assert wire.call("status")["daemon"]["state"] == "ready"
        assert daemon.terminate() == 0
        assert manager.until("STOPPING")["STOPPING"] == "1"


def test_a_long_start_asks_for_time(home: Home, manager: Manager) -> None:
    """EXTEND_TIMEOUT_USEC during a rebuild of the index."""
    with running(home, ready=False, NOTIFY_SOCKET=str(manager.path)):
        assert int(manager.until("EXTEND_TIMEOUT_USEC")["EXTEND_TIMEOUT_USEC"]) > 1_000_000


def test_an_abstract_address_is_understood(home: Home) -> None:
    """NOTIFY_SOCKET may begin with an @."""
    name = f"@burnd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind("\0" + name[1:])
        other.settimeout(60)
        Notifier({"NOTIFY_SOCKET": name}).ready("two\nlines")
        assert other.recv(100) == b"READY=1\nSTATUS=two lines"


def test_it_runs_without_a_service_manager() -> None:
    """Without a manager, or with one that is gone or odd, nothing happens."""
    for value in ("", "/nowhere/at/all", "relative", "vsock:2:1", "x" * 500):
        Notifier({"NOTIFY_SOCKET": value}).alive()


@pytest.mark.parametrize(
    ("environ", "within"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_when_signs_of_life_are_expected(environ: dict[str, str], within: float | None) -> None:
    """Only of this process; and the variables are taken away from its children."""
    assert Notifier(environ).watchdog_s == within
    assert environ == {}


@pytest.mark.parametrize("what", ["block", pytest.param("hold", marks=pytest.mark.slow)])
def test_signs_of_life_stop_when_the_loop_hangs(home: Home, manager: Manager, what: str) -> None:
    """F76: pings come steadily, stop while something blocks the loop or the pipeline, and come again after it."""
    blocked = home.root.parent / "blocked"
    surroundings = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "1000000", "BLOCKED": str(blocked)}
    daemon = Daemon(home, script="tests.faults.blockable", **surroundings)
    try:
        for _ in range(2):
            manager.until("WATCHDOG")
            manager.pings()
        with daemon.wire() as wire:
            wire.request(what)
            until(blocked.exists)
            if what == "hold":  # the first look cannot know yet that nothing gets on
                until(lambda: "daemon.stuck" in daemon.log.read_text(), why=daemon.why)
            manager.pings()  # what was sent before
            manager.listen(1.3)
            assert manager.pings() == 0
            blocked.unlink()
            for _ in range(2):
                manager.until("WATCHDOG")
                manager.pings()
    finally:
        daemon.kill()


class Heard(Notifier):
    """Counts its signs of life."""

    def __init__(self) -> None:
        super().__init__({"WATCHDOG_USEC": "200000"})
        self.signs = 0

    def alive(self) -> None:
        self.signs += 1


async def test_no_sign_of_life_from_a_pipeline_that_is_stuck(opened: Opened, home: Home) -> None:
    """F76: the loop turns and the server answers, but nothing gets written: that is no life."""
    pipeline = await opened()
    notifier = Heard()
    service = Service(home, None, socket="", environ={})  # type: ignore[arg-type]
    service.open(pipeline, SimpleNamespace())  # type: ignore[arg-type]
    health = Watchdog(service, notifier)
    health._does_server_answer = _yes  # type: ignore[method-assign, assignment]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(health.run)
        await _until(lambda: notifier.signs >= 3)
        async with pipeline._lock:
            await anyio.sleep(0.12)
            before = notifier.signs
            await anyio.sleep(0.4)
            assert notifier.signs == before

            def gives_a_sign() -> bool:
                pipeline.status.heartbeat += 1  # slow, but it gets on
                return notifier.signs > before

            await _until(gives_a_sign)
        tasks.cancel_scope.cancel()


async def test_no_sign_of_life_from_a_server_that_does_not_answer(opened: Opened, home: Home) -> None:
    """F76: no listener at the socket, or one that never answers."""
    await opened()
    notifier = Heard()
    path = home.root / "silent.sock"
    service = Service(home, None, socket=str(path), environ={})  # type: ignore[arg-type]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Watchdog(service, notifier).run)
        await anyio.sleep(0.2)
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(path))
            silent.listen()
            await anyio.sleep(0.3)
        tasks.cancel_scope.cancel()
    assert notifier.signs == 0


async def _yes(_within: float) -> bool:
    return True


async def _until(check: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not check():  # noqa: ASYNC110 - a test may look
            await anyio.sleep(0.01)


@contextmanager
def listening(path: Path, kind: int = socket.SOCK_STREAM, listen: bool = True) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, kind) as made:
        made.bind(str(path))
        if listen and kind == socket.SOCK_STREAM:
            made.listen()
        yield made


def adopted(path: Path, fds: list[int], monkeypatch: pytest.MonkeyPatch, **environ: str) -> list[socket.socket]:
    """Descriptors that would be adopted if these had been passed."""
    first = min(fds, default=3)
    monkeypatch.setattr(lifecycle, "FIRST_FD", first)
    given = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": "burnd", **environ}
    found = adopt_sockets(given, str(path))
    assert given == {}, "children must not see the variables"
    return found


def test_a_socket_that_is_ours_is_adopted(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """F85: unix, stream, listening, at the path we would listen at; not passed on to children."""
    home.root.mkdir()
    path = home.root / "burnd.sock"
    with listening(path) as made:
        os.set_inheritable(made.fileno(), True)
        (found,) = adopted(path, [made.fileno()], monkeypatch)
        assert found.getsockname() == str(path)
        assert not os.get_inheritable(found.fileno())
        found.detach()


@pytest.mark.parametrize(
    "environ",
    [
        {"LISTEN_PID": "1"},
        {"LISTEN_PID": ""},
        {"LISTEN_PID": "x"},
        {"LISTEN_FDS": "0"},
        {"LISTEN_FDS": ""},
        {"LISTEN_FDS": "-1"},
        {"LISTEN_FDS": "many"},
        {"LISTEN_FDS": "99999999999"},
    ],
    ids=str,
)
def test_odd_variables_adopt_nothing(home: Home, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """F85: with any values the daemon starts without adopted sockets."""
    home.root.mkdir()
    with listening(home.root / "s") as made:
        assert adopted(home.root / "s", [made.fileno()], monkeypatch, **environ) == []
        made.getsockname()


def test_odd_descriptors_are_not_adopted(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """F85: a file, a pipe, a closed number, a datagram, another path, one that does not listen, one on the network."""
    home.root.mkdir()
    path = home.root / "burnd.sock"
    with (
        (home.root / "file").open("wb") as file,
        listening(home.root / "other") as elsewhere,
        listening(home.root / "dgram", socket.SOCK_DGRAM) as datagram,
        listening(path, listen=False) as deaf,
        socket.socket(socket.AF_INET) as network,
        socket.socket(socket.AF_UNIX) as unnamed,
    ):
        network.bind(("127.0.0.1", 0))
        network.listen()
        for odd in (file, elsewhere, datagram, deaf, network, unnamed):
            assert adopted(path, [odd.fileno()], monkeypatch) == [], odd
            os.fstat(odd.fileno())  # it was not closed either
    assert adopted(path, [900], monkeypatch) == []


@pytest.mark.slow
@pytest.mark.parametrize("pid", ["os.getpid()", "1"])
def test_what_was_handed_over_wrongly_is_not_used(home: Home, pid: str) -> None:
    """F85: a file instead of a socket, or sockets of another service: the daemon opens its own socket, logs it, and
    leaves the passed ones unchanged."""
    home.root.mkdir(mode=0o700)
    file = home.root.parent / "file"
    file.write_bytes(b"mine")
    script = (
        "import os, sys\n"
        "os.dup2(os.open(sys.argv[1], os.O_RDWR), 3); os.set_inheritable(3, True)\n"
        f"os.environ.update(LISTEN_PID=str({pid}), LISTEN_FDS='1')\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'burnd', 'run'])\n"
    )
    command = [sys.executable, "-c", script, str(file)]
    started = warm.Popen(command, env=environment(home), stderr=subprocess.PIPE, text=True)
    try:
        until((home.root / "burnd.sock").exists)
        with Wire(home.root / "burnd.sock") as wire:
            assert wire.call("status")["daemon"]["pid"] == started.pid
            wire.call("shutdown")
        said = started.communicate(timeout=30)[1]
    finally:
        started.kill()
        started.wait()
    assert started.returncode == 0
    assert "socket.not_adopted" in said
    assert file.read_bytes() == b"mine"


def test_an_adopted_socket_is_used_and_left(home: Home) -> None:
    """F86: handed over as systemd does it; after the end its path is still there."""
    home.root.mkdir(mode=0o700)
    path = home.root / "burnd.sock"
    script = (
        "import os, sys\n"
        "os.dup2(int(sys.argv[1]), 3); os.set_inheritable(3, True)\n"
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'burnd', 'run'])\n"
    )
    with listening(path) as made:
        inode = path.lstat().st_ino
        with Wire(path) as early:  # who comes before the daemon does is answered when it is there
            fd = made.fileno()
            started = subprocess.Popen(
                [sys.executable, "-c", script, str(fd)], env=environment(home), pass_fds=[fd], stderr=subprocess.DEVNULL
            )
            try:
                assert early.call("status")["daemon"]["pid"] == started.pid
                until(lambda: early.call("status")["daemon"]["state"] == "ready")
                assert path.lstat().st_ino == inode
                early.call("shutdown")
                assert started.wait(30) == 0
            finally:
                started.kill()
                started.wait()
        assert path.lstat().st_ino == inode


@pytest.mark.slow
def test_a_long_prune_that_was_cut_short_is_ended_in_sight(home: Home, manager: Manager, tmp_path: Path) -> None:
    """F49, F76: a start that has much to drop asks for time and answers meanwhile, and ends what was begun."""
    with running(home) as daemon:
        watched = Watched(home, daemon)
        for n in range(30):
            watched.append(f"s{n}", whole(answers(f"s{n}", 0, 1, words="large " * 2000)))
        watched.flush()
        shutil.copytree(home.content, tmp_path / "before")
        for n in range(30):
            watched.call("content.forget", session=f"s{n}")
        daemon.kill()
    shutil.rmtree(home.content)
    (tmp_path / "before").rename(home.content)
    more: dict[str, Any] = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "2000000"}
    with running(home, ready=False, script="tests.faults.slow_to_drop", **more) as daemon:
        until(lambda: daemon.state() == "starting")
        longest = 0.0
        while daemon.state() == "starting":
            begun = time.monotonic()
            daemon.state()
            longest = max(longest, time.monotonic() - begun)
            manager.listen(0.1)
        assert longest < 2.0
        assert sum("EXTEND_TIMEOUT_USEC" in message for message in manager.heard) >= 2
        daemon.wait_until_ready()
        assert not list(home.content.glob("*.jsonl"))
        assert daemon.terminate() == 0
    tally.faults()
