"""Part D: files on bad sectors or without permissions, sidecars in particular."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from tests.faults import tally
from tests.faults.shims import built, needs_shims
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.server.wire import environment, running, until


def _two_sessions(home: Home) -> Path:
    """A home with content of two sessions, its daemon stopped; the first one's sidecar."""
    with running(home) as daemon:
        watched = Watched(home, daemon)
        for session in ("a", "b"):
            watched.append(session, whole(answers(session, 0, 6)))
        watched.flush()
        assert daemon.terminate() == 0
    return home.content / "a.jsonl"


@needs_shims
@pytest.mark.parametrize("indexed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sidecar_on_bad_sectors_hurts_only_itself(home: Home, tmp_path: Path, indexed: bool) -> None:
    """F45, P7: the daemon starts, with or without an index; all turns are there and new ones arrive, the other
    session's text can be read and searched; status and check name the file. New text goes to a new file."""
    sidecar = _two_sessions(home)
    if not indexed:
        shutil.rmtree(home.index)
    bad: dict[str, Any] = {"LD_PRELOAD": str(built("bad_sector", tmp_path)), "BAD_INODE": str(sidecar.stat().st_ino)}
    checked = [sys.executable, "-m", "burnd", "check"]
    said = subprocess.run(checked, env=environment(home, **bad), capture_output=True, text=True, check=False)
    assert f"{sidecar}: Input/output error" in said.stdout
    with running(home, **bad) as daemon:
        watched = Watched(home, daemon)
        assert len(watched.texts("b")) == 6
        until(
            lambda: [hit["sessionId"] for hit in watched.call("sessions.search", query="0 of b")["hits"]][:1] == ["b"]
        )
        for session in ("a", "b", "c"):
            watched.append(session, whole(answers(session, 6, 2)))
        watched.until_recorded("c", sum_of(6, 7))
        assert [watched.recorded(session) for session in ("a", "b")] == 2 * [sum_of(*range(8))]
        kept = range(6, 8) if indexed else range(8)  # without an index its log, which is still there, was read again
        assert sorted(watched.texts("a")) == [f"answer {n} of a" for n in kept]
        told = [one["what"] for one in watched.call("status")["degraded"]]
        assert told == [f"the content of a session cannot be read: {sidecar}.aside: Input/output error"]
        watched.call("content.forget", session="a")
        assert not list(home.content.glob("a.*"))
        assert watched.call("status")["degraded"] == []
        assert daemon.terminate() == 0
    tally.faults()


def test_rights_to_a_sidecar_that_were_taken_away_are_taken_back(home: Home, tmp_path: Path) -> None:
    """F52, P7: the file is ours: nothing waits for a person, at the start or later, and what it holds is there."""
    sidecar = _two_sessions(home)
    shutil.rmtree(home.index)
    sidecar.chmod(0)
    with running(home, script="tests.faults.unprivileged", BURND_SOCKET=str(tmp_path / "s")) as daemon:
        watched = Watched(home, daemon)
        assert len(watched.texts("a")) == 6
        (home.content / "b.jsonl").chmod(0o400)
        for session in ("a", "b"):
            watched.append(session, whole(answers(session, 6, 1)))
            watched.until_recorded(session, sum_of(*range(7)))
            assert len(watched.texts(session)) == 7
        assert watched.call("status")["degraded"] == []
    assert {path.stat().st_mode & 0o777 for path in home.content.glob("*.jsonl")} == {0o600}
    tally.faults(2)


_LARGE = "large " * 2000  # no sidecar's, but a blob


@needs_shims
@pytest.mark.slow
@pytest.mark.parametrize("file", ["content/blobs.db", "index/burn.db", "index/searching", "index/reading.claude-code"])
def test_bad_sectors_elsewhere_stop_no_recording(home: Home, tmp_path: Path, file: str) -> None:
    """F53, P5, P7: derived files are rebuilt; large texts that cannot be read are moved aside and reported."""
    with running(home) as daemon:
        watched = Watched(home, daemon)
        watched.append("a", whole(answers("a", 0, 6, words=_LARGE)))
        watched.flush()
        until(lambda: not watched.call("status")["search"]["pending"])
        assert daemon.terminate() == 0
    bad: dict[str, Any] = {"LD_PRELOAD": str(built("bad_sector", tmp_path))}
    with running(home, **bad, BAD_INODE=str((home.root / file).stat().st_ino)) as daemon:
        watched = Watched(home, daemon)
        watched.append("a", whole(answers("a", 6, 2, words=_LARGE)))
        watched.until_recorded("a", sum_of(*range(8)))
        assert [said for said in watched.texts("a") if "7 of a" in said] == [f"{_LARGE} 7 of a"]
        until(lambda: len(watched.call("sessions.search", query="large")["hits"]) == 1)
        told = [one["what"] for one in watched.call("status")["degraded"]]
        assert told == (["the file of large content was damaged and was renamed"] if "blobs" in file else [])
        assert daemon.terminate() == 0
    tally.faults()


@needs_shims
@pytest.mark.slow
def test_a_ledger_on_bad_sectors_is_named(home: Home, tmp_path: Path) -> None:
    """F46, P3: without the ledger the daemon ends with code 1, the path and the reason."""
    _two_sessions(home)
    before = home.ledger.read_bytes()
    bad = {"LD_PRELOAD": str(built("bad_sector", tmp_path)), "BAD_INODE": str(home.ledger.stat().st_ino)}
    command = [sys.executable, "-m", "burnd", "run"]
    done = subprocess.run(
        command, env=environment(home, **bad), capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"burnd: {home.ledger}: Input/output error")
    assert home.ledger.read_bytes() == before
    tally.faults()
