"""Lists bound to statements are padded to few lengths without losing values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.ledger.sqlite_files import MOST_AT_ONCE, batches


@given(st.integers(0, 3 * MOST_AT_ONCE))
def test_every_item_is_there_once_and_in_order(count: int) -> None:
    """However many there are, the stretches make the list, and a statement is needed for two dozen lengths at most."""
    stretches = list(batches(range(count)))
    assert [item for stretch in stretches for item in stretch] == list(range(count))
    powers = [1 << n for n in range(MOST_AT_ONCE.bit_length())]
    assert {len(stretch) for stretch in stretches} <= {n + part for n in powers for part in (0, n // 4, n // 2)}
    assert len(stretches) <= count // MOST_AT_ONCE + 4


@pytest.mark.parametrize("count", [10, 20])
def test_what_is_on_a_page_is_bound_at_once(count: int) -> None:
    """The usual ten hits of a search, and the maximum of twenty, need one statement per query."""
    assert len(list(batches(range(count)))) == 1
