"""Order of writes and syncs, as seen by strace: it decides what a power cut leaves."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from burnd.paths import Home

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
_CALLS = "write,writev,pwrite64,pwritev,fsync,fdatasync,access,faccessat,faccessat2,rename,renameat,renameat2"
_CALL = re.compile(r"(?P<name>\w+)\((?:AT_FDCWD(?:<[^>]*>)?, )?(?:\d+<(?P<file>[^>]*)>|\"(?P<path>[^\"]*)\")")


class Call(NamedTuple):
    """A system call by its kind, and the name of the file it was for."""

    kind: str  # write, sync, rename, acknowledge
    file: str


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    folder = tmp_path_factory.mktemp("order")
    trace, home = folder / "trace", Home(folder / "home")
    traced = ["strace", "-f", "-y", "-s", "200", "-o", str(trace), "-e", f"trace={_CALLS}"]
    command = [*traced, sys.executable, "-m", "tests.faults.one_commit", str(home.root)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], timeout=120)
    found = (_call(line) for line in trace.read_text().splitlines())
    return [call for call in found if call is not None]


def _call(line: str) -> Call | None:
    match = _CALL.search(line)
    if match is None or "resumed" in line:
        return None
    name, path = match["name"], match["file"] or match["path"]
    kind = "sync" if "sync" in name else "told" if "access" in name else "rename" if "rename" in name else "write"
    return Call(kind, path.rpartition("/")[2])


def _between(calls: list[Call], begin: str, end: str) -> list[Call]:
    return calls[calls.index(Call("told", begin)) + 1 : calls.index(Call("told", end))]


def _last(calls: list[Call], kind: str, file: str) -> int:
    return max(n for n, call in enumerate(calls) if call == (kind, file))


def _first(calls: list[Call], kind: str, file: str) -> int:
    return calls.index(Call(kind, file))


def test_content_is_durable_before_the_ledger_and_the_ledger_before_the_index(calls: list[Call]) -> None:
    """F43: a ledger line never refers to content that is not durable, nor the index to ledger lines that are not."""
    batch = _between(calls, "BATCH 1", "REPLACE")
    ledger = _first(batch, "write", "ledger.jsonl")
    for file in ("s1.jsonl", "blobs.db-wal"):
        assert _last(batch, "write", file) < _last(batch, "sync", file) < ledger
    assert ledger < _first(batch, "sync", "ledger.jsonl") < _first(batch, "write", "burn.db-wal")
    assert _last(batch, "write", "ledger.jsonl") < _first(batch, "sync", "ledger.jsonl")


def test_a_new_file_has_its_name_before_the_ledger_tells_of_it(calls: list[Call]) -> None:
    """F43: the folder is synced, too: a sidecar without a name would be lost with all that it holds."""
    batch = _between(calls, "BATCH 1", "REPLACE")
    assert _first(batch, "sync", "content") < _first(batch, "write", "ledger.jsonl")


def test_a_file_is_whole_before_it_takes_the_others_place(calls: list[Call]) -> None:
    """F43: written, synced, renamed, and then the folder: whatever is cut, the one or the other is there."""
    done = [call for call in _between(calls, "REPLACE", "END") if call.kind != "told"]
    kinds = [call.kind for call in done]
    assert kinds[-4:] == ["write", "sync", "rename", "sync"]
    assert done[-1].file == "home"
