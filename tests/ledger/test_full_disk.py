"""A full disk loses nothing; the daemon recovers when there is space."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from burnd.errors import NoSpace
from burnd.index.change import CursorChange
from burnd.paths import Home
from burnd.recording.candidate import Batch
from tests.conftest import Opened
from tests.ledger.full_disk import work
from tests.make import stamp, text, turn


def run(*command: str) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "unshare" in done.stderr:
        return {"unsupported": done.stderr.strip()}
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def undisturbed(tmp_path: Path) -> str:
    """Result of the same work on a disk with space."""
    return str(asyncio.run(work(Home(tmp_path / "roomy"), lambda: None))["said"])


def test_a_full_tmpfs_heals(tmp_path: Path, undisturbed: str) -> None:
    """F41: on a real full disk every append is whole or not there, cursors wait, and room brings everything."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare, to have a small disk of its own")
    command = [sys.executable, "-m", "tests.ledger.full_disk", "tmpfs", str(tmp_path)]
    outcome = run("unshare", "-Urm", *command)
    if "unsupported" in outcome:
        pytest.skip(f"this kernel lets no user mount a tmpfs: {outcome['unsupported']}")
    assert outcome["refused"] > 0
    assert outcome["said"] == undisturbed


def test_a_limit_on_file_size_heals(tmp_path: Path, undisturbed: str) -> None:
    """F41: EFBIG, with its short writes, is treated like a full disk."""
    outcome = run(sys.executable, "-m", "tests.ledger.full_disk", "limit", str(tmp_path))
    assert outcome["refused"] > 0
    assert outcome["said"] == undisturbed


async def test_below_the_reserve_nothing_is_recorded(opened: Opened) -> None:
    """D10: content and cursors wait while free space is below the reserve; a stamp may still be made."""
    pipeline = await opened(reserve=1 << 60)
    cursor = CursorChange("claude", "f", b"9")
    with pytest.raises(NoSpace, match="reserve"):
        await pipeline.commit(Batch(entries=[turn()], content=[text()], cursors=[cursor]))
    assert pipeline.journal.end == 0
    assert await pipeline.index.cursor("claude", "f") is None
    assert await pipeline.commit(Batch(entries=[stamp(1, persona="senior")])) == 1
    pipeline.disk.reserve = 0
    assert await pipeline.commit(Batch(entries=[turn()], content=[text()], cursors=[cursor])) == 1
