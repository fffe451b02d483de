"""Promises about what is never opened."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from burnd.logfiles.scanner import Refused, below, open_regular
from tests.logfiles import reading


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
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
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
    """The quick way says what working it out says."""
    assert below(path, "/r") == os.path.relpath(path, "/r")
