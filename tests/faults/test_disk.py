"""Part D, where the trouble is the disk's: full, read-only, over quota, open to others."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from burnd.ledger.files import prepare_home
from burnd.paths import Home
from burnd.records import Turn
from burnd.records.codec import Skipped, decode
from tests import warm
from tests.faults import tally
from tests.faults.shims import built, needs_shims
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.server.wire import Daemon, environment, running, until

EVERYTHING = sum_of(*range(12))
_SMALL_DISK = Path(__file__).with_name("on_small_disk.sh")
_NOBODY = 65534
_LARGE = "large " * 2000  # no sidecar's, but a blob


class SmallDisk:
    """A daemon with its home on a file system of 32 MB, which a word fills and another frees."""

    def __init__(self, home: Home, reserve: str) -> None:
        self.home = home
        self.socket = home.root.parent / "s"
        home.root.mkdir(parents=True)
        with (home.root.parent / "daemon.log").open("wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "-Urm", "sh", str(_SMALL_DISK), str(home.root), sys.executable, reserve],
                env=environment(home),
                stderr=log,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )

    def say(self, word: str, answer: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()
        assert self.heard() == answer, self.watched().daemon.why()

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def watched(self) -> Watched:
        daemon = Daemon.__new__(Daemon)
        daemon.home, daemon.socket, daemon.log = self.home, self.socket, self.home.root.parent / "daemon.log"
        return Watched(self.home, daemon)

    def ledger(self) -> bytes:
        """As it is on a file system that only the daemon's own namespace has."""
        return Path(f"/proc/{self.process.pid}/root{self.home.ledger}").read_bytes()

    def end(self) -> int:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        return self.process.wait(60)


@contextmanager
def small_disk(home: Home, reserve: str = "") -> Iterator[tuple[SmallDisk, Watched]]:
    """The disk, and the daemon on it, which must end well and have lived all the while."""
    if shutil.which("unshare") is None:
        pytest.skip("needs the program unshare")
    disk = SmallDisk(home, reserve)
    try:
        if disk.heard() != "mounted":
            pytest.skip("needs user namespaces in which a tmpfs can be mounted")
        until(disk.socket.exists, 60)
        yield disk, disk.watched()
    finally:
        code = disk.end()
    assert code == 0, disk.watched().daemon.why()


def test_a_full_disk_heals(home: Home) -> None:
    """F41: on a file system of 32 MB that is filled, the daemon waits; with room again, everything arrives."""
    with small_disk(home) as (disk, watched):
        watched.append("full", whole(answers("full", 0, 3)))
        watched.until_recorded("full", sum_of(0, 1, 2))
        disk.say("fill", "full")
        watched.append("full", whole(answers("full", 3, 9)))
        until(lambda: "blocked" in str(watched.call("status")), 60)
        assert watched.outputs("full") == sum_of(0, 1, 2)
        assert disk.ledger().endswith(b"\n")
        disk.say("free", "free")
        watched.until_recorded("full", EVERYTHING, 90)
        watched.flush()
        entries = [decode(line) for line in disk.ledger().splitlines()]
        assert not [entry for entry in entries if isinstance(entry, Skipped)]
        turns = [(entry.message_id, entry.rev) for entry in entries if isinstance(entry, Turn)]
        assert len(turns) == len(set(turns)) == 12
    tally.faults()


def test_the_store_of_large_texts_is_first_opened_on_a_full_disk(home: Home) -> None:
    """F41, P3: with nothing in reserve, SQLite itself finds no room, not even to open a file: the daemon waits as well.

    Of stamps for which the ledger has no room, not half a line is left; they are refused, and taken later.
    """
    with small_disk(home, reserve="0") as (disk, watched):
        watched.append("full", whole(answers("full", 0, 2, words=_LARGE)))
        watched.until_recorded("full", sum_of(0, 1))
        _until_findable(watched, _LARGE)
        disk.say("again", "again")
        until(disk.socket.exists, 60)
        watched.append("full", whole(answers("full", 2, 1)))
        watched.until_recorded("full", sum_of(0, 1, 2))
        disk.say("fill", "full")
        watched.append("full", whole(answers("full", 3, 9, words=_LARGE)))
        until(lambda: "nothing is lost meanwhile" in str(watched.call("status")["degraded"]), 60, watched.daemon.why)
        assert watched.outputs("full") == sum_of(0, 1, 2)
        before = disk.ledger()
        assert _stamped(watched)["error"]["data"]["name"] == "not_now"
        assert disk.ledger() == before
        disk.say("free", "free")
        watched.until_recorded("full", EVERYTHING, 90)
        assert "result" in _stamped(watched)
        assert len(watched.call("stamps.list", limit=200)["stamps"]) == 100
        assert sum(len(said) > len(_LARGE) for said in watched.texts("full")) == 11
    tally.faults()


def _stamped(watched: Watched) -> dict[str, Any]:
    """The answer to a hundred stamps, more than there is room for behind the ledger's last line."""
    stamps = [
        {
            "selector": {"sessionId": "full"},
            "enrichment": {f"step{n}": "x" * 100},
            "ts": f"2026-11-16T10:00:00.{n:03d}Z",
        }
        for n in range(100)
    ]
    with watched.daemon.wire() as wire:
        return wire.ask("stamp", stamps=stamps)


def test_a_file_system_that_is_made_read_only_heals(home: Home) -> None:
    """F52, F41: a read-only remount under the daemon: no file can be created, renamed or removed; it waits, then
    continues."""
    with small_disk(home) as (disk, watched):
        watched.append("ro", whole(answers("ro", 0, 3)))
        watched.until_recorded("ro", sum_of(0, 1, 2))
        _until_findable(watched, "answer")
        disk.say("seal", "sealed")
        watched.append("ro", whole(answers("ro", 3, 4, words=_LARGE)))
        watched.append("new", whole(answers("new", 0, 5, words=_LARGE)))
        until(lambda: "nothing is lost meanwhile" in str(watched.call("status")["degraded"]), 60, watched.daemon.why)
        disk.say("unseal", "unsealed")
        watched.append("ro", whole(answers("ro", 7, 5)))
        watched.until_recorded("ro", EVERYTHING, 90)
        watched.until_recorded("new", sum_of(*range(5)), 90)
        assert len(watched.texts("new")) == 5
    tally.faults()


@needs_shims
@pytest.mark.slow
@pytest.mark.parametrize(("error", "words"), [(errno.EROFS, "answer"), (errno.EDQUOT, _LARGE)])
def test_a_disk_that_takes_nothing_more_heals(home: Home, tmp_path: Path, error: int, words: str) -> None:
    """F41, F52: the file system became read-only, or the quota is used up: said in status, and nothing is lost."""
    flag = tmp_path / "flag"
    shim = str(built("full_disk", tmp_path))
    _one_life(home, words)
    with running(home, LD_PRELOAD=shim, FULL_BELOW=str(home.root), FULL_WHILE=str(flag)) as daemon:
        watched = Watched(home, daemon)
        watched.append("ro", whole(answers("ro", 2, 1)))
        watched.until_recorded("ro", sum_of(0, 1, 2))
        flag.write_text(str(int(error)))
        watched.append("ro", whole(answers("ro", 3, 9, words=words)))
        until(lambda: "nothing is lost meanwhile" in str(watched.call("status")["degraded"]), 60, daemon.why)
        assert watched.outputs("ro") == sum_of(0, 1, 2)
        flag.unlink()
        watched.until_recorded("ro", EVERYTHING, 90)
        assert daemon.terminate() == 0
    assert home.ledger.read_bytes().endswith(b"\n")
    tally.faults()


@needs_shims
@pytest.mark.parametrize("error", [errno.ENOSPC, pytest.param(errno.EIO, marks=pytest.mark.slow)])
def test_a_stamp_that_is_refused_is_not_recorded(home: Home, tmp_path: Path, error: int) -> None:
    """F41, P2: the ledger has room and the index none: the refusal is true, and who tries again has stamped once."""
    flag = tmp_path / "flag"
    shim = str(built("full_disk", tmp_path))
    once = {"selector": {"sessionId": "s"}, "enrichment": {"step": "plan"}}
    with running(home, LD_PRELOAD=shim, FULL_BELOW=str(home.index), FULL_WHILE=str(flag)) as daemon:
        with daemon.wire() as wire:
            wire.call("stamp", selector={"sessionId": "s"}, enrichment={"step": "before"})
            flag.write_text(str(int(error)))
            before = home.ledger.read_bytes()
            for _ in range(3):
                assert wire.error("stamp", **once)["data"]["name"] == "not_now"
                assert home.ledger.read_bytes() == before
            flag.unlink()
            assert wire.call("stamp", **once)["new"] == 1
            assert [one["enrichment"] for one in wire.call("stamps.list")["stamps"]].count(once["enrichment"]) == 1
        daemon.kill()
    assert home.ledger.read_bytes().count(b'"plan"') == 1
    with running(home) as daemon, daemon.wire() as wire:
        assert len(wire.call("stamps.list")["stamps"]) == 2
    tally.faults(3)


def _one_life(home: Home, words: str) -> None:
    """After it, every file that a daemon makes is there, and the next one has nothing to make up for."""
    with running(home) as daemon:
        watched = Watched(home, daemon)
        watched.append("ro", whole(answers("ro", 0, 2, words=words)))
        watched.until_recorded("ro", sum_of(0, 1))
        _until_findable(watched, words)
        assert daemon.terminate() == 0


def _until_findable(watched: Watched, words: str) -> None:
    """Until search is done with it too, for which the next life would open the store of large texts otherwise."""
    query = words.split(maxsplit=1)[0]
    until(lambda: len(watched.call("sessions.search", query=query)["hits"]) == 1)
    until(lambda: not watched.call("status")["search"]["pending"])


def test_an_open_home_is_refused(home: Home) -> None:
    """F52: a home that others may write in: refused, with its path and what to do."""
    home.root.mkdir(parents=True)
    home.root.chmod(0o777)
    assert "chmod 700" in _refusal(home)


def test_a_home_of_another_user_is_refused(home: Home) -> None:
    """F52: with whose it is, and nothing in it is touched."""
    home.root.mkdir(parents=True, mode=0o755)
    if os.geteuid() == 0:
        os.chown(home.root, _NOBODY, -1)
        owner = _NOBODY
    else:
        home, owner = Home(Path("/usr")), 0
    before = home.root.stat()
    assert f"belongs to uid {owner}, not to you" in _refusal(home)
    assert home.root.stat() == before
    assert not home.lock.exists()


def test_a_home_on_a_read_only_disk_is_refused(home: Home) -> None:
    """F52: at its start there is nothing to wait for: said at once, and not with advice for something else."""
    home.root.mkdir(parents=True, mode=0o700)
    sealed = f"mount --bind {home.root} {home.root} && mount -o remount,bind,ro {home.root} && exec"
    said = _refusal(home, "unshare", "-Urm", "sh", "-c", f'{sealed} "$0" "$@"')
    if "unshare" in said or "mount" in said.partition("burnd:")[0]:
        pytest.skip("needs user namespaces in which a folder can be mounted")
    assert "Read-only file system" in said
    assert "make it writable" in said


def test_a_home_that_is_a_link_or_far_away_is_warned_about(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """F52: a warning only, as it may be intended; the kind of file system is simulated, since tests cannot mount a
    network one."""
    home.root.parent.mkdir(parents=True, exist_ok=True)
    real = home.root.with_name("elsewhere")
    real.mkdir(mode=0o700)
    home.root.symlink_to(real)
    assert prepare_home(home.root) == [f"{home.root} is a link to {real}"]
    monkeypatch.setattr("burnd.ledger.files.file_system_of", lambda _root: "nfs4")
    (warning,) = prepare_home(real)
    assert "network file system (nfs4)" in warning


def _refusal(home: Home, *around: str, module: str = "burnd") -> str:
    """Error output of a daemon that refuses to start."""
    command = [*around, sys.executable, "-m", module, "run"]
    done = warm.run(command, env=environment(home), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert str(home.root) in done.stderr
    tally.bad_inputs()
    return str(done.stderr)


@pytest.mark.parametrize("folder", ["content", pytest.param("", marks=pytest.mark.slow)])
def test_rights_that_are_taken_away_are_waited_for(home: Home, tmp_path: Path, folder: str) -> None:
    """F52, F41: under a daemon that records: said in status with what to do, and nothing is lost meanwhile."""
    with running(home, script="tests.faults.unprivileged", BURND_SOCKET=str(tmp_path / "s")) as daemon:
        watched = Watched(home, daemon)
        watched.append("old", whole(answers("old", 0, 3)))
        assert watched.recorded("old") == sum_of(0, 1, 2)
        (home.root / folder).chmod(0)
        watched.append("new", whole(answers("new", 0, 12, words=_LARGE)))
        if folder:
            until(lambda: "restore its permissions" in str(watched.call("status")["degraded"]), 60, daemon.why)
        else:
            with daemon.wire() as wire:
                assert wire.error("flush")["data"]["name"] == "not_now"
        (home.root / folder).chmod(0o700)
        watched.until_recorded("new", EVERYTHING, 90)
        watched.flush()
        assert len(watched.texts("new")) == 12
        assert daemon.terminate() == 0
    tally.faults()


def test_a_ledger_of_another_user_is_refused_at_once(home: Home) -> None:
    """F52: refused at the start, with a message for the user: a daemon once run as root leaves such a ledger."""
    home.root.mkdir(parents=True, mode=0o700)
    home.ledger.touch(mode=0o400)
    home.ledger.chmod(0)
    said = _refusal(home, module="tests.faults.unprivileged")
    assert "Permission denied" in said
    assert "restore its permissions" in said
