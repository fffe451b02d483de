"""ClickHouse and Postgres as targets of a push: after losses and repeats, sums equal those of a plain loop."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from burnctl.fleet_client import ClickHouseEngine, FleetClient
from burnctl.push import clickhouse as clickhouse_module
from burnctl.push.clickhouse import ClickHouseTarget, Connection
from burnctl.push.schema import SCHEMA_VERSION, TABLES, content_row
from burnctl.push.target import Batch, Refused, Totals
from burnd.queries.summary import OUTCOMES
from tests.burnctl.push.rows import USAGE, Row, cause, common, gone, session, turn
from tests.certificates import self_signed
from tests.fleet.segments import put
from tests.packaging.dashboard import queries
from tests.real.clickhouse_server import PASSWORD, USER
from tests.real.engines import clickhouse, connect_postgres, postgres, target_of

pytestmark = pytest.mark.real
Ask = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    with clickhouse() as first, postgres() as second:
        yield {"clickhouse": first, "postgres": second}


@pytest.fixture(params=["clickhouse", "postgres"])
def url(request: pytest.FixtureRequest, servers: dict[str, str]) -> str:
    """A separate database for every test."""
    name = f"fleet_{uuid.uuid4().hex[:8]}"
    if request.param == "clickhouse":
        return f"{servers['clickhouse']}/{name}"
    with connect_postgres(servers["postgres"], autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    return servers["postgres"].removesuffix("postgres") + name


def asked(url: str, sql: str) -> list[tuple[Any, ...]]:
    if url.startswith("postgres"):
        with connect_postgres(url) as db:
            rows: list[tuple[Any, ...]] = db.execute(sql).fetchall()
            return rows
    with closing(Connection(url, USER, PASSWORD)) as connection:
        return [tuple(row) for row in connection.rows(sql)]


def sums(url: str) -> dict[str, tuple[str, Decimal]]:
    """Of each turn that counts, its machine and its cost."""
    rows = asked(url, "SELECT message_id, machine_id, cost_usd FROM turns_once")
    return {message: (machine, Decimal(cost)) for message, machine, cost in rows}


def expected(rows: list[Row]) -> dict[str, tuple[str, Decimal]]:
    """The same by a plain loop: the newest row of each key, then the best copy."""
    newest: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: row["seq"]):
        newest[row["machine_id"], row["message_id"]] = row
    best: dict[str, Row] = {}
    for row in sorted((row for row in newest.values() if not row["deleted"]), key=_rank):
        best.setdefault(row["message_id"], row)
    return {name: (row["machine_id"], row["cost_usd"]) for name, row in best.items()}


def _rank(row: Row) -> tuple[Any, ...]:
    return row["quality"] != "final", row["open"], -row["output"], -len(row["tags"]), row["machine_id"]


def random_rows(random_: random.Random, machine: str, seq: int) -> list[Row]:
    rows = []
    for message in {f"m{random_.randrange(80)}" for _ in range(12)}:
        if random_.random() < 0.15:
            rows.append(gone(machine, message, seq))
            continue
        facts = {
            "ts": f"2026-{random_.choice(('10-31', '11-01'))}T23:59:59.999Z",  # months and days change
            "quality": random_.choice(("final", "partial")),
            "open": random_.random() < 0.3,
            "usage": {name: random_.randrange(3) for name in USAGE},
            "tags": {"x": 'it\'s \\ "that"'} if random_.random() < 0.5 else {},
            "costUsd": random_.randrange(10**9) / 10**12,
        }
        rows.append(turn(machine, message, seq, **facts))
    return rows


def test_repeated_lost_and_late_batches(url: str) -> None:
    """Every batch may come twice, or again after later ones: a row never replaces a newer one."""
    random_ = random.Random(7)
    targets = {machine: target_of(url) for machine in "abc"}
    sent: list[Row] = []
    for target in targets.values():
        assert target.open("a") is None
    for step in range(1, 30):
        machine = random_.choice("abc")
        rows = random_rows(random_, machine, step * 10)
        batch = Batch(machine, {"turns": rows, "sessions": [], "causes": []}, f"cursor-{step}", step * 10)
        for _ in range(random_.choice((1, 1, 2))):
            targets[machine].send(batch)
        sent += rows
        if random_.random() < 0.3:  # a part of an earlier batch, from a process that was believed to be dead
            old = [row for row in random_.sample(sent, 5) if row["machine_id"] == machine]
            targets[machine].send(Batch(machine, {"turns": old}, f"cursor-{step}", step * 10))
        if step % 7 == 0:
            assert sums(url) == expected(sent)
            with closing(target_of(url)) as again:
                assert again.open(machine) == f"cursor-{step}"
    assert sums(url) == expected(sent)
    for machine, target in targets.items():
        own = [row for row in sent if row["machine_id"] == machine]
        totals = target.totals(machine)
        assert sum(one.turns for one in totals.values()) == len(expected(own))
        assert sum(one.cost or 0 for one in totals.values()) == sum(cost for _, cost in expected(own).values())
        target.close()


def test_a_reset_deletes_what_was_not_sent_again(url: str) -> None:
    with closing(target_of(url)) as target:
        target.open("a")
        target.send(Batch("a", {"turns": [turn("a", f"m{n}", 5) for n in range(5)]}, "1", 5))
        target.send(Batch("b", {"turns": [turn("b", "other", 5)]}, "1", 5))
        target.send(Batch("a", {"turns": [turn("a", "m1", 9)]}, "2", 9))
        for _ in range(2):
            target.finish_reset("a", 9)
            assert sorted(sums(url)) == ["m1", "other"]
        day = ("2026-11-10", "claude-sonnet-4-5-20250929")
        assert target.totals("a") == {day: Totals(1, (1, 2, 0, 5, 0, 0), Decimal("0.000001234567"))}


def test_causes_of_a_session_come_as_a_set(url: str) -> None:
    with closing(target_of(url)) as target:
        target.open("a")
        first = [cause("a", "s1", n, 3, tool=f"Tool{n}") for n in range(4)]
        target.send(Batch("a", {"sessions": [session("a", "s1", 3, causesSeq=3)], "causes": first}, "1", 3))
        second = [cause("a", "s1", n, 7, tool=f"Tool{n}") for n in range(2)]
        target.send(Batch("a", {"sessions": [session("a", "s1", 7, causesSeq=7)], "causes": second}, "2", 7))
        copy = [cause("b", "s1", 0, 7, tool="Tool0")]
        target.send(Batch("b", {"sessions": [session("b", "s1", 7, causesSeq=7)], "causes": copy}, "2", 7))
        rows = asked(url, "SELECT machine_id, tool FROM causes_once ORDER BY tool")
        assert rows == [("a", "Tool0"), ("a", "Tool1")]


def test_content_comes_as_a_set_and_is_erased(url: str) -> None:
    def record(n: int, seq: int, text: str) -> Row:
        facts = {
            "sessionId": "s1",
            "messageId": f"m{n}",
            "ts": "2026-11-10T00:00:00.123Z",
            "kind": "text",
            "text": text,
        }
        return content_row(facts, n, common("a", seq))

    with closing(target_of(url)) as target:
        target.open("a")
        first = [record(n, 3, f"it's \\ \n {n} \u00e9\U0001f600") for n in range(4)]
        target.send(Batch("a", {"sessions": [session("a", "s1", 3, contentSeq=3)], "content": first}, "1", 3))
        assert asked(url, "SELECT text FROM content_now ORDER BY n") == [(row["text"],) for row in first]
        target.erase("a", ["s1", "it's"], 7)
        assert asked(url, "SELECT count(*) FROM content") == [(0,)]
        second = [record(n, 7, f"new {n}") for n in range(2)]
        target.send(Batch("a", {"sessions": [session("a", "s1", 7, contentSeq=7)], "content": second}, "2", 7))
        target.erase("a", ["s1"], 7)
        assert asked(url, "SELECT n, text FROM content_now ORDER BY n") == [(0, "new 0"), (1, "new 1")]
        target.send(Batch("a", {"sessions": [session("a", "s1", 9, contentSeq=0)]}, "3", 9))
        assert asked(url, "SELECT n, text FROM content_now ORDER BY n") == []


def test_tables_of_an_older_schema_get_columns(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer burnctl adds columns, and older ones still write. One that must not write is refused."""
    module: Any = clickhouse_module
    if url.startswith("postgres"):
        from burnctl.push import postgres as module
    late = [column for column in TABLES["turns"] if column.name == "persona"]
    with monkeypatch.context() as older:
        older.setitem(TABLES, "turns", tuple(column for column in TABLES["turns"] if column not in late))
        with closing(target_of(url)) as target:
            target.open("a")
            target.send(Batch("a", {"turns": [_without(turn("a", "m1", 1))]}, "1", 1))
    monkeypatch.setattr(module, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    with closing(target_of(url)) as newer:
        assert newer.open("b") is None
        newer.send(Batch("b", {"turns": [turn("b", "m2", 1, tags={"persona": "lead"})]}, "1", 1))
    monkeypatch.setattr(module, "SCHEMA_VERSION", SCHEMA_VERSION)
    with closing(target_of(url)) as target:
        assert target.open("a") == "1"
        target.send(Batch("a", {"turns": [turn("a", "m3", 2)]}, "2", 2))
    assert sorted(asked(url, "SELECT message_id, persona FROM turns_once"), key=repr) == [
        ("m1", None),
        ("m2", "lead"),
        ("m3", None),
    ]
    monkeypatch.setattr(module, "SCHEMA_VERSION", SCHEMA_VERSION + 2)
    monkeypatch.setattr(module, "OLDEST_WRITER", SCHEMA_VERSION + 2)
    with closing(target_of(url)) as newest:
        newest.open("c")
    monkeypatch.setattr(module, "SCHEMA_VERSION", SCHEMA_VERSION)
    with closing(target_of(url)) as target, pytest.raises(Refused, match=f"newer burnd: schema {SCHEMA_VERSION + 2}"):
        target.open("a")


def _without(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "persona"}


def test_wrong_credentials_and_missing_databases_are_refused(url: str, servers: dict[str, str]) -> None:
    if url.startswith("clickhouse"):
        with closing(ClickHouseTarget.at(url, USER, "wrong")) as target, pytest.raises(Refused, match="password"):
            target.open("a")
    else:
        with closing(target_of(url + "_not")) as target, pytest.raises(Refused, match="does not exist"):
            target.open("a")


def test_a_batch_that_fails_changes_nothing_in_postgres(servers: dict[str, str], url: str) -> None:
    """Rows and cursor are one transaction."""
    if url.startswith("clickhouse"):
        pytest.skip("inserts there are single; the cursor comes last")
    with closing(target_of(url)) as target:
        target.open("a")
        target.send(Batch("a", {"turns": [turn("a", "m1", 1)]}, "1", 1))
        broken = turn("a", "m3", 2) | {"message_id": None}
        with pytest.raises(Refused):
            target.send(Batch("a", {"turns": [turn("a", "m2", 2), broken]}, "2", 2))
        assert list(sums(url)) == ["m1"]
        assert target.open("a") == "1"


@pytest.mark.parametrize("by", ["model", "day,user", "machine", "team", "agent", "hour", "tag:x", "session"])
def test_reports_are_those_of_segments(
    servers: dict[str, str], by: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """ClickHouse and DuckDB answer alike, for all filters of a report."""
    from burnctl.fleet_client import duckdb_engine
    from burnd.contract.reports import CompareParams, HotspotsParams, SummaryParams

    random_, url = random.Random(11), f"{servers['clickhouse']}/reports_{uuid.uuid4().hex[:6]}"
    folder = tmp_path_factory.mktemp("segments")
    with closing(ClickHouseTarget.at(url, USER, PASSWORD)) as target:
        target.open("a")
        for step in range(1, 6):
            for machine in "abc":
                rows = random_rows(random_, machine, step)
                causes = [
                    cause(machine, f"s-{machine}", n, step, tool=random_.choice(("Bash", "Read"))) for n in range(3)
                ]
                ending: dict[str, Any] = {
                    "lastMessageId": f"m{random_.randrange(80)}",
                    "outcome": random_.choice(OUTCOMES),
                    "mayGoOn": random_.random() < 0.5,
                    "updatedAt": f"2026-11-{random_.randrange(1, 28):02}T00:00:00.{ord(machine)}Z",
                }
                owners = [
                    session(machine, f"s-{machine}", step, causesSeq=step),
                    session(machine, "s1", step, **ending),
                ]
                target.send(Batch(machine, {"turns": rows, "sessions": owners, "causes": causes}, str(step), step))
                put(folder, "turns", *rows)
                put(folder, "sessions", *owners)
                put(folder, "causes", *causes)
    with closing(Connection(url, USER, PASSWORD)) as connection:
        connection.execute("INSERT INTO teams VALUES ('user-a', 'core'), ('user-b', 'web')")
        (folder / "teams.csv").write_text("user,team\nuser-a,core\nuser-b,web\n")
        there, here = FleetClient(ClickHouseEngine(connection)), FleetClient(duckdb_engine(str(folder)))
        for more in (
            {},
            {"tz": "Asia/Kathmandu", "since": "2026-11-01"},
            {"tags": {"x": 'it\'s \\ "that"'}},
            {"model": "sonnet"},
        ):
            given = {"by": by, "quality": True, "series": True, **more}
            summed = there.ask(SummaryParams, given)
            assert summed == here.ask(SummaryParams, given)
        if by in ("model", "tag:x", "machine"):
            assert there.ask(CompareParams, {"by": by}) == here.ask(CompareParams, {"by": by})
        for cause_by in ("tool", "command", "file", "prompt", "mcp", "prefix", "cache-miss", "subagent"):
            given = {"by": cause_by, "limit": 5}
            assert there.ask(HotspotsParams, given) == here.ask(HotspotsParams, given)
        if by in ("model", "machine", "team", "session"):
            given = {"by": f"tool,{by}"}
            assert there.ask(HotspotsParams, given) == here.ask(HotspotsParams, given)


def test_postgres_verifies_certificates(tmp_path: Path) -> None:
    """Of every server that is not on this machine, as 127.0.0.2 counts here, unless the URL has another mode."""
    certificate, key = self_signed(tmp_path / "own")
    other, _ = self_signed(tmp_path / "other")
    with postgres((certificate, key)) as here:
        there = here.replace("127.0.0.1", "127.0.0.2")
        for given in (there, f"{there}?sslrootcert={other}"):
            with closing(target_of(given)) as target, pytest.raises(Refused, match="certificate"):
                target.open("a")
        with closing(target_of(f"{there}?sslrootcert={certificate}")) as target:
            assert target.open("a") is None
        with connect_postgres(f"{there}?sslmode=verify-full&sslrootcert={certificate}") as db:
            assert db.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() == (True,)
    with postgres() as here:
        there = here.replace("127.0.0.1", "127.0.0.2")
        with closing(target_of(there)) as target, pytest.raises(Refused, match="SSL"):
            target.open("a")
        with closing(target_of(f"{there}?sslmode=disable")) as target:
            assert target.open("a") is None


def test_every_query_of_the_dashboard_runs(servers: dict[str, str]) -> None:
    url = f"{servers['clickhouse']}/dashboard"
    with closing(ClickHouseTarget.at(url, USER, PASSWORD)) as target:
        target.open("a")
        rows = {
            "turns": [turn("a", f"m{n}", 1) for n in range(3)],
            "sessions": [session("a", "s1", 1, causesSeq=1)],
            "causes": [cause("a", "s1", 0, 1)],
        }
        target.send(Batch("a", rows, "1", 1))
    with closing(Connection(url, USER, PASSWORD)) as connection:
        for title, sql in queries().items():
            assert len(connection.rows(sql)) == 1, title
