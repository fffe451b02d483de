"""Rows that leave the state are found again in packs, the newest version of each, at the same cost however many."""

from __future__ import annotations

import sqlite3
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.harness.claude_code import state
from burnd.harness.claude_code.state import ClaudePrompt, ClaudeRail, LineRows, Link, Packs, lines_in, pack_of
from burnd.index.reader_packs import FilePacks
from burnd.recording.candidate import Candidate


def candidate(n: int, name: str = "") -> Candidate:
    return Candidate(
        source="claude-code", message_id=name or f"m{n}", session_id="s", rail_id="main", turn_index=n, ts="t"
    )


_names = st.text(max_size=3)
_numbers = st.dictionaries(_names, st.integers(0, 9), max_size=4)


def _rows(
    links: dict[str, int], prompts: dict[str, int], candidates: dict[str, int], rails: dict[str, int]
) -> LineRows:
    return LineRows(
        links={name: Link(name, "main", n) for name, n in links.items()},
        prompts={name: ClaudePrompt(name, (str(n),)) for name, n in prompts.items()},
        candidates={name: candidate(n, name) for name, n in candidates.items()},
        rails={name: ClaudeRail(name, n) for name, n in rails.items()},
    )


rows_of_all_kinds = st.builds(_rows, _numbers, _numbers, _numbers, _numbers)


class Store(FilePacks):
    """An index with the packs of one file."""

    def __init__(self, *packs: bytes) -> None:
        db = sqlite3.connect(":memory:")
        db.execute("CREATE TABLE files(id INTEGER PRIMARY KEY, source TEXT, path TEXT)")
        db.execute("CREATE TABLE reader_packs(id INTEGER PRIMARY KEY, file INTEGER, rows BLOB)")
        db.execute("INSERT INTO files VALUES(1, 's', 'p')")
        super().__init__(db, "s", "p")
        for pack in packs:
            self.write(pack, None)

    def write(self, pack: bytes, replaces: int | None) -> None:
        self._db.execute("INSERT OR REPLACE INTO reader_packs VALUES(?, 1, ?)", (replaces, pack))
        self.committed()


def assert_holds(packs: Packs, rows: LineRows) -> None:
    for uuid, link in rows.links.items():
        assert packs.link(uuid) == link
    for prompt_id, prompt in rows.prompts.items():
        assert packs.prompt(prompt_id) == prompt
    for message_id, found in rows.candidates.items():
        assert packs.candidate(message_id) == found
    for rail_id, rail in rows.rails.items():
        assert packs.rail(rail_id) == rail


@given(st.lists(rows_of_all_kinds, max_size=5), st.sampled_from([0, 300, 16 << 10]))
def test_the_newest_row_of_each_name_is_found(readings: list[LineRows], small: int) -> None:
    """Whether small packs are merged or not, no row is lost, and the last version counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_SMALL_PACK", small)
        store = Store()
        packs, every = Packs(store), LineRows()
        for rows in readings:
            store.write(*packs.add(rows))
            for name in ("links", "prompts", "candidates", "rails"):
                getattr(every, name).update(getattr(rows, name))
            assert_holds(packs, every)
        assert_holds(Packs(store), every)
        assert Packs(store).link("not a name") is None
        if small == 16 << 10:
            assert len(store.ids()) <= 1


def test_lines_are_found_by_their_uuids() -> None:
    pack = pack_of(_rows({"a": 1, "b": 2}, {"c": 3}, {}, {}))
    assert lines_in(pack, {"b", "c"}) == [("b", 2)]
    assert lines_in(b"", {"b"}) == []


def test_a_name_that_is_not_in_a_pack_costs_names_alone() -> None:
    """No row is decoded of packs without the name: a candidate has some forty fields."""
    candidates = [candidate(n) for n in range(500)]
    halves = [{one.message_id: one for one in candidates[first : first + 250]} for first in (0, 250)]
    packs = Packs(Store(*(pack_of(LineRows(candidates=half)) for half in halves)))
    before = sys.getallocatedblocks()
    assert packs.candidate("new") is None
    assert sys.getallocatedblocks() - before < 5 * len(candidates)
    assert packs.candidate("m3") == candidates[3]


def test_a_new_name_costs_no_more_however_many_packs_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack is opened once for its names, and again only if it has the name or was replaced."""
    names = [[f"{n}-{m}" for m in range(5)] for n in range(20)]
    store = Store(*(pack_of(LineRows(prompts={name: ClaudePrompt(name) for name in some})) for some in names))
    packs = Packs(store)
    assert packs.prompt("new") is None
    opened: list[int] = []
    get = store.get

    def counted(pack_id: int) -> bytes:
        opened.append(pack_id)
        return get(pack_id)

    monkeypatch.setattr(store, "get", counted)
    for n in range(50):
        store.committed()
        assert packs.prompt(f"new {n}") is None
        assert packs.link("0-0") is None
    assert opened == []
    store.write(*packs.add(LineRows(prompts={"added": ClaudePrompt("added")})))
    opened.clear()
    assert packs.prompt("added") == ClaudePrompt("added")
    assert packs.prompt("another") is None
    assert opened == [20]
    assert packs.prompt("3-4") == ClaudePrompt("3-4")
    assert opened == [20, 4]
