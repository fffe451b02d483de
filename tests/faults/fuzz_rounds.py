"""Reads corrupted ledgers and settings repeatedly in one process and reports its size early and late."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio
import structlog

from burnd.settings import config
from tests.faults.mutations import Mutations, bent_settings, read_bent_ledger

EARLY, LATE = 5, 40


def _size() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


async def main(seed: int) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    for n in range(LATE + 1):
        with tempfile.TemporaryDirectory() as folder:
            await read_bent_ledger(Path(folder) / "ledger", seed + n)
            bent_settings(Path(folder) / "settings", Mutations([config.template().encode()], seed + n), 50)
        if n in (EARLY, LATE):
            print(_size())


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]))
