"""Follows opencode databases round by round, with restarts and its own clocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from burnd.harness.opencode.reader import ReadOptions
from burnd.harness.opencode.source import OpenCode, Pace
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import HomeLock, prepare_home
from burnd.paths import Home
from burnd.recording.pipeline import Pipeline, open_pipeline
from burnd.records import Copy, Turn
from burnd.records.codec import encode_content
from tests.dump import index_dump, ledger_dump
from tests.folded import Folded
from tests.harness.opencode.data import NOW_MS
from tests.make import read_content

EAGER = Pace(tick=0.0, discover=0.0, scan=0.0, rest=0.0, doubt=1e9)


class OpenCodeRig:
    """A home, a folder of databases, and a source that does one round per call. Its clocks do not move between rounds:
    `passed` is the source's clock, `wall` the wall clock. By default the wall clock is long after all rows were
    written."""

    def __init__(self, home: Path, data: Path, *, pace: Pace = EAGER, mode: Any = "full", **options: Any) -> None:
        self.home = Home(home)
        self.data = data
        self.pace = pace
        self.mode = mode
        self.options = ReadOptions(**options)
        self.passed = 0.0
        self.wall: Callable[[], int] = lambda: NOW_MS
        self.pipeline: Pipeline
        self.source: OpenCode

    async def open(self) -> None:
        prepare_home(self.home.root)
        self._lock = HomeLock(self.home.lock)
        self.open_source(
            await open_pipeline(self.home, ContentModes(self.mode), inline_bytes=512, reserve=0, now=self.now)
        )

    def open_source(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.source = OpenCode(
            self.pipeline, str(self.data), options=self.options, pace=self.pace, clock=lambda: self.passed
        )

    def now(self) -> int:
        return self.wall()

    async def close(self) -> None:
        self.source.close()
        await self.pipeline.close()
        self._lock.release()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def attend(self, seconds: float = 0.1) -> None:
        """Lets time pass, then does a round."""
        self.passed += seconds
        await self.source.attend()

    async def settle(self) -> None:
        """Enough rounds for everything to have gone quiet, and idle."""
        for seconds in (0.1, 3.0, 700.0, 0.1):
            await self.attend(seconds)

    def turns(self) -> dict[str, Turn]:
        """The ledger's turns by the id of their messages."""
        return {turn.message_id: turn for turn in Folded(self.pipeline.journal.read()).turns.values()}

    def copies(self) -> dict[str, Copy]:
        return {copy.message_id: copy for copy in Folded(self.pipeline.journal.read()).copies.values()}

    async def open_turns(self) -> set[str]:
        return {row[0] for row in await self.pipeline.index.rows("SELECT message_id FROM turns WHERE open")}

    async def outcome(self) -> dict[str, Any]:
        """Ledger, content and index in a form that two ways of reading can be compared by. Titles keep their time of
        arrival in the sidecar; the index decides the order of messages."""
        sessions = sorted(row[0] for row in await self.pipeline.index.rows("SELECT session_id FROM sessions"))
        content = {s: sorted(map(encode_content, read_content(self.pipeline.content, s))) for s in sessions}
        index = await index_dump(self.pipeline.index, places=False)
        return {"ledger": ledger_dump(self.pipeline.journal), "content": content, "index": index}


async def clean_read(home: Path, data: Path, **options: Any) -> dict[str, Any]:
    """Result of one read of databases that no longer change."""
    rig = OpenCodeRig(home, data, **options)
    await rig.open()
    await rig.settle()
    outcome = await rig.outcome()
    await rig.close()
    return outcome
