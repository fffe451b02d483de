"""A fault at every change to a file, one after the other, ends where an undisturbed run ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import tally
from tests.ledger.every_fault import ESCAPED

SHIM = Path(__file__).parent.parent / "shim" / "faults.c"
DIES, FAILS = 1, 2


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux" or shutil.which("gcc") is None:
        pytest.skip("needs Linux and gcc: the faults come from a library loaded before libc")
    library = tmp_path_factory.mktemp("shim") / "faults.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SHIM), "-ldl"], check=True)
    return library


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """Memory where there is some: the order of calls is what counts here, not the disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder).resolve()


def outcomes(shim: Path, folder: Path, kind: int, first: int, stride: int) -> list[dict[str, object]]:
    run = subprocess.run(
        [sys.executable, "-m", "tests.ledger.every_fault", str(folder), str(kind), str(first), str(stride)],
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


def assert_all_same(found: list[dict[str, object]]) -> None:
    assert found
    assert [line for line in found if not line.get("same")] == []
    assert all(line["code"] != ESCAPED for line in found)
    tally.faults(len(found))


@pytest.mark.parametrize(("kind", "first"), [(DIES, 1), (FAILS, 4)])
def test_some_faults(shim: Path, quick_folder: Path, kind: int, first: int) -> None:
    """F40-F45, F58: every 397th write, sync, rename, cut and removal is where the process dies, or where
    the call fails once; the next start ends in the same folded ledger, the same content, the same index."""
    assert_all_same(outcomes(shim, quick_folder, kind, first, 397))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DIES, FAILS])
def test_every_fault(shim: Path, quick_folder: Path, kind: int) -> None:
    """F40-F45, F58: the same for every single one of them."""
    assert_all_same(outcomes(shim, quick_folder, kind, 1, 1))
