"""Sums of a fleet in ClickHouse equal those of a plain loop at any moment, and are read from sums by hour."""

from __future__ import annotations

import random
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from burnctl.fleet_client import ClickHouseEngine, FleetClient
from burnctl.push import clickhouse_tables
from burnctl.push.clickhouse import ClickHouseTarget, Connection
from burnctl.push.schema import TOKENS
from burnctl.push.target import Batch
from burnd.contract.reports import SummaryParams
from tests.burnctl.push.rows import USAGE, Row, gone, session, turn
from tests.real.clickhouse_server import PASSWORD, USER
from tests.real.engines import clickhouse

pytestmark = pytest.mark.real
TEAMS = {"user-a": "core", "user-b": "web"}
BY: dict[str, Callable[[Row], Any]] = {
    "model": lambda row: row["model_name"],
    "machine": lambda row: row["machine"],
    "user": lambda row: row["user"],
    "team": lambda row: row["tags"].get("team", TEAMS.get(row["user"])),
    "project": lambda row: row["project_key"],
    "day": lambda row: row["ts"][:10],
    "activity": lambda row: row["activity"],
    "session": lambda row: row["session_id"],
    "tag:x": lambda row: row["tags"].get("x"),
}
SUMMED = ("model", "provider", "project", "source", "activity", "machine", "user", "team", "day", "month", "hour")
# What is asked, and whether sums by hour are enough.
QUESTIONS: tuple[tuple[dict[str, Any], bool], ...] = (
    *(({"by": by}, True) for by in SUMMED),
    ({"by": "day,model", "tz": "Europe/Berlin", "since": "2026-11-01", "until": "2026-11-02"}, True),
    ({"by": "hour", "model": "sonnet", "provider": "anthropic", "activity": "coding"}, True),
    ({"by": "day", "tz": "Asia/Kathmandu"}, False),
    ({"by": "session"}, False),
    ({"by": "model", "tags": {"x": "p"}}, False),
)
BEGIN, END = "2026-10-31T23:10:00Z", "2026-11-02T05:00:00Z"  # one cuts an hour


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with clickhouse() as url:
        yield url


@pytest.fixture
def url(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database whose list of repeated turns is up to now, not up to a quarter of an hour ago."""
    monkeypatch.setattr(clickhouse_tables, "_UNTIL", "now() - INTERVAL 1 SECOND")
    return f"{server}/fleet_{uuid.uuid4().hex[:8]}"


def refresh(connection: Connection) -> None:
    """Lists the repeated turns of all rows that are there now."""
    time.sleep(2.1)
    connection.execute("SYSTEM REFRESH VIEW repeated_turns_refresh")
    connection.execute("SYSTEM WAIT VIEW repeated_turns_refresh")


def random_turns(random_: random.Random, machine: str, seq: int) -> list[Row]:
    """Turns that come again, move to other hours, get better or worse, and go; some are on several machines."""
    rows = []
    for message in {f"m{random_.randrange(120)}" for _ in range(15)}:
        if random_.random() < 0.15:
            rows.append(gone(machine, message, seq))
            continue
        day = random_.choice(("10-31T23", "11-01T00", "11-01T22", "11-02T05"))
        tags = {name: random_.choice("pq") for name in ("x", "team") if random_.random() < 0.3}
        facts = {
            "ts": f"2026-{day}:{random_.randrange(60):02}:59.999Z",
            "sessionId": f"s{random_.randrange(4)}",
            "model": (model := random_.choice(("opus", "sonnet"))),
            "modelName": model,
            "projectKey": random_.choice(("github.com/a/b", None)),
            "activity": random_.choice(("coding", "testing", None)),
            "quality": random_.choice(("final", "final", "partial")),
            "open": random_.random() < 0.2,
            "usage": {name: random_.randrange(5) for name in USAGE},
            "tags": tags,
            "costUsd": None if random_.random() < 0.1 else random_.randrange(10**9) / 10**12,
        }
        rows.append(turn(machine, message, seq, **facts))
    return rows


def once(rows: list[Row]) -> list[Row]:
    """The turns that count, by a plain loop: the newest row of each key, then the best copy."""
    newest: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: row["seq"]):
        newest[row["machine_id"], row["message_id"]] = row
    best: dict[str, Row] = {}
    for row in sorted((row for row in newest.values() if not row["deleted"]), key=_rank):
        best.setdefault(row["message_id"], row)
    return list(best.values())


def _rank(row: Row) -> tuple[Any, ...]:
    return row["quality"] != "final", row["open"], -row["output"], -len(row["tags"]), row["machine_id"]


def expected(rows: list[Row], by: Callable[[Row], Any]) -> dict[Any, tuple[int, int, int, float]]:
    """By key: the number of turns and of open ones, tokens and cost."""
    groups: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[by(row)].append(row)
    return {
        key: (
            len(group),
            sum(row["open"] for row in group),
            sum(row[name] for row in group for name in TOKENS),
            float(sum((row["cost_usd"] or Decimal(0) for row in group), Decimal(0))),
        )
        for key, group in groups.items()
    }


def reported(connection: Connection, **given: Any) -> dict[Any, tuple[int, int, int, float]]:
    rows = FleetClient(ClickHouseEngine(connection)).ask(SummaryParams, {"limit": 1000, **given})["rows"]
    return {
        row["key"]: (row["turns"], row["openTurns"], sum(row["usage"].values()), row["costUsd"] or 0) for row in rows
    }


def check(connection: Connection, rows: list[Row], names: list[str]) -> None:
    """Compares reports by these dimensions, for all time and for a period, and with filters."""
    counted = once(rows)
    some = [row for row in counted if BEGIN <= row["ts"] < END]
    for by in names:
        assert reported(connection, by=by) == expected(counted, BY[by]), by
        assert reported(connection, by=by, since=BEGIN, until=END) == expected(some, BY[by]), by
    sonnet = [row for row in counted if row["model_name"] == "sonnet"]
    assert reported(connection, by="day", model="sonnet") == expected(sonnet, BY["day"])
    moved = reported(connection, by="day", tz="Asia/Kathmandu")  # 5:45 ahead
    assert moved == expected(counted, lambda row: _local_day(row["ts"], 345))
    hourly = connection.rows('SELECT sum(turns), sum(cost_usd), uniqExact(machine_id, "user", team) FROM turns_hourly')
    whole = connection.rows(
        "SELECT count(), sum(cost_usd), uniqExact(machine_id, \"user\", coalesce(team, '')) FROM turns_once"
    )
    assert hourly == whole


def _local_day(ts: str, minutes: int) -> str:
    at = datetime.fromisoformat(ts).timestamp() + minutes * 60
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


@pytest.mark.parametrize("seed", range(2))
def test_sums_are_exact_at_any_moment(url: str, seed: int) -> None:
    """While lists are old or new, parts are merged, batches come again, and a reset deletes rows."""
    random_ = random.Random(seed)
    sent: list[Row] = []
    with closing(ClickHouseTarget.at(url, USER, PASSWORD)) as target, closing(Connection(url, USER, PASSWORD)) as db:
        target.open("a")
        for user, team in (("user-a", "web"), ("user-b", "web"), ("user-a", "core")):  # one goes to another team
            db.execute(f"INSERT INTO teams VALUES ('{user}', '{team}')")
        for step in range(1, 16):
            machine = random_.choice("abc")
            rows = random_turns(random_, machine, step * 10)
            owners = [session(machine, f"s-{machine}", step * 10)]
            sent += rows
            for _ in range(random_.choice((1, 1, 2))):
                target.send(Batch(machine, {"turns": rows, "sessions": owners}, str(step), step * 10))
            if random_.random() < 0.3:  # a part of an earlier batch, from a process that was believed to be dead
                old = [row for row in random_.sample(sent, 5) if row["machine_id"] == machine]
                target.send(Batch(machine, {"turns": old}, str(step), step * 10))
            if random_.random() < 0.2:
                db.execute("OPTIMIZE TABLE turns FINAL")
            if random_.random() < 0.15:
                first = (step - random_.randrange(5)) * 10
                target.finish_reset(machine, first)
                sent = [row for row in sent if row["machine_id"] != machine or row["seq"] >= first]
            if random_.random() < 0.3:
                refresh(db)
            check(db, sent, random_.sample(sorted(BY), 2))
        check(db, sent, sorted(BY))


def test_sums_by_hour_are_read_where_a_question_permits(url: str) -> None:
    """Most turns are in one row each, so that the list of repeated turns is short."""
    with closing(ClickHouseTarget.at(url, USER, PASSWORD)) as target, closing(Connection(url, USER, PASSWORD)) as db:
        target.open("a")
        rows = [turn("a", f"m{n}", 1, ts=f"2026-11-01T{n % 20:02}:00:00.000Z") for n in range(2000)]
        target.send(Batch("a", {"turns": rows}, "1", 1))
        target.send(Batch("b", {"turns": [turn("b", f"m{n}", 1) for n in range(3)]}, "1", 1))
        refresh(db)
        assert db.rows("SELECT count() FROM repeated_turns WHERE is_copy") == [[3]]
        asked: list[str] = []
        engine = ClickHouseEngine(db)
        client = FleetClient(engine)

        def rows_of(sql: str) -> list[list[Any]]:
            asked.append(sql)
            return db.rows(sql)

        engine.rows = rows_of  # type: ignore[method-assign]
        for given, is_hourly in QUESTIONS:
            asked.clear()
            client.ask(SummaryParams, given)
            (sums,) = [sql for sql in asked if "turns_uncounted" in sql and "measure_0" in sql]
            plan = "\n".join(row[0] for row in db.rows(f"EXPLAIN {sums}"))
            assert ("(hourly)" in plan) == is_hourly, given
