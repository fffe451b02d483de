"""Promises about finding transcripts."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from burnd.logfiles.scanner import Refused, Scanner, WalkTally, below, fingerprint, open_regular, present, walk
from tests.logfiles import reading
from tests.server.wire import noise


def names(root: Path) -> set[str]:
    return {os.path.relpath(found.path, root) for found in walk(str(root))}


def make(path: Path, text: str = "{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_transcripts_are_found_wherever_they_lie(tmp_path: Path) -> None:
    """Main sessions, sub-agents and old layouts are found; other files are not."""
    for name in ("a/s.jsonl", "a/s/subagents/agent-1.jsonl", "b/agent-12345678.jsonl"):
        make(tmp_path / name)
    make(tmp_path / "a/s/tool-results/1.txt")
    make(tmp_path / "a/s/custom-title.json")
    assert names(tmp_path) == {"a/s.jsonl", "a/s/subagents/agent-1.jsonl", "b/agent-12345678.jsonl"}


def test_odd_things_are_left_alone_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F16: links, loops, FIFOs and sockets with a transcript's name are neither yielded nor entered."""
    root = tmp_path / "root"
    make(root / "p" / "good.jsonl")
    make(tmp_path / "outside" / "secret.jsonl")
    (root / "p" / "link.jsonl").symlink_to(tmp_path / "outside" / "secret.jsonl")
    (root / "p" / "dangling.jsonl").symlink_to("nowhere")
    (root / "outside").symlink_to(tmp_path / "outside")
    (root / "p" / "loop").symlink_to(root)
    os.mkfifo(root / "p" / "fifo.jsonl")
    monkeypatch.chdir(root / "p")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.jsonl")
    (root / "p" / "folder.jsonl").mkdir()
    tally = WalkTally()
    found = [file.path for file in walk(str(root), tally=tally)]
    assert found == [str(root / "p" / "good.jsonl")]
    assert tally.refused == {"symlink": 4, "not a regular file": 2}
    assert tally.directories == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """F16: what does not belong to us is counted, not read."""
    os.chown(make(tmp_path / "p" / "a.jsonl"), 65534, -1)
    tally = WalkTally()
    assert list(walk(str(tmp_path), tally=tally)) == []
    assert tally.refused == {"foreign owner": 1}


@pytest.mark.timed
def test_a_very_deep_tree_ends(tmp_path: Path, dig: Callable[[Path, int], None]) -> None:
    """F16: a tree of 3,000 levels is left at a certain depth, within 2 s; what lies above is found."""
    dig(tmp_path, 3000)
    path = make(tmp_path / "p" / "a.jsonl")
    tally = WalkTally()
    started = time.monotonic()
    assert [file.path for file in walk(str(tmp_path), tally=tally)] == [str(path)]
    assert time.monotonic() - started < 2 * noise()
    assert tally.refused == {"too deep": 1}


def test_a_missing_root_is_normal(tmp_path: Path) -> None:
    """F24: it has no files, and nothing is wrong."""
    scan = Scanner().scan([str(tmp_path / "missing")])
    assert (scan.changed, scan.files, scan.tally.directories, scan.tally.refused) == ([], 0, 0, {})


def test_a_folder_that_cannot_be_listed_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F17: one bad folder is counted and the others are read."""
    make(tmp_path / "bad" / "a.jsonl")
    make(tmp_path / "good" / "b.jsonl")
    opened = os.open

    def failing(path: str, flags: int) -> int:
        if path.endswith("bad"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags)

    monkeypatch.setattr(os, "open", failing)
    scan = Scanner().scan([str(tmp_path)])
    assert [file.path for file in scan.changed] == [str(tmp_path / "good" / "b.jsonl")]
    assert scan.tally.refused == {"unreadable folder": 1}


def test_a_scan_reports_only_what_changed(tmp_path: Path) -> None:
    """F21: new, grown, replaced and vanished files are reported once each."""
    scanner = Scanner()
    for name in "abcd":
        make(tmp_path / "p" / f"{name}.jsonl")

    def scan() -> tuple[set[str], set[str]]:
        result = scanner.scan([str(tmp_path)])
        return {Path(found.path).stem for found in result.changed}, {Path(path).stem for path in result.gone}

    assert scan() == (set("abcd"), set())
    assert scan() == (set(), set())
    with (tmp_path / "p" / "a.jsonl").open("a") as file:
        file.write("more\n")
    make(tmp_path / "new")
    (tmp_path / "new").replace(tmp_path / "p" / "b.jsonl")
    (tmp_path / "p" / "c.jsonl").unlink()
    make(tmp_path / "q" / "e.jsonl")
    assert scan() == (set("abe"), set("c"))
    assert scan() == (set(), set())


def test_what_is_known_from_before_is_no_news(tmp_path: Path) -> None:
    """Of files that were read in an earlier life, a first scan reports those that changed since, and those gone."""
    scanner = Scanner()
    for name in "abc":
        path = make(tmp_path / "p" / f"{name}.jsonl")
        found = path.stat()
        scanner.know(str(path), fingerprint(found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns))
    make(tmp_path / "p" / "b.jsonl", "{}\n{}\n")
    (tmp_path / "p" / "c.jsonl").unlink()
    make(tmp_path / "p" / "d.jsonl")
    scanner.know(str(tmp_path / "elsewhere" / "e.jsonl"), 1)
    scan = scanner.scan([str(tmp_path)])
    assert {Path(found.path).stem for found in scan.changed} == {"b", "d"}
    assert {Path(path).stem for path in scan.gone} == {"c", "e"}
    assert (scan.files, scanner.count(".jsonl")) == (3, 3)
    assert scanner.has_seen(str(tmp_path / "p" / "a.jsonl"))
    assert not scanner.has_seen(str(tmp_path / "p" / "c.jsonl"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_that_was_given_away_is_gone_until_it_is_given_back(tmp_path: Path) -> None:
    """F17: what may not be read any more is counted at every scan, and reported again once it may."""
    path, scanner = make(tmp_path / "p" / "a.jsonl"), Scanner()
    assert len(scanner.scan([str(tmp_path)]).changed) == 1
    os.chown(path, 65534, -1)
    for _ in range(2):
        scan = scanner.scan([str(tmp_path)])
        assert (scan.changed, scan.files, scan.tally.refused) == ([], 0, {"foreign owner": 1})
    os.chown(path, os.geteuid(), -1)
    assert len(scanner.scan([str(tmp_path)]).changed) == 1


def test_a_scan_leaves_no_descriptor_open(tmp_path: Path) -> None:
    """F80: neither a complete walk nor one that was abandoned half way."""
    for name in "abc":
        make(tmp_path / name / "s.jsonl")
    before = len(os.listdir("/dev/fd"))
    Scanner().scan([str(tmp_path)])
    next(walk(str(tmp_path)))
    assert len(os.listdir("/dev/fd")) == before


def test_a_turned_back_clock_hides_nothing(tmp_path: Path) -> None:
    """F20: a file that grew is reported whatever its modification time."""
    path = make(tmp_path / "p" / "a.jsonl")
    scanner = Scanner()
    scanner.scan([str(tmp_path)])
    before = path.stat()
    with path.open("a") as file:
        file.write("more\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert len(scanner.scan([str(tmp_path)]).changed) == 1


def test_overlapping_roots_are_reported_once(tmp_path: Path) -> None:
    make(tmp_path / "p" / "a.jsonl")
    scan = Scanner().scan([str(tmp_path), str(tmp_path / "p")])
    assert (len(scan.changed), scan.files) == (1, 1)


@pytest.mark.timed
def test_many_files_are_scanned_quickly(tmp_path: Path) -> None:
    """F18: 5,000 files are looked at in a fraction of a second, and the second scan reports none of them."""
    for folder in range(50):
        os.mkdir(tmp_path / str(folder))
        for number in range(100):
            os.close(os.open(f"{tmp_path}/{folder}/{number}.jsonl", os.O_CREAT | os.O_WRONLY, 0o600))
    scanner = Scanner()
    assert len(scanner.scan([str(tmp_path)]).changed) == 5000
    again = min((scanner.scan([str(tmp_path)]) for _ in range(3)), key=lambda scan: scan.seconds)
    assert (again.changed, again.files, again.tally.directories) == ([], 5000, 51)
    assert again.seconds < 0.25 * noise()


def test_two_names_of_one_folder_are_one_root(tmp_path: Path) -> None:
    """A root may be a link; a folder reached by two names is read once, under its real path."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    roots = present([str(tmp_path / "link"), str(tmp_path / "real"), str(tmp_path / "real/")])
    assert [(root.name, root.path) for root in roots] == [(str(tmp_path / "link"), str(tmp_path / "real"))]


def test_what_is_no_folder_is_no_root(tmp_path: Path) -> None:
    """F24: missing, a file, a link to nowhere or to itself, or no possible path: not there, and no error."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "self").symlink_to("self")
    names = [str(tmp_path / name) for name in ("missing", "file", "dangling", "self", "nul\0byte")]
    assert present(names) == []


def test_a_link_is_refused(tmp_path: Path) -> None:
    """F16: a transcript that is a link to somewhere else is not read."""
    (tmp_path / "target").write_text("secret\n")
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "target")
    with pytest.raises(Refused, match="symlink"):
        reading.read(str(tmp_path / "a.jsonl"), None)


def test_a_link_that_appears_between_look_and_open_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F16: the open itself does not follow links either."""
    (tmp_path / "target").write_text("secret\n")
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "target")
    innocent = os.stat(tmp_path / "target")
    monkeypatch.setattr("burnd.logfiles.scanner.os.stat", lambda *_, **__: innocent)
    with pytest.raises(Refused, match="symlink"):
        open_regular(str(tmp_path / "a.jsonl"))


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket must be short
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [make_fifo, make_socket, make_folder])
def test_only_regular_files_are_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """F16: a FIFO, socket or folder with a transcript's name is refused at once, without waiting."""
    make(tmp_path / "a.jsonl")
    with pytest.raises(Refused, match="not a regular file"):
        reading.read(str(tmp_path / "a.jsonl"), None)


def test_a_device_is_refused() -> None:
    """F16: a device is not even opened."""
    with pytest.raises(Refused, match="not a regular file"):
        open_regular("/dev/zero")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    """F16: also by root, who could read it."""
    path = tmp_path / "a.jsonl"
    path.touch()
    os.chown(path, 65534, -1)
    with pytest.raises(Refused, match="foreign owner"):
        open_regular(str(path))


def test_a_linked_folder_below_the_root_is_refused(tmp_path: Path) -> None:
    """F16: no part of the way from the root to the file may be a link; the root itself may."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.jsonl").write_text("secret\n")
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "real" / "inner" / "b.jsonl").write_text("ours\n")
    (tmp_path / "real" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root").symlink_to(tmp_path / "real")
    root = str(tmp_path / "root")
    with pytest.raises(Refused, match="symlink"):
        reading.read(f"{root}/link/a.jsonl", None, root=root)
    assert reading.read(f"{root}/inner/b.jsonl", None, root=root).lines == [(0, b"ours")]


@pytest.mark.parametrize("path", ["../x.jsonl", "a/../../x.jsonl", ".", ".."])
def test_a_path_outside_its_root_is_refused(tmp_path: Path, path: str) -> None:
    """F15, F16: whatever named it."""
    with pytest.raises(Refused, match="outside its root"):
        open_regular(f"{tmp_path}/root/{path}", root=f"{tmp_path}/root")


def test_refusals_leave_nothing_open(tmp_path: Path) -> None:
    """P8: a thousand refusals cost no descriptor."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to count descriptors")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("b")
    os.mkfifo(tmp_path / "a" / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("a/link/x", "a/fifo", "a/b/missing", "missing/x") * 250:
        with pytest.raises((Refused, FileNotFoundError)):
            open_regular(f"{tmp_path}/{name}", root=str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_without_permission_recovers(unprivileged: Path) -> None:
    """F17: it is an error that may pass, not a refusal; after chmod the file is read."""
    path = unprivileged / "a.jsonl"
    path.write_text("line\n")
    path.chmod(0)
    with pytest.raises(PermissionError):
        reading.read(str(path), None, root=str(unprivileged))
    path.chmod(0o600)
    assert reading.read(str(path), None, root=str(unprivileged)).lines == [(0, b"line")]


@pytest.mark.parametrize(
    "path", ["/r/a/b", "/r/a/../b", "/r/../b", "/r//b", "/rest/b", "/r/.a/b", "/r/a/..", "/r/a/.", "/r", "/r/a..b/c"]
)
def test_a_path_reads_from_its_root_however_it_is_written(path: str) -> None:
    """The fast path equals the resolved one."""
    assert below(path, "/r") == os.path.relpath(path, "/r")
