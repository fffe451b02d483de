"""A listener that uses a watcher like a source: it takes changes, and scans on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from burnd.logfiles.scanner import Scanner
from burnd.logfiles.watcher import Changes, Times, Watcher

DEADLINE = 60.0

# Only events bring anything, once the first scan is over.
EVENTS_ONLY = Times(roots=3600, alive=3600, scan=3600, poll=0)
QUICK = Times(roots=0.05, alive=0.05, scan=3600, poll=0.05, retry=0.3)


class Listener:
    """Records hints, scans, and the reasons for scans."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.scanner = Scanner()
        self.hinted: set[str] = set()
        self.scanned: set[str] = set()
        self.reasons: list[str] = []
        self.calls = 0

    @property
    def seen(self) -> set[str]:
        return self.hinted | self.scanned

    async def step(self) -> Changes:
        dirty = await self.watcher.changes()
        self.calls += 1
        self.hinted |= dirty.paths
        if dirty.scan_all:
            self.reasons.append(dirty.reason)
            scan = self.scanner.scan([root.path for root in self.watcher.watch.roots])
            self.scanned |= {found.path for found in scan.changed}
            self.watcher.scanned(directories=scan.tally.directories, seconds=scan.seconds)
        return dirty

    async def until(self, condition: Callable[[], bool]) -> None:
        """Listen until `condition` holds. The deadline is there for failures, not for timing."""
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await self.step()

    async def until_seen(self, paths: Iterable[Path]) -> None:
        wanted = {str(path) for path in paths}
        await self.until(lambda: wanted <= self.seen)


def append(path: Path, text: str = "{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)
    return path


def append_all(paths: Iterable[Path]) -> None:
    for path in paths:
        append(path)
