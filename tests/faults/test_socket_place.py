"""The socket file: private, replaced when stale, never in the place of another file, restored when removed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from burnd.errors import HomeBusy, SocketTaken
from burnd.paths import Home
from burnd.server import listener
from tests import warm
from tests.server.wire import Daemon, environment, running, until


def start(home: Home, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "burnd", "run"]
    return warm.run(command, env=environment(home, **more), capture_output=True, text=True, timeout=120, check=False)


def test_the_socket_is_private_from_the_start(home: Home) -> None:
    """F64: mode 0600 under any umask, in a folder that is ours alone."""
    before = os.umask(0)
    try:
        with running(home) as daemon:
            assert stat.S_IMODE(daemon.socket.lstat().st_mode) == 0o600
            assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
    finally:
        os.umask(before)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_no_wider_mode_is_ever_there(home: Home, tmp_path: Path) -> None:
    """F64: the name appears with its final mode: bind under umask 0177, and no chmod follows."""
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-o", str(trace), "-e", "trace=umask,bind,chmod,fchmod,fchmodat"]
    traced = subprocess.Popen(
        [*command, sys.executable, "-m", "burnd", "run"], env=environment(home), stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: trace.exists() and "burnd.sock" in trace.read_text(errors="replace"))
        os.kill(int(home.lock.read_text()), signal.SIGTERM)
        traced.wait(60)
    finally:
        traced.kill()
        traced.wait()
    calls = trace.read_text(errors="replace").splitlines()
    bound = next(n for n, call in enumerate(calls) if "bind(" in call and "burnd.sock" in call)
    umasks = [call for call in calls[:bound] if "umask(" in call]
    assert "umask(0177)" in umasks[-1]
    assert not [call for call in calls if "chmod" in call and "burnd.sock" in call]


def test_a_stale_socket_is_replaced(home: Home) -> None:
    """F60: what a killed daemon left does not keep the next one from answering."""
    with running(home) as daemon:
        first = daemon.socket.lstat().st_ino
        daemon.kill()
        assert daemon.socket.lstat().st_ino == first
    with running(home) as daemon, daemon.wire() as wire:
        assert wire.call("status")["daemon"]["pid"] == daemon.process.pid


def test_the_socket_goes_with_the_daemon(home: Home) -> None:
    """After a good end nothing is left to connect to."""
    with running(home) as daemon:
        assert daemon.terminate() == 0
        assert not daemon.socket.exists()


_SELDOM = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("folder", "dangling link", "fifo")]


@pytest.mark.parametrize("kind", ["file", "link", *_SELDOM])
def test_anything_else_is_refused_and_survives(home: Home, kind: str) -> None:
    """F62: a regular file, a folder, a link or a pipe at the path stops the start, and stays as it is."""
    home.root.mkdir(mode=0o700)
    path, other = home.root / "burnd.sock", home.root / "other"
    other.write_bytes(b"mine")
    if kind == "file":
        path.write_bytes(b"mine")
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(other if kind == "link" else home.root / "nowhere")
    before = path.lstat()
    done = start(home)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"burnd: {path}: ")
    assert "Traceback" not in done.stderr
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert other.read_bytes() == b"mine"
    if kind == "file":
        assert path.read_bytes() == b"mine"


def test_a_link_to_a_stale_socket_is_refused(home: Home) -> None:
    """F62: what the link points to is not removed either."""
    home.root.mkdir(mode=0o700)
    stale = home.root / "stale.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(stale))
    (home.root / "burnd.sock").symlink_to(stale)
    assert start(home).returncode == 1
    assert stale.is_socket()


def test_a_live_socket_is_not_replaced(home: Home, tmp_path: Path) -> None:
    """F61: two homes may not share a socket; the second names the first and leaves it alone."""
    other = Home(home.root.parent / "other")
    with running(home) as daemon:
        inode = daemon.socket.lstat().st_ino
        done = start(other, BURND_SOCKET=str(daemon.socket))
        assert done.returncode == 5
        assert f"pid {daemon.process.pid}" in done.stderr
        assert daemon.socket.lstat().st_ino == inode
        daemon.wait_until_ready()


def test_a_full_backlog_is_no_stale_socket(tmp_path: Path, home: Home) -> None:
    """F60: a daemon too busy to accept is still a daemon."""
    home.root.mkdir(mode=0o700)
    path = home.root / "s"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(str(path))
        with pytest.raises(HomeBusy):
            listener.bind(path)
        for one in waiting:
            one.close()
    assert path.is_socket()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_socket_of_another_user_is_refused(home: Home) -> None:
    """F62: even without a listener."""
    home.root.mkdir(mode=0o700)
    path = home.root / "burnd.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    os.chown(path, 65534, 65534)
    with pytest.raises(SocketTaken, match="another user"):
        listener.bind(path)
    assert path.is_socket()


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_may_write_in_is_refused(home: Home, mode: int) -> None:
    """F64: another user with write permission could place a socket there."""
    home.root.mkdir()
    folder = home.root / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(SocketTaken, match="others may write"):
        listener.bind(folder / "s")


def test_a_path_too_long_is_reported(home: Home) -> None:
    """F65: with the path, before the kernel refuses in its own words."""
    home.root.mkdir()
    with pytest.raises(SocketTaken, match="too long"):
        listener.bind(home.root / ("x" * 104))


def test_a_long_home_moves_the_socket(home: Home) -> None:
    """F65: both programs find it below the runtime folder; without one, the start names the variable to set."""
    deep = Home(home.root.parent / ("d" * 60) / ("e" * 60))
    deep.root.parent.mkdir(mode=0o700)
    runtime = home.root.parent / "run"
    runtime.mkdir(mode=0o700)
    done = start(deep)
    assert done.returncode == 1
    assert "XDG_RUNTIME_DIR" in done.stderr
    daemon = Daemon(deep, XDG_RUNTIME_DIR=str(runtime))
    try:
        until(lambda: list(runtime.glob("burnd-*.sock")), why=daemon.why)
        (daemon.socket,) = runtime.glob("burnd-*.sock")
        daemon.wait_until_ready()
    finally:
        daemon.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
def test_a_runtime_folder_of_another_user_is_refused(home: Home) -> None:
    """F65, F82: as after `su` without a new session; the folder is named, and nothing is put into it."""
    deep = Home(home.root.parent / ("d" * 60) / ("e" * 60))
    deep.root.parent.mkdir(mode=0o700)
    runtime = home.root.parent / "run"
    runtime.mkdir(mode=0o700)
    os.chown(runtime, 65534, 65534)
    done = start(deep, XDG_RUNTIME_DIR=str(runtime))
    assert done.returncode == 1
    assert str(runtime) in done.stderr
    assert "folder of yours" in done.stderr
    assert list(runtime.iterdir()) == []


def test_a_lost_socket_is_bound_again(home: Home) -> None:
    """F72: a cleaner of old files took it; within the next look it is back, and clients that were in stay in."""
    with running_quickly(home) as daemon, daemon.wire() as before:
        daemon.socket.unlink()
        until(lambda: daemon.state() == "ready")  # bound is not yet listening
        with daemon.wire() as wire:
            assert wire.call("status")["daemon"]["pid"] == daemon.process.pid
        assert before.call("status")["daemon"]["pid"] == daemon.process.pid


def test_what_took_the_sockets_place_is_left_alone(home: Home) -> None:
    """F72: a file at the path stays, the state is shown as degraded, and the socket returns when the file is gone."""
    with running_quickly(home) as daemon, daemon.wire() as before:
        daemon.socket.unlink()
        daemon.socket.write_bytes(b"mine")
        until(lambda: any("path" in d["what"] for d in before.call("status")["degraded"]))
        assert daemon.socket.read_bytes() == b"mine"
        daemon.socket.unlink()
        until(lambda: daemon.state() == "ready")  # bound is not yet listening
        with daemon.wire() as wire:
            until(lambda: wire.call("status")["degraded"] == [])


class running_quickly:  # noqa: N801 - reads like `running`
    """A daemon that looks after its socket every fraction of a second."""

    def __init__(self, home: Home) -> None:
        self._daemon = Daemon(home, script="tests.faults.quick")

    def __enter__(self) -> Daemon:
        self._daemon.wait_until_ready()
        return self._daemon

    def __exit__(self, *_: object) -> None:
        self._daemon.kill()
