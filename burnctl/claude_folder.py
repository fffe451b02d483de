"""Finds Claude Code's transcripts of a working folder, by file names and sizes."""

from __future__ import annotations

import os

from burnctl.errors import BurnctlError
from burnd.harness.claude_code.product import config_folder as named_config_folder
from burnd.harness.claude_code.product import project_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Size and time of each transcript, by session id.
Look = dict[str, tuple[int, int]]


def config_folder(env: Mapping[str, str] = os.environ) -> str:
    """The folder in which Claude Code keeps its data. Raises BurnctlError in a deleted folder."""
    try:
        return named_config_folder(env)
    except OSError:
        raise BurnctlError("this folder is gone", "go to another one first") from None


def look(config: str, working_folder: str, env: Mapping[str, str] = os.environ) -> Look:
    """The transcripts of a working folder as they are now."""
    found: Look = {}
    for folder in project_folders(config, working_folder, env):
        for entry in os.scandir(folder):
            stem, suffix = os.path.splitext(entry.name)
            if suffix == ".jsonl" and not stem.startswith("agent-") and entry.is_file():
                facts = entry.stat()
                found[stem] = (facts.st_size, facts.st_mtime_ns)
    return found


def newest(seen: Look) -> str | None:
    """The session that was written to last: the one that `--continue` goes on with."""
    return max(seen, key=lambda session: (seen[session][1], session), default=None)


def written_to(before: Look, after: Look, expected: str | None) -> str | None:
    """The session that came or grew in between; None when there is none, or several and no way to tell."""
    changed = [session for session, facts in after.items() if before.get(session, (0, 0))[0] != facts[0]]
    if expected in changed:
        return expected
    return changed[0] if len(changed) == 1 else None
