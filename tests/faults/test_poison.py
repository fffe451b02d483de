"""F78: what crashes the daemon again and again is skipped at last, and only that; what is killed from outside never."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from burnd import __version__
from burnd.logfiles.tail import FATAL, FATAL_WORDS
from burnd.paths import Home
from tests.faults import tally
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.harness.opencode import data as opencode
from tests.server.wire import Daemon, running, until

SCRIPT = "tests.faults.poison"


def _die(home: Home, poison: str, times: int = 3, by: int = signal.SIGABRT) -> None:
    for _ in range(times):
        daemon = Daemon(home, script=SCRIPT, POISON=poison)
        try:
            assert daemon.process.wait(60) == -by, daemon.why()
        finally:
            daemon.kill()
        tally.faults()


@contextmanager
def _a_life(home: Home, poison: str) -> Iterator[Watched]:
    """One that lasts."""
    with running(home, script=SCRIPT, POISON=poison) as daemon:
        yield Watched(home, daemon)
        assert daemon.terminate() == 0, daemon.why()


def _log(home: Home, session: str, *words: str) -> Path:
    """A log with an answer for each of these words, the n-th of 2**n tokens."""
    path = home.root.parent / ".claude" / "projects" / "-home-dev-app" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(whole([line for n, word in enumerate(words) for line in answers(session, n, 1, words=word)]))
    return path


def _source(watched: Watched, name: str) -> dict[str, Any]:
    (found,) = [source for source in watched.call("status")["sources"] if source["name"] == name]
    return dict(found)


@pytest.mark.parametrize("poison", ["line", "memory"])
def test_a_poisonous_line(home: Home, poison: str) -> None:
    """F78: everything around the line is read, and status shows its position, after restarts too. The daemon dies once,
    then a child process reads the log and crashes three times or runs out of memory."""
    path = _log(home, "s1", "before", "poison", "after")
    _die(home, poison, times=1)
    for skipped in (1, 0):
        with _a_life(home, poison) as watched:
            assert watched.recorded("s1") == sum_of(0, 2)
            assert "source.reader_crashed" in watched.daemon.why()
            source = _source(watched, "claude-code")
            assert source["counts"].get("skipped lines", 0) == skipped
            (line,) = source["unused"]["lines"]
            assert (line["path"], line["reason"]) == (str(path), FATAL)
            assert b"poison" in path.read_bytes()[line["offset"] :][: line["size"]]
            assert str(path) in json.dumps(watched.call("status")["degraded"])
            assert "source.line_skipped" in watched.daemon.why()


def test_a_poisonous_line_in_a_backlog(home: Home) -> None:
    """F78: it only ever crashes children, and the daemon lives on."""
    _log(home, "s1", "before", "poison", "after")
    _log(home, "s2", "before", "after")
    with _a_life(home, "backlog") as watched:
        until(lambda: watched.recorded("s1") == sum_of(0, 2), why=watched.daemon.why)
        assert watched.recorded("s2") == sum_of(0, 1)
        assert [line["reason"] for line in _source(watched, "claude-code")["unused"]["lines"]] == [FATAL]


def test_a_skipped_line_is_tried_again_after_an_upgrade(home: Home) -> None:
    """F78: read from its start, so that nothing is missing and nothing is twice."""
    _log(home, "s1", "before", "poison", "after")
    _die(home, "line", times=1)
    with _a_life(home, "line") as watched:
        assert watched.recorded("s1") == sum_of(0, 2)
    note = home.index / "reading.claude-code"
    suspects, item, crashes = _note(note)
    assert [one[2:] for one in crashes] == [[3, crashes[0][3], __version__]]
    _write_note(note, [suspects, item, [[*crashes[0][:4], "0.0.1"]]])
    with _a_life(home, "nothing") as watched:
        until(lambda: watched.recorded("s1") == sum_of(0, 1, 2), why=watched.daemon.why)
        assert not _source(watched, "claude-code")["unused"]["lines"]
        assert {said.split()[0] for said in watched.texts("s1")} == {"before", "poison", "after"}
        assert len(watched.texts("s1")) == 3
    assert _note(note) == [[], None, []]


def test_a_line_over_which_burnd_is_killed_is_never_skipped(home: Home) -> None:
    """F78: kill -9 by a user or the OOM killer proves nothing, however often it happens at the same line."""
    _log(home, "s1", "before", "poison", "after")
    _die(home, "kill", times=5, by=signal.SIGKILL)
    with _a_life(home, "nothing") as watched:
        assert watched.recorded("s1") == sum_of(0, 1, 2)
        assert not _source(watched, "claude-code")["unused"]["lines"]
        assert "source.reader_crashed" not in watched.daemon.why()


@pytest.mark.slow
def test_poisonous_words(home: Home) -> None:
    """F78: in a log whose line is readable: the turn counts, and only the text is dropped."""
    path = _log(home, "s1", "before", "poison", "after")
    _die(home, "words", times=1)
    for _ in range(2):
        with _a_life(home, "words") as watched:
            assert watched.recorded("s1") == sum_of(0, 1, 2)
            assert [said.split()[0] for said in watched.texts("s1")] == ["before", "after"]
            (line,) = _source(watched, "claude-code")["unused"]["lines"]
            assert (line["path"], line["reason"]) == (str(path), FATAL_WORDS)


@pytest.mark.slow
def test_a_poisonous_row(home: Home) -> None:
    """F78: of opencode's database; its other rows and other sessions are recorded, and status names the message.

    The daemon dies once, then a child decodes the session and crashes three times.
    """
    path = home.root.parent / ".local" / "share" / "opencode" / "opencode.db"
    with closing(opencode.Writer(path)) as writer:
        writer.clock = time.time_ns() // 1_000_000
        for session in ("ses_a", "ses_b"):
            writer.session(session)
            writer.user(f"u-{session}", session, "go")
            for n in range(3):
                words = "poison" if (session, n) == ("ses_b", 1) else "fine"
                usage = opencode.tokens(input=5, output=1 << n)
                writer.step(f"{session}-{n}", session, f"u-{session}", opencode.text(words), tokens=usage)
        _die(home, "row", times=1)
        for _ in range(2):
            with _a_life(home, "row") as watched:
                assert watched.recorded("ses_a") == sum_of(0, 1, 2)
                assert watched.recorded("ses_b") == sum_of(0, 2)
                assert "passes over message ses_b-1 of ses_b," in json.dumps(watched.call("status")["degraded"])


@pytest.mark.slow
def test_a_poisonous_document(home: Home) -> None:
    """F78: search dies over it in the background; all else is found, and status names the message."""
    for session in ("s1", "s2", "s3"):
        _log(home, session, "before", "poison" if session == "s2" else "fine", "after")
    _die(home, "document")
    for _ in range(2):
        with _a_life(home, "document") as watched:
            assert watched.recorded("s2") == sum_of(0, 1, 2)
            _until_searched(watched)
            assert len(watched.call("sessions.search", query="after")["hits"]) == 3
            assert len(watched.call("sessions.search", query="fine")["hits"]) == 2
            assert watched.call("sessions.search", query="poison")["hits"] == []
            assert "search passes over message main s2-m1 of s2," in json.dumps(watched.call("status")["degraded"])


@pytest.mark.slow
def test_a_poisonous_session(home: Home) -> None:
    """F78: search dies over it, but over no message of it: after ten deaths the session is passed over."""
    for session in ("s1", "poison", "s3"):
        _log(home, session, "before", "after")
    _die(home, "session", times=10)
    for _ in range(2):
        with _a_life(home, "session") as watched:
            assert watched.recorded("poison") == sum_of(0, 1)
            _until_searched(watched)
            assert len(watched.call("sessions.search", query="after")["hits"]) == 2
            assert "search passes over poison," in json.dumps(watched.call("status")["degraded"])


def test_an_end_that_is_wanted_is_no_death(home: Home) -> None:
    """F78, F75: a regular stop during any work raises no suspicion at the next start."""
    _log(home, "s", *("words " * 200 for _ in range(30)))
    with running(home) as daemon:
        until(lambda: b"s-m5" in home.ledger.read_bytes())
        assert daemon.terminate() == 0
    for name in ("reading.claude-code", "reading.opencode", "searching", "counting"):
        places, item, condemned = _note(home.index / name)
        assert (places, item, condemned) == ([], None, []), name


def _write_note(path: Path, note: list[Any]) -> None:
    data = msgspec.msgpack.encode(note)
    path.write_bytes(len(data).to_bytes(4, "big") + data)


def _note(path: Path) -> list[Any]:
    data = path.read_bytes()
    found: list[Any] = msgspec.msgpack.decode(data[4 : 4 + int.from_bytes(data[:4], "big")])
    return found


@pytest.mark.slow
def test_a_poisonous_turn(home: Home) -> None:
    """F78: counting its causes kills; they are not explained, and those of all others are."""
    _log(home, "poison", "one", "two")
    _log(home, "s2", "one", "two")
    _die(home, "turn")
    for _ in range(2):
        with _a_life(home, "turn") as watched:
            assert watched.recorded("poison") == sum_of(0, 1)
            _until_counted(watched)
            causes = watched.call("hotspots")
            assert "unexplained" in json.dumps(causes)
            assert "causes passes over" not in json.dumps(causes)
            assert "causes passes over piece" in json.dumps(watched.call("status")["degraded"])


def _until_searched(watched: Watched) -> None:
    def is_done() -> bool:
        search = watched.call("status")["search"]
        return search["state"] == "ready" and not search["pending"]

    until(is_done, why=watched.daemon.why)


def _until_counted(watched: Watched) -> None:
    until(lambda: watched.call("status")["causes"]["state"] == "ready", why=watched.daemon.why)
