"""What a reader gave away is found again, packed or not, and the newest word counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from burnd.index import packs

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
