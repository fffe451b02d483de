"""The ledger is always whole lines: torn ends are mended, damage is stepped over, reading starts anywhere."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.errors import FileReplaced, HomeBusy, HomeError, HomeReplaced, NoSpace, StorageError
from burnd.ledger import files
from burnd.ledger.journal import Journal
from burnd.records import Turn
from burnd.records.codec import Skipped, encode
from tests.folded import Folded
from tests.make import at, turn


def lines(n: int) -> list[bytes]:
    return [encode(turn(f"m{i}", turn_index=i, ts=at(i))) for i in range(n)]


def ids(journal: Journal, start: int = 0) -> list[str]:
    return [e.entry.message_id for e in journal.read(start) if isinstance(e.entry, Turn)]


@pytest.mark.parametrize("tail", [b'{"v":1,"kind":"tu', b"\0" * 5000, b"x", encode(turn())[:-1], b"\xff" * (3 << 20)])
def test_a_torn_tail_is_cut_and_kept(tmp_path: Path, tail: bytes) -> None:
    """P3, F40, F43: what follows the last newline goes aside at opening, a run of NULs too."""
    path = tmp_path / "ledger.jsonl"
    whole = b"".join(lines(3))
    path.write_bytes(whole + tail)
    journal = Journal(path, now_ms=7)
    assert journal.torn == len(tail)
    assert path.read_bytes() == whole
    assert (tmp_path / "ledger.torn-7").read_bytes() == tail[: 1 << 20]
    journal.append(lines(1))
    assert ids(journal) == ["m0", "m1", "m2", "m0"]


@pytest.mark.parametrize("room", [0, 1, 100, 500])
def test_a_write_that_was_cut_short_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """F41, D1: where the disk ends in the middle of an append, not a byte of it stays, and the next one is whole."""
    path = tmp_path / "ledger.jsonl"
    journal = Journal(path, now_ms=7)
    journal.append(lines(3))
    before, write, left = path.read_bytes(), os.write, [room]

    def short(fd: int, data: memoryview) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(fd, data[: left[0]])
        left[0] -= written
        return written

    with monkeypatch.context() as full:
        full.setattr(os, "write", short)
        with pytest.raises(NoSpace):
            journal.append(lines(6)[3:])
        assert path.read_bytes() == before
    journal.append(lines(6)[3:])
    assert ids(journal) == [f"m{n}" for n in range(6)]


def test_damage_in_the_middle_is_stepped_over(tmp_path: Path) -> None:
    """F46: one damaged line is lost and reported with its place; the file is unchanged."""
    path = tmp_path / "ledger.jsonl"
    parts = lines(5)
    parts[2] = parts[2].replace(b'"turn"', b'"t\x00rn"')
    path.write_bytes(b"".join(parts))
    journal = Journal(path, 0)
    damaged = [e for e in journal.read() if isinstance(e.entry, Skipped)]
    assert [(e.position, e.length) for e in damaged] == [(len(parts[0]) + len(parts[1]), len(parts[2]))]
    assert ids(journal) == ["m0", "m1", "m3", "m4"]
    assert path.read_bytes() == b"".join(parts)


@given(st.integers(0, 3000))
def test_reading_starts_from_any_byte(tmp_path_factory: pytest.TempPathFactory, start: int) -> None:
    """A start inside a line moves on to the next one."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    parts = lines(6)
    path.write_bytes(b"".join(parts))
    begins = [sum(map(len, parts[:i])) for i in range(6)]
    assert ids(Journal(path, 0), start) == [f"m{i}" for i in range(6) if begins[i] >= start]


def test_long_ledgers_are_read_in_pieces(tmp_path: Path) -> None:
    """Lines are found whole however they fall on the pieces that are read."""
    path = tmp_path / "ledger.jsonl"
    parts = [encode(turn(f"m{i}", model="x" * (i * 977 % 70_000))) for i in range(200)]
    path.write_bytes(b"".join(parts))
    assert ids(Journal(path, 0)) == [f"m{i}" for i in range(200)]


@pytest.mark.parametrize("deed", ["cut", "grown", "removed", "moved"])
def test_a_ledger_changed_behind_our_back_is_noticed(tmp_path: Path, deed: str) -> None:
    """F47: before an append the file must be the one we wrote, as long as we left it."""
    path = tmp_path / "ledger.jsonl"
    journal = Journal(path, 0)
    journal.append(lines(2))
    match deed:
        case "cut":
            os.truncate(path, 10)
        case "grown":
            path.write_bytes(path.read_bytes() + b"x\n")
        case "removed":
            path.unlink()
        case "moved":
            path.rename(tmp_path / "elsewhere")
            path.write_bytes(b"")
    with pytest.raises(FileReplaced):
        journal.append(lines(1))


def test_a_rewrite_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    """F51: lines of unknown kinds, versions and damage stay byte for byte."""
    path = tmp_path / "ledger.jsonl"
    foreign = [b'{"v":99,"kind":"turn","record":{}}\n', b"damage\n", b'{"v":1,"kind":"quark","record":{"a":1}}\n']
    path.write_bytes(lines(1)[0] + b"".join(foreign))
    journal = Journal(path, 0)
    journal.rewrite(lambda entry: turn("changed"))
    assert path.read_bytes() == encode(turn("changed")) + b"".join(foreign)
    assert Folded(journal.read()).skipped == {"unknown-version": 1, "corrupt": 1, "unknown-kind": 1}
    journal.append(lines(1))


def test_a_lower_revision_never_wins(tmp_path: Path) -> None:
    """The newest revision wins, in any order of lines."""
    journal = Journal(tmp_path / "ledger.jsonl", 0)
    journal.append([encode(turn(rev=2, ts=at(2))), encode(turn(rev=1, ts=at(1))), encode(turn(rev=3, ts=at(3)))])
    assert [t.ts for t in Folded(journal.read()).turns.values()] == [at(3)]


KILLED = """
    import sys
    from pathlib import Path
    from burnd.ledger.journal import Journal
    from burnd.records.codec import encode
    from tests.make import turn
    journal = Journal(Path(sys.argv[1]), 1)
    first = sum(1 for _ in journal.read())
    for n in range(first, first + 100_000):
        journal.append([encode(turn(f"m{n}", model="x" * (n * 7919 % 9000)))])
        print(n, flush=True)
"""


def test_kill_nine_never_loses_an_acknowledged_line(tmp_path: Path) -> None:
    """P3, F40: after SIGKILL anywhere in an append, all acknowledged lines are there and the end is whole."""
    path = tmp_path / "ledger.jsonl"
    for round_number in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(KILLED), str(path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(3 + round_number * 17):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
        writer.stdout.close()
        found = ids(Journal(path, 1))
        assert found == [f"m{n}" for n in range(len(found))]
        assert len(found) > acknowledged


def test_a_second_holder_gets_the_pid_of_the_first(tmp_path: Path) -> None:
    """F61: the lock is exclusive, names its holder, and is free once let go."""
    lock = files.HomeLock(tmp_path / "burnd.lock")
    with pytest.raises(HomeBusy) as refused:
        files.HomeLock(tmp_path / "burnd.lock")
    assert refused.value.pid == os.getpid()
    lock.release()
    files.HomeLock(tmp_path / "burnd.lock").release()


@pytest.mark.parametrize("is_released", [True, False])
def test_a_lock_inherited_from_a_killed_process_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_released: bool
) -> None:
    """F40, F61: a daemon killed between fork and exec of a child leaves the lock to the child for a moment."""
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    lock = files.HomeLock(tmp_path / "burnd.lock")
    (tmp_path / "burnd.lock").write_text(f"{ended.pid}\n")
    if is_released:
        threading.Timer(0.1, lock.release).start()
        files.HomeLock(tmp_path / "burnd.lock").release()
    else:
        monkeypatch.setattr(files, "_ORPHAN_S", 0.05)
        with pytest.raises(HomeBusy):
            files.HomeLock(tmp_path / "burnd.lock")
        lock.release()


@pytest.mark.parametrize("now_there", ["nothing", "another folder", "a file"])
def test_a_holder_knows_when_its_home_is_another_folder(tmp_path: Path, now_there: str) -> None:
    """F61: the lock belongs to the original folder, not to one in its place."""
    home = tmp_path / "home"
    home.mkdir()
    lock = files.HomeLock(home / "burnd.lock")
    lock.check()
    home.rename(tmp_path / "moved")
    if now_there == "another folder":
        home.mkdir()
    elif now_there == "a file":
        home.touch()
    with pytest.raises(HomeReplaced, match="was deleted or moved while burnd was running"):
        lock.check()
    lock.release()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_a_home_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    """F52: others could change the records, so the start is refused, with advice."""
    root = tmp_path / "home"
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(HomeError, match="chmod 700"):
        files.prepare_home(root)


def test_a_linked_home_is_used_with_a_warning(tmp_path: Path) -> None:
    """F52: a home behind a link works; status shows the real path."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "home").symlink_to(tmp_path / "real")
    assert any("is a link" in warning for warning in files.prepare_home(tmp_path / "home"))


def test_a_link_in_the_place_of_the_ledger_is_refused(tmp_path: Path) -> None:
    """Nothing is ever written through a link."""
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "ledger.jsonl").symlink_to(tmp_path / "target")
    with pytest.raises(StorageError):
        Journal(tmp_path / "ledger.jsonl", 0)


def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path) -> None:
    """A file is replaced whole or not at all."""
    path = tmp_path / "file"
    files.replace_file(path, b"old")

    def fail_half_way() -> None:
        with files.replacement(path) as new:
            new.append(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
