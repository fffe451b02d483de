"""Finds Claude Code's transcripts of a working folder and its live sessions, by file names, sizes and the registry."""

from __future__ import annotations

import contextlib
import json
import os

from burnctl.errors import BurnctlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SLUG_LIMIT = 200
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
    """Where Claude Code keeps everything: `$CLAUDE_CONFIG_DIR`, one folder as it is written, else `~/.claude`."""
    chosen = env.get("CLAUDE_CONFIG_DIR")
    if not chosen:
        return os.path.join(os.path.expanduser("~"), ".claude")
    try:
        return os.path.abspath(chosen)
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


def project_folders(config: str, working_folder: str, env: Mapping[str, str]) -> list[str]:
    """Where Claude Code keeps what is of a working folder. Of a long path the name ends in a hash of its own."""
    projects = os.path.join(config, "projects")
    name = env.get("CLAUDE_CODE_PROJECT_DIR_NAME") or "".join(
        letter if letter.isascii() and letter.isalnum() else "-"
        for letter in _utf16_units(os.path.realpath(working_folder))
    )
    try:
        there = os.listdir(projects)
    except OSError:
        return []
    if len(name) > _SLUG_LIMIT:
        names = [folder for folder in there if folder.startswith(name[:_SLUG_LIMIT] + "-")]
    else:
        names = [folder for folder in there if folder == name]
    return [os.path.join(projects, folder) for folder in names if os.path.isdir(os.path.join(projects, folder))]


def _utf16_units(path: str) -> str:
    """JavaScript replaces UTF-16 units, so a character beyond the BMP becomes two dashes."""
    return "".join("--" if ord(letter) > 0xFFFF else letter for letter in path)
