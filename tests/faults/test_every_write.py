"""A crash at every step: whichever changing call fails, the work ends as in an undisturbed run."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from tests.faults import tally
from tests.faults.every_write import DIES, FAILS, Counter, Work, fault, outcome
from tests.faults.shims import built, needs_shims

pytestmark = needs_shims
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs the program strace")
# All that the kernel can be asked to change a file system by, but for modes and dates.
_CHANGES = (
    "open openat openat2 creat write writev pwrite64 pwritev pwritev2 fsync fdatasync sync_file_range ftruncate "
    "truncate fallocate rename renameat renameat2 unlink unlinkat rmdir mkdir mkdirat link linkat symlink symlinkat "
    "copy_file_range sendfile splice"
)
_SPOILT = {"openat", "write", "writev", "pwrite64", "fsync", "fdatasync", "ftruncate", "rename", "unlink", "unlinkat"}
_SPOILT |= {"rmdir", "mkdir"}
_CALL = re.compile(r"\d+ +(\w+)\(")
PARTS = 8  # the long run is cut into so many, which can run beside each other
_DIED = 137


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("faults", tmp_path_factory.mktemp("shim"))


@contextmanager
def a_home() -> Iterator[Home]:
    """In memory where there is some: the order of calls is what counts here, not the disk."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="burnd-", dir=place) as folder:
        yield Home(Path(folder).resolve() / "home")


def undisturbed(shim: Path) -> tuple[dict[str, Any], int]:
    """Result of an undisturbed run, and its number of changes."""
    with a_home() as home:
        counter = Counter(home.root.parent / "seen")
        work = Work(home, **fault(shim, home, 0, 0, counter))
        work.do()
        assert work.broken == 0
        return outcome(home), counter.calls


def disturbed(shim: Path, at: int, kind: int, expected: dict[str, Any], *, certainly: bool = True) -> None:
    with a_home() as home:
        counter = Counter(home.root.parent / "seen")
        work = Work(home, **fault(shim, home, at, kind, counter))
        work.do()
        assert counter.calls >= at or not certainly, "there was no such call"
        assert work.failures <= ({_DIED} if kind == DIES else {1}), work.failures
        found = outcome(home)
        different = {key: (found[key], value) for key, value in expected.items() if found[key] != value}
        assert different == {}, f"a fault at change {at} of kind {kind}"
    tally.faults()


@pytest.mark.slow
def test_a_fault_at_some_changes(shim: Path) -> None:
    """F40, F42, F44, F45: the daemon dies in, or is refused, one of its changes to the home. Repeating the requests
    ends in the same ledger, answers and texts, without a trace of deleted text."""
    expected, calls = undisturbed(shim)
    assert expected["canary"] == set()
    assert expected["skipped"] == 0
    assert expected["turns twice"] == []
    for at, kind in ((calls // 3, DIES), (calls * 2 // 3, FAILS)):
        disturbed(shim, at, kind, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DIES, FAILS])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_fault_at_many_changes(shim: Path, kind: int, part: int) -> None:
    """F40, F42, F44, F45: the same all along; BURND_FAULT_STRIDE=1 takes every single one of them, for hours."""
    expected, calls = undisturbed(shim)
    fewer = calls - calls // 20  # threads and timers make it a few more or less each time
    stride = int(os.environ.get("BURND_FAULT_STRIDE", "23"))
    for at in range(1 + part * stride, calls + 1, PARTS * stride):
        disturbed(shim, at, kind, expected, certainly=at < fewer)


@pytest.mark.slow
@needs_strace
def test_no_change_escapes_the_shim() -> None:
    """F40, F42: the shim can make every change below the home fail, except renames of the search index, which bypass
    libc and are covered by the next test."""
    with a_home() as home:
        trace = home.root.parent / "trace"
        Work(
            home, script="tests.faults.traced", TRACED=f"-e trace={','.join(_CHANGES.split())}", TRACED_TO=str(trace)
        ).do()
        lines = [line for path in trace.parent.glob("trace.*") for line in path.read_text().splitlines()]
        asked = [line for line in lines if str(home.root) in line and ("open" not in line or "O_CREAT" in line)]
        names = {found[1]: line for line in asked if (found := _CALL.match(line))}
        assert {"pwrite64", "fdatasync", "rename", "unlinkat"} <= names.keys()
        assert names.keys() - _SPOILT <= {"renameat"}
        assert all(str(home.search) in line for line in asked if " renameat(" in line)


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize("spoilt", ["signal=KILL", "error=ENOSPC"])
def test_a_fault_when_search_renames(shim: Path, spoilt: str) -> None:
    """F40, F41: the daemon dies in, or is refused, a renaming of the search index, which goes past libc."""
    expected, _ = undisturbed(shim)
    for at in (1, 2, 3, 5):
        with a_home() as home:
            trace = str(home.root.parent / "trace")
            inject = f"-e trace=renameat -e inject=renameat:{spoilt}:when={at}"
            work = Work(home, script="tests.faults.traced", TRACED=inject, TRACED_TO=trace)
            work.do()
            met = sum(path.read_text().count("(INJECTED)") for path in Path(trace).parent.glob("trace.*"))
            assert met or work.failures == {-9}
            found = outcome(home)
            assert {key: found[key] for key in expected if found[key] != expected[key]} == {}, f"{spoilt} at {at}"
        tally.faults()
