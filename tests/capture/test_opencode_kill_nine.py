"""The real daemon, killed again and again while a database of opencode's grows, ends where one clean read ends."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.capture.kill_loop import wait_until_ready
from tests.capture.opencode_rig import OpenCodeRig, clean_read
from tests.capture.opencode_traces import Trace, prepared, traces
from tests.harness.collect import cases
from tests.harness.opencode.data import SCHEMAS, Statement, Writer
from tests.harness.opencode.stories import write_all_stories
from tests.server.wire import until


def start(home: Path, data: Path) -> subprocess.Popen[bytes]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home.parent),
        "RELAYBURN_HOME": str(home),
        "XDG_DATA_HOME": str(data),
        "RELAYBURN_CONTENT_TTL_DAYS": "forever",
    }
    return warm.Popen(
        [sys.executable, "-m", "burnd", "run", "--log-format", "json"], env=environment, stderr=subprocess.PIPE
    )


def grow(writer: Writer, statements: Sequence[Statement], rng: random.Random) -> None:
    """Row by row, slowly enough to be looked at in between."""
    for sql, values in statements:
        writer.db.execute(sql, values)
        time.sleep(rng.choice([0, 0.005, 0.02]))


async def tell_and_kill(tmp_path: Path, schema: str, rounds: int) -> None:
    statements = write_all_stories(tmp_path / "whole", schema, born=time.time_ns() // 1_000_000)
    writer = Writer(tmp_path / "data" / "opencode" / "opencode.db", schema)
    await run_and_kill(tmp_path, writer, statements, rounds)


async def run_and_kill(tmp_path: Path, writer: Writer, statements: Sequence[Statement], rounds: int) -> None:
    """`whole` gets the final rows; the daemon reads along while the same statements run in `data`."""
    expected = await clean_read(tmp_path / "clean", tmp_path / "whole")
    rng = random.Random(rounds)
    home, data = tmp_path / "home", tmp_path / "data"
    cuts = sorted(rng.sample(range(len(statements)), rounds - 1))
    caught_busy = 0
    spans = list(zip([0, *cuts], [*cuts, len(statements)], strict=True))
    for done, (begin, end) in enumerate(spans, 1):
        before = _seen(home)
        daemon = start(home, data)
        wait_until_ready(daemon)
        time.sleep(rng.uniform(0, 0.3))
        grow(writer, statements[begin:end], rng)
        time.sleep(rng.choice([0, 0.1, 0.3]))
        if len(spans) - done < max(1, rounds // 4) - caught_busy:  # a busy machine may never have got on
            until(lambda before=before: _seen(home) != before)  # type: ignore[misc]
        daemon.kill()
        daemon.wait()
        daemon.stderr.close()  # type: ignore[union-attr]
        caught_busy += _seen(home) != before
    writer.close()
    assert caught_busy >= max(1, rounds // 4), "the daemon was killed before it did anything"
    assert await finish(home, data / "opencode") == expected


def _seen(home: Path) -> tuple[int, ...]:
    """Size of the daemon's files; the log of the index grows with every open turn."""
    paths = (home / "ledger.jsonl", home / "index" / "burn.db-wal", home / "index" / "burn.db")
    return tuple(path.stat().st_size if path.exists() else 0 for path in paths)


async def finish(home: Path, data: Path) -> dict[str, Any]:
    """Reads and settles what the next start would, without waiting for the settling time."""
    rig = OpenCodeRig(home, data)
    await rig.open()
    await rig.settle()
    outcome = await rig.outcome()
    await rig.close()
    return outcome


async def test_kill_nine_while_a_database_grows(tmp_path: Path) -> None:
    """I1, I2: between two looks, in the middle of one, before or after a step settled: it makes no difference."""
    await tell_and_kill(tmp_path, "1.18.33", rounds=4)


@pytest.mark.slow
@pytest.mark.parametrize("schema", sorted(SCHEMAS))
async def test_kill_nine_many_times(tmp_path: Path, schema: str) -> None:
    """I1, I2: the same with many more kills, of both an old release's database and a new one's."""
    await tell_and_kill(tmp_path, schema, rounds=20)


@pytest.mark.slow
@pytest.mark.parametrize("path", cases(traces()), ids=lambda path: path.stem)
async def test_kill_nine_while_a_recording_is_played(tmp_path: Path, path: Path) -> None:
    """I1, I2: rows as a real program changed them, with the daemon killed twice on the way."""
    trace = Trace(path)
    statements = [statement for _, statement in trace.steps]
    whole = prepared(tmp_path / "whole", trace)
    for sql, values in statements:
        whole.db.execute(sql, values)
    whole.close()
    writer = prepared(tmp_path / "data" / "opencode", trace)
    await run_and_kill(tmp_path, writer, statements, rounds=3)
