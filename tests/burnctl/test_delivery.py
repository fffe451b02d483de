"""Writes to the spool under every fault: a stamp arrives whole, or nothing is left."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burnctl import delivery
from burnctl.delivery import NotSpooled
from tests.burnctl.faulty_calls import RECORDS, Faulty
from tests.burnctl.runner import BURNCTL, burnctl, environment, leftovers, spooled


def no_room(name: str) -> None:
    raise OSError(28, "No space left on device")


def every_fault(fault: Callable[[str], Any]) -> list[Faulty]:
    return [Faulty(k, fault) for k in range(1, 60)]


def test_a_fault_at_any_call_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disk full at the k-th call, for every k: an error that reports it and no file, whole or partial; otherwise all
    files."""
    happened = 0
    for n, faulty in enumerate(every_fault(no_room)):
        home = tmp_path / str(n)
        monkeypatch.setattr(delivery, "os", faulty)
        try:
            delivery.spool_records(str(home), RECORDS)
            whole = RECORDS
        except NotSpooled:
            whole = []
        happened += faulty.happened
        assert spooled(home) == whole
        assert leftovers(home) == []
    assert happened > 15


def test_a_new_word_in_the_place_of_an_old_one_is_one_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fault while replacing a file it has the old or the new content, never a mix."""
    for n, faulty in enumerate(every_fault(no_room)):
        home = str(tmp_path / str(n))
        monkeypatch.setattr(delivery, "os", os)
        delivery.spool_as(home, "claim", {"is": "old"})
        monkeypatch.setattr(delivery, "os", faulty)
        try:
            delivery.spool_as(home, "claim", {"is": "new"})
            assert spooled(Path(home)) == [{"is": "new"}]
        except NotSpooled:
            assert spooled(Path(home)) in ([{"is": "old"}], [{"is": "new"}])
        assert leftovers(Path(home)) == []


KILLED = """
import os, sys
from burnctl import delivery
from tests.burnctl.faulty_calls import Faulty, RECORDS

for k in sys.argv[2:]:
    pid = os.fork()
    if pid == 0:
        delivery.os = Faulty(int(k), lambda name: os._exit(137))
        delivery.spool_records(f"{sys.argv[1]}/{k}", RECORDS)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_killed_at_any_call(tmp_path: Path) -> None:
    """kill -9 at the k-th call: the daemon finds whole files or none; what is half done is hidden behind a dot."""
    calls = [str(k) for k in range(1, 30)]
    command = [sys.executable, "-c", KILLED, str(tmp_path), *calls]
    codes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    for k, code in zip(calls, codes, strict=True):
        found = spooled(tmp_path / k)
        assert found == RECORDS[: len(found)]
        assert all(name.startswith(".") for name in leftovers(tmp_path / k))
        assert (code, found == RECORDS) == ("0", True) or code == "137"
    assert codes == sorted(codes, reverse=True)
    assert {"0", "137"} == set(codes)


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    """F41: on a file system without room: exit code 1, the reason and what to do, and nothing half written."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare, to have a small disk of its own")
    script = (
        f"mount -t tmpfs -o size=16k,mode=0700 small {tmp_path} && cd {tmp_path} && "
        f"head -c 1000000 /dev/zero > ballast 2>/dev/null; mkdir home; {' '.join(BURNCTL)} stamp --session s a=b; "
        f"echo code $?; find home -type f"
    )
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script],
        env=environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        check=False,
    )
    if "code" not in done.stdout:
        pytest.skip(f"this kernel lets no user mount a tmpfs: {done.stderr.strip()}")
    assert done.stdout.split("\n", 1) == ["code 1", ""]
    assert "No space left on device" in done.stderr
    assert "nothing was recorded" in done.stderr


def test_a_limit_on_file_size_is_reported(tmp_path: Path) -> None:
    """A write that is cut short and then refused leaves no half file."""
    home = tmp_path / "home"
    done = burnctl(
        home,
        "stamp",
        "--session",
        "s",
        "a=b",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40, resource.RLIM_INFINITY)),
    )
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert list((home / "spool").iterdir()) == []


def test_a_home_that_is_not_ours_to_write(tmp_path: Path) -> None:
    """A file in the place of the home or spool, or a link: the error names its path, and nothing changes."""
    home = tmp_path / "home"
    home.write_text("precious")
    done = burnctl(home, "stamp", "--session", "s", "a=b")
    assert (done.returncode, home.read_text()) == (1, "precious")
    assert str(home) in done.stderr
    home.unlink()
    home.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (home / "spool").symlink_to(elsewhere)
    done = burnctl(home, "stamp", "--session", "s", "a=b")
    assert done.returncode == 1
    assert list(elsewhere.iterdir()) == []


def test_names_sort_as_they_were_put(tmp_path: Path) -> None:
    """The daemon takes files in the order of their names; that is the order of their making."""
    home = tmp_path / "home"
    for n in range(0, 30, 3):
        delivery.spool_records(str(home), [{"n": n}, {"n": n + 1}, {"n": n + 2}])
    assert [record["n"] for record in spooled(home)] == list(range(30))


def test_a_record_is_one_line_of_json(tmp_path: Path) -> None:
    """So that a person, or `cat`, can read what waits."""
    home = tmp_path / "home"
    delivery.spool_records(str(home), [{"text": "two\nlines, ünïcode"}])
    (file,) = (home / "spool").iterdir()
    assert file.read_bytes().count(b"\n") == 1
    assert json.loads(file.read_bytes()) == {"text": "two\nlines, ünïcode"}
