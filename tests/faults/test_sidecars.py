"""Part D, where the trouble is one session's sidecar: it cannot be read, or may not be."""

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
    """F45, P7: it keeps no daemon from starting, with or without an index; all turns are there and come in, the other
    session's words are read and found; status and check name the file. What is said next is kept in a new one."""
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
        assert told == [f"what was said in a session cannot be read: {sidecar}.aside: Input/output error"]
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
