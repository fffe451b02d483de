"""Parts D and E: ledger, content and index that are torn, full, edited, lost and damaged, and the daemon over them."""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from tests.faults import tally
from tests.faults.watched import EVERYTHING, SESSIONS, all_reports, answers, started, sum_of, turns_in, whole
from tests.server.spool import put_in_spool, stamp_record
from tests.server.wire import Wire, stamp_often, until


def _slow(*values: Any) -> list[Any]:
    """Cases like their neighbours, left to the long run."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def _lines(home: Home) -> list[bytes]:
    return (home.root / "ledger.jsonl").read_bytes().splitlines(keepends=True)


def test_kill_nine_costs_nothing(home: Home) -> None:
    """F40, P3: killed again and again while it records: every line whole, every answer once."""
    _kill_loop(home, 4)


@pytest.mark.slow
def test_kill_nine_two_hundred_times(home: Home) -> None:
    """F40: the same, two hundred times."""
    _kill_loop(home, 200)


def _kill_loop(home: Home, times: int) -> None:
    chance = random.Random(times)
    for n in range(times):
        with started(home) as watched:
            watched.append(f"k{n}", whole(answers(f"k{n}", 0, 12)))
            watched.daemon.process.poll()
            threading.Event().wait(chance.uniform(0.0, 0.06))
            watched.daemon.kill()
    with started(home) as watched:
        watched.flush()
        totals = watched.call("summary")["totals"]
        assert (totals["turns"], totals["usage"]["output"]) == (12 * times, EVERYTHING * times)
        assert watched.call("status")["ledger"]["skipped"]["count"] == 0
        assert watched.daemon.terminate() == 0
    assert len(turns_in(home)) == len(set(turns_in(home))) == 12 * times
    tally.faults(times)


@pytest.mark.parametrize("tail", [b"\x00" * 5000, *_slow(b'{"v":1,"kind":"turn","rec', b"\xff" * 40)])
def test_a_torn_tail_is_moved_aside(home: Home, expected_reports: dict[str, Any], tail: bytes) -> None:
    """F40, F43, P3: what power loss leaves behind the last line is kept aside, and nothing else is touched."""
    before = (home.root / "ledger.jsonl").read_bytes()
    with (home.root / "ledger.jsonl").open("ab") as ledger:
        ledger.write(tail)
    with started(home) as watched:
        watched.flush()
        assert all_reports(watched) == expected_reports
    assert (home.root / "ledger.jsonl").read_bytes().startswith(before)
    assert [path.read_bytes() for path in home.root.glob("ledger.torn-*")] == [tail]
    tally.faults()


def test_lost_content_is_reported_and_a_damaged_line_is_skipped(home: Home, expected_reports: dict[str, Any]) -> None:
    """F45: without a sidecar usage is complete, and texts are reported as missing. F46: a damaged ledger line is
    skipped and counted with its position, and never rewritten."""
    for path in (home.root / "content").glob("*a*.jsonl"):
        path.unlink()
    (home.root.parent / ".claude").rename(home.root.parent / "gone")
    with started(home) as watched:
        assert all_reports(watched) == expected_reports
        assert watched.texts("a") == []
        said = watched.call("sessions.messages", id="a")
        assert (said["retained"], len(said["messages"])) == (False, 12)
        assert "its file in content/ was deleted" in said["why"]
        assert len(watched.texts("b")) == 12
        watched.daemon.terminate()
    tally.faults()
    lines = _lines(home)
    at = next(n for n, line in enumerate(lines) if b'"messageId":"a-m5"' in line)
    lines[at] = lines[at][:30] + b"\x07\x00garbage\x07" + lines[at][41:]
    (home.root / "ledger.jsonl").write_bytes(b"".join(lines))
    with started(home) as watched:
        assert watched.outputs("a") == EVERYTHING - sum_of(5)
        skipped = watched.call("status")["ledger"]["skipped"]
        assert skipped["count"] == 1
        assert skipped["lines"][0]["position"] == sum(map(len, lines[:at]))
    assert _lines(home)[: len(lines)] == lines
    tally.faults()


@pytest.mark.parametrize("what", ["cut", *_slow("removed", "moved")])
def test_a_ledger_lost_under_the_daemon(home: Home, what: str) -> None:
    """F47: it is noticed before the next line is written; from then on nothing is lost."""
    with started(home) as watched:
        watched.append("a", whole(answers("a", 0, 6)))
        watched.flush()
        ledger = home.root / "ledger.jsonl"
        if what == "cut":
            with ledger.open("r+b") as file:
                file.truncate(file.seek(0, 2) // 2)
        elif what == "removed":
            ledger.unlink()
        else:
            ledger.rename(home.root / "elsewhere.jsonl")
        watched.append("b", whole(answers("b", 0, 6)))
        watched.append("a", whole(answers("a", 6, 1)))
        assert watched.recorded("b") == sum_of(*range(6))
        assert watched.outputs("a") & sum_of(6)
        assert "ledger.replaced" in watched.daemon.log.read_text()
    with started(home) as watched:
        assert watched.recorded("b") == sum_of(*range(6))
    tally.faults()


def test_a_home_removed_under_the_daemon_has_one_writer(home: Home) -> None:
    """F47, F61, F72, P2: the daemon of the removed folder ends with a reason; new records go to the new home, once."""
    with started(home) as old:
        for session in SESSIONS:
            old.append(session, whole(answers(session, 0, 3)))
        old.flush()
        _remove(home.root)
        with started(home) as watched:
            for n in range(3, 7):
                for session in SESSIONS:
                    watched.append(session, whole(answers(session, n, 1)))
                put_in_spool(home.spool, stamp_record("a", step=f"s{n}"))
                time.sleep(0.3)
            assert old.daemon.process.wait(60) == 1
            assert "was deleted or moved while burnd was running" in watched.daemon.log.read_text()
            until(lambda: len(watched.call("stamps.list")["stamps"]) == 4)
            assert [watched.recorded(session) for session in SESSIONS] == 3 * [sum_of(*range(7))]
            assert watched.daemon.terminate() == 0
    assert len(_lines(home)) == len(set(_lines(home)))
    tally.faults()


def _remove(folder: Path) -> None:
    """As `rm -rf` does, again where the daemon made something meanwhile."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    "damages",
    [
        ("all gone", "new schema", "garbled pages"),
        *_slow(("cursors gone",), ("garbage",), ("old schema",), ("empty",), ("older",)),
    ],
    ids=", ".join,
)
def test_the_index_is_disposable(home: Home, expected_reports: dict[str, Any], damages: tuple[str, ...]) -> None:
    """F48, F53, F54, I3: lost, damaged, older or newer, the index is rebuilt and every answer is the same."""
    for damage in damages:
        _damage(home.root / "index" / "burn.db", damage)
        with started(home) as watched:
            watched.flush()
            assert all_reports(watched) == expected_reports, damage
            assert watched.texts("b") == [f"answer {n} of b" for n in range(12)]
            watched.daemon.terminate()
        lines = _lines(home)
        assert len({line for line in lines if b'"kind":"turn"' in line}) == 36, f"appended twice: {damage}"
        tally.faults()


def _damage(index: Path, how: str) -> None:
    if how == "all gone":
        shutil.rmtree(index.parent)
    elif how == "garbage":
        index.write_bytes(b"no database at all" * 1000)
    elif how == "empty":
        index.write_bytes(b"")
    elif how == "garbled pages":
        data, chance = bytearray(index.read_bytes()), random.Random(3)
        for begin in range(4096, len(data), 8192):
            data[begin : begin + 2048] = chance.randbytes(2048)
        index.write_bytes(data)
    else:
        with closing(sqlite3.connect(index)) as db:
            if how == "cursors gone":
                db.execute("DELETE FROM cursors")
                db.execute("DELETE FROM files")
            elif how == "older":
                db.execute("UPDATE meta SET value = '0' WHERE key LIKE '%position%' OR key LIKE '%end%'")
            else:
                db.execute(f"PRAGMA user_version = {0 if how == 'old schema' else 999}")
            db.commit()


@pytest.mark.slow
def test_an_older_index_put_back(home: Home) -> None:
    """F48, F54, P2: as from a backup: it catches up, and what it had not seen is not said twice."""
    old = home.root.parent / "old"
    with started(home) as watched:
        watched.append("a", whole(answers("a", 0, 6)))
        watched.flush()
        assert watched.daemon.terminate() == 0
    shutil.copytree(home.index, old)
    with started(home) as watched:
        watched.append("a", whole(answers("a", 6, 6)))
        watched.flush()
        said = all_reports(watched)
        assert watched.daemon.terminate() == 0
    shutil.rmtree(home.index)
    old.rename(home.index)
    with started(home) as watched:
        watched.flush()
        assert all_reports(watched) == said
        assert watched.texts("a") == [f"answer {n} of a" for n in range(12)]
        assert watched.daemon.terminate() == 0
    assert len(turns_in(home)) == len(set(turns_in(home))) == 12
    tally.faults()


def test_an_index_damaged_while_it_is_used(home: Home) -> None:
    """F53, P5: found by a request or by the next line, and rebuilt meanwhile; answers are right."""
    with started(home) as watched:
        for n in range(40):
            watched.append(f"s{n}", whole(answers(f"s{n}", 0, 12)))
        watched.flush()
        index = home.root / "index" / "burn.db"
        data, chance = bytearray(index.read_bytes()), random.Random(5)
        for begin in range(4096, len(data), 4096):
            data[begin : begin + 4096] = chance.randbytes(4096)
        with index.open("r+b") as file:
            file.write(data)
        for path in index.parent.glob("burn.db-wal"):
            with path.open("r+b") as file:
                file.truncate(0)

        said: list[int] = []

        def is_right() -> bool:
            with watched.daemon.wire() as wire:
                answer = wire.ask("summary")
            if "error" in answer:
                return False
            said.append(answer["result"]["totals"]["usage"]["output"])
            return said[-1] == 40 * EVERYTHING and "index.rebuilt" in watched.daemon.log.read_text()

        watched.append("late", whole(answers("late", 0, 1)).replace(b'"output_tokens": 1', b'"output_tokens": 0'))
        until(is_right, 90, watched.daemon.why)
        assert set(said) == {40 * EVERYTHING}
    tally.faults()


def test_an_index_ahead_of_its_ledger(home: Home, expected_reports: dict[str, Any]) -> None:
    """F55: the ledger lost its tail and the logs are gone: answers are the ledger's. Once they are back, all is."""
    lines = _lines(home)
    (home.root.parent / ".claude").rename(home.root.parent / "gone")
    last = max(n for n, line in enumerate(lines) if b'"messageId":"c-m11"' in line)
    (home.root / "ledger.jsonl").write_bytes(b"".join(lines[:last]))
    with started(home) as watched:
        assert watched.outputs("c") == EVERYTHING - sum_of(11)
        (home.root.parent / "gone").rename(home.root.parent / ".claude")
        until(lambda: watched.recorded("c") == EVERYTHING)
    assert len(turns_in(home)) == len(set(turns_in(home))) == 36
    tally.faults()


@pytest.mark.slow
def test_prune_while_logs_grow(home: Home) -> None:
    """F49: a thousand appends while everything is pruned, over and over: no error, no half file, no turn lost."""
    with started(home) as watched:
        over = threading.Event()
        failures: list[BaseException] = []

        def prune() -> None:
            try:
                with watched.daemon.wire(60) as wire:
                    while not over.is_set():
                        wire.call("content.prune", olderThanDays=0)
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        pruning = threading.Thread(target=prune)
        pruning.start()
        sessions = [f"a{n}" for n in range(84)]
        for n in range(12):
            for session in sessions:
                watched.append(session, whole(answers(session, n, 1)))
        watched.flush()
        over.set()
        pruning.join()
        assert failures == []
        assert {watched.outputs(session) for session in sessions} == {EVERYTHING}
        assert watched.daemon.terminate() == 0
    for path in (home.root / "content").glob("*.jsonl"):
        assert path.read_bytes().endswith(b"\n")
    tally.faults()


@pytest.mark.slow
def test_lines_of_a_later_version_are_kept(home: Home, expected_reports: dict[str, Any]) -> None:
    """F51: skipped, counted, never removed; new lines are appended after them."""
    later = b'{"v":99,"kind":"turn","record":{"x":1}}\n{"v":1,"kind":"hologram","record":{}}\n'
    with (home.root / "ledger.jsonl").open("ab") as ledger:
        ledger.write(later)
    with started(home) as watched:
        watched.append("d", whole(answers("d", 0, 2)))
        assert watched.recorded("d") == sum_of(0, 1)
        assert watched.call("status")["ledger"]["skipped"]["count"] == 2
    assert later in (home.root / "ledger.jsonl").read_bytes()
    tally.faults()


@pytest.mark.slow
def test_a_rebuild_that_is_killed(home: Home, expected_reports: dict[str, Any]) -> None:
    """F58: the index in use stays until the new one is whole, and answers the same after each of ten kills."""
    new = home.index / "burn.db.new"
    with started(home) as watched, watched.daemon.wire() as wire:
        stamp_often(wire, 20_000)
    hits = 0
    for n in range(10):
        with started(home) as watched:
            assert not new.exists()
            assert all_reports(watched) == expected_reports
            with watched.daemon.wire() as wire:
                wire.request("rebuild", index=True)
                until(new.exists)
                time.sleep(0.02 * n)
            watched.daemon.kill()
        hits += new.exists()
    assert hits >= 8, "most were killed when the new one was whole"
    with started(home) as watched:
        watched.flush()
        assert not new.exists()
        assert all_reports(watched) == expected_reports
    tally.faults(hits)


@pytest.mark.slow
def test_many_readers_do_not_hold_the_writer(home: Home) -> None:
    """F59: twenty clients send requests for a minute while turns arrive; the index's log stays small and every turn is
    there."""
    with started(home) as watched:
        over = threading.Event()

        def ask() -> None:
            with watched.daemon.wire(60) as wire:
                while not over.is_set():
                    _ask_something(wire)

        readers = [threading.Thread(target=ask) for _ in range(20)]
        for reader in readers:
            reader.start()
        try:
            for n in range(120):
                watched.append(f"r{n}", whole(answers(f"r{n}", 0, 12)))
                time.sleep(0.5)
            until(lambda: watched.call("summary")["totals"]["turns"] == 1440, 120)
        finally:
            over.set()
            for reader in readers:
                reader.join()
        assert sum(path.stat().st_size for path in (home.root / "index").glob("*-wal")) < 64 << 20
    tally.load(1440)


def _ask_something(wire: Wire) -> None:
    wire.call("summary", by="session", limit=50)
    wire.call("sessions.list", limit=20)
