"""Tables of a push."""

from __future__ import annotations

from decimal import Decimal

import pytest

from burnctl.push.schema import KEYS, TABLES, row_of, tombstone, usd

COMMON = {"machine_id": "m1", "machine": "desk", "user": "u", "seq": 7, "deleted": False, "schema": 1}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_its_keys_and_each_column_once(table: str) -> None:
    names = [column.name for column in TABLES[table]]
    assert len(set(names)) == len(names)
    assert set(KEYS[table]) <= set(names)
    assert {column.kind for column in TABLES[table]} <= {"text", "count", "flag", "time", "money", "map"}
    assert all(
        column.field or column.name in {*COMMON, "price_date", "workflow", "persona"} for column in TABLES[table]
    )


def test_a_row_has_typed_values_and_tags_of_their_own() -> None:
    turn = {
        "source": "api",
        "messageId": "m",
        "usage": {"input": 3, "cacheRead": 4},
        "costUsd": 1e-07,
        "tags": {"workflowId": "w", "x": "y"},
    }
    row = row_of("turns", turn, {**COMMON, "price_date": None})
    assert list(row) == [column.name for column in TABLES["turns"]]
    assert (row["input"], row["cache_read"], row["cost_usd"]) == (3, 4, Decimal("0.000000100000"))
    assert (row["workflow"], row["persona"], row["tags"]) == ("w", None, {"workflowId": "w", "x": "y"})
    assert (row["machine_id"], row["seq"], row["deleted"]) == ("m1", 7, False)


def test_a_tombstone_has_the_key_alone() -> None:
    row = tombstone("turns", {"source": "api", "messageId": "m"}, COMMON)
    assert {name for name, value in row.items() if value not in (None, {})} == {*COMMON, "source", "message_id"}
    assert row["deleted"] is True


def test_an_absurd_cost_is_cut() -> None:
    assert usd(1e9) == Decimal("999999.999999999999")
    assert usd(None) is None
