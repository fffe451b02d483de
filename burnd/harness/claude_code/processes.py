"""Reads Claude Code's registry of live processes (`sessions/<pid>.json`) to find which session follows which.

After /clear or /branch a process goes on with another session, and its entry names that one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from burnd.harness.claude_code.lines import SOURCE
from burnd.index.change import CursorChange
from burnd.index.store import IndexStore
from burnd.logfiles.scanner import small_file
from burnd.recording.batch import Batch, CameFrom
from burnd.records.foreign_json import SafeDecoder

_KEPT_AS: Final = f"{SOURCE}/processes"
_LARGEST: Final = 64 << 10
_MOST: Final = 1000  # entries, far more than there are processes


class _Entry(msgspec.Struct, rename="camel"):
    session_id: str | None = None


class Registry:
    """Remembers the last known session of each process."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}  # by process: config folder, pid and start time
        self._one_at_a_time = anyio.Lock()

    async def load(self, index: IndexStore) -> None:
        rows = await index.rows("SELECT key, value FROM cursors WHERE source = ?", (_KEPT_AS,))
        self._seen = {key: bytes(value).decode("utf-8", "replace") for key, value in rows}

    async def add_to(self, batch: Batch, roots: Iterable[str], now_ms: int) -> None:
        """Adds to a batch the origins of sessions that processes of these roots switched to."""
        async with self._one_at_a_time:
            self._compare(batch, await anyio.to_thread.run_sync(_live, sorted(set(roots))), now_ms)

    def _compare(self, batch: Batch, live: dict[str, str], now_ms: int) -> None:
        for process, session_id in live.items():
            before = self._seen.get(process)
            if before == session_id:
                continue
            self._seen[process] = session_id
            batch.cursors.append(CursorChange(_KEPT_AS, process, session_id.encode()))
            if before is not None:
                batch.origins.append(CameFrom(session_id, before, now_ms, True))
        for process in self._seen.keys() - live.keys():
            del self._seen[process]
            batch.cursors.append(CursorChange(_KEPT_AS, process, None))


def _live(roots: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for config in map(os.path.dirname, roots):
        folder = os.path.join(config, "sessions")
        names: list[str] = []
        with suppress(OSError):
            names = os.listdir(folder)[:_MOST]
        for name in names:
            pid = name.removesuffix(".json")
            start = _start_of(pid) if pid.isdecimal() and pid != name else None
            data = small_file(os.path.join(folder, name), config, _LARGEST) if start is not None else None
            entry = _entries.value(data) if data is not None else None
            if entry is not None and entry.session_id:
                found[f"{config} {pid} {start}"] = entry.session_id
    return found


def _start_of(pid: str) -> str | None:
    """The start time of a process, which distinguishes it from a later one with its pid; None without /proc."""
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19].decode()
    return None


_entries: Final = SafeDecoder(_Entry)
