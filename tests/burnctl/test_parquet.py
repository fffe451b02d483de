"""`burnctl export --format parquet`: a folder that follows every change in burnd."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from burnctl.commands.export import COLUMNS
from burnd.paths import Home
from tests import warm
from tests.burnctl.exported import MACHINE, TURNS, export, page, pages, turn
from tests.burnctl.fake_daemon import FakeConnection, Refused, fake_daemon
from tests.burnctl.invoke import environment, run
from tests.burnctl.runner import BURNCTL
from tests.harness.claude_code.transcript import Transcript, text
from tests.server.logs import write
from tests.server.wire import Wire, running

parquet = pytest.importorskip("pyarrow.parquet")
dataset = pytest.importorskip("pyarrow.dataset")
NAMES = [name for name, _, _ in COLUMNS]
DOCS = Path(__file__).parents[2] / "docs"


def files(out: Path) -> dict[str, int]:
    """Every file of a folder, with its inode, which another file at its place does not have."""
    return {str(path.relative_to(out)): path.stat().st_ino for path in sorted(out.rglob("*")) if path.is_file()}


def day(number: int, machine: str = MACHINE) -> str:
    return f"day=2026-11-{number}/{machine}.parquet"


def rows(out: Path) -> list[dict[str, Any]]:
    table = dataset.dataset(out, partitioning="hive").to_table()
    return sorted(table.to_pylist(), key=lambda row: (row["ts"], row["machine_id"]))


def written(home: Home, out: Path, turns: Iterable[dict[str, Any]], *flags: str, **more: Any) -> str:
    done = export(home, "--format", "parquet", "-o", str(out), *flags, export=page(*turns, **more))
    assert done.returncode == 0, done.stderr
    return str(done.stderr).partition(": ")[2].strip()


def test_a_file_for_each_day(home: Home, folder: Path) -> None:
    """In folders that engines read as a column; amounts and times are exact, and the file has its schema's version."""
    out = folder / "out"
    done = export(home, "--format", "parquet", "-o", str(out))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"7 turns in {out}: 3 days written, 0 days unchanged, 0 days removed\n"
    assert done.asked[0] == {"limit": 2000, "wholeDays": True}
    assert list(files(out)) == [day(10), day(11), day(12)]
    facts = parquet.read_metadata(out / day(10)).metadata
    assert (facts[b"burnd.schema"], facts[b"burnd.machine"]) == (b"2", MACHINE.encode())
    table = dataset.dataset(out, partitioning="hive").to_table().sort_by("turn_index")
    assert table.column_names == [*NAMES, "day"]
    assert str(table.schema.field("cost_usd").type) == "decimal128(18, 12)"
    costs = table.column("cost_usd").to_pylist()
    assert costs[:6] == [Decimal("0.0000231") * (n + 1) for n in range(6)]
    assert costs[6] is None
    row = table.to_pylist()[0]
    assert row["ts"].isoformat() == "2026-11-10T00:00:00+00:00"
    assert dict(row["tags"]) == TURNS[0]["tags"]
    assert (row["machine"], row["machine_id"], row["day"]) == ("box", MACHINE, "2026-11-10")
    assert (row["has_edits"], row["prompt_retries"]) == (True, None)


def test_only_days_that_changed_are_written(home: Home, folder: Path) -> None:
    """A late turn, a revision, a stamp, a price: each rewrites its day. A day without turns goes."""
    out = folder / "out"
    now = {one["messageId"]: one for one in TURNS}
    assert written(home, out, now.values()) == "3 days written, 0 days unchanged, 0 days removed"
    before = files(out)
    assert written(home, out, now.values()) == "0 days written, 3 days unchanged, 0 days removed"
    assert files(out) == before
    changes: list[dict[str, Any]] = [
        {"usage": {**TURNS[1]["usage"], "output": 900}},
        {"tags": {"persona": "junior"}},
        {"costUsd": 0.5},
        {"activity": "debugging"},
    ]
    for change in changes:
        now["m1"] = {**now["m1"], **change}
        assert written(home, out, now.values()) == "1 day written, 2 days unchanged, 0 days removed"
        assert {**files(out), day(10): before[day(10)]} == before
    late = [turn(9, messageId="m9", ts="2026-11-09T00:00:00.000Z"), *now.values()]
    assert written(home, out, late) == "1 day written, 3 days unchanged, 0 days removed"
    assert written(home, out, TURNS[:3]) == "1 day written, 0 days unchanged, 3 days removed"
    assert os.listdir(out) == ["day=2026-11-10"]


def test_a_period_touches_its_own_days(home: Home, folder: Path) -> None:
    """Days outside stay as they are, and days in it that have no turn any more go."""
    out = folder / "out"
    written(home, out, TURNS)
    period = {"since": "2026-11-11T00:00:00.000Z", "until": "2026-11-12T00:00:00.000Z"}
    assert written(home, out, [], **period) == "0 days written, 0 days unchanged, 1 day removed"
    assert list(files(out)) == [day(10), day(12)]


def test_while_logs_are_unread_no_day_goes(home: Home, folder: Path) -> None:
    out = folder / "out"
    written(home, out, TURNS)
    reading = {"done": False, "percent": 10, "secondsLeft": 5, "blocked": None}
    done = export(home, "--format", "parquet", "-o", str(out), export=page(*TURNS[:3], backfill=reading))
    assert "not complete yet" in done.stderr
    assert list(files(out)) == [day(10), day(11), day(12)]


def test_another_name_of_the_machine_counts_once(home: Home, folder: Path) -> None:
    out = folder / "out"
    written(home, out, TURNS)
    assert written(home, out, TURNS, "--machine", "new") == "3 days written, 0 days unchanged, 0 days removed"
    assert [(row["machine"], row["machine_id"]) for row in rows(out)] == [("new", MACHINE)] * 7


def test_two_machines_in_one_folder(home: Home, folder: Path) -> None:
    """With one host name: neither touches a file of the other's, also when it has no turn any more."""
    out = folder / "out"
    written(home, out, TURNS)
    written(home, out, TURNS, machine="b")
    assert len(rows(out)) == 14
    written(home, out, TURNS[:1], machine="b")
    assert list(files(out)) == [day(10), day(10, "b"), day(11), day(12)]
    assert len(rows(out)) == 8


def test_other_filters_need_another_folder(home: Home, folder: Path) -> None:
    """They would replace whole days by a part of them."""
    out = folder / "out"
    written(home, out, TURNS)
    before = files(out)
    done = export(home, "--format", "parquet", "-o", str(out), "--model", "gpt-5", export=page(TURNS[0]))
    assert done.returncode == 1
    assert "exported other turns to it before" in done.stderr
    assert files(out) == before


def test_a_damaged_file_is_written_again(home: Home, folder: Path) -> None:
    out = folder / "out"
    written(home, out, TURNS)
    (out / day(11)).write_bytes(b"PAR1")
    (out / day(12)).unlink()
    assert written(home, out, TURNS) == "2 days written, 1 day unchanged, 0 days removed"
    assert len(rows(out)) == 7


def test_an_absurd_amount_is_cut(home: Home, folder: Path) -> None:
    """It is that of a log with absurd counts; the other turns are exported."""
    written(home, folder / "out", [turn(0, costUsd=82_000_000.0), turn(1)])
    assert [row["cost_usd"] for row in rows(folder / "out")] == [Decimal("999999.999999999999"), Decimal("0.0000462")]


def test_kill_nine_leaves_nothing(home: Home, folder: Path) -> None:
    """The next export removes what a killed one left, and writes what it did not."""
    out = folder / "out"
    many = [turn(0, messageId=f"m{n}") for n in range(20_001)]
    program: list[subprocess.Popen[bytes]] = []

    def kill(params: dict[str, Any], talk: FakeConnection) -> dict[str, Any]:
        if int(params.get("after", 0)) >= 20_000:
            program[0].send_signal(signal.SIGKILL)
        return pages(2000, many)(params, talk)

    with fake_daemon(home.root / "burnd.sock", export=kill):
        words = [*BURNCTL, "export", "--machine", "box", "--format", "parquet", "-o", str(out)]
        program.append(warm.Popen(words, env=environment(home)))
        assert program[0].wait(60) == -signal.SIGKILL
    (left,) = files(out)
    assert left.endswith(".part")
    whole = pages(2000, many)
    assert export(home, "--format", "parquet", "-o", str(out), export=whole).returncode == 0
    before = files(out)
    assert list(before) == [day(10)]
    assert len(rows(out)) == len(many)
    assert "1 day unchanged" in export(home, "--format", "parquet", "-o", str(out), export=whole).stderr
    assert files(out) == before
    written(home, out, [])
    assert os.listdir(out) == []


def test_a_failure_leaves_days_whole(home: Home, folder: Path) -> None:
    out = folder / "out"

    def fails(params: dict[str, Any], talk: FakeConnection) -> dict[str, Any]:
        if params.get("after") == "4":
            raise Refused(-32603, "it went wrong")
        return pages()(params, talk)

    assert export(home, "--format", "parquet", "-o", str(out), export=fails).returncode == 1
    assert list(files(out)) == [day(10)]


def test_without_pyarrow_it_names_the_command(home: Home, folder: Path) -> None:
    """Before anything is asked."""
    (folder / "pyarrow").mkdir()
    (folder / "pyarrow" / "__init__.py").write_text("raise ImportError")
    with fake_daemon(home.root / "burnd.sock", export=pages()) as server:
        done = run(home, "export", "--format", "parquet", "-o", str(folder / "out"), PYTHONPATH=str(folder))
        assert server.asked == []
    assert done.returncode == 1
    assert f"{sys.executable} -m pip install 'pyarrow>=17'" in done.stderr
    assert not (folder / "out").exists()


def test_it_needs_a_folder_and_a_machine_id(home: Home, folder: Path) -> None:
    assert run(home, "export", "--format", "parquet").returncode == 2
    done = export(home, "--format", "parquet", "-o", str(folder / "out"), export=page(*TURNS, machine=None))
    assert done.returncode == 1
    assert "no id yet" in done.stderr


def test_it_follows_a_daemon(home: Home, folder: Path) -> None:
    """A late log, a moved day, a stamp on an old session, other prices: after each, the files have what burnd has."""
    out = folder / "out"

    def follow(wire: Wire) -> str:
        wire.call("flush")
        done = run(home, "export", "--format", "parquet", "-o", str(out))
        assert done.returncode == 0, done.stderr
        turns, shown = wire.call("export")["turns"], rows(out)
        assert [(one["messageId"], one["tags"]) for one in turns] == [
            (row["message_id"], dict(row["tags"])) for row in shown
        ]
        assert [Decimal(repr(one["costUsd"])) for one in turns] == [row["cost_usd"] for row in shown]
        return done.stderr.partition(": ")[2].strip()

    def log(session: str, date: str) -> None:
        lines = Transcript(session=session, prefix=f"{session}-{date}")
        lines.prompt("add a page", ts=f"{date}T08:00:00.000Z")
        lines.says(f"{session}-m", text("done"), ts=f"{date}T08:00:05.000Z", output=100)
        write(home, lines, session)

    log("s1", "2026-11-10")
    log("s2", "2026-11-12")
    with running(home) as daemon, daemon.wire() as wire:
        assert follow(wire) == "2 days written, 0 days unchanged, 0 days removed"
        log("s3", "2026-11-08")
        assert follow(wire) == "1 day written, 2 days unchanged, 0 days removed"
        log("s3", "2026-11-07")  # the same message, with an earlier time
        assert follow(wire) == "1 day written, 2 days unchanged, 1 day removed"
        assert sorted(os.listdir(out)) == ["day=2026-11-07", "day=2026-11-10", "day=2026-11-12"]
        wire.call("stamp", selector={"sessionId": "s1"}, enrichment={"team": "a"})
        assert follow(wire) == "1 day written, 2 days unchanged, 0 days removed"
        home.prices.write_text(
            json.dumps({"anthropic": {"models": {"claude-opus-5-5": {"cost": {"input": 7, "output": 70}}}}})
        )
        assert follow(wire) == "3 days written, 0 days unchanged, 0 days removed"
        assert follow(wire) == "0 days written, 3 days unchanged, 0 days removed"


def test_every_column_is_documented() -> None:
    page = (DOCS / "scale.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_the_documented_view_counts_each_turn_once(home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best copy of each: final, not open, most output, most tags, then by machine; also of another schema."""
    usage = TURNS[0]["usage"]
    worst = [turn(n, tags={"a": "b"}, projectKey="copy") for n in range(5)]
    worst[0] |= {"quality": "partial", "usage": {**usage, "output": 99}}
    worst[1] |= {"open": True, "usage": {**usage, "output": 99}}
    worst[2] |= {"usage": {**usage, "output": 1}, "tags": {"a": "b", "c": "d", "e": "f"}}
    for machine, turns in {"a": worst, "b": [turn(n) for n in range(5)], "c": [turn(4, projectKey="copy")]}.items():
        written(home, folder / "turns", turns, machine=machine)
    older = parquet.read_table(folder / "turns" / day(11, "c"))
    parquet.write_table(older.drop_columns(["machine_id"]), folder / "turns" / day(11, "d"))
    monkeypatch.chdir(folder)
    database = duckdb.connect()
    (sql,) = re.findall(r"### DuckDB\n.*?```sql\n(.*?)```", (DOCS / "scale.md").read_text(), re.DOTALL)
    for statement in filter(str.strip, sql.split(";")):
        database.execute(statement)
    found = database.execute("SELECT message_id, machine_id, project_key FROM turns ORDER BY turn_index").fetchall()
    assert found == [(f"m{n}", "b", "github.com/dev/ab") for n in range(5)]
