"""A daemon that reads old logs only as far as files in the folder $GATES allow. Without `scan` no folder is listed,
without `late` no transcript whose name begins with $LATE ("late") is read, without `opencode` no database is opened.
With a file `broken` the source of Codex fails at every start, and with a file `shut` the storage is not opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio

from burnd.daemon import lifecycle
from burnd.harness.codex.source import CodexLogs
from burnd.harness.opencode.source import OpenCode
from burnd.logfiles import follower
from burnd.logfiles.finder import Finder
from burnd.logfiles.follower import LogFollower
from burnd.recording.pipeline import open_pipeline

GATES = Path(os.environ["GATES"])
scan, read, attend, begin = Finder.scan, LogFollower._guarded, OpenCode.attend, CodexLogs.begin


async def opened(gate: str) -> None:
    while not (GATES / gate).exists():  # noqa: ASYNC110 - another process opens it
        await anyio.sleep(0.01)


async def gated_open(*given: Any, **more: Any) -> Any:
    while (GATES / "shut").exists():  # noqa: ASYNC110 - another process opens it
        await anyio.sleep(0.01)
    return await open_pipeline(*given, **more)


async def gated_scan(self: Finder, reason: str, **more: Any) -> None:
    await opened("scan")
    await scan(self, reason, **more)


async def gated_read(self: LogFollower, path: str, *given: Any) -> Any:
    if Path(path).name.startswith(os.environ.get("LATE", "late")):
        await opened("late")
    return await read(self, path, *given)


async def gated_attend(self: OpenCode) -> None:
    await opened("opencode")
    await attend(self)


async def broken_begin(self: CodexLogs, pipeline: Any) -> None:
    if (GATES / "broken").exists():
        raise RuntimeError
    await begin(self, pipeline)


if __name__ == "__main__":
    from burnd.cli import main

    follower.BATCH_BYTES = 1  # every file gets its own batch
    lifecycle.open_pipeline = gated_open  # type: ignore[attr-defined]
    Finder.scan = gated_scan  # type: ignore[method-assign]
    LogFollower._guarded = gated_read  # type: ignore[assignment]
    OpenCode.attend = gated_attend  # type: ignore[method-assign]
    CodexLogs.begin = broken_begin  # type: ignore[method-assign]
    raise SystemExit(main())
