"""A rebuild takes from the old index only data that is nowhere else."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from burnd.index.build import salvage
from burnd.index.change import FileChange
from burnd.index.keys import path_key
from burnd.logfiles.finder import Positions
from burnd.logfiles.tail import Cursor
from burnd.recording.candidate import Batch, Candidate, Submission
from burnd.recording.pipeline import Pipeline
from burnd.records import Usage
from tests.conftest import Opened

SOURCE = "claude-code"
GROWING = Candidate(
    source=SOURCE, message_id="m", session_id="s1", rail_id="main", turn_index=0, ts="2026-11-16T10:00:00.000Z"
)
_KNOWS = {
    "its ledger": "SELECT 1",
    "another ledger": "UPDATE meta SET value = '9' || value WHERE key = 'ledger_end'",
    "no ledger": "DROP TABLE meta",
}


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log in a folder whose name is no UTF-8."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 \\xzz/s1.jsonl")
    os.mkdir(os.path.dirname(path))
    Path(path).touch()
    return path


async def leave_open(pipeline: Pipeline, path: str) -> None:
    """A log was read to its end, and its last message may still grow."""
    cursor = msgspec.msgpack.encode(Cursor(1, 2))
    file = FileChange(SOURCE, path_key(path), cursor, b"state", seen_ms=1, open=True)
    await pipeline.commit(Batch(candidates=[Submission(GROWING, path_key(path))], files=[file]))


async def test_a_log_whose_path_is_no_text_is_there(opened: Opened, log: str) -> None:
    """It is read again like any other, and its open turn is carried over only when it is gone."""
    pipeline = await opened()
    await leave_open(pipeline, log)
    saved = salvage(opened.home.index_db, pipeline.journal)
    assert (saved.files, saved.open) == ([], [])
    os.unlink(log)
    saved = salvage(opened.home.index_db, pipeline.journal)
    assert [item.turn.message_id for item in saved.open] == ["m"]


async def test_a_log_whose_path_is_no_text_is_read_again_with_the_others(opened: Opened, log: str) -> None:
    """Its cursor is dropped for a full read, and retained if the log is gone."""
    pipeline = await opened()
    positions = Positions(pipeline, SOURCE, time.monotonic)
    await leave_open(pipeline, log)
    await positions.read_again()
    assert await pipeline.index.rows("SELECT path FROM files") == []
    await leave_open(pipeline, log)
    os.unlink(log)
    await positions.read_again()
    assert await pipeline.index.rows("SELECT path FROM files") == [(path_key(log),)]


@pytest.mark.parametrize("knows", ["its ledger", "another ledger", "no ledger"])
async def test_what_the_ledger_says_since_is_not_carried_over(opened: Opened, log: str, knows: str) -> None:
    """Turns of an outdated index would be old; an index of unknown state may be outdated."""
    pipeline = await opened()
    await leave_open(pipeline, log)
    os.unlink(log)
    older = opened.home.root / "older.db"
    with closing(sqlite3.connect(opened.home.index_db)) as db, closing(sqlite3.connect(older)) as copy:
        db.backup(copy)
        copy.execute(_KNOWS[knows])
        copy.commit()
    other = msgspec.structs.replace(GROWING, message_id="other", settled=True)
    await pipeline.commit(Batch(candidates=[Submission(other, path_key(log))]))
    assert len(salvage(older, pipeline.journal).open) == 1
    grown = msgspec.structs.replace(GROWING, usage=Usage(output=500), settled=True)
    await pipeline.commit(Batch(candidates=[Submission(grown, path_key(log))]))
    assert salvage(older, pipeline.journal).open == []
