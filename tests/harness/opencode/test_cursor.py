"""Cursors of a database: how they are stored."""

from __future__ import annotations

from burnd.harness.opencode.cursor import Cursors, RowCursor, SessionCursor, cursor_changes, load_cursors
from burnd.harness.opencode.rows import digest_of


def test_what_is_stored_is_what_was_known() -> None:
    """What another release stored and this one cannot read counts as not seen."""
    marker = RowCursor(1 << 63, "msg_6", (1, 2))
    seen = SessionCursor(5, 6, 7, True, (("msg_6", 9, 7),))
    changes = cursor_changes("x", marker, [("ses_1", seen)])
    rows = [(change.key, change.value or b"") for change in changes]
    assert load_cursors(rows) == Cursors(marker, {"ses_1": seen})
    assert load_cursors([("marker", b"\xc1"), ("session:a", b"other")]) == Cursors(RowCursor(), {})
    assert [change.value for change in cursor_changes("x", None, [("ses_1", None)])] == [None]


def test_digests_tell_values_apart() -> None:
    assert digest_of(["a", "b"]) != digest_of(["ab"]) != digest_of([b"ab"])
    assert digest_of([1, None]) == digest_of([1, None])
