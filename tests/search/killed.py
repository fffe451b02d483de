"""Writes messages and forgets some of them until it is killed: `python -m tests.search.killed HOME FIRST`."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import structlog

from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import HomeLock, prepare_home
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import open_pipeline
from burnd.records.times import to_iso
from burnd.search.indexer import SearchIndexer
from tests.make import text


async def main() -> None:
    home, begin = Home(Path(sys.argv[1])), int(sys.argv[2])
    prepare_home(home.root)
    lock = HomeLock(home.lock)
    pipeline = await open_pipeline(home, ContentModes("full"), inline_bytes=64, reserve=0)
    indexer = SearchIndexer(pipeline)
    pipeline.follow(indexer.on_change)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(indexer.run)
        for i in range(begin, begin + 100_000):
            words = f"apple n{i}" + " filler" * (i % 50)
            said = text(f"m{i}", words, session_id=f"s{i % 7}", ts=to_iso(pipeline.now()))
            await pipeline.commit(Batch(content=[said]))
            if i % 50 == 49:
                await pipeline.forget([f"s{i % 7}"])
            print(i, flush=True)
            await anyio.sleep(0.002)
    lock.release()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    anyio.run(main)
