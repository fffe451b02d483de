"""A folder of Claude Code logs that a running source follows, and waiting for what it records."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from burnd.harness.claude_code.source import ClaudeLogs
from burnd.logfiles.follower import LogFollower
from burnd.logfiles.watcher import Times
from burnd.recording.pipeline import Pipeline
from burnd.records import Turn
from tests.folded import Folded
from tests.harness.claude_code.transcript import Transcript

QUICK = Times(roots=0.2, alive=1.0, scan=1.0, poll=0.2)


SESSION = "33333333-0000-4000-8000-000000000003"


class Watched:
    """A source on a root, with a clock a test can set forward."""

    def __init__(self, pipeline: Pipeline, projects: Path) -> None:
        self.pipeline = pipeline
        self.projects = projects
        self.ahead = 0.0
        self.source = LogFollower(
            ClaudeLogs(), [str(projects)], pipeline, times=QUICK, clock=lambda: time.monotonic() + self.ahead
        )

    def path(self, session: str = SESSION) -> Path:
        folder = self.projects / "-home-dev-app"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{session}.jsonl"

    def append(self, transcript: Transcript, path: Path | None = None) -> None:
        """Writes the lines of a transcript that were not written yet."""
        with (path or self.path()).open("ab") as file:
            file.write(b"".join(line + b"\n" for line in transcript.lines))
        transcript.lines.clear()

    async def turns(self) -> dict[str, dict[str, Any]]:
        rows = await self.pipeline.index.rows(
            "SELECT message_id, output + reasoning, open, rev, quality FROM turns ORDER BY ts, turn_index"
        )
        return {row[0]: dict(zip(("output", "open", "rev", "quality"), row[1:], strict=True)) for row in rows}

    def ledger(self) -> dict[str, Turn]:
        return {t.message_id: t for t in Folded(self.pipeline.journal.read()).turns.values()}


async def until(check: Callable[[], Any], seconds: float = 60.0) -> None:
    """Waits for a condition, which may be async."""
    with anyio.fail_after(seconds):
        while True:
            found = check()
            if hasattr(found, "__await__"):
                found = await found
            if found:
                return
            await anyio.sleep(0.01)


@asynccontextmanager
async def watching(opened: Callable[[], Awaitable[Pipeline]], projects: Path) -> AsyncIterator[Watched]:
    watched = Watched(await opened(), projects)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.source.run)
        yield watched
        tasks.cancel_scope.cancel()


async def has_turn(watched: Watched, message_id: str, **facts: Any) -> bool:
    found = (await watched.turns()).get(message_id, {})
    return facts.items() <= found.items()
