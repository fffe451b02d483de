"""Measures the first read of a tree: speed, memory, disk, the first exact total, and errors of totals."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench.corpus import Truth
from tests.bench.running import Home, is_caught_up, running


class FirstRead(NamedTuple):
    """Figures of one first read. `first_total` is the time to an exact total, `wrong` a difference from the truth."""

    first_total: float
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
        slowest = first_total = 0.0
        wrong = ""
        while True:
            asked = time.perf_counter()
            status = wire.call("status")
            slowest = max(slowest, time.perf_counter() - asked)
            is_read = is_caught_up(status)
            if not first_total and (is_read or (status.get("backfill") or {}).get("exact")):
                wrong = truth.differs(wire.call("summary")["totals"])
                first_total = time.perf_counter() - daemon.begun
            if is_read:
                break
            time.sleep(0.05)
        seconds, processor = time.perf_counter() - daemon.begun, daemon.processor()
        wire.call("flush")
        wrong = wrong or truth.differs(wire.call("summary")["totals"])
        wire.close()
        peak = daemon.peak_bytes
    return FirstRead(first_total, seconds, processor, peak, home.bytes(), slowest, wrong)


def recall(root: Path, tree: Path, truth: Truth, most: int = 400) -> tuple[int, int]:
    """Searches for words that only one message has; returns the number found and the number searched."""
    needles = list(truth.needles)[:most]
    with running(Home(root, tree)) as daemon:
        wire = daemon.wire()
        while not is_caught_up(wire.call("status")):
            time.sleep(0.05)
        found = sum(bool(wire.call("sessions.search", query=needle)["hits"]) for needle in needles)
        wire.close()
    return found, len(needles)
