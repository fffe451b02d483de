"""The child process that runs the quick pass (`burnd scan --totals`), as the daemon sees it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from burnd.harness.registry import PRODUCTS
from burnd.settings.config import Settings

LEAST_BYTES: Final = 4 << 20  # fewer are read as quickly as a pass over them is started
_MOST_FILES: Final = 2000  # to look at before the daemon starts


class PassProcess:
    """Waits for a request on its standard input, then prints its progress line by line. Ends with the daemon."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "burnd", "scan", "--totals"]
        self.progress: tuple[int, int] | None = None  # bytes that are done, and all, while it runs
        self._has_request = False
        self._process = subprocess.Popen(
            command, env=dict(environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def run(self, request: bytes) -> int:
        """Sends the request, follows the progress and returns the exit code; blocking."""
        process, self._has_request = self._process, True
        if process.stdin is None or process.stdout is None:
            raise OSError(errno.EPIPE, "no pipe to the pass")
        self.progress = 0, 0
        with contextlib.suppress(OSError), process.stdin:  # it may have failed at its start
            process.stdin.write(request)
        with process.stdout:
            for line in process.stdout:
                done, total = json.loads(line)
                self.progress = done, total
        self.progress = None
        return process.wait()

    def stop(self) -> None:
        """Kills the process if it still runs. A `run` in another thread then returns."""
        process = self._process
        if process.poll() is None:
            process.kill()
            process.wait()
        if not self._has_request:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def start_ahead(settings: Settings, environ: Mapping[str, str], user_home: str) -> PassProcess | None:
    """Launches the process if there are enough logs for a pass, before the daemon imports its own modules.

    Both load at the same time then, which takes 0.2 s of processor time each.
    """
    size = files = 0
    for product in PRODUCTS:
        for place in product.logs(environ, user_home, settings.roots_of(product)):
            for folder, _, names in os.walk(place) if os.path.isdir(place) else [(place, [], [""])]:
                for name in names:
                    with contextlib.suppress(OSError):
                        size += os.path.getsize(os.path.join(folder, name) if name else place)
                    files += 1
                    if size >= LEAST_BYTES:
                        return PassProcess(environ)
                if files > _MOST_FILES:
                    return None
    return None
