"""No text of a conversation is in what a push sends, wherever in the logs it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnctl.push.schema import TABLES
from burnd.paths import Home
from tests.burnctl.runner import burnctl
from tests.faults.canaries import CANARY, SINGERS, sing_everywhere
from tests.server.wire import running

parquet = pytest.importorskip("pyarrow.parquet")


def test_what_people_wrote_is_not_sent(home: Home, tmp_path: Path) -> None:
    sing_everywhere(home)
    folder = tmp_path / "there"
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        wire.call("hotspots")  # waits until causes are explained
        done = burnctl(home.root, "push", str(folder))
        assert done.returncode == 0, done.stderr
    rows = {
        table: [str(row) for path in folder.glob(f"{table}/*/*.parquet") for row in _rows(path)] for table in TABLES
    }
    assert all(rows[table] for table in ("turns", "sessions", "causes"))
    assert all(any(session in row for row in rows["turns"]) for session in SINGERS)
    assert [row for some in rows.values() for row in some if CANARY in row] == []
    assert not any(CANARY.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert not any(CANARY.encode() in path.read_bytes() for path in (home.root / "push").iterdir())


def _rows(path: Path) -> list[object]:
    rows: list[object] = parquet.read_table(path).to_pylist()
    return rows
