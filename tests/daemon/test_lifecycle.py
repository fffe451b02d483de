"""The daemon as a process: start and end, as a user or service manager sees them."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.records.times import DAY_MS, to_iso, wall_ms
from tests import warm
from tests.conftest import Opened
from tests.make import text, turn
from tests.server.logs import conversation, write
from tests.server.wire import noise, until


def environment(home: Home, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home.root.parent), "RELAYBURN_HOME": str(home.root), **more}


@contextmanager
def running(home: Home, umask: int = 0o022, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A daemon that has said it is ready; killed when the block ends, if it still runs."""
    daemon = warm.Popen(
        [sys.executable, "-m", "burnd", "run", "--log-format", "json"],
        env=environment(home, **more),
        stderr=subprocess.PIPE,
        text=True,
        umask=umask,
    )
    try:
        wait_for(daemon, "daemon.ready")
        yield daemon
    finally:
        daemon.kill()
        daemon.wait()
        assert daemon.stderr is not None
        daemon.stderr.close()


def wait_for(daemon: subprocess.Popen[str], event: str) -> dict[str, object]:
    assert daemon.stderr is not None
    for line in daemon.stderr:
        found: dict[str, object] = json.loads(line)
        if found["event"] == event:
            return found
    raise AssertionError(f"the daemon ended without {event}")


def run(home: Home, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "burnd", *arguments]
    return warm.run(command, env=environment(home, **more), capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.timed
def test_it_stops_on_sigterm(home: Home) -> None:
    """P10: SIGTERM ends it within seconds, with exit code 0."""
    with running(home) as daemon:
        begun = time.monotonic()
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(timeout=60) == 0
        assert time.monotonic() - begun < 5 * noise()


def test_a_second_one_refuses_and_names_the_first(home: Home) -> None:
    """F61: exit code 5, with the pid of the one that runs; that one is not disturbed."""
    with running(home) as daemon:
        second = run(home, "run")
        assert second.returncode == 5
        assert f"pid {daemon.pid}" in second.stderr
        assert daemon.poll() is None


def test_after_kill_nine_the_next_one_starts(home: Home) -> None:
    """F60: nothing a killed daemon leaves behind is in the way."""
    with running(home) as daemon:
        daemon.kill()
        daemon.wait()
    with running(home):
        pass


async def test_everything_is_private_whatever_the_umask(opened: Opened) -> None:
    """F82: folders 0700 and files 0600 under umask 000, made by the daemon or by its parts."""
    before = os.umask(0)
    try:
        with running(opened.home, umask=0):
            pass
        pipeline = await opened()
        await pipeline.commit(Batch(entries=[turn()], content=[text("m1", "x" * 5000), text("m2", "y")]))
        modes = {
            str(path.relative_to(opened.home.root)): stat.S_IMODE(path.lstat().st_mode)
            for path in [opened.home.root, *opened.home.root.rglob("*")]
        }
    finally:
        os.umask(before)
    folders = {name for name in modes if (opened.home.root / name).is_dir()}
    assert {modes[name] for name in folders} == {0o700}
    assert {mode for name, mode in modes.items() if name not in folders} == {0o600}
    assert {"content/blobs.db", "content/s1.jsonl", "index/burn.db", "ledger.jsonl", "burnd.lock"} <= set(modes)


async def test_old_content_goes_at_start(opened: Opened) -> None:
    """Retention runs when the daemon starts, by the daemon's own settings."""
    now = wall_ms()
    pipeline = await opened(now=lambda: now)
    for session_id, days in (("old", 40), ("young", 20)):
        ts = to_iso(now - days * DAY_MS)
        await pipeline.commit(Batch(content=[text("m", session_id=session_id, ts=ts)]))
    await opened.close()
    with running(opened.home, RELAYBURN_CONTENT_TTL_DAYS="30") as daemon:
        assert wait_for(daemon, "retention.pruned")["files"] == 1
    assert [p.name for p in opened.home.content.glob("*.jsonl")] == ["young.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "more", "code", "says"),
    [
        (["check"], {}, 0, "are fine"),
        (["check"], {"RELAYBURN_CONTENT_STORE": "some"}, 1, "RELAYBURN_CONTENT_STORE"),
        (["config", "init"], {}, 0, "wrote "),
        (["config", "path"], {}, 0, "config.toml"),
        (["config", "show"], {"RELAYBURN_CONTENT_STORE": "off"}, 0, "content.store = off  (RELAYBURN_CONTENT_STORE)"),
        (["run"], {"RELAYBURN_CONTENT_TTL_DAYS": "x"}, 1, "RELAYBURN_CONTENT_TTL_DAYS"),
        (["--version"], {}, 0, "burnd 0."),
        (["fly"], {}, 2, "invalid choice"),
    ],
)
def test_commands(home: Home, arguments: list[str], more: dict[str, str], code: int, says: str) -> None:
    """Each command does its work or reports the mistake in one line, without a traceback."""
    done = run(home, *arguments, **more)
    assert done.returncode == code
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_home_others_may_write_in_is_refused(home: Home) -> None:
    """F52: with the path and the remedy."""
    home.root.mkdir()
    home.root.chmod(0o777)
    done = run(home, "run")
    assert done.returncode == 1
    assert f"chmod 700 {home.root}" in done.stderr


def test_code_in_the_working_folder_is_not_run(home: Home, tmp_path: Path) -> None:
    """F84: the installed program does not import what lies in the folder it is started in."""
    (tmp_path / "json.py").write_text("raise SystemExit('planted')")
    burnd = Path(sys.executable).parent / "burnd"
    done = subprocess.run(
        [burnd, "check"], env=environment(home), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


_READS_APART = """
import sys
from burnd.logfiles import follower
follower.CHILD_FROM_BYTES = 1
sys.addaudithook(lambda event, args: print(*args[1]) if event == "subprocess.Popen" else None)
from burnd.cli import main
main()
"""


@pytest.mark.parametrize("planted", ["pickle.py", "burnd/__init__.py"])
def test_the_reader_apart_runs_no_code_of_the_working_folder(home: Home, tmp_path: Path, planted: str) -> None:
    """F84: nor does the process that reads a backlog, which is of the same program and none of the folder's."""
    repository, ran, out = tmp_path / "repository", tmp_path / "ran", tmp_path / "out"
    (repository / planted).parent.mkdir(parents=True)
    (repository / planted).write_text(f"open({str(ran)!r}, 'w'); raise SystemExit('planted')")
    for session in ("a", "b"):
        write(home, conversation(session, "first", "second"), session)
    with out.open("wb") as said:
        daemon = subprocess.Popen(
            [sys.executable, "-P", "-c", _READS_APART, "run"],
            env=environment(home),
            cwd=repository,
            stdout=said,
            stderr=said,
        )
    try:
        until(lambda: home.ledger.exists() and home.ledger.read_text().count('"kind":"turn"') >= 2, 60, out.read_text)
    finally:
        daemon.terminate()
        daemon.wait(60)
    assert "burnd.recording.child_process" in out.read_text()
    assert "reader_gone" not in out.read_text()
    assert not ran.exists()


@pytest.mark.parametrize("thing", ["ledger.jsonl", "burnd.lock", "index"])
def test_obstacles_to_a_start_are_reported_in_one_line(home: Home, thing: str) -> None:
    """A folder or a file where another kind should be stops the start with a sentence, not a traceback."""
    home.root.mkdir(mode=0o700)
    if thing == "index":
        (home.root / thing).write_bytes(b"")
    else:
        (home.root / thing).mkdir()
    done = run(home, "run")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert thing in done.stderr


def test_deleting_the_lock_file_admits_no_second_daemon(home: Home) -> None:
    """F61: the folder is locked, not a file in it."""
    with running(home):
        home.lock.unlink()
        assert run(home, "run").returncode == 5


def test_an_open_home_of_ours_is_closed(home: Home) -> None:
    """F82: a home that others may read is made private."""
    home.root.mkdir()
    home.root.chmod(0o755)
    with running(home):
        assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
