"""Libraries loaded before libc that make system calls go wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SOURCES = Path(__file__).parents[1] / "shim"
are_to_be_had = sys.platform == "linux" and shutil.which("gcc") is not None
needs_shims = pytest.mark.skipif(not are_to_be_had, reason="needs Linux and gcc: a library makes calls fail")


def built(name: str, folder: Path) -> Path:
    """The library `name`, built into a folder."""
    library = folder / f"{name}.so"
    source = _SOURCES / f"{name}.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library
