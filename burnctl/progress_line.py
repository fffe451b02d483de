"""A line of progress at a terminal, which is gone when the work is done."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

WIPE = "\r\x1b[K"


def can_take_back() -> bool:
    """Whether a line on stderr can be overwritten: only at a terminal that is not dumb."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class ProgressLine:
    """Given to the client: `with ProgressLine("looking") as client.progress: client.rebuild(index=True)`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_shown = False

    def __enter__(self) -> ProgressLine | None:
        waiting.stop()
        return self if can_take_back() else None

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            print(WIPE, end="", file=sys.stderr, flush=True)

    def __call__(self, progress: dict[str, Any]) -> None:
        done, total = progress.get("done") or 0, progress.get("total") or 0
        share = f" {100 * done // total}%" if total else ""
        print(f"{WIPE}{self._what} ...{share}", end="", file=sys.stderr, flush=True)
        self._is_shown = True


class Waiting:
    """`working ... 3 s` at a terminal while a report takes longer than a second; gone before the report is printed."""

    def __init__(self) -> None:
        self._end: Callable[[], None] | None = None

    def start(self) -> None:
        """Starts the clock, unless stdout or stderr is no terminal."""
        if self._end is not None or not (can_take_back() and sys.stdout.isatty()):
            return
        import threading
        import time

        over, began = threading.Event(), time.monotonic()

        def show() -> None:
            is_shown = False
            while not over.wait(_REFRESH_S if is_shown else _QUIET_S):
                print(f"{WIPE}working ... {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
                is_shown = True
            if is_shown:
                print(WIPE, end="", file=sys.stderr, flush=True)

        thread = threading.Thread(target=show, daemon=True)
        thread.start()

        def end() -> None:
            over.set()
            thread.join()

        self._end = end

    def stop(self) -> None:
        """Wipes the line. Called before anything else is printed."""
        if self._end is not None:
            self._end()
            self._end = None


_QUIET_S, _REFRESH_S = 1.0, 0.5
waiting = Waiting()
