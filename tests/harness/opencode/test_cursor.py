"""Cursors of a database: how far to go back when rows are gone, and how they are stored."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.harness.opencode.cursor import Anchor, Cursors, RowCursor, SessionCursor, cursor_changes, load_cursors
from burnd.harness.opencode.queries import FIRST_ROWID
from burnd.harness.opencode.rows import digest_of


def grown(steps: list[int]) -> RowCursor:
    marker, at = RowCursor(), 0
    for step in steps:
        at += step
        marker = marker.after(at, f"msg_{at}")
    return marker


@given(st.lists(st.integers(1, 600), min_size=1, max_size=300))
def test_anchors_are_few_in_order_and_end_at_the_newest(steps: list[int]) -> None:
    marker = grown(steps)
    rows = [anchor.rowid for anchor in marker.anchors]
    assert len(rows) <= 24
    assert rows == sorted(set(rows))
    assert (rows[-1], marker.next) == (sum(steps), sum(steps) + 1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gone", [1, 7, 60, 500, 4000])
def test_going_back_costs_about_as_much_as_was_deleted(gone: int, seed: int) -> None:
    """After the newest rows went, the newest anchor that stands is not much further back than they were."""
    rng = random.Random(seed)
    marker = grown([rng.choice([1, 1, 2, 5]) for _ in range(6000)])
    standing = [anchor for anchor in marker.anchors if anchor.rowid < marker.next - gone]
    back = marker.back_to(standing[-1])
    assert marker.next - back.next <= 4 * gone + 12
    assert back.anchors[-1] == standing[-1]


def test_without_any_anchor_it_starts_at_the_smallest_rowid() -> None:
    assert grown([5, 5]).back_to(None).next == FIRST_ROWID


def test_what_is_stored_is_what_was_known() -> None:
    """What another release stored and this one cannot read counts as not seen."""
    marker = RowCursor(7, (Anchor(6, "msg_6"),), (1, 2))
    seen = SessionCursor(5, 6, 7, True, (("msg_6", 9, 7),))
    changes = cursor_changes("x", marker, [("ses_1", seen)])
    rows = [(change.key, change.value or b"") for change in changes]
    assert load_cursors(rows) == Cursors(marker, {"ses_1": seen})
    assert load_cursors([("marker", b"\xc1"), ("session:a", b"other")]) == Cursors(RowCursor(), {})
    assert [change.value for change in cursor_changes("x", None, [("ses_1", None)])] == [None]


def test_digests_tell_values_apart() -> None:
    assert digest_of(["a", "b"]) != digest_of(["ab"]) != digest_of([b"ab"])
    assert digest_of([1, None]) == digest_of([1, None])
