"""Runs burnctl with small batches and kills it, as `kill -9` does, before its n-th change to a folder.

python -m tests.burnctl.push.killed_push N FOLDER ARGUMENTS...
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from burnctl import cli
from burnctl.push import engine, segments

_WRITES = ("os.rename", "os.remove", "os.mkdir")


def main() -> None:
    left, folder = [int(sys.argv[1])], sys.argv[2]

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event in _WRITES or (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_WRONLY
        )
        if is_write and str(arguments[0]).startswith(folder):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    engine.BATCH_ROWS, engine._PAGE, segments._MOST_SEGMENTS = 7, 3, 4  # type: ignore[misc]
    sys.addaudithook(count)
    sys.exit(cli.main(sys.argv[3:]))


if __name__ == "__main__":
    main()
