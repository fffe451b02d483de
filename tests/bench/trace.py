"""Counts the functions and modules of burnd that one appended log line passes, from the write until its row is visible.

`python -m tests.bench.trace` prints the figures of docs/architecture.md ("A live line"); with `-v` every function.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

import burnd
from burnd.harness.claude_code.source import ClaudeLogs
from burnd.index.change import Change
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import prepare_home
from burnd.logfiles.follower import LogFollower
from burnd.paths import Home
from burnd.recording.pipeline import open_pipeline
from tests.harness.claude_code.transcript import Transcript, text

PACKAGE = str(Path(burnd.__file__).parent) + "/"
SESSION = "33333333-0000-4000-8000-000000000003"


class Tracer:
    """Remembers the functions of burnd that are called in any thread while it `is_on`. Comprehensions do not count."""

    def __init__(self) -> None:
        self.is_on = False
        self.functions: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if self.is_on and event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name[0] != "<":
            self.functions.add((code.co_filename.removeprefix(PACKAGE), code.co_qualname))


def _append(path: Path, log: Transcript) -> None:
    with path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in log.lines))
    log.lines.clear()


async def _until_visible(db: sqlite3.Connection, message_id: str) -> None:
    deadline = time.monotonic() + 60
    while not db.execute("SELECT 1 FROM turns WHERE message_id = ?", (message_id,)).fetchall():
        if time.monotonic() > deadline:
            raise TimeoutError(message_id)
        await anyio.sleep(0.001)


async def trace(root: Path, tracer: Tracer) -> None:
    """Records a log, then traces one more line of it."""
    path = root / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    log = Transcript(session=SESSION)
    log.prompt("hello")
    log.says("m0", text("hi"), output=5)
    _append(path, log)
    home = Home(root / "home")
    prepare_home(home.root)
    pipeline = await open_pipeline(home, ContentModes("full"), inline_bytes=512, reserve=0)
    source = LogFollower(ClaudeLogs(), [str(root / "projects")], pipeline)
    db = sqlite3.connect(home.index_db)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.run)
        await _until_visible(db, "m0")
        log.says("m1", text("warm"), output=6)
        _append(path, log)
        await _until_visible(db, "m1")
        await anyio.sleep(3.5)  # until nothing is left to do, and between two ticks of the timer of quiet logs

        is_visible = anyio.Event()

        def stop_when_visible(change: Change) -> None:
            if any(one.turn.message_id == "m2" for one in change.open):
                tracer.is_on = False
                is_visible.set()

        pipeline.follow(stop_when_visible)  # called as soon as the index has the row
        log.says("m2", text("well"), output=7)
        tracer.is_on = True
        _append(path, log)
        await is_visible.wait()
        await _until_visible(db, "m2")
        tasks.cancel_scope.cancel()
    db.close()
    await pipeline.close()


def main() -> None:
    tracer = Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(trace, Path(folder), tracer)
    sys.setprofile(None)
    by_module = Counter(module for module, _ in tracer.functions)
    print(f"{len(tracer.functions)} functions in {len(by_module)} modules")
    for module, count in sorted(by_module.items()):
        print(f"{count:5}  {module}")
        if "-v" in sys.argv:
            for _, name in sorted(one for one in tracer.functions if one[0] == module):
                print(f"         {name}")


if __name__ == "__main__":
    main()
