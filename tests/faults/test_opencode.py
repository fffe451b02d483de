"""Part C: opencode's database, which changes under our eyes, is locked, replaced, damaged and newer than we know."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from tests.faults import tally
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.harness.opencode import data as opencode
from tests.server.wire import Daemon, noise, running, until

SESSION = "ses_f"


@pytest.fixture
def path(home: Home) -> Path:
    return home.root.parent / ".local" / "share" / "opencode" / "opencode.db"


@pytest.fixture
def database(path: Path) -> Iterator[opencode.Writer]:
    with closing(opencode.Writer(path)) as writer:
        writer.clock = time.time_ns() // 1_000_000
        writer.session(SESSION)
        writer.user("u", SESSION, "go")
        yield writer


@pytest.fixture
def watched(home: Home) -> Iterator[Watched]:
    with running(home) as daemon:
        yield Watched(home, daemon)


def _step(writer: opencode.Writer, n: int, name: str | None = None) -> str:
    """The n-th step, which has 2**n output tokens."""
    usage = opencode.tokens(input=5, output=1 << n)
    return writer.step(name or f"a{n}", SESSION, "u", opencode.text(f"step {n}"), tokens=usage)


def _source(watched: Watched) -> dict[str, Any]:
    (source,) = [s for s in watched.call("status")["sources"] if s["name"] == "opencode"]
    return dict(source)


def test_rows_that_are_filled_later(database: opencode.Writer, watched: Watched) -> None:
    """F29: a row first seen empty has its final numbers in the ledger."""
    begun = opencode.assistant("u", database.tick())
    database.message("late", SESSION, database.clock, begun)
    until(lambda: watched.call("summary")["totals"]["openTurns"] == 1)
    usage = opencode.tokens(input=5, output=77)
    database.part("late", SESSION, {"type": "step-finish", "reason": "stop", "cost": 0, "tokens": usage})
    ended = {"tokens": usage, "finish": "stop", "time": {"created": 1, "completed": database.tick()}}
    database.update("late", begun | ended)
    watched.until_recorded(SESSION, 77)
    assert watched.recorded(SESSION) == 77
    turns = [json.loads(line)["record"] for line in watched.home.ledger.read_bytes().splitlines() if b'"turn"' in line]
    assert [(turn["messageId"], turn["usage"]["output"]) for turn in turns] == [("late", 77)]


def test_numbers_that_are_given_out_again(database: opencode.Writer, watched: Watched) -> None:
    """F30: the newest rows deleted and others written under their numbers, a REPLACE: nothing missed, nothing twice."""
    for n in range(4):
        _step(database, n)
    assert watched.recorded(SESSION) == sum_of(0, 1, 2, 3)
    database.delete("a2", "a3")
    _step(database, 4)
    _step(database, 5)
    (row,) = database.db.execute("SELECT * FROM message WHERE id = 'a1'").fetchall()
    database.db.execute(f"INSERT OR REPLACE INTO message VALUES({','.join('?' * len(row))})", row)
    assert watched.recorded(SESSION) == sum_of(*range(6))
    tally.faults(2)


def test_a_copy_in_its_place(database: opencode.Writer, watched: Watched, path: Path) -> None:
    """F30, F34: VACUUM INTO and a rename, as a restore does: rows of both are recorded, once."""
    _step(database, 0)
    assert watched.recorded(SESSION) == sum_of(0)
    new = path.with_name("restored.tmp")
    database.db.execute("VACUUM INTO ?", (str(new),))
    _step(database, 1)
    assert watched.recorded(SESSION) == sum_of(0, 1)
    database.close()
    for beside in path.parent.glob("opencode.db-*"):
        beside.unlink()
    os.replace(new, path)
    with closing(opencode.Writer(path, born=database.clock + 1000)) as writer:
        _step(writer, 2)
        assert watched.recorded(SESSION) == sum_of(0, 1, 2)
    tally.faults()


@pytest.mark.slow
@pytest.mark.timed
def test_a_locked_database_is_waited_for(database: opencode.Writer, watched: Watched, path: Path) -> None:
    """F31: exclusively locked by another process: the source waits, the others continue, and it catches up."""
    _step(database, 0)
    assert watched.recorded(SESSION) == sum_of(0)
    database.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as greedy:
        greedy.execute("PRAGMA locking_mode = EXCLUSIVE")
        greedy.execute("BEGIN EXCLUSIVE")
        greedy.execute("UPDATE session SET title = 'mine'")
        until(lambda: _source(watched)["state"] == "waiting", why=lambda: str(_source(watched)))
        watched.append("beside", whole(answers("beside", 0, 2)))
        watched.until_recorded("beside", sum_of(0, 1))
        greedy.execute("COMMIT")
    began = time.monotonic()
    with closing(opencode.Writer(path, born=database.clock + 1000)) as writer:
        _step(writer, 1)
        watched.until_recorded(SESSION, sum_of(0, 1))
    # A second for the next try, two for a step to be quiet, and what the machine needs.
    assert time.monotonic() - began < 2 * noise() + 3
    assert "Traceback" not in watched.daemon.log.read_text()
    tally.faults()


def test_nothing_is_left_in_its_folder(home: Home, database: opencode.Writer, path: Path) -> None:
    """F32, F33, P6: rows that are only in the write-ahead log are seen; the folder of a closed
    database is unchanged."""
    _step(database, 0)
    with running(home) as daemon:
        watched = Watched(home, daemon)
        assert watched.recorded(SESSION) == sum_of(0)
        _step(database, 1)
        assert watched.recorded(SESSION) == sum_of(0, 1)
        # A connection that we keep while rows come would hold off the removal of the log.
        until(lambda: not _holds(daemon, path))
        database.close()
        assert not list(path.parent.glob("opencode.db-*"))
        before = sorted(os.listdir(path.parent))
        for _ in range(100):
            watched.flush()
        assert sorted(os.listdir(path.parent)) == before == ["opencode.db"]


def _holds(daemon: Daemon, path: Path) -> bool:
    """True if the daemon has the database or its log open."""
    held = set()
    for descriptor in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            held.add(os.readlink(descriptor))
    return any(name.startswith(str(path)) for name in held)


@pytest.mark.parametrize(
    "how", ["text", *(pytest.param(how, marks=pytest.mark.slow) for how in ("pages", "header", "empty"))]
)
def test_a_damaged_database_hurts_only_itself(home: Home, path: Path, how: str) -> None:
    """F35: said in status with SQLite's own name for it; never repaired, and the other sources go on."""
    with closing(opencode.Writer(path)) as writer:
        writer.session(SESSION)
        writer.user("u", SESSION, "go")
        for n in range(12):
            _step(writer, n)
    _damage(path, how)
    before = path.read_bytes()
    with running(home) as daemon:
        watched = Watched(home, daemon)
        watched.append("beside", whole(answers("beside", 0, 2)))
        watched.until_recorded("beside", sum_of(0, 1))
        until(lambda: _source(watched)["state"] == "degraded", why=lambda: str(_source(watched)))
        assert _SAID_OF[how] in _source(watched)["detail"]
        assert daemon.process.poll() is None
    assert path.read_bytes() == before
    tally.bad_inputs()


_SAID_OF = {"text": "SQLITE_NOTADB", "header": "SQLITE_NOTADB", "pages": "SQLITE_CORRUPT", "empty": "schema"}


def _damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "pages":
        data[len(data) // 2 : len(data) // 2 + 8192] = random.Random(1).randbytes(8192)
    elif how == "header":
        data[:100] = bytes(100)
    else:
        data = bytearray(b"" if how == "empty" else b"this is no database")
    path.write_bytes(data)


@pytest.mark.parametrize(
    "change",
    ["DROP TABLE part", pytest.param("ALTER TABLE message RENAME COLUMN data TO body", marks=pytest.mark.slow)],
)
def test_an_unknown_schema(database: opencode.Writer, watched: Watched, change: str) -> None:
    """F36: without an essential column the source reports it, and the others continue."""
    database.db.execute("PRAGMA foreign_keys = OFF")
    database.db.execute(change)
    until(lambda: "schema" in _source(watched)["detail"], why=lambda: str(_source(watched)))
    until(lambda: _source(watched)["state"] == "degraded")
    watched.append("beside", whole(answers("beside", 0, 1)))
    watched.until_recorded("beside", sum_of(0))
    tally.bad_inputs()


@pytest.mark.parametrize("rows", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_its_log_can_be_emptied(database: opencode.Writer, watched: Watched, path: Path, rows: int) -> None:
    """F37: we never hold a transaction open: after many writes a checkpoint empties the log."""
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            watched.flush()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for n in range(rows):
            database.step(f"w{n}", SESSION, "u", opencode.text("x" * 2000), tokens=opencode.tokens(output=1))
        until(lambda: database.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
    finally:
        over.set()
        asking.join()
    assert path.with_name("opencode.db-wal").stat().st_size == 0
    watched.until_recorded(SESSION, rows)
    tally.load(rows)


def test_it_comes_and_goes(home: Home, path: Path) -> None:
    """F38: absent, created, deleted, created again: each is normal, and the rows of all are recorded."""
    with running(home) as daemon:
        watched = Watched(home, daemon)
        until(lambda: _source(watched)["state"] == "absent")
        for n in range(2):
            with closing(opencode.Writer(path, born=opencode.BORN_MS + n * 100_000)) as writer:
                writer.session(SESSION)
                writer.user("u", SESSION, "go")
                _step(writer, n)
                assert watched.recorded(SESSION) == sum_of(*range(n + 1))
            shutil.rmtree(path.parent)
            until(lambda: _source(watched)["state"] == "absent")
    tally.faults(2)


def test_clocks_that_disagree(database: opencode.Writer, watched: Watched, path: Path) -> None:
    """F39: rows of a second writer whose clock is an hour behind are new as well."""
    _step(database, 0)
    assert watched.recorded(SESSION) == sum_of(0)
    with closing(opencode.Writer(path, born=database.clock - 3_600_000)) as late:
        _step(late, 1)
        _step(database, 2)
        _step(late, 3)
    assert watched.recorded(SESSION) == sum_of(0, 1, 2, 3)
    tally.faults()
