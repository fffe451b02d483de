"""The write-ahead log of a database: how long it is, and how it is emptied."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

PATIENCE_MS = 5_000  # as Python's `sqlite3` sets it


def log_bytes(database: Path) -> int:
    """How long a database's log is, whatever of it is still needed."""
    try:
        return os.stat(f"{database}-wal").st_size
    except FileNotFoundError:
        return 0


def empty_log(db: sqlite3.Connection, within_ms: int = 0) -> bool:
    """Brings everything into the database itself and cuts the log, unless somebody is reading it for longer."""
    db.execute(f"PRAGMA busy_timeout = {within_ms}")
    try:
        ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
    return not busy
