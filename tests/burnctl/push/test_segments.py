"""burnctl/push/segments: a folder of Parquet segments as DuckDB reads it, also after kills at any moment."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from burnctl.push import segments
from burnctl.push.schema import SCHEMA_VERSION, TABLES, row_of
from burnctl.push.segments import SegmentTarget
from burnctl.push.target import Batch, Refused, Totals
from burnd.paths import Home
from tests.burnctl.push import rows as made
from tests.burnctl.runner import burnctl, environment
from tests.server.documented import OWN, SESSION, furnish
from tests.server.wire import PROJECT, Daemon, Wire, running, until

duckdb = pytest.importorskip("duckdb")
pyarrow = pytest.importorskip("pyarrow")
NEWEST = "QUALIFY row_number() OVER (PARTITION BY machine_id, source, message_id ORDER BY seq DESC) = 1"


def send(target: SegmentTarget, machine: str, seq: int, cursor: str = "", **tables: list[dict[str, Any]]) -> None:
    target.send(Batch(machine, tables, cursor or f"c{seq}", seq))


def turns_in(folder: Path) -> dict[str, int]:
    """The sequence number of each turn that counts, by its message."""
    source = f"read_parquet('{folder}/turns/*/*.parquet', union_by_name = true)"
    sql = f"SELECT message_id, seq FROM (SELECT * FROM {source} {NEWEST}) WHERE NOT deleted"
    return dict(duckdb.sql(sql).fetchall())


def files(folder: Path, table: str = "turns") -> list[str]:
    return sorted(path.name for path in folder.glob(f"{table}/*/*") if not path.name.startswith("."))


def test_rows_and_cursor(tmp_path: Path) -> None:
    target = SegmentTarget(str(tmp_path / "there"))
    assert target.open("m1") is None
    send(target, "m1", 5, turns=[made.turn("m1", "a", 5)])
    send(target, "m1", 6, turns=[made.turn("m1", "a", 6), made.turn("m1", "b", 6)])
    send(target, "m2", 1, turns=[made.turn("m2", "a", 1)])
    assert (target.open("m1"), target.open("m2"), target.open("m3")) == ("c6", "c1", None)
    assert target.totals("m1") == {
        ("2026-11-10", "claude-sonnet-4-5-20250929"): Totals(2, (2, 4, 0, 10, 0, 0), Decimal("0.000002469134"))
    }


def test_types_and_version_are_in_the_file(tmp_path: Path) -> None:
    target = SegmentTarget(str(tmp_path / "there"))
    send(target, "m1", 5, turns=[made.turn("m1", "a", 5)])
    sql = f"SELECT cost_usd, ts, schema FROM read_parquet('{tmp_path}/there/turns/*/*.parquet')"
    read = duckdb.sql(sql)
    assert [str(type_) for type_ in read.types] == ["DECIMAL(18,12)", "TIMESTAMP WITH TIME ZONE", "BIGINT"]
    facts = duckdb.sql(f"SELECT key, value FROM parquet_kv_metadata('{tmp_path}/there/turns/*/*.parquet')").fetchall()
    assert (b"burnd.schema", str(SCHEMA_VERSION).encode()) in facts


def test_a_batch_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    target = SegmentTarget(str(tmp_path))
    for _ in range(2):
        send(target, "m1", 5, turns=[made.turn("m1", "a", 5)])
    assert len(files(tmp_path)) == 1


def test_a_full_resend_deletes_what_it_did_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from a segment that has been merged with new rows."""
    monkeypatch.setattr(segments, "_MOST_SEGMENTS", 2)
    target = SegmentTarget(str(tmp_path))
    for seq, message in enumerate("abcd", 1):
        send(target, "m1", seq, turns=[made.turn("m1", message, seq)])
    send(target, "m2", 1, turns=[made.turn("m2", "z", 1)])
    for seq, message in enumerate("bc", 10):
        send(target, "m1", seq, turns=[made.turn("m1", message, seq)])
    for _ in range(2):
        target.finish_reset("m1", 10)
        assert turns_in(tmp_path) == {"b": 10, "c": 11, "z": 1}


def test_merged_segments_have_the_same_rows_and_are_few(tmp_path: Path) -> None:
    target = SegmentTarget(str(tmp_path))
    rng = random.Random(3)
    newest: dict[str, int] = {}
    for seq in range(1, 120):
        some = {str(rng.randrange(60)) for _ in range(3)}
        send(target, "m1", seq, turns=[made.turn("m1", one, seq) for one in sorted(some)])
        newest |= dict.fromkeys(some, seq)
    gone = sorted(newest)[:5]
    deleted = [made.turn("m1", one, 200) | {"deleted": True} for one in gone]
    send(target, "m1", 200, turns=deleted)
    expected = {one: seq for one, seq in newest.items() if one not in gone}
    assert turns_in(tmp_path) == expected
    assert len(files(tmp_path)) <= 17
    target.compact("m1")
    assert turns_in(tmp_path) == expected
    (only,) = files(tmp_path)
    count = duckdb.sql(f"SELECT count(*) FROM read_parquet('{tmp_path}/turns/*/*.parquet')").fetchall()
    assert count == [(len(expected),)], only


def test_merges_are_limited_also_within_one_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first push has one number for all of its rows; then come newer rows of some of them."""
    target = SegmentTarget(str(tmp_path))
    send(target, "m1", 5, turns=[made.turn("m1", "0", 5)])
    monkeypatch.setattr(segments, "_MOST_SEGMENTS", 4)
    monkeypatch.setattr(segments, "_LARGE_ROWS", 6)
    merged: list[int] = []
    merge = SegmentTarget._merge

    def measured(
        target: SegmentTarget, table: str, machine: str, some: list[segments.Segment], *, is_all: bool
    ) -> None:
        merged.append(sum(map(target._row_count, some)))
        merge(target, table, machine, some, is_all=is_all)

    monkeypatch.setattr(SegmentTarget, "_merge", measured)
    newest = {"0": 5}
    rng = random.Random(5)
    for n in range(1, 60):
        seq = 5 if n < 30 else n
        one = str(n) if n < 30 else str(rng.randrange(30))
        send(target, "m1", seq, turns=[made.turn("m1", one, seq)])
        newest[one] = seq
        assert turns_in(tmp_path) == newest
    assert merged
    assert 1 < max(merged) <= 6
    target.compact("m1")
    assert turns_in(tmp_path) == newest
    assert len(files(tmp_path)) == 1


def test_causes_of_a_session_are_those_of_its_newest_set(tmp_path: Path) -> None:
    target = SegmentTarget(str(tmp_path))
    for seq, n in ((1, 3), (2, 1), (3, 2)):
        facts = made.common("m1", seq)
        causes = [row_of("causes", {"sessionId": "x", "source": "s", "n": one}, facts) for one in range(n)]
        send(target, "m1", seq, causes=causes)
    target.compact("m1")
    read = duckdb.sql(f"SELECT n, seq FROM read_parquet('{tmp_path}/causes/*/*.parquet') ORDER BY n")
    assert read.fetchall() == [(0, 3), (1, 3)]


def test_segments_of_an_earlier_version_are_read_and_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = TABLES["turns"]
    fewer = {**TABLES, "turns": tuple(column for column in columns if column.name != "model_name")}
    target = SegmentTarget(str(tmp_path))
    with monkeypatch.context() as older:
        older.setattr(segments, "TABLES", fewer)
        names = [column.name for column in fewer["turns"]]
        schema = pyarrow.schema([segments.SCHEMAS["turns"].field(name) for name in names])
        older.setitem(segments.SCHEMAS, "turns", schema)
        send(target, "m1", 1, turns=[made.turn("m1", "a", 1)])
    send(target, "m1", 2, turns=[made.turn("m1", "b", 2)])
    assert turns_in(tmp_path) == {"a": 1, "b": 2}
    target.compact("m1")
    assert turns_in(tmp_path) == {"a": 1, "b": 2}


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    target = SegmentTarget(str(tmp_path))
    send(target, "m1", 1, turns=[made.turn("m1", "a", 1)])
    state = tmp_path / "push_state" / "m1.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"schema": SCHEMA_VERSION + 1}))
    with pytest.raises(Refused, match="newer burnctl"):
        target.open("m1")
    state.write_text('{"schema": "x", "cursor": "c1"}')
    assert target.open("m1") is None  # damaged: everything is sent again


def test_a_read_only_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdir(path: str, **_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr(os, "makedirs", mkdir)
    with pytest.raises(Refused, match="Read-only file system") as caught:
        send(SegmentTarget(str(tmp_path)), "m1", 1, turns=[made.turn("m1", "a", 1)])
    assert caught.value.hint == "check the path and its permissions"


def test_foreign_files_and_what_a_killed_push_left_do_no_harm(tmp_path: Path) -> None:
    target = SegmentTarget(str(tmp_path))
    send(target, "m1", 1, turns=[made.turn("m1", "a", 1)])
    own = tmp_path / "turns" / "m1"
    (own / "notes.txt").write_text("mine")
    part = own / f".{files(tmp_path)[0]}.99999999.part"
    part.write_bytes(b"half")
    target.open("m1")
    assert not part.exists()
    assert target.compact("m1") == (1, 1)
    assert (own / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused):
        send(SegmentTarget(str(tmp_path / "file")), "m1", 1, turns=[made.turn("m1", "a", 1)])


def change(wire: Wire, n: int) -> None:
    """Something new, something revised, a tag on old requests."""
    usage = {"input_tokens": n, "output_tokens": 3}
    turns = [{"id": f"m{n}-{i}", "model": "claude-sonnet-4-5", "usage": usage} for i in range(4)]
    wire.call("sessions.append", id=OWN, turns=turns)
    if n % 3 == 0:
        wire.call("stamp", selector={"sessionId": SESSION if n % 2 else OWN}, enrichment={"step": str(n)})
    wire.call("flush")


def kill_at(home: Home, n: int, folder: Path) -> int:
    """Pushes, and kills the process before its n-th change to the folder. Returns its exit code."""
    words = ["-m", "tests.burnctl.push.killed_push", str(n), str(folder), "push", str(folder)]
    return subprocess.run(
        [sys.executable, *words], env=environment(home.root), cwd=PROJECT, capture_output=True, timeout=120, check=False
    ).returncode


def compare(daemon: Daemon, folder: Path) -> None:
    """The newest rows there are the export here, to the last digit."""
    shown: dict[tuple[str, str], tuple[Any, ...]] = {}
    with daemon.wire() as wire:
        after = None
        while True:
            answer = wire.call("export", limit=1000, after=after) if after else wire.call("export", limit=1000)
            shown |= {
                (row["source"], row["messageId"]): (row["usage"]["input"], row["costUsd"], row["tags"])
                for row in answer["turns"]
            }
            if (after := answer["next"]) is None:
                break
    source = f"read_parquet('{folder}/turns/*/*.parquet', union_by_name = true)"
    sql = f"SELECT source, message_id, input, cost_usd, tags FROM (SELECT * FROM {source} {NEWEST}) WHERE NOT deleted"
    there = {row[:2]: (row[2], float(row[3]), row[4]) for row in duckdb.sql(sql).fetchall()}
    assert there == shown


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_it_is_exact_after_kills_at_any_moment(home: Home, tmp_path: Path, kills: int) -> None:
    furnish(home)
    folder = tmp_path / "there"
    rng = random.Random(kills)
    died = 0
    with running(home) as daemon:
        for n in range(kills):
            with daemon.wire() as wire:
                change(wire, n)
            died += kill_at(home, rng.randrange(1, 30), folder) < 0
            if n % 7 == 3:
                with daemon.wire() as wire:
                    wire.call("rebuild", index=True)
        # Causes that are computed later would be sent later.
        with daemon.wire() as wire:
            until(lambda: wire.call("status")["causes"] == {"state": "ready", "pending": 0}, why=daemon.why)
        done = burnctl(home.root, "push", str(folder))
        assert done.returncode == 0, done.stderr
        compare(daemon, folder)
        checked = burnctl(home.root, "push", str(folder), "--check")
        assert (checked.returncode, checked.stdout) == (0, "the totals are the same there and here\n"), checked
        assert burnctl(home.root, "push", str(folder)).stdout == "nothing to send\n"
        assert not list(folder.rglob("*.part"))
        other = tmp_path / "other"
        assert kill_at(home, 1_000_000, other) == 0  # everything at once, in many small batches
        compare(daemon, other)
        assert f"push to {folder}: " in " ".join(burnctl(home.root, "status", env={"COLUMNS": "500"}).stdout.split())
        assert json.loads(burnctl(home.root, "status", "--json").stdout)["pushes"][0]["sessionsBehind"] == 0
        _find_a_difference(home, folder)
    assert died >= kills // 2


def _find_a_difference(home: Home, folder: Path) -> None:
    """A lost file is named by its days and models."""
    for path in folder.glob("turns/*/*"):
        os.unlink(path)
    checked = burnctl(home.root, "push", str(folder), "--check")
    assert checked.returncode == 1
    assert "there 0 turns, 0 tokens" in checked.stdout
    assert "from push_state there, and push again" in checked.stderr
    for state in folder.glob("push_state/*"):
        state.write_text("{half")  # a damaged cursor counts as missing
    assert burnctl(home.root, "push", str(folder)).returncode == 0
    assert burnctl(home.root, "push", str(folder), "--check").returncode == 0
