"""Part D, where the trouble is the disk's: full, read-only, over quota, open to others."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.faults import tally
from tests.faults.shims import built, needs_shims
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.server.wire import Daemon, environment, running, until

EVERYTHING = sum_of(*range(12))


def test_a_full_disk_heals(home: Home) -> None:
    """F41: on a file system of 32 MB that is filled, whole lines only; with room again, everything arrives."""
    if shutil.which("unshare") is None:
        pytest.skip("needs the program unshare")
    script = Path(__file__).with_name("on_small_disk.sh")
    command = ["unshare", "-Urm", "sh", str(script), str(home.root), sys.executable]
    log = (home.root.parent / "daemon.log").open("wb")
    home.root.mkdir(parents=True)
    process = subprocess.Popen(
        command, env=environment(home), stderr=log, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"mounted\n":
            pytest.skip("needs user namespaces in which a tmpfs can be mounted")
        socket = home.root.parent / "s"
        until(socket.exists, 60)
        watched = Watched(home, _elsewhere(home, socket))
        watched.append("full", whole(answers("full", 0, 3)))
        watched.until_recorded("full", sum_of(0, 1, 2))
        _say(process, b"fill\n", b"full\n")
        watched.append("full", whole(answers("full", 3, 9)))
        until(lambda: "blocked" in str(watched.call("status")), 60)
        assert watched.outputs("full") == sum_of(0, 1, 2)
        _say(process, b"free\n", b"free\n")
        watched.until_recorded("full", EVERYTHING, 90)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(60)
        log.close()
    tally.faults()


def _elsewhere(home: Home, socket: Path) -> Daemon:
    daemon = Daemon.__new__(Daemon)
    daemon.home, daemon.socket, daemon.log = home, socket, home.root.parent / "daemon.log"
    return daemon


def _say(process: subprocess.Popen[bytes], word: bytes, answer: bytes) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(word)
    process.stdin.flush()
    assert process.stdout.readline() == answer


@needs_shims
@pytest.mark.parametrize("error", [errno.EROFS, pytest.param(errno.EDQUOT, marks=pytest.mark.slow)])
def test_a_disk_that_takes_nothing_more_heals(home: Home, tmp_path: Path, error: int) -> None:
    """F41, F52: the file system became read-only, or the quota is used up: said in status, and nothing is lost."""
    flag = tmp_path / "flag"
    shim = str(built("full_disk", tmp_path))
    with running(home, LD_PRELOAD=shim, FULL_BELOW=str(home.root), FULL_WHILE=str(flag)) as daemon:
        watched = Watched(home, daemon)
        watched.append("ro", whole(answers("ro", 0, 3)))
        watched.until_recorded("ro", sum_of(0, 1, 2))
        flag.write_text(str(int(error)))
        watched.append("ro", whole(answers("ro", 3, 9)))
        until(lambda: "nothing is lost meanwhile" in str(watched.call("status")["degraded"]), 60)
        assert watched.outputs("ro") == sum_of(0, 1, 2)
        flag.unlink()
        watched.until_recorded("ro", EVERYTHING, 90)
        assert daemon.terminate() == 0
    assert home.ledger.read_bytes().endswith(b"\n")
    tally.faults()


def test_an_open_home_is_refused(home: Home) -> None:
    """F52: a home that others may write in: refused, with its path and what to do."""
    home.root.mkdir(parents=True)
    home.root.chmod(0o777)
    command = [sys.executable, "-m", "burnd", "run"]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert str(home.root) in done.stderr
    assert "chmod 700" in done.stderr
    tally.bad_inputs()
