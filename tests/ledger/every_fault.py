"""Runs a fixed workload with a fault at the k-th change to a file, then continues like the next start. Started by
test_every_fault with the shim: `python -m tests.ledger.every_fault FOLDER KIND FIRST STEP` prints a JSON line for
each k from FIRST in strides of STEP, and ends when there is no k-th change."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import sys
import traceback
from pathlib import Path

import structlog

from burnd.errors import BurndError, StorageError, SyncFailed
from burnd.index.change import CursorChange
from burnd.ledger.content_modes import ContentModes
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline, open_pipeline
from burnd.records import Copy, Session, Turn
from burnd.records.codec import Entry, encode_content
from tests.dump import index_dump, ledger_dump
from tests.make import START_MS, at, read_content, stamp, text, tool_result, turn

DIED, GAVE_UP, ESCAPED = 137, 3, 4


def batches() -> list[Batch]:
    """Turns, revisions, stamps, copies, small and large content, over several sessions."""
    big = "a large answer " * 600
    return [
        Batch(entries=[turn("m1")], content=[text("m1", "short"), text("m1", big, b=1)]),
        Batch(
            entries=[turn("m1", ts=at(1)), turn("m2", session_id="s2", turn_index=1), stamp(1, persona="senior")],
            content=[text("m2", big, session_id="s2"), tool_result("r1", "file text " * 300, session_id="s2")],
        ),
        Batch(
            entries=[
                Session(session_id="s2", source="claude-code", parent_session_id="s1"),
                Copy(source="claude-code", session_id="s3", rail_id="main", message_id="m1", turn_index=0, ts=at(1)),
            ],
            content=[text("m1", big, session_id="s3")],
        ),
        Batch(entries=[turn("m4", session_id="s4")], content=[text("m4", "last words", session_id="s4")]),
    ]


def _labelled(entry: Entry) -> Entry:
    if isinstance(entry, Turn) and entry.activity is None:
        return Turn(**{f: getattr(entry, f) for f in entry.__struct_fields__} | {"activity": "coding"})
    return entry


async def _step(pipeline: Pipeline, number: int) -> None:
    work = batches()
    cursor = CursorChange("work", "step", str(number + 1).encode())
    if number < len(work):
        batch = work[number]
        batch.cursors = [cursor]
        await pipeline.commit(batch)
        return
    if number == len(work):
        await pipeline.forget(["s3"])
    elif number == len(work) + 1:
        await pipeline.rewrite_ledger(_labelled)
    await pipeline.commit(Batch(cursors=[cursor]))


STEPS = len(batches()) + 2


async def work(home: Home) -> None:
    """Continues the workload from the cursor to its end."""
    pipeline = await open_pipeline(
        home, ContentModes("full"), inline_bytes=1024, reserve=0, now=lambda: START_MS + 60_000
    )
    saved = await pipeline.index.cursor("work", "step")
    for number in range(int(saved or b"0"), STEPS):
        for attempt in range(3):
            try:
                await _step(pipeline, number)
                break
            except SyncFailed:
                raise
            except StorageError:
                if attempt == 2:
                    raise
    await pipeline.close()


async def outcome(home: Home) -> str:
    """The final state in a form that two runs can be compared by."""
    pipeline = await open_pipeline(
        home, ContentModes("full"), inline_bytes=1024, reserve=0, now=lambda: START_MS + 60_000
    )
    index = await index_dump(pipeline.index, places=False)
    lines = [s.path.read_bytes().count(b"\n") for s in sorted(pipeline.content.sidecars.scan())]
    content = {s: [encode_content(c) for c in read_content(pipeline.content, s)] for s in ("s1", "s2", "s3", "s4")}
    ledger = ledger_dump(pipeline.journal)
    await pipeline.close()
    return repr(
        (index, content, lines, sorted(map(repr, ledger["latest"].items())), ledger["stamps"], ledger["skipped"])
    )


def run_once(folder: Path, k: int, kind: int, shim: ctypes.CDLL) -> int:
    """One run in a child with the fault armed; returns its exit code."""
    child = os.fork()
    if child == 0:
        shim.fault_arm(str(folder).encode(), ctypes.c_long(k), kind)
        code = 0
        try:
            asyncio.run(work(Home(folder)))
        except (BurndError, OSError):
            code = GAVE_UP
        except BaseException:  # noqa: BLE001 - an error in nobody's words: the test must see it
            traceback.print_exc()
            os._exit(ESCAPED)
        os._exit(code if shim.fault_seen() >= k else 0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    folder, kind, first, stride = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    shim.fault_seen.restype = ctypes.c_long
    clean = folder / "clean"
    clean.mkdir(mode=0o700)
    shim.fault_arm(str(clean).encode(), ctypes.c_long(0), 0)
    asyncio.run(work(Home(clean)))
    changes = shim.fault_seen()
    shim.fault_arm(b"", ctypes.c_long(0), 0)
    expected = asyncio.run(outcome(Home(clean)))
    for k in range(first, changes + 1, stride):
        root = folder / f"k{k}"
        root.mkdir(mode=0o700)
        code = run_once(root, k, kind, shim)
        asyncio.run(work(Home(root)))
        found = asyncio.run(outcome(Home(root)))
        print(json.dumps({"k": k, "of": changes, "code": code, "same": found == expected}), flush=True)
        if found != expected:
            print(json.dumps({"expected": expected, "found": found}), flush=True)
        else:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
