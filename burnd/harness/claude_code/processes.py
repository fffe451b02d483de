"""Follows the sessions of Claude Code's live processes: after /clear or /branch a process works on another session."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import anyio
import anyio.to_thread

from burnd.harness.claude_code.lines import SOURCE
from burnd.harness.claude_code.live_sessions import live_sessions
from burnd.index.change import CursorChange
from burnd.index.store import IndexStore
from burnd.recording.batch import Batch, SessionOrigin

_CURSORS: Final = f"{SOURCE}/processes"


class LiveProcesses:
    """The last session of each process, by config folder, pid and start time."""

    def __init__(self) -> None:
        self._sessions: dict[str, str] = {}
        self._lock = anyio.Lock()

    async def load(self, index: IndexStore) -> None:
        rows = await index.rows("SELECT key, value FROM cursors WHERE source = ?", (_CURSORS,))
        self._sessions = {key: bytes(value).decode("utf-8", "replace") for key, value in rows}

    async def add_to(self, batch: Batch, roots: Iterable[str], now_ms: int) -> None:
        """Add to a batch the origins of sessions that processes of these roots switched to."""
        async with self._lock:
            self._compare(batch, await anyio.to_thread.run_sync(_live, sorted(set(roots))), now_ms)

    def _compare(self, batch: Batch, live: dict[str, str], now_ms: int) -> None:
        for process, session_id in live.items():
            before = self._sessions.get(process)
            if before == session_id:
                continue
            self._sessions[process] = session_id
            batch.cursors.append(CursorChange(_CURSORS, process, session_id.encode()))
            if before is not None:
                batch.origins.append(SessionOrigin(session_id, before, now_ms, True))
        for process in self._sessions.keys() - live.keys():
            del self._sessions[process]
            batch.cursors.append(CursorChange(_CURSORS, process, None))


def _live(roots: list[str]) -> dict[str, str]:
    """The session of each process; its start time distinguishes a process from a later one with the same pid."""
    live: dict[str, str] = {}
    for config in map(os.path.dirname, roots):
        for pid, session in live_sessions(config).items():
            with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
                start = file.read().rpartition(b")")[2].split()[19].decode()
                live[f"{config} {pid} {start}"] = session.id
    return live
