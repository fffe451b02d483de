"""What Codex reads at its start: its own instructions, then one file of each folder of the repository."""

from __future__ import annotations

import os

from burnctl.instructions.files import CODEX
from burnctl.instructions.folders import in_repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from burnctl.instructions.files import Found


def add(found: Found, folder: str, environ: Mapping[str, str]) -> None:
    """From the repository's folder down to this one; only this one where there is no repository."""
    own = environ.get("CODEX_HOME") or os.path.join(os.path.expanduser("~"), ".codex")
    folders = in_repository(folder) or [os.path.abspath(folder)]
    for where, how in ((own, "global"), *((above, "project") for above in folders)):
        for name in ("AGENTS.override.md", "AGENTS.md"):
            if found.add(os.path.join(where, name), CODEX, how):
                break
