"""Promises about files that lose their path while they are read."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnd.logfiles.scanner import Refused
from burnd.logfiles.tail import Cursor, OpenFiles


@pytest.fixture
def files() -> Iterator[OpenFiles]:
    opened = OpenFiles()
    yield opened
    opened.close()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as handle:
        handle.write(data)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


def test_a_replaced_file_is_drained_before_the_new_one_is_read(tmp_path: Path, files: OpenFiles) -> None:
    """F06: lines written to the old file after the last read come first, then the new file from 0."""
    path = tmp_path / "a.jsonl"
    append(path, b"one\n")
    first = files.read(str(path), None)
    append(path, b"two\nhalf")
    (tmp_path / "new").write_bytes(b"three\n")
    (tmp_path / "new").replace(path)

    old = files.read(str(path), first.cursor)
    assert [line for _, line in old.lines] == [b"two"]
    assert old.more
    assert old.tail is not None
    assert old.tail.data == b"half"

    new = files.read(str(path), old.cursor)
    assert (new.rewound, new.lines) == ("replaced", [(0, b"three")])


def test_a_drain_of_many_turns_stays_on_the_old_file(tmp_path: Path, files: OpenFiles) -> None:
    """F06: also when the rest of the old file takes several calls."""
    path = tmp_path / "a.jsonl"
    append(path, b"0\n")
    chunk = files.read(str(path), None)
    append(path, b"".join(b"%d\n" % n for n in range(1, 100)))
    (tmp_path / "new").write_bytes(b"new\n")
    (tmp_path / "new").replace(path)
    lines: list[bytes] = []
    while chunk.more or not lines:
        chunk = files.read(str(path), chunk.cursor, max_bytes=32)
        lines += [line for _, line in chunk.lines]
    assert lines == [b"%d" % n for n in range(1, 100)] + [b"new"]


def test_an_unlinked_file_is_read_to_its_end(tmp_path: Path, files: OpenFiles) -> None:
    """F08: what was written before the unlink is delivered; then the file is simply gone."""
    path = tmp_path / "a.jsonl"
    append(path, b"one\n")
    first = files.read(str(path), None)
    append(path, b'two\n{"half":')
    path.unlink()
    last = files.read(str(path), first.cursor)
    assert [line for _, line in last.lines] == [b"two"]
    assert not last.more
    assert last.tail is not None
    assert last.tail.data == b'{"half":'
    assert len(files) == 0
    with pytest.raises(FileNotFoundError):
        files.read(str(path), last.cursor)


def test_a_file_unlinked_before_it_was_opened_is_only_missing(tmp_path: Path, files: OpenFiles) -> None:
    """F08: counted as missing only."""
    with pytest.raises(FileNotFoundError):
        files.read(str(tmp_path / "never"), None)


def test_a_renamed_file_goes_on_under_its_new_name(tmp_path: Path, files: OpenFiles) -> None:
    """F06: a cursor holds no path: given to the file under its new name, nothing is read twice."""
    path = tmp_path / "a.jsonl"
    append(path, b"one\n")
    cursor = files.read(str(path), None).cursor
    path.rename(tmp_path / "b.jsonl")
    append(tmp_path / "b.jsonl", b"two\n")
    chunk = files.read(str(tmp_path / "b.jsonl"), cursor)
    assert (chunk.rewound, chunk.lines) == (None, [(4, b"two")])


def test_a_link_in_the_place_of_a_file_is_refused(tmp_path: Path, files: OpenFiles) -> None:
    """F16: the old file is drained, the link is never followed."""
    path = tmp_path / "a.jsonl"
    append(path, b"one\n")
    first = files.read(str(path), None)
    append(path, b"two\n")
    path.unlink()
    (tmp_path / "secret").write_bytes(b"secret\n")
    path.symlink_to(tmp_path / "secret")
    assert files.read(str(path), first.cursor).lines == [(4, b"two")]
    with pytest.raises(Refused, match="symlink"):
        files.read(str(path), first.cursor)


def test_no_more_descriptors_than_agreed(tmp_path: Path) -> None:
    """P8: the least recently read file is closed first; after close none is open."""
    before = open_descriptors()
    files = OpenFiles(limit=5)
    cursors: dict[Path, Cursor] = {}
    for number in range(20):
        path = tmp_path / f"{number}.jsonl"
        append(path, b"line\n")
        cursors[path] = files.read(str(path), None).cursor
        files.read(str(tmp_path / "0.jsonl"), cursors[tmp_path / "0.jsonl"])
    assert len(files) == 5
    assert open_descriptors() == before + 5
    (tmp_path / "0.jsonl").unlink()
    files.read(str(tmp_path / "0.jsonl"), cursors[tmp_path / "0.jsonl"])
    assert len(files) == 4
    files.close()
    assert open_descriptors() == before


def test_only_files_that_changed_lately_are_held(tmp_path: Path) -> None:
    """F08: descriptors of an archive are not cached, and a cached one is closed when its file falls quiet."""
    now = 1_000_000.0
    files = OpenFiles(idle=600, clock=lambda: now, wall=lambda: now)
    for name, age in [("old", 5000), ("new", 10)]:
        path = tmp_path / name
        append(path, b"line\n")
        os.utime(path, (now - age, now - age))
        files.read(str(path), None)
    assert len(files) == 1
    now += 500
    files.expire()
    assert len(files) == 1
    now += 200
    files.expire()
    assert len(files) == 0


def test_a_clock_that_is_set_lets_go_of_nothing(tmp_path: Path) -> None:
    """F79, F08: the last lines of an open file are read after its unlink, even if the clock was set meanwhile."""
    now = time.time()
    files = OpenFiles(idle=600, wall=lambda: now)
    path = tmp_path / "a.jsonl"
    append(path, b"one\n")
    cursor = files.read(str(path), None).cursor
    append(path, b"two\n")
    path.unlink()
    now += 86_400
    files.expire()
    assert files.read(str(path), cursor).lines == [(4, b"two")]


def test_a_failed_read_lets_go(tmp_path: Path, files: OpenFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """F17: a descriptor that went bad is not used again; the next try opens the file again."""
    path = tmp_path / "a.jsonl"
    append(path, b"one\n")
    cursor = files.read(str(path), None).cursor
    with monkeypatch.context() as broken:

        def fail(fd: int, size: int, offset: int) -> bytes:
            raise OSError(5, "Input/output error")

        broken.setattr(os, "pread", fail)
        with pytest.raises(OSError, match="Input/output"):
            files.read(str(path), cursor)
    assert len(files) == 0
    append(path, b"two\n")
    assert files.read(str(path), cursor).lines == [(4, b"two")]


def test_a_quiet_file_offers_its_unfinished_line(tmp_path: Path) -> None:
    """F10: whether its descriptor is cached or not."""
    path = tmp_path / "a.jsonl"
    append(path, b"one\n{}")
    for limit in (0, 8):
        files = OpenFiles(limit=limit)
        found = files.last_line(str(path), files.read(str(path), None).cursor)
        assert found is not None
        assert found.data == b"{}"
        files.close()


def test_reading_and_expiring_at_the_same_time(tmp_path: Path) -> None:
    """F77: the event loop expires, releases and lists while a worker thread reads, as while thousands of logs grow.

    Every entry is idle at once and threads switch all the time: without a lock, expiry iterates over a cache that
    changes, or closes a descriptor that is being read.
    """
    paths = [tmp_path / f"{number}.jsonl" for number in range(64)]
    for path in paths:
        append(path, b"line\n")
    before = open_descriptors()
    files = OpenFiles(limit=16, idle=-1.0, wall=lambda: float("-inf"))
    failures: list[Exception] = []
    done = threading.Event()

    def read_all() -> None:
        try:
            for number in range(4000):
                path = str(paths[number * 7 % 16 if number % 3 else number % 64])
                assert files.read(path, None).lines == [(0, b"line")]
        except Exception as error:  # noqa: BLE001 - whatever it is fails the test below
            failures.append(error)
        finally:
            done.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        worker = threading.Thread(target=read_all)
        worker.start()
        while not done.is_set():
            files.expire()
            files.release(str(paths[3]))
            files.paths()
        worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    files.close()
    assert open_descriptors() == before
