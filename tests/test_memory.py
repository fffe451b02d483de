"""Limits of the daemon's memory."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnd import memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells and gives back what is mapped")
SIZE = 32 << 20


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder that is not in memory, as the files of other tests may be."""
    with tempfile.TemporaryDirectory(prefix="burnd-", dir="/var/tmp") as folder:
        yield Path(folder)


def test_pages_of_a_folder_are_given_back(on_disk: Path) -> None:
    """Mapped files below a folder leave memory when it is paged out, others stay, and both read the same. The folder
    may be named by a link, as some systems link /home."""
    if _file_system(on_disk) == "tmpfs":
        pytest.skip("files in memory have nowhere to go")
    (on_disk / "search").mkdir()
    (on_disk / "link").symlink_to(on_disk)
    with _mapped(on_disk / "search" / "a") as there, _mapped(on_disk / "b") as elsewhere:
        assert _touched(there) == _touched(elsewhere) == 255 * SIZE // 4096
        before = memory.file_bytes()
        memory.page_out(on_disk / "link" / "search")
        gone = before - memory.file_bytes()
        assert SIZE * 0.9 < gone < SIZE * 1.1
        assert _touched(there) == _touched(elsewhere)
        assert memory.file_bytes() > before - SIZE // 10


def test_memory_that_lies_free_can_be_given_back() -> None:
    """Freeing every other small object leaves holes; returning them to the system affects no live object."""
    kept = [bytes([n % 251]) * 3000 for n in range(20_000)][::2]
    memory.trim()
    assert all(one == bytes([2 * n % 251]) * 3000 for n, one in enumerate(kept))


def _mapped(path: Path) -> mmap.mmap:
    path.write_bytes(b"\xff" * SIZE)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return mmap.mmap(descriptor, SIZE, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)


def _file_system(path: Path) -> str:
    """The type of the file system that a path is on."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    above = {Path(mount[1]): mount[2] for mount in mounts if path.is_relative_to(mount[1])}
    return above[max(above, key=lambda place: len(place.parts))]


def _touched(mapped: mmap.mmap) -> int:
    return sum(mapped[place] for place in range(0, SIZE, 4096))
