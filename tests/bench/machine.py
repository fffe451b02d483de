"""Speed of the machine during a run: MB/s of Python's `json` over the logs, as a reference."""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from pathlib import Path

_ENOUGH = 8_000_000  # bytes
_TIMES = 5


def json_rate(tree: Path) -> float:
    """Megabytes a second that `json.loads` reads of a tree's lines: the median of some tries."""
    lines = _some_lines(tree)
    size = sum(map(len, lines)) / 1e6
    return statistics.median([size / _seconds(lines) for _ in range(_TIMES)])


def _some_lines(tree: Path) -> list[bytes]:
    lines: list[bytes] = []
    for path in sorted(tree.rglob("*.jsonl")):
        lines += path.read_bytes().splitlines()
        if sum(map(len, lines)) > _ENOUGH:
            break
    return lines


def _seconds(lines: list[bytes]) -> float:
    begun = time.perf_counter()
    for line in lines:
        with contextlib.suppress(ValueError):  # some are cut short
            json.loads(line)
    return time.perf_counter() - begun
