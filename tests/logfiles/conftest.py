"""Trees that no path can name, and a user whom permissions bind."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NOBODY = 65534


@pytest.fixture
def dig() -> Iterator[Callable[[Path, int], None]]:
    """Makes folders inside folders, so many levels deep. They are removed again, which pytest itself could not do."""
    dug: list[Path] = []

    def make(root: Path, levels: int) -> None:
        dug.append(root / "d")
        here = os.open(".", os.O_RDONLY)
        os.chdir(root)
        for _ in range(levels):
            os.mkdir("d")
            os.chdir("d")
        os.fchdir(here)
        os.close(here)

    yield make
    for tree in dug:
        subprocess.run(["rm", "-rf", str(tree)], check=True)


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of a user whom permissions bind; for the length of the test that user is us."""
    folder = Path(tempfile.mkdtemp(prefix="burnd-", dir="/tmp"))
    folder.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.chown(folder, NOBODY, -1)
        os.seteuid(NOBODY)
    yield folder
    if root:
        os.seteuid(0)
    shutil.rmtree(folder)
