"""The instruction files that a session of Codex in a folder begins with."""

from __future__ import annotations

import os

from burnd.harness.codex.product import NAMES
from burnd.harness.instructions import in_repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from burnd.harness.instructions import InstructionFiles


def add(
    files: InstructionFiles, folder: str, _inner: Iterable[tuple[str, set[str]]], environ: Mapping[str, str]
) -> None:
    """Adds the user's file, then one of each folder from the repository's root down, or of this folder only."""
    home = environ.get("CODEX_HOME") or os.path.join(os.path.expanduser("~"), ".codex")
    folders = in_repository(folder) or [os.path.abspath(folder)]
    for parent, how in ((home, "global"), *((one, "project") for one in folders)):
        files.add_first([os.path.join(parent, name) for name in NAMES], how)
