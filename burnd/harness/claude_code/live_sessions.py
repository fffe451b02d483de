"""Reads Claude Code's registry of live processes, `sessions/<pid>.json`. burnctl imports it too."""

from __future__ import annotations

import json
import os
import stat

_LONGEST_PID = 12
_LARGEST_ENTRY = 64 << 10
_MAX_ENTRIES = 1000  # far more than there are processes


class LiveSession:
    """A live process: its session and working folder."""

    __slots__ = ("cwd", "id")

    def __init__(self, session_id: str, cwd: str) -> None:
        self.id, self.cwd = session_id, cwd


def live_sessions(config: str) -> dict[int, LiveSession]:
    """The current session of each Claude Code process by process id, without unreadable entries."""
    folder = os.path.join(config, "sessions")
    try:
        names = os.listdir(folder)[:_MAX_ENTRIES]
    except OSError:
        return {}
    live: dict[int, LiveSession] = {}
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix == ".json" and stem.isdecimal() and len(stem) < _LONGEST_PID:
            entry = _read(os.path.join(folder, name))
            session_id, cwd = entry.get("sessionId"), entry.get("cwd")
            if isinstance(session_id, str) and session_id and session_id.isascii():
                live[int(stem)] = LiveSession(session_id, cwd if isinstance(cwd, str) else "")
    return live


def _read(path: str) -> dict[str, object]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            data = file.read(_LARGEST_ENTRY) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        entry = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}
