"""Lists bound to statements come in few lengths, and nothing of them is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from burnd.ledger.binding import MOST_AT_ONCE, in_few_lengths


@given(st.integers(0, 3 * MOST_AT_ONCE))
def test_every_item_is_there_once_and_in_order(count: int) -> None:
    """However many there are, the stretches make the list, and a statement is needed for a dozen lengths at most."""
    stretches = list(in_few_lengths(range(count)))
    assert [item for stretch in stretches for item in stretch] == list(range(count))
    assert {len(stretch) for stretch in stretches} <= {1 << n for n in range(MOST_AT_ONCE.bit_length())}
    assert len(stretches) <= count // MOST_AT_ONCE + MOST_AT_ONCE.bit_length()
