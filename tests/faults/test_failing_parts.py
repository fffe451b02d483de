"""F77, F42, F83: parts that fail beside recording are restarted and reported, without leaking their error text."""

from __future__ import annotations

import pytest

from burnd.paths import Home
from tests.faults import tally
from tests.faults.canaries import CANARY
from tests.faults.failing_parts import PARTS
from tests.faults.watched import Watched, answers, sum_of, turns_in, whole
from tests.server.spool import put_in_spool, stamp_record
from tests.server.wire import Daemon, running, until

SCRIPT = "tests.faults.failing_parts"
NEEDED = "a part nothing goes on without"
BESIDE = [part for part in PARTS if part not in (NEEDED, "the server", "the ledger", "the index writer")]
TOLD = {"search", "attribution", "retention", "following prices"}


def test_recording_goes_on_while_everything_beside_it_fails(home: Home) -> None:
    """F77: each part is reported as degraded and retried; turns are recorded, requests answered."""
    failing = ",".join(BESIDE)
    keep = {"RELAYBURN_CONTENT_TTL_DAYS": "3000"}
    with running(home, script=SCRIPT, FAILING=failing, FAILING_BY="KeyError", ready=True, **keep) as daemon:
        watched = Watched(home, daemon)
        put_in_spool(home.spool, stamp_record("a"))
        for n in range(3):
            watched.append("a", whole(answers("a", n, 1)))
            watched.until_recorded("a", sum_of(*range(n + 1)))
        until(lambda: _told(watched) >= TOLD, 60, lambda: str(watched.call("status")["degraded"]))
        assert "the spool cannot be read: KeyError" in str(watched.call("status")["degraded"])
        tried = _tries(home)
        until(lambda: _tries(home) >= tried + len(TOLD), 60, daemon.why)
        assert daemon.terminate() == 0
        assert CANARY not in daemon.log.read_text()
    tally.faults(len(BESIDE))


def _told(watched: Watched) -> set[str]:
    said = [notice["what"].partition(" stopped on KeyError") for notice in watched.call("status")["degraded"]]
    return {part for part, stopped, _ in said if stopped}


def _tries(home: Home) -> int:
    return (home.root.parent / "tries").stat().st_size


@pytest.mark.slow
def test_an_index_writer_with_an_unforeseen_failure(home: Home) -> None:
    """F77, P2: the source that met it is started again, the index catches up with the ledger; nothing is twice."""
    with running(home, script=SCRIPT, FAILING="the index writer", FAILING_BY="KeyError", FAILING_ONCE="1") as daemon:
        watched = Watched(home, daemon)
        _arm(home)
        watched.append("a", whole(answers("a", 0, 12)))
        watched.until_recorded("a", sum_of(*range(12)))
        until(lambda: sum(source["restarts"] for source in watched.call("status")["sources"]) == 1, 60, daemon.why)
        watched.flush()
        assert daemon.terminate() == 0
        assert CANARY not in daemon.log.read_text()
    assert len(turns_in(home)) == len(set(turns_in(home))) == 12
    tally.faults()


@pytest.mark.slow
def test_a_ledger_that_cannot_be_written_ends_the_daemon(home: Home) -> None:
    """F77, P4: with code 1, before any cursor has moved: the next start reads it all again."""
    with running(home, script=SCRIPT, FAILING="the ledger", FAILING_BY="StorageError", FAILING_ONCE="1") as daemon:
        _arm(home)
        Watched(home, daemon).append("a", whole(answers("a", 0, 12)))
        assert daemon.process.wait(60) == 1, daemon.why()
    with running(home) as daemon:
        assert Watched(home, daemon).recorded("a") == sum_of(*range(12))
        assert daemon.terminate() == 0
    assert len(turns_in(home)) == len(set(turns_in(home))) == 12
    tally.faults()


@pytest.mark.slow
def test_a_server_that_fails_ends_the_daemon(home: Home) -> None:
    """F77, F83: without its socket the daemon ends with code 1, without the text of the failure."""
    said = _said_by_one_that_ends(home, "the server", "KeyError")
    assert CANARY not in said
    assert "burnd: stopped on KeyError at failing_parts.py:" in said


def _arm(home: Home) -> None:
    (home.root.parent / "armed").touch()


def test_a_sync_that_fails_in_any_part_ends_the_daemon(home: Home) -> None:
    """F42: the daemon stops, whichever part met the failure."""
    assert '"error": "SyncFailed"' in _said_by_one_that_ends(home, "search", "SyncFailed")


@pytest.mark.parametrize("kind", ["KeyError", "OSError", pytest.param("ValueError", marks=pytest.mark.slow)])
def test_an_unforeseen_error_is_logged_without_its_text(home: Home, kind: str) -> None:
    """F83: the log and the last line contain the type and place of an unforeseen error, never its text."""
    said = _said_by_one_that_ends(home, NEEDED, kind)
    assert CANARY not in said
    assert f"burnd: stopped on {kind} at failing_parts.py:" in said
    assert "Traceback" not in said


def test_a_failing_thread_is_logged_without_its_text(home: Home) -> None:
    """F83: Python itself would print them."""
    with running(home, script=SCRIPT, FAILING_THREAD="1", FAILING_BY="KeyError") as daemon:
        until(lambda: "failing_parts.py:" in daemon.log.read_text(), 60, daemon.why)
        assert daemon.terminate() == 0
        assert CANARY not in daemon.log.read_text()
        assert "Traceback" not in daemon.log.read_text()


def _said_by_one_that_ends(home: Home, part: str, kind: str) -> str:
    daemon = Daemon(home, script=SCRIPT, FAILING=part, FAILING_BY=kind)
    try:
        assert daemon.process.wait(60) == 1, daemon.why()
    finally:
        daemon.kill()
    tally.faults()
    return daemon.log.read_text()
