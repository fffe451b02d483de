"""The instruction files that a session of the made-up product in a folder begins with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from burnd.harness.instructions import InstructionFiles


def add(
    files: InstructionFiles, folder: str, _inner: Iterable[tuple[str, set[str]]], _environ: Mapping[str, str]
) -> None:
    """Adds the file of the folder."""
    files.add(os.path.join(folder, "MADEUP.md"), "project")
