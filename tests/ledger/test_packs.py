"""What a reader gave away is found again, packed or not, and the newest word counts."""

from __future__ import annotations

import sqlite3
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.harness.claude_code.state import Prompt, Reading
from burnd.index import packs
from burnd.index.reading import FileRows, pack_of
from burnd.recording.candidate import Candidate


class Few(msgspec.Struct, array_like=True, frozen=True):
    """A row with few fields."""

    first: str
    second: bytes | None = None


Many = msgspec.defstruct("Many", [(f"f{n}", int) for n in range(40)], array_like=True, frozen=True)

few = st.builds(Few, st.text(max_size=3), st.none() | st.binary(max_size=40))
many = st.integers(0, 99).map(lambda number: Many(*range(number, number + 40)))
kinds = st.tuples(*[st.dictionaries(st.text(max_size=3), row, max_size=4) for row in (few, many, few, many)])
Given = tuple[dict[str, msgspec.Struct], ...]


def said(packed: bytes) -> Given:
    """What is in a pack, by looking for each name in it."""
    kinds = zip(packs.unpack(packed), (Few, Many, Few, Many), strict=True)
    return tuple(
        {name: msgspec.msgpack.decode(rows.get(name) or b"", type=kind) for name in rows} for rows, kind in kinds
    )


@given(kinds)
def test_a_pack_gives_back_every_row(rows: Given) -> None:
    """Nothing is lost by packing, and nothing takes no room."""
    packed = packs.pack(rows)
    assert (said(packed) if packed else ({}, {}, {}, {})) == rows


@given(kinds.filter(any), kinds.filter(any))
def test_of_merged_packs_the_newer_word_counts(older: Given, newer: Given) -> None:
    """A live log's small packs grow together; of two rows with one name the later stands."""
    merged = packs.merged(packs.pack(older), packs.pack(newer))
    assert said(merged) == tuple(old | new for old, new in zip(older, newer, strict=True))


def rows_of(*given: Reading) -> FileRows:
    """A file whose readings gave these away, a pack each."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE files(id INTEGER PRIMARY KEY, source TEXT, path TEXT)")
    db.execute("CREATE TABLE reader_packs(id INTEGER PRIMARY KEY, file INTEGER, rows BLOB)")
    db.execute("INSERT INTO files VALUES(1, 's', 'p')")
    db.executemany("INSERT INTO reader_packs(file, rows) VALUES(1, ?)", [(pack_of(reading),) for reading in given])
    return FileRows(db, "s", "p")


def test_what_was_never_given_away_costs_names_alone() -> None:
    """Of packs in which a message is not, no row is taken apart: a candidate has some forty fields."""
    held = [Candidate(message_id=f"m{n}", session_id="s", rail_id="main", turn_index=n, ts="t") for n in range(500)]
    rows = rows_of(*(Reading(candidates=held[first : first + 250]) for first in (0, 250)))
    before = sys.getallocatedblocks()
    assert rows.candidate("new") is None
    assert sys.getallocatedblocks() - before < 5 * len(held)
    assert rows.candidate("m3") == held[3]


def test_what_was_never_given_away_costs_one_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many packs a file has, a look for something new opens only the newest, which may have grown."""
    rows = rows_of(*(Reading(prompts={f"{n}-{m}": Prompt(f"{n}-{m}") for m in range(5)}) for n in range(20)))
    assert rows.prompt("new") is None
    opened: list[int] = []
    unpack = packs.unpack

    def counted(data: bytes) -> list[packs.Rows]:
        opened.append(1)
        return unpack(data)

    monkeypatch.setattr(packs, "unpack", counted)
    for n in range(50):
        rows.committed()
        assert rows.prompt(f"new {n}") is None
        assert rows.link("0-0") is None
    assert len(opened) == 50
    assert rows.prompt("3-4") == Prompt("3-4")
