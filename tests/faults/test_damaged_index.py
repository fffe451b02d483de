"""F53, F48, P5: an index damaged while no daemon ran: each table, and values that cannot be decoded."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from burnd import protocol
from burnd.paths import Home
from tests.faults import tally
from tests.faults.canaries import CANARY
from tests.faults.shims import built, needs_shims
from tests.faults.watched import EVERYTHING, SESSIONS, Watched, answers, started, sum_of, turns_in, whole
from tests.harness.claude_code.transcript import Transcript, text
from tests.server.wire import running, until

PAGE = 4096
MET_AT_START = ("files", "cursors", "tiers")


def _tables(home: Home) -> dict[str, int]:
    """Every table and index of the index, by its first page."""
    with closing(sqlite3.connect(home.index_db)) as db:
        return dict(db.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 1 ORDER BY name"))


def _garble(home: Home, table: str) -> None:
    with home.index_db.open("r+b") as file:
        file.seek((_tables(home)[table] - 1) * PAGE)
        file.write(random.Random(table).randbytes(PAGE))


def _answers(watched: Watched) -> dict[str, Any]:
    """Answers about the three sessions, without refusals."""
    asked: dict[str, dict[str, Any]] = {by: {"by": by} for by in ("session", "model", "tag:step", "activity")}
    with watched.daemon.wire() as wire:
        said = {by: wire.ask("summary", **params) for by, params in asked.items()}
        said |= {method: wire.ask(method) for method in ("stamps.list", "hotspots")}
    results = {name: answer["result"] for name, answer in said.items() if "result" in answer}
    assert all(answer["error"]["code"] == protocol.NOT_NOW for answer in said.values() if "error" in answer), said
    return {name: TOLD[name](result) for name, result in results.items()}


def _heals(home: Home, table: str, before: dict[str, Any], n: int) -> None:
    """Garbles a table of a stopped daemon; the next start makes it good. Whatever is answered meanwhile is right."""
    _garble(home, table)
    with started(home) as watched:
        watched.append(f"later-{n}", whole(answers(f"later-{n}", 0, 1)))

        def is_healed() -> bool:
            said = _answers(watched)
            assert said == {name: before[name] for name in said}, f"{table}: a wrong answer"
            return said.keys() == before.keys() and watched.outputs(f"later-{n}") == sum_of(0)

        until(is_healed, 60, watched.daemon.why)
        watched.flush()
        assert _answers(watched) == before, table
        assert watched.daemon.terminate() == 0, table
    turns = [line for line in home.ledger.read_bytes().splitlines() if b'"kind":"turn"' in line]
    assert len(turns) == len(set(turns)) == 36 + n + 1, f"{table}: something was appended twice, or lost"


def without_share(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "share"}


# Of each answer, what does not change when other sessions come.
TOLD: dict[str, Callable[[dict[str, Any]], Any]] = {
    "session": lambda said: [without_share(row) for row in said["rows"] if not row["key"].startswith("later")],
    "model": lambda said: [row["key"] for row in said["rows"]],
    "tag:step": lambda said: [without_share(row) for row in said["rows"] if row["key"] == "plan"],
    "activity": lambda said: [row["key"] for row in said["rows"]],
    "stamps.list": lambda said: said["stamps"],
    "hotspots": lambda said: None,
}


def _stopped(home: Home) -> dict[str, Any]:
    """Answers of a daemon that was stopped cleanly."""
    with started(home) as watched:
        until(lambda: _answers(watched).keys() == TOLD.keys())
        before = _answers(watched)
        assert len(before["session"]) == len(SESSIONS)
        assert watched.daemon.terminate() == 0
    return before


@pytest.mark.slow
@pytest.mark.usefixtures("expected_reports")
def test_a_page_that_is_damaged_after_a_clean_stop(home: Home) -> None:
    """F53, F78, P5: any part may find it; the index is rebuilt while the daemon runs, and no answer is wrong."""
    before = _stopped(home)
    for n, table in enumerate(MET_AT_START):
        _heals(home, table, before, n)
        tally.faults()


@pytest.mark.slow
@pytest.mark.usefixtures("expected_reports")
def test_a_page_of_any_table_that_is_damaged_after_a_clean_stop(home: Home) -> None:
    """F53, F78, P5: the same for the first page of every table and every index there is."""
    before = _stopped(home)
    for n, table in enumerate(_tables(home)):
        _heals(home, table, before, n)
        tally.faults()


# What is stored as a value, and where: none of it may be needed for anything to be right.
VALUES = {
    "cursor of a log": "UPDATE files SET cursor = {}",
    "state of a log": "UPDATE files SET state = {}",
    "cursor of one log": "UPDATE files SET cursor = {} WHERE path LIKE '%/a.jsonl'",
    "state of one log": "UPDATE files SET state = {} WHERE path LIKE '%/a.jsonl'",
    "open turn": "UPDATE open_turns SET record = {}",
    "any cursor": "UPDATE cursors SET value = {}",
    "retention": "UPDATE cursors SET value = {} WHERE source = 'retention'",
    "tags": "UPDATE stamps SET enrichment = {}",
}
BYTES = {
    "no value": b"\xff\x00",
    "nothing": b"",
    "another value": b"\x90",
    "a large frame": b"\x28\xb5\x2f\xfd\xe0" + b"\x7f" * 8,
}


@pytest.mark.slow
@pytest.mark.usefixtures("expected_reports")
@pytest.mark.parametrize("how", BYTES)
def test_each_value_that_cannot_be_read(home: Home, how: str) -> None:
    """F48: a damaged cursor or state counts as missing; nothing is lost or recorded twice."""
    for n, statement in enumerate(VALUES.values()):
        _survives(home, [statement.format(f"x'{BYTES[how].hex()}'")], n)
        tally.faults()


@pytest.mark.usefixtures("expected_reports")
def test_values_that_cannot_be_read(home: Home) -> None:
    """F48: all of them at once, those of logs and those of everything else."""
    _survives(home, [statement.format("x'ff00'") for name, statement in VALUES.items() if "log" in name], 0)
    _survives(home, [statement.format("x'ff00'") for name, statement in VALUES.items() if "log" not in name], 1)
    tally.faults(2)


def _survives(home: Home, statements: list[str], n: int) -> None:
    """Leaves the last answer of a log open, damages values while the daemon is down, and continues every log."""
    with started(home, RELAYBURN_CONTENT_TTL_DAYS="3000") as watched:
        watched.append("open", whole(answers("open", 2 * n, 1)))
        watched.until_recorded("open", sum_of(*range(2 * n + 1)))
        until(lambda: _found(watched))
        until(lambda: not watched.call("status")["search"]["pending"])  # what it found may not be said to be there yet
        assert watched.daemon.terminate() == 0
    with closing(sqlite3.connect(home.index_db)) as db:
        for statement in statements:
            assert db.execute(statement).rowcount, f"nothing there to be damaged: {statement}"
        db.commit()
    with started(home, RELAYBURN_CONTENT_TTL_DAYS="3000") as watched:
        for session in ("a", "b"):
            watched.append(session, whole(answers(session, 12 + n, 1)))
            watched.until_recorded(session, sum_of(*range(13 + n)))
        watched.append("open", whole(answers("open", 2 * n + 1, 1)))
        watched.until_recorded("open", sum_of(*range(2 * n + 2)))
        watched.flush()
        assert watched.outputs("c") == EVERYTHING
        assert watched.texts("a") == [f"answer {k} of a" for k in range(13 + n)]
        until(lambda: _found(watched) == [("a", 3)], 60, lambda: str(_found(watched)))
        until(lambda: watched.call("status")["degraded"] == [], 60, lambda: str(watched.call("status")["degraded"]))
        assert watched.daemon.terminate() == 0
    said = turns_in(home)
    assert len(said) == len(set(said)) == len({message for message, _ in said}), "something was appended twice"


def _found(watched: Watched) -> list[tuple[str, int]]:
    """Sessions in which search finds earlier words."""
    with watched.daemon.wire() as wire:
        answer = wire.ask("sessions.search", query='"answer 3 of a"')
    return [(hit["sessionId"], hit["msgIdx"]) for hit in answer.get("result", {}).get("hits", [])]


@needs_shims
@pytest.mark.usefixtures("expected_reports")
def test_damage_that_is_found_while_the_disk_is_full(home: Home) -> None:
    """F53, F41: the rebuild waits for space, repeatedly, and the daemon runs on."""
    for table in ("quotas", "quotas_by_time", "quotas_by_reset"):  # which are read by one question alone
        _garble(home, table)
    flag = home.root.parent / "full"
    shim = str(built("full_disk", home.root.parent))
    with started(home, LD_PRELOAD=shim, FULL_BELOW=str(home.root), FULL_WHILE=str(flag)) as watched:
        flag.write_text(str(errno.ENOSPC))
        with watched.daemon.wire() as wire:
            assert wire.error("limits")["code"] == protocol.NOT_NOW
            until(lambda: watched.daemon.log.read_text().count("index.waiting") > 0, 60, watched.daemon.why)
            assert wire.error("limits")["code"] == protocol.NOT_NOW
            assert "the index is damaged" in str(wire.call("status")["degraded"])
        flag.unlink()
        with watched.daemon.wire() as wire:
            until(lambda: "result" in wire.ask("limits"), 60, watched.daemon.why)
        assert watched.recorded("a") == EVERYTHING
        assert watched.daemon.terminate() == 0
    tally.faults()


@pytest.mark.usefixtures("expected_reports")
def test_text_that_is_no_text(home: Home) -> None:
    """F53, F83: names that are no UTF-8 any more are damage like any other, and the log does not quote them."""
    text = f"CAST(x'{CANARY.encode().hex()}ff' AS TEXT)"
    with closing(sqlite3.connect(home.index_db)) as db:
        db.execute(f"UPDATE names SET name = {text} WHERE name = 'claude-code'")
        db.execute(f"UPDATE sessions SET harness_title = {text} WHERE session_id = 'a'")
        db.commit()
    with started(home) as watched:
        watched.append("a", whole(answers("a", 12, 1)))
        watched.until_recorded("a", sum_of(*range(13)))
        with watched.daemon.wire() as wire:
            until(lambda: "result" in wire.ask("sessions.list"), 60, watched.daemon.why)
        assert {watched.recorded(session) for session in ("b", "c")} == {EVERYTHING}
        assert watched.daemon.terminate() == 0
        assert CANARY not in watched.daemon.log.read_text()
        assert "index.rebuilt" in watched.daemon.log.read_text()
    tally.faults()


@pytest.mark.parametrize("end", ["killed", "stopped", pytest.param("none", marks=pytest.mark.slow)])
def test_an_open_turn_whose_log_is_gone_outlives_the_index(home: Home, end: str) -> None:
    """F53, P1: only the index has it; damage elsewhere in the index does not lose it. Damage is found by the check
    after a crash, by a reader after a clean stop, or by the writer."""
    with started(home) as watched:
        path = watched.append("open", whole(answers("open", 0, 3)))
        watched.append("other", whole(answers("other", 0, 3)))
        until(lambda: watched.outputs("open") == watched.outputs("other") == sum_of(0, 1, 2))
        ends: dict[str, Callable[[], object]] = {"killed": watched.daemon.kill, "stopped": watched.daemon.terminate}
        ends.get(end, watched.stop)()
        assert b"open-m2" not in home.ledger.read_bytes()
        path.unlink()
        _garble(home, "cursors")
        if end == "none":
            watched.go_on()
            watched.append("other", whole(answers("other", 3, 3)))
            until(lambda: watched.outputs("other") == sum_of(*range(6)), 60, watched.daemon.why)
            watched.daemon.kill()
    with started(home) as watched:
        watched.append("other", whole(answers("other", 6, 2)))
        until(lambda: watched.outputs("other") >= sum_of(6, 7))
        watched.flush()
        assert watched.outputs("open") == sum_of(0, 1, 2)
    assert home.ledger.read_bytes().count(b'"messageId":"open-m2"') == 1
    tally.faults()


def test_an_older_index_takes_nothing_back_that_the_ledger_has_settled(home: Home) -> None:
    """F53, P1: after a power loss the index is old and damaged; the ledger has the final state of the turn."""
    older = home.root.parent / "older"
    grown = Transcript(session="open", prefix="grown-u")
    grown.says("open-m2", text("more of it"), output=1 << 9, ts="2026-11-16T10:02:01.000Z")
    with started(home) as watched:
        path = watched.append("open", whole(answers("open", 0, 3)))
        watched.until_recorded("open", sum_of(0, 1, 2))
        watched.stop()
        shutil.copytree(home.index, older)
        watched.go_on()
        watched.append("open", whole(grown.lines))
        until(lambda: watched.recorded("open") == sum_of(0, 1, 9))
        watched.daemon.kill()
    path.unlink()
    shutil.rmtree(home.index)
    older.rename(home.index)
    _garble(home, "cursors")
    with started(home) as watched:
        assert watched.recorded("open") == sum_of(0, 1, 9)
    assert home.ledger.read_bytes().count(b'"messageId":"open-m2"') == 1
    tally.faults()


def test_an_index_that_cannot_be_opened_is_waited_for(home: Home) -> None:
    """F53, F41: damaged, in a folder without write permission: status reports it, and it is rebuilt once writable."""
    with started(home) as watched:
        watched.append("s", whole(answers("s", 0, 3)))
        assert watched.recorded("s") == sum_of(0, 1, 2)
        assert watched.daemon.terminate() == 0
    _garble(home, "cursors")
    home.index.chmod(0o500)
    with running(home, script="tests.faults.unprivileged", ready=False) as daemon:
        watched = Watched(home, daemon)
        until(lambda: daemon.state() == "starting", 60, daemon.why)
        until(lambda: "waiting: cannot be" in str(watched.call("status")), 60, daemon.why)
        home.index.chmod(0o700)
        daemon.wait_until_ready()
        watched.append("s", whole(answers("s", 3, 3)))
        assert watched.recorded("s") == sum_of(*range(6))
        assert daemon.terminate() == 0
    tally.faults()


@pytest.mark.slow
def test_an_obstacle_in_the_place_of_the_index(home: Home, expected_reports: dict[str, Any]) -> None:
    """F54, P5: a link, a folder or a pipe in the place of the index is moved aside, and the index is rebuilt."""
    put: list[Callable[[Path], Any]] = [lambda path: path.symlink_to("elsewhere"), Path.mkdir, os.mkfifo]
    for n, one in enumerate(put):
        home.index_db.unlink()
        one(home.index_db)
        with started(home) as watched:
            assert {watched.outputs(session) for session in SESSIONS} == {EVERYTHING}
            assert watched.daemon.terminate() == 0
        foreign = home.index / "burn.db.foreign"
        assert os.path.lexists(foreign)
        foreign.rename(home.index / f"{n}")
        assert home.index_db.is_file()
    tally.faults(len(put))
