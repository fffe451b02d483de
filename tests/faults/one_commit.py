"""Commits one batch to a home that is not new, then replaces a file: what `test_order` follows call by call."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio

from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import prepare_home, replace_file
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import open_pipeline
from tests.make import text, turn


async def main(home: Home) -> None:
    prepare_home(home.root)
    pipeline = await open_pipeline(home, ContentModes("full"), inline_bytes=512, reserve=0)
    for n in range(2):
        session = f"s{n}"
        said = [
            text(f"m{n}", "few words", session_id=session),
            text(f"l{n}", f"many words {n} " * 200, session_id=session),
        ]
        tell(f"BATCH {n}")
        await pipeline.commit(Batch(content=said, entries=[turn(f"m{n}", session_id=session)]))
    tell("REPLACE")
    replace_file(home.root / "replaced", b"something else")
    tell("END")
    await pipeline.close()


def tell(what: str) -> None:
    """A call that is seen among the others."""
    os.access(f"/{what}", os.F_OK)


if __name__ == "__main__":
    anyio.run(main, Home(Path(sys.argv[1])))
