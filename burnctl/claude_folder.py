"""Finds Claude Code's transcripts of a working folder and its live sessions, by file names, sizes and the registry."""

from __future__ import annotations

import contextlib
import json
import os

from burnctl.errors import BurnctlError
from burnd.harness.claude_code.product import config_folder as named_config_folder
from burnd.harness.claude_code.product import project_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_PID = 12
_LARGEST_ENTRY = 64 << 10
# Size and time of each transcript, by session id.
Look = dict[str, tuple[int, int]]


class LiveSession:
    """A process in the registry: its session and its working folder."""

    __slots__ = ("cwd", "id")

    def __init__(self, session_id: str, cwd: str) -> None:
        self.id, self.cwd = session_id, cwd


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


def live_sessions(config: str) -> dict[int, LiveSession]:
    """The current session of each Claude Code process, by process id, from the registry (`sessions/<pid>.json`)."""
    found: dict[int, LiveSession] = {}
    folder = os.path.join(config, "sessions")
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix == ".json" and stem.isdecimal() and len(stem) < _LONGEST_PID:
            with contextlib.suppress(OSError, ValueError):
                with open(os.path.join(folder, name), "rb") as file:
                    entry = json.loads(file.read(_LARGEST_ENTRY))
                session_id, cwd = entry.get("sessionId"), entry.get("cwd")
                if isinstance(session_id, str) and session_id:
                    found[int(stem)] = LiveSession(session_id, cwd if isinstance(cwd, str) else "")
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
