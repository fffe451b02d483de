"""The views of a push in DuckDB: newest rows, each turn once. tests/real has the same with the other engines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from burnctl.push.schema import TABLES
from burnctl.push.views import VIEWS, ClickHouse, Dialect, DuckDB, Postgres, quoted, views
from tests.burnctl.push.rows import Row, cause, gone, session, turn

TYPES = {
    "text": "VARCHAR",
    "count": "BIGINT",
    "flag": "BOOLEAN",
    "time": "TIMESTAMPTZ",
    "money": "DECIMAL(18, 12)",
    "map": "MAP(VARCHAR, VARCHAR)",
}


@pytest.fixture
def db() -> Iterator[Any]:
    db = duckdb.connect()
    for table, columns in TABLES.items():
        fields = [f"{quoted(one.name)} {TYPES[one.kind]}" for one in columns]
        db.execute(f"CREATE TABLE {table} ({', '.join(fields)})")
    db.execute('CREATE TABLE teams ("user" VARCHAR, team VARCHAR)')
    for name, select in views(DuckDB()).items():
        db.execute(f"CREATE VIEW {name} AS {select}")
    yield db
    db.close()


def put(db: Any, table: str, *rows: Row) -> None:
    marks = ",".join("?" * len(TABLES[table]))
    db.executemany(f"INSERT INTO {table} VALUES ({marks})", [[row[c.name] for c in TABLES[table]] for row in rows])


def asked(db: Any, sql: str) -> list[tuple[Any, ...]]:
    return sorted(db.execute(sql).fetchall(), key=repr)


@pytest.mark.parametrize("dialect", [ClickHouse(), Postgres(), DuckDB()])
def test_every_view_is_made_for_every_engine(dialect: Dialect) -> None:
    assert tuple(views(dialect)) == VIEWS


def test_the_newest_row_of_a_key_counts(db: Any) -> None:
    put(db, "turns", turn("a", "m1", 3), turn("a", "m1", 2, quality="partial"), turn("a", "m2", 1), gone("a", "m2", 4))
    put(db, "turns", turn("a", "m1", 3))  # sent twice
    assert asked(db, "SELECT message_id, quality, seq FROM turns_now") == [("m1", "final", 3)]


def test_a_turn_counts_once_with_its_best_copy(db: Any) -> None:
    """Final before partial, not open, most output, most tags, then the lowest machine id."""
    better: list[dict[str, Any]] = [
        {"quality": "partial", "open": True},
        {"quality": "partial", "usage": {"output": 1}},
        {"quality": "partial"},
        {"quality": "final", "usage": {"output": 1}},
        {"quality": "final"},
        {"quality": "final", "tags": {"x": "y"}},
    ]
    for n, facts in enumerate(better):
        machine = f"m{9 - n}"
        put(db, "turns", turn(machine, "m1", n, **facts))
        assert asked(db, "SELECT machine_id FROM turns_once") == [(machine,)]
    put(db, "turns", turn("m99", "m1", 1, **better[-1]))
    assert asked(db, "SELECT machine_id FROM turns_once") == [("m4",)]
    put(db, "turns", gone("m4", "m1", 99))
    assert asked(db, "SELECT machine_id FROM turns_once") == [("m99",)]


def test_it_equals_a_plain_loop_over_random_rows(db: Any) -> None:
    random_ = random.Random(5)
    rows = []
    for seq in range(400):
        machine, message = random_.choice("abc"), f"m{random_.randrange(60)}"
        if random_.random() < 0.15:
            rows.append(gone(machine, message, seq))
            continue
        facts = {
            "quality": random_.choice(("final", "partial")),
            "open": random_.random() < 0.3,
            "usage": {"output": random_.randrange(3)},
            "tags": {"x": "y"} if random_.random() < 0.5 else {},
            "costUsd": random_.randrange(10**9) / 10**12,
        }
        rows.append(turn(machine, message, seq, **facts))
    put(db, "turns", *rows, *random_.sample(rows, 50))
    newest = {(row["machine_id"], row["message_id"]): row for row in rows}
    best: dict[str, Row] = {}
    for row in sorted((row for row in newest.values() if not row["deleted"]), key=_rank):
        best.setdefault(row["message_id"], row)
    expected = sorted((name, row["machine_id"], row["cost_usd"]) for name, row in best.items())
    assert sorted(asked(db, "SELECT message_id, machine_id, cost_usd FROM turns_once")) == expected
    assert db.execute("SELECT sum(cost_usd) FROM turns_once").fetchone()[0] == sum(cost for _, _, cost in expected)


def _rank(row: Row) -> tuple[Any, ...]:
    return row["quality"] != "final", row["open"], -row["output"], -len(row["tags"]), row["machine_id"]


def test_a_team_is_a_tag_or_that_of_the_user(db: Any) -> None:
    put(db, "turns", turn("a", "m1", 1), turn("a", "m2", 1, tags={"team": "own"}), turn("b", "m3", 1))
    db.execute("INSERT INTO teams VALUES ('user-a', 'core'), ('user-a', 'web')")
    assert asked(db, "SELECT message_id, team FROM turns_once") == [("m1", "web"), ("m2", "own"), ("m3", None)]


def test_causes_are_those_that_their_session_names(db: Any) -> None:
    """A session that was copied counts once, with the machine that explains the most of it."""
    put(db, "sessions", session("a", "s1", 5, causesSeq=5))
    put(db, "causes", cause("a", "s1", 0, 3), cause("a", "s1", 1, 3), cause("a", "s1", 0, 5, tool="Read"))
    assert asked(db, "SELECT tool FROM causes_once") == [("Read",)]
    put(db, "sessions", session("b", "s1", 2, causesSeq=2))
    put(db, "causes", cause("b", "s1", 0, 2, tool="Read"), cause("b", "s1", 1, 2, tool="Edit"))
    assert asked(db, "SELECT tool, machine_id FROM causes_once") == [("Edit", "b"), ("Read", "b")]
    put(db, "sessions", session("b", "s1", 9) | {"deleted": True})
    assert asked(db, "SELECT tool, machine_id FROM causes_once") == [("Read", "a")]
