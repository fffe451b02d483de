"""A daemon's writing on a disk that fills up, run inside a namespace or under a limit by test_full_disk.

`python -m tests.ledger.full_disk tmpfs FOLDER` mounts a small disk on FOLDER and fills it with something else;
`... limit FOLDER` runs under a limit on the size of files. Prints what happened as one JSON line.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import structlog

from burnd.errors import NoSpace
from burnd.index.change import CursorChange
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import prepare_home
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline, open_pipeline
from tests.dump import index_dump, ledger_dump
from tests.make import START_MS, at, read_content, text, turn

BATCHES = 60


def batch(n: int) -> Batch:
    noise = random.Random(n).randbytes(9000).hex()
    return Batch(
        entries=[turn(f"m{n}", turn_index=n, ts=at(n), session_id=f"s{n % 4}")],
        content=[
            text(f"m{n}", f"short {n}", ts=at(n), session_id=f"s{n % 4}"),
            text(f"m{n}", noise, b=1, ts=at(n), session_id=f"s{n % 4}"),
        ],
        cursors=[CursorChange("work", "done", str(n + 1).encode())],
    )


async def opened(home: Home) -> Pipeline:
    prepare_home(home.root)
    return await open_pipeline(home, ContentModes("full"), inline_bytes=1024, reserve=0, now=lambda: START_MS)


async def work(home: Home, relieve: Callable[[], None]) -> dict[str, object]:
    """Commits everything; when the disk is full it checks that all lines are complete, and makes space."""
    pipeline = await opened(home)
    refused = 0
    for n in range(BATCHES):
        while True:
            try:
                await pipeline.commit(batch(n))
                break
            except NoSpace:
                refused += 1
                assert refused < 1000, "it does not heal"
                assert home.ledger.read_bytes()[-1:] in (b"", b"\n")
                assert all(s.path.read_bytes()[-1:] in (b"", b"\n") for s in pipeline.content.sidecars.scan())
                assert int(await pipeline.index.cursor("work", "done") or b"0") <= n
                if refused % 3 == 0:
                    relieve()
    outcome = {"refused": refused, "said": await said(pipeline)}
    await pipeline.close()
    return outcome


async def said(pipeline: Pipeline) -> str:
    content = [[r.text for r in read_content(pipeline.content, f"s{n}")] for n in range(4)]
    ledger = sorted(map(repr, ledger_dump(pipeline.journal)["latest"].items()))
    return repr((await index_dump(pipeline.index, places=False), content, ledger))


def on_a_small_disk(folder: Path) -> dict[str, object]:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"burnd-test", str(folder).encode(), b"tmpfs", 0, b"size=16m,mode=0700"):
        return {"unsupported": os.strerror(ctypes.get_errno())}
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * 15_500_000)

    def relieve() -> None:
        os.truncate(ballast, max(0, ballast.stat().st_size - 700_000))

    return asyncio.run(work(Home(folder / "home"), relieve))


def under_a_limit(folder: Path) -> dict[str, object]:
    limit = [40_000]

    def raise_limit() -> None:
        limit[0] += 60_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit[0], resource.RLIM_INFINITY))

    home = Home(folder / "home")
    asyncio.run(_create(home))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit[0], resource.RLIM_INFINITY))
    return asyncio.run(work(home, raise_limit))


async def _create(home: Home) -> None:
    await (await opened(home)).close()


def main() -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    folder = Path(sys.argv[2])
    print(json.dumps(on_a_small_disk(folder) if sys.argv[1] == "tmpfs" else under_a_limit(folder)))


if __name__ == "__main__":
    main()
