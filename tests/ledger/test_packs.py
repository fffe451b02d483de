"""What a reader gave away is found again, packed or not, and the newest word counts."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.index import packs
from burnd.index.reading import FileRows, pack_of
from burnd.readers.claude_state import Prompt, Reading

rows = st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=3), st.binary(max_size=40)), max_size=30)


@given(rows)
def test_a_pack_gives_back_the_latest_of_every_row(given_rows: list[packs.Row]) -> None:
    """Nothing is lost by packing, and of two rows with one key the later stands."""
    packed = packs.pack(given_rows)
    latest = {(kind, key): value for kind, key, value in given_rows}
    assert (packs.unpack(packed) if packed else {}) == latest


@given(rows.filter(bool), rows.filter(bool))
def test_merging_packs_is_packing_all_rows(older: list[packs.Row], newer: list[packs.Row]) -> None:
    """A live log's small packs grow together without changing what is found."""
    merged = packs.merged(packs.pack(older), packs.pack(newer))
    assert packs.unpack(merged) == packs.unpack(packs.pack([*older, *newer]))


def test_what_was_never_given_away_costs_one_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many packs a file has, a look for something new opens only the newest, which may have grown."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE files(id INTEGER PRIMARY KEY, source TEXT, path TEXT)")
    db.execute("CREATE TABLE reader_packs(id INTEGER PRIMARY KEY, file INTEGER, rows BLOB)")
    db.execute("INSERT INTO files VALUES(1, 's', 'p')")
    for n in range(20):
        prompts = {f"{n}-{m}": Prompt(f"{n}-{m}") for m in range(5)}
        db.execute("INSERT INTO reader_packs(file, rows) VALUES(1, ?)", (pack_of(Reading(prompts=prompts)),))
    rows = FileRows(db, "s", "p")
    assert rows.prompt("new") is None
    opened: list[int] = []
    unpack = packs.unpack

    def counted(data: bytes) -> packs.Rows:
        opened.append(1)
        return unpack(data)

    monkeypatch.setattr(packs, "unpack", counted)
    for n in range(50):
        rows.committed()
        assert rows.prompt(f"new {n}") is None
        assert rows.link("0-0") is None
    assert len(opened) == 50
    assert rows.prompt("3-4") == Prompt("3-4")
