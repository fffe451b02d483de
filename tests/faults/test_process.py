"""The daemon from start to end: a single instance, quick to stop, without leaks, lossless in every crash."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from burnd.daemon import lifecycle as daemon_module
from burnd.daemon.lifecycle import run
from burnd.paths import Home
from burnd.records import Stamp, Turn
from burnd.records.codec import Skipped, decode
from burnd.settings import config
from tests import warm
from tests.harness.claude_code.transcript import Transcript, text
from tests.server.logs import conversation, projects, write
from tests.server.spool import put_in_spool, stamp_record
from tests.server.wire import Daemon, Wire, environment, noise, running, stamp_often, until


def test_of_twenty_started_at_once_one_lives(home: Home) -> None:
    """F61: the others end with code 5 and name it; its socket stays the same one."""
    started = [
        warm.Popen([sys.executable, "-m", "burnd", "run"], env=environment(home), stderr=subprocess.PIPE, text=True)
        for _ in range(20)
    ]
    try:
        until(lambda: sum(one.poll() is None for one in started) == 1, 60)
        (alive,) = [one for one in started if one.poll() is None]
        until((home.root / "burnd.sock").exists)
        inode = (home.root / "burnd.sock").lstat().st_ino
        with Wire(home.root / "burnd.sock") as wire:
            assert wire.call("status")["daemon"]["pid"] == alive.pid
        for one in started:
            if one is not alive:
                assert one.returncode == 5
        said = [one.communicate()[1] for one in started if one is not alive]
        assert all("another burnd" in words for words in said)
        assert any(f"pid {alive.pid}" in words for words in said)
        assert (home.root / "burnd.sock").lstat().st_ino == inode
    finally:
        for one in started:
            one.kill()
            one.wait()
            assert one.stderr is not None
            one.stderr.close()


@pytest.mark.parametrize("lives", [10, pytest.param(50, marks=pytest.mark.slow)])
async def test_starting_and_stopping_leaks_nothing(home: Home, monkeypatch: pytest.MonkeyPatch, lives: int) -> None:
    """F80: after many lives in one process, descriptors and threads are what they were after the first few."""
    monkeypatch.setattr(daemon_module, "record_crashes", lambda folder: None)  # has a file open until the process ends
    write(home, conversation("s1", "one"), "s1")
    settings = config.load(home, {})
    before: tuple[int, int] = (0, 0)
    for number in range(lives):
        environ = environment(home)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, home, settings, environ)
            await anyio.to_thread.run_sync(_use_and_stop, home)
        if number == 4:
            before = _held()
    # Worker threads of the pools live for a while, so the number varies; twenty leaks would be twenty more.
    assert all(now <= then + 5 for now, then in zip(_held(), before, strict=True)), (_held(), before)


def _held() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def _use_and_stop(home: Home) -> None:
    path = home.root / "burnd.sock"
    until(path.exists)
    with Wire(path) as wire:
        until(lambda: wire.call("status")["daemon"]["state"] == "ready")
        wire.call("stamp", selector={"sessionId": "s"}, enrichment={"a": "b"})
        wire.call("flush")
        assert wire.call("shutdown")["stopping"] is True


def test_shutdown_is_answered_and_ends_it(daemon: Daemon) -> None:
    """With exit code 0, like a signal."""
    with daemon.wire() as wire:
        assert wire.call("shutdown")["stopping"] is True
        assert daemon.process.wait(30) == 0


class Busy:
    """Growing logs and incoming stamps, with a note of everything acknowledged."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.turns: set[str] = set()
        self.stamps: set[str] = set()
        self._count = 0
        self._logs = {name: Transcript(session=name, prefix=f"{name}-u") for name in ("s1", "s2", "s3")}

    def grow(self) -> None:
        """One more message in one of the logs."""
        self._count += 1
        name = f"s{1 + self._count % 3}"
        log = self._logs[name]
        log.prompt(f"question {self._count}")
        log.says(f"m{self._count}", text(f"answer {self._count} " + "x" * 2000), output=self._count)
        write(self.home, log, name)
        self.turns.add(f"m{self._count}")

    def stamp(self, path: Path) -> None:
        """One stamp: over the socket, else left in the spool, as a client does."""
        key = f"k{len(self.stamps)}"
        record = stamp_record("s1", key=key)
        params = {name: record[name] for name in ("ts", "selector", "enrichment")}
        try:
            with Wire(path, timeout=2, bound_s=0.3) as wire:
                wire.call("stamp", **params)
        except (OSError, AssertionError):
            put_in_spool(self.home.spool, record)
        self.stamps.add(key)


@contextmanager
def busy(home: Home) -> Iterator[Busy]:
    """Load from two threads until the block ends."""
    work, over = Busy(home), threading.Event()

    def keep(do: Any, pause: float) -> None:
        while not over.is_set():
            do()
            over.wait(pause)

    loads = ((work.grow, 0.01), (lambda: work.stamp(home.root / "burnd.sock"), 0.01))
    threads = [threading.Thread(target=keep, args=load) for load in loads]
    for thread in threads:
        thread.start()
    try:
        yield work
    finally:
        over.set()
        for thread in threads:
            thread.join()


def check_nothing_is_lost(home: Home, work: Busy) -> None:
    """Every turn and stamp is in the ledger once, and in the index."""
    with running(home) as daemon, daemon.wire(300) as wire:
        wire.call("flush")
        status = wire.call("status")
        found: list[dict[str, Any]] = []
        after = -1
        while after is not None:
            page = wire.call("stamps.list", limit=1000, after=after)
            found += page["stamps"]
            after = page["next"]
        assert daemon.terminate() == 0
    entries = [decode(line) for line in home.ledger.read_bytes().splitlines()]
    assert not [entry for entry in entries if isinstance(entry, Skipped)]
    turns = [(entry.message_id, entry.rev) for entry in entries if isinstance(entry, Turn)]
    assert {message_id for message_id, _ in turns} == work.turns
    assert len(turns) == len(set(turns))
    stamps = [entry.enrichment["key"] for entry in entries if isinstance(entry, Stamp)]
    assert sorted(stamps) == sorted(work.stamps)
    assert sorted(one["enrichment"]["key"] for one in found) == sorted(work.stamps)
    assert status["ledger"]["turns"] == len(work.turns)
    assert not list(home.spool.glob("[!.]*.json"))


def kill_at_random(home: Home, times: int) -> None:
    projects(home).mkdir(parents=True)
    rng = random.Random(7)
    with busy(home) as work:
        for _ in range(times):
            daemon = Daemon(home)
            try:
                daemon.wait_until_ready()
                time.sleep(rng.uniform(0, 0.3))
            finally:
                daemon.kill()
    assert len(work.turns) > 5 * times
    assert len(work.stamps) > 2 * times
    check_nothing_is_lost(home, work)


@pytest.mark.slow
def test_kill_nine_under_load_loses_nothing(home: Home) -> None:
    """I1, F40: no stamp and no turn, whenever it is killed."""
    kill_at_random(home, 8)


@pytest.mark.slow
def test_kill_nine_a_hundred_times(home: Home) -> None:
    """I1, F40: the same, a hundred times."""
    kill_at_random(home, 100)


@pytest.mark.timed
@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_sigterm_under_load_ends_in_good_order(home: Home, times: int) -> None:
    """F75: exit code 0 within 5 s, no torn line; the next start continues without reading a log again."""
    projects(home).mkdir(parents=True)
    chance = random.Random(times)
    with busy(home) as work:
        for n in range(times):
            pause = chance.uniform(0.0, 0.4) if n else 0.0
            daemon = Daemon(home)
            try:
                daemon.wait_until_ready()
                time.sleep(pause)
                begun = time.monotonic()
                assert daemon.terminate(60) == 0, daemon.why()
                assert time.monotonic() - begun < 5 * noise()
            finally:
                daemon.kill()
            assert "source.rewound" not in daemon.why()
            assert home.ledger.read_bytes()[-1:] in (b"", b"\n")
            assert not list(home.root.glob("ledger.torn-*"))
    check_nothing_is_lost(home, work)


def test_sigterm_while_starting_ends_it(home: Home) -> None:
    """F75: also before it was ready."""
    with running(home) as daemon, daemon.wire() as wire:
        stamp_often(wire, 8000)
        daemon.terminate()
    until(lambda: _is_stopped_while_starting(home))  # a busy machine may look when it has started
    with running(home) as daemon, daemon.wire() as wire:
        assert wire.call("status")["ledger"]["stamps"] == 8000


def _is_stopped_while_starting(home: Home) -> bool:
    shutil.rmtree(home.index)
    with running(home, ready=False) as daemon:
        until(lambda: daemon.state() != "not listening")
        with daemon.wire() as wire:
            until(lambda: wire.call("status")["index"]["state"] != "opening")
            is_starting = bool(wire.call("status")["daemon"]["state"] != "ready")
        assert daemon.terminate() == 0
    return is_starting


@pytest.mark.timed
def test_sigterm_beside_clients_that_hang(home: Home) -> None:
    """F75: neither one that never reads, nor one that follows, nor a question that never ends, holds it up."""
    daemon = Daemon(home, script="tests.server.endless")
    try:
        daemon.wait_until_ready()
        with daemon.wire() as stuck, daemon.wire() as following, daemon.wire() as endless:
            following.call("tail")
            endless.request("endless")
            stuck.socket.setblocking(False)
            for _ in range(200):
                try:
                    stuck.socket.send(b'{"jsonrpc":"2.0","id":1,"method":"config.show"}\n' * 100)
                except BlockingIOError:
                    break
            time.sleep(0.2)
            begun = time.monotonic()
            assert daemon.terminate() == 0
            assert time.monotonic() - begun < 5 * noise()
    finally:
        daemon.kill()


def test_a_terminal_that_goes_ends_it_in_good_order(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGHUP stops it like SIGTERM, except under nohup."""
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.process.wait(30) == 0
    assert not daemon.socket.exists()
    monkeypatch.setattr(signal, "getsignal", lambda _number: signal.SIG_IGN)
    assert signal.SIGHUP not in daemon_module._stop_signals()


def test_a_second_sigterm_ends_it_at_once(home: Home) -> None:
    """F75: for who cannot wait, with the code of the signal."""
    daemon = Daemon(home, script="tests.faults.slow_to_stop", STOP_S="50")
    try:
        daemon.wait_until_ready()
        daemon.process.send_signal(signal.SIGTERM)
        until(lambda: "daemon.stopping" in daemon.why())
        assert daemon.process.poll() is None
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(40) in (128 + signal.SIGTERM, -signal.SIGTERM)
    finally:
        daemon.kill()


def test_what_hangs_while_stopping_is_cut_off(home: Home) -> None:
    """F75: the hard limit; shortened here."""
    daemon = Daemon(home, script="tests.faults.slow_to_stop")
    try:
        daemon.wait_until_ready()
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(30) == 1
    finally:
        daemon.kill()
    with running(home):
        pass


@pytest.mark.parametrize("closed", [[0, 1, 2], *(pytest.param(few, marks=pytest.mark.slow) for few in ([0], [1, 2]))])
def test_it_runs_with_its_standard_streams_closed(home: Home, closed: list[int]) -> None:
    """F82: the parent may have closed them."""
    closing = (
        "import os, sys\nfor fd in %r: os.close(fd)\nos.execv(sys.executable, [sys.executable, '-m', 'burnd', 'run'])"
    )
    started = subprocess.Popen([sys.executable, "-c", closing % closed], env=environment(home), start_new_session=True)
    try:
        until((home.root / "burnd.sock").exists)
        with Wire(home.root / "burnd.sock") as wire:
            until(lambda: wire.call("status")["daemon"]["state"] == "ready")
            wire.call("stamp", selector={"sessionId": "s"}, enrichment={"a": "b"})
            wire.call("shutdown")
        assert started.wait(30) == 0
        assert b'"a":"b"' in home.ledger.read_bytes()
        assert len(home.ledger.read_bytes().splitlines()) == 1, "something else was written into it"
    finally:
        started.kill()
        started.wait()


@pytest.mark.parametrize(
    "more",
    [{"PYTHONUTF8": "0", "LC_ALL": "POSIX"}, pytest.param({"LANG": "C", "LC_ALL": "C"}, marks=pytest.mark.slow)],
)
def test_it_runs_in_any_locale(home: Home, more: dict[str, Any]) -> None:
    """F82: names and texts are UTF-8 in any environment."""
    write(home, conversation("s1", "gr\u00fc\u00dfe \U0001f600", prompt="\u4f60\u597d"), "s1")
    with running(home, **more) as daemon, daemon.wire() as wire:
        wire.call("flush")
        words = [record["text"] for record in wire.call("content.read", session="s1")["records"]]
        assert words == ["\u4f60\u597d", "gr\u00fc\u00dfe \U0001f600"]


def test_it_runs_in_a_folder_that_is_gone(home: Home, tmp_path: Path) -> None:
    """F82: the working folder was deleted under it."""
    folder = tmp_path / "gone"
    folder.mkdir()
    script = "import os, sys; os.rmdir(os.getcwd()); from burnd.cli import main; sys.exit(main(['run']))"
    started = subprocess.Popen([sys.executable, "-c", script], env=environment(home), cwd=folder)
    try:
        until((home.root / "burnd.sock").exists)
        with Wire(home.root / "burnd.sock") as wire:
            until(lambda: wire.call("status")["daemon"]["state"] == "ready")
    finally:
        started.kill()
        started.wait()


_A_STRANGER = """
import pwd, sys
def nobody(uid): raise KeyError(uid)
pwd.getpwuid = nobody
from burnd.cli import main
sys.exit(main(["run"]))
"""


@pytest.mark.parametrize("more", [{}, {"RELAYBURN_HOME": "~/x"}])
def test_without_a_home_folder_it_says_so(tmp_path: Path, more: dict[str, str]) -> None:
    """F82: no HOME, and a user whom the password database does not know, as in some containers: nothing is made."""
    command = [sys.executable, "-c", _A_STRANGER]
    done = warm.run(command, env=more, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "set HOME" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_a_home_folder_it_reads_what_is_named(home: Home) -> None:
    """F82: with the home and the harness folders set by variables, every source works."""
    write(home, conversation("s1", "hi"), "s1")
    named = {"RELAYBURN_HOME": str(home.root), "CLAUDE_CONFIG_DIR": str(projects(home).parent)}
    started = subprocess.Popen([sys.executable, "-c", _A_STRANGER], env=named, stderr=subprocess.DEVNULL)
    try:
        until((home.root / "burnd.sock").exists)
        with Wire(home.root / "burnd.sock") as wire:
            until(lambda: wire.call("status")["daemon"]["state"] == "ready")
            assert all(source["flushed"] for source in wire.call("flush")["sources"])
            assert wire.call("summary")["totals"]["turns"] == 1
    finally:
        started.kill()
        started.wait()


def test_a_damaged_index_found_by_a_query_is_rebuilt(home: Home) -> None:
    """F53: the question is asked to come again, and the next one is answered in full."""
    with running(home) as daemon, daemon.wire() as wire:
        for number in range(4):
            stamps = [
                {
                    "selector": {"sessionId": f"s{n}"},
                    "enrichment": {"n": "x" * 500},
                    "ts": f"2026-11-16T10:00:0{number}Z",
                }
                for n in range(1000)
            ]
            wire.call("stamp", stamps=stamps)
        daemon.terminate()
    pages = bytearray(home.index_db.read_bytes())
    for page in range(40, len(pages) // 4096):
        pages[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    home.index_db.write_bytes(pages)
    with running(home) as daemon, daemon.wire() as wire:
        answers: list[dict[str, Any]] = []

        def is_answered() -> bool:
            answers.append(wire.ask("stamps.list", limit=1000))
            return "error" not in answers[-1]

        until(is_answered)
        count, after = 0, -1
        while after is not None:
            page_of = wire.call("stamps.list", limit=1000, after=after)
            count, after = count + len(page_of["stamps"]), page_of["next"]
        assert count == 4000
        assert json.dumps(answers).count("not_now") >= ("error" in answers[0])
