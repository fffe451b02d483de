"""Runs burnctl with small batches and kills it, as `kill -9` does, before or after its n-th request to a database.

python -m tests.real.killed_push N ARGUMENTS...
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import psycopg

from burnctl import cli
from burnctl.push import engine
from burnctl.push.clickhouse import Connection


def main() -> None:
    left = [int(sys.argv[1])]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **more)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapped

    for type_, name in ((Connection, "_answer"), (psycopg.Connection, "execute"), (psycopg.Connection, "commit")):
        setattr(type_, name, counted(getattr(type_, name)))
    engine.BATCH_ROWS, engine._PAGE = 7, 3  # type: ignore[misc]
    sys.exit(cli.main(sys.argv[2:]))


if __name__ == "__main__":
    main()
