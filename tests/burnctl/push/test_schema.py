"""Tables of a push."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from burnctl.push.schema import KEYS, TABLES, content_row, row_of, tombstone, usd

COMMON = {"machine_id": "m1", "machine": "desk", "user": "u", "seq": 7, "deleted": False, "schema": 1}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_its_keys_and_each_column_once(table: str) -> None:
    names = [column.name for column in TABLES[table]]
    assert len(set(names)) == len(names)
    assert set(KEYS[table]) <= set(names)
    assert {column.kind for column in TABLES[table]} <= {"text", "count", "flag", "time", "money", "map"}
    own = {"workflow", "persona"} if table == "turns" else {"n", "tool", "call_id", "is_error", "text", "truncated"}
    assert all(column.field or column.name in {*COMMON, "price_date", *own} for column in TABLES[table])


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


def test_a_content_record_has_one_text() -> None:
    """That of a message, a call's input, its result; half of a surrogate pair is replaced, a lost text is none."""
    whole = {
        "sessionId": "s",
        "railId": "main",
        "messageId": "m",
        "role": "assistant",
        "ts": "2026-11-10T00:00:00.000Z",
    }
    call = {"toolUse": {"id": "c1", "name": "Bash", "input": {"command": "ls"}}}
    result = {"toolResult": {"toolUseId": "c1", "content": "a\nb", "isError": True}}
    texts: list[dict[str, Any]] = [
        {"text": "hi \ud83d"},
        {"text": {"blob": "8d36", "bytes": 9}},
        {"file": {"name": "a.png"}},
    ]
    rows = [content_row({**whole, **more}, n, COMMON) for n, more in enumerate([*texts, call, result])]
    assert [row["text"] for row in rows] == ["hi ?", None, "a.png", '{"command": "ls"}', "a\nb"]
    assert [(row["tool"], row["call_id"], row["is_error"]) for row in rows[3:]] == [
        ("Bash", "c1", None),
        (None, "c1", True),
    ]
    assert [row["n"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0].keys() == {column.name for column in TABLES["content"]}
