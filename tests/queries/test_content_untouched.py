"""Reports never open a file under content/."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from burnd.attribution.explainer import Explainer
from burnd.contract.reports import CAUSES, DIMENSIONS
from burnd.recording.candidate import Batch
from tests.conftest import Opened
from tests.make import START_MS, at, stamp, text, turn
from tests.queries.asking import ask_compare, ask_hotspots, ask_summary

opened_paths: list[str] = []
watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and event in ("open", "sqlite3.connect", "os.listdir", "os.scandir"):
        opened_paths.append(os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes) else "")


# A hook cannot be taken away again: it looks only while `watching`.
sys.addaudithook(_watch)


async def test_no_report_reads_content(opened: Opened) -> None:
    """I5: every summary, comparison and hotspot comes from index and ledger, and is the same without any content."""
    global watching  # noqa: PLW0603 - an audit hook knows nothing else
    pipeline = await opened()
    entries = [
        turn(f"m{n}", turn_index=n, ts=at(n), activity="coding", has_edits=True, prompt_id="p") for n in range(3)
    ]
    said = [text(f"m{n}", "x" * 4000) for n in range(3)]
    await pipeline.commit(Batch(entries=[*entries, stamp(1, k="v")], content=said))
    ways = (*DIMENSIONS, "tag:k")

    async def reports() -> list[Any]:
        answers = [await ask_summary(pipeline.index, by=by, quality=True, series=True) for by in ways]
        answers += [await ask_hotspots(pipeline, by=by, since=START_MS + 500) for by in CAUSES]
        return [*answers, await ask_compare(pipeline.index), await ask_compare(pipeline.index, whatIf="gemini-2.5-pro")]

    await Explainer(pipeline).catch_up()
    watching = True
    try:
        before = await reports()
    finally:
        watching = False
    assert not [path for path in opened_paths if str(opened.home.content) in path]
    shutil.rmtree(opened.home.content)
    assert await reports() == before
