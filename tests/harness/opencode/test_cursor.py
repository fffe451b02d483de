"""Cursors of a database: how they are stored."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from burnd.harness.opencode.cursor import (
    ChangeFinder,
    Cursors,
    RowCursor,
    SessionCursor,
    cursor_changes,
    load_cursors,
)
from burnd.harness.opencode.database import Database, probe
from burnd.harness.opencode.rows import digest_of
from tests.harness.opencode.data import Writer


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


def test_sessions_with_the_newest_messages_are_read_first(tmp_path: Path) -> None:
    """At the first start; later those that change are."""
    writer = Writer(tmp_path / "opencode.db")
    for name in ("ses_a", "ses_b", "ses_c"):
        writer.user(f"msg_{name}", writer.session(name))
    writer.user("msg_again", "ses_a")
    finder = ChangeFinder(lambda _: True, Cursors(RowCursor(), {}))
    database = Database(str(tmp_path / "opencode.db"))
    with closing(database), database.reading() as db:
        finder.find_new(db, (1, 2))
        finder.scan(db, probe(db), [])
        assert [name for name, _ in finder.in_order()] == ["ses_a", "ses_c", "ses_b"]
        finder.mark("ses_b", deep=False)
        assert [name for name, _ in finder.in_order()] == ["ses_b", "ses_a", "ses_c"]
    writer.close()
