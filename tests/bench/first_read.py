"""The first read of a tree: how fast, how large, whether it answers meanwhile, and whether it is true."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench.corpus import Truth
from tests.bench.running import Home, is_caught_up, running


class FirstRead(NamedTuple):
    """What one first read took; `wrong` is what its totals have against the truth."""

    seconds: float
    processor: float
    peak_bytes: int
    disk_bytes: int
    slowest_status: float
    wrong: str


def first_read(root: Path, tree: Path, truth: Truth) -> FirstRead:
    """Reads a tree into an empty home, which is left for those who ask it next."""
    shutil.rmtree(root, ignore_errors=True)
    home = Home(root, tree)
    with running(home) as daemon:
        wire = daemon.wire()
        slowest = 0.0
        while True:
            asked = time.perf_counter()
            status = wire.call("status")
            slowest = max(slowest, time.perf_counter() - asked)
            if is_caught_up(status):
                break
            time.sleep(0.1)
        seconds, processor = time.perf_counter() - daemon.begun, daemon.processor()
        wire.call("flush")
        wrong = truth.differs(wire.call("summary")["totals"])
        wire.close()
        peak = daemon.peak_bytes
    return FirstRead(seconds, processor, peak, home.bytes(), slowest, wrong)


def recall(root: Path, tree: Path, truth: Truth, most: int = 400) -> tuple[int, int]:
    """How many of the words that stand in one message only are found, of how many."""
    needles = list(truth.needles)[:most]
    with running(Home(root, tree)) as daemon:
        wire = daemon.wire()
        while not is_caught_up(wire.call("status")):
            time.sleep(0.05)
        found = sum(bool(wire.call("sessions.search", query=needle)["hits"]) for needle in needles)
        wire.close()
    return found, len(needles)
