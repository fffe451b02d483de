"""The table of `make test-faults` shows losses and skipped tests of both halves of the run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import tally
from tests.server.wire import PROJECT

_TESTS = """
import pytest
from tests.faults import tally

def test_that_holds():
    tally.faults(3)
    tally.note("measured")

def test_that_does_not():
    assert False

def test_that_is_not_tried():
    pytest.skip("there is no such machine")

@pytest.fixture
def broken():
    raise ValueError

def test_that_cannot_begin(broken): ...
"""


def _ended(folder: Path, workers: int) -> str:
    """Final output of a run over these tests, in a separate folder."""
    (folder / "test_any.py").write_text(_TESTS)
    alone = ("-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", "-p", "tests.faults.conftest")
    env = {**os.environ, "BURND_TALLY": str(folder / "tally"), "PYTEST_XDIST_WORKER": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), *alone, str(folder / "test_any.py")]
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout.partition("= faults =")[2]


def _row(name: str, said: str) -> int:
    found = re.search(rf"^{name} +(\d+) ", said, re.MULTILINE)
    assert found is not None, said
    return int(found[1])


@pytest.mark.slow
def test_a_failure_anywhere_is_a_loss(tmp_path: Path) -> None:
    """Also outside the tests of faults, and before a test begins; what was skipped is counted with its reason; the
    second half adds to what the first has counted."""
    for half in (1, 2):
        said = _ended(tmp_path, workers=2 - half)
        counts = [_row(name, said) for name in ("faults survived", "losses", "not tried")]
        assert counts == [3 * half, 2 * half, half]
        assert "there is no such machine" in said
        assert said.count("measured") == half


def test_where_nothing_was_skipped_no_reasons_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row stays, with 0, and no reasons are announced."""
    monkeypatch.setattr(tally, "not_tried", Counter[str]())
    assert tally.table()[4].split() == ["not", "tried", "0", "tests", "that", "were", "skipped"]
    tally.not_tried["no such machine"] += 1
    assert tally.table()[4].endswith("for these reasons:")
    assert tally.table()[5].split(maxsplit=1) == ["1", "no such machine"]
