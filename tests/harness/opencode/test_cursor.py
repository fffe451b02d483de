"""Cursors of a database: how they are stored."""

from __future__ import annotations

from burnd.harness.opencode.cursor import Cursors, RowCursor, SessionCursor, cursor_changes, load_cursors
from burnd.harness.opencode.rows import digest_of


def test_cursors_are_loaded_as_stored() -> None:
    """A cursor that another release stored and this one cannot decode is left out."""
    rows_cursor = RowCursor(1 << 63, "msg_6", (1, 2))
    session = SessionCursor(5, 6, 7, True, (("msg_6", 9, 7),))
    changes = cursor_changes("x", rows_cursor, [("ses_1", session)])
    rows = [(change.key, change.value or b"") for change in changes]
    assert load_cursors(rows) == Cursors(rows_cursor, {"ses_1": session})
    assert load_cursors([("marker", b"\xc1"), ("session:a", b"other")]) == Cursors(RowCursor(), {})
    assert [change.value for change in cursor_changes("x", None, [("ses_1", None)])] == [None]


def test_different_values_have_different_digests() -> None:
    assert digest_of(["a", "b"]) != digest_of(["ab"]) != digest_of([b"ab"])
    assert digest_of([1, None]) == digest_of([1, None])
