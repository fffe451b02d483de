"""F42: a sync fails: the daemon does not continue as if the data were durable."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from burnd.records import Turn
from burnd.records.codec import Skipped, decode
from tests.faults import tally
from tests.faults.shims import built, needs_shims
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.server.wire import running

_LARGE = "large " * 2000  # no sidecar's, but a blob
LEDGER, SIDECAR, BLOBS = "ledger.jsonl", "s.jsonl", "blobs.db-wal"
slow = pytest.mark.slow


@needs_shims
@pytest.mark.parametrize(
    ("file", "is_lost"),
    [
        (LEDGER, True),
        pytest.param(LEDGER, False, marks=slow),
        pytest.param(SIDECAR, True, marks=slow),
        pytest.param(BLOBS, False, marks=slow),
    ],
)
def test_a_failed_sync_ends_the_process(home: Home, tmp_path: Path, file: str, is_lost: bool) -> None:
    """F42: with code 1, no cursor moved; whether or not the disk has lost it, the next start has everything, once."""
    flag = tmp_path / "flag"
    shim: dict[str, Any] = {"LD_PRELOAD": str(built("failing_sync", tmp_path)), "SYNC_FAILS_WHILE": str(flag)}
    with running(home, SYNC_FAILS_BELOW=str(home.root), SYNC_FAILS_OF=file, **shim) as daemon:
        watched = Watched(home, daemon)
        watched.append("s", whole(answers("s", 0, 3, words=_LARGE)))
        assert watched.recorded("s") == sum_of(0, 1, 2)
        cursors, sizes = _cursors(home), _sizes(home)
        flag.touch()
        watched.append("s", whole(answers("s", 3, 4, words=f"other {_LARGE}")))
        assert daemon.process.wait(60) == 1, daemon.why()
    assert _cursors(home) == cursors
    if is_lost:
        _lose(home, sizes)
    with running(home) as daemon:
        watched = Watched(home, daemon)
        assert watched.recorded("s") == sum_of(*range(7))
        assert len(watched.texts("s")) == 7
        assert daemon.terminate() == 0
    entries = [decode(line) for line in home.ledger.read_bytes().splitlines()]
    assert not [entry for entry in entries if isinstance(entry, Skipped)]
    turns = [(entry.message_id, entry.rev) for entry in entries if isinstance(entry, Turn)]
    assert len(turns) == len(set(turns))
    assert {name for name, _ in turns} == {f"s-m{n}" for n in range(7)}
    tally.faults()


@needs_shims
def test_the_client_gets_the_error_of_a_failed_sync(home: Home, tmp_path: Path) -> None:
    """F42: a client whose stamp could not be made durable gets an error, and leaves it in the spool."""
    flag = tmp_path / "flag"
    shim: dict[str, Any] = {"LD_PRELOAD": str(built("failing_sync", tmp_path)), "SYNC_FAILS_WHILE": str(flag)}
    with running(home, SYNC_FAILS_BELOW=str(home.root), SYNC_FAILS_OF=LEDGER, **shim) as daemon:
        flag.touch()
        with daemon.wire() as wire:
            assert wire.error("stamp", selector={"sessionId": "s"}, enrichment={"a": "b"})["data"]["name"] == "failed"
        assert daemon.process.wait(30) == 1, daemon.why()
    with running(home) as again, again.wire() as wire:
        wire.call("stamp", selector={"sessionId": "s"}, enrichment={"a": "b"})
    tally.faults()


def _cursors(home: Home) -> list[tuple[str, bytes]]:
    """Positions of the logs as a next start would read them."""
    with closing(sqlite3.connect(home.index_db)) as db:
        return db.execute("SELECT path, cursor FROM files ORDER BY path").fetchall()


def _sizes(home: Home) -> dict[Path, int]:
    files = [home.ledger, *home.content.rglob("*.jsonl")]
    return {path: path.stat().st_size for path in files}


def _lose(home: Home, sizes: dict[Path, int]) -> None:
    """Restores files to their last synced state."""
    for path, size in sizes.items():
        with path.open("r+b") as file:
            file.truncate(size)
