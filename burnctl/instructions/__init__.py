"""The standing instruction files of a folder, as the harnesses would read them now; a module for each harness.

They are read here for `burnctl overhead`; the daemon reads them only for `search_memory`.
"""

from __future__ import annotations

from burnctl.instructions import claude, codex, opencode
from burnctl.instructions.files import Found
from burnctl.instructions.folders import below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from burnctl.instructions.files import MemoryFile


def find(folder: str, environ: Mapping[str, str]) -> list[MemoryFile]:
    """All of them that are there, for every harness, in the order in which they are read."""
    found = Found()
    inner = list(below(folder))
    claude.add(found, folder, inner, environ)
    opencode.add(found, folder, inner, environ)
    codex.add(found, folder, environ)
    return found.files()
