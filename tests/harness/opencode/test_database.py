"""Queries on opencode's database."""

from __future__ import annotations

import sqlite3

import pytest

from burnd.harness.opencode.database import snapshot


def test_a_snapshot_that_sqlite_ended_keeps_its_error() -> None:
    """F35: SQLite rolls back after an I/O error, and that error decides about the retry."""
    db = sqlite3.connect(":memory:", isolation_level=None)

    def fail() -> None:
        with snapshot(db):
            db.execute("ROLLBACK")
            raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        fail()
    db.close()
