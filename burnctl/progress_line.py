"""A line at a person's terminal that says how far something long has come, and is gone when it is done."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WIPE = "\r\x1b[K"


def can_take_back() -> bool:
    """Whether a line on stderr can be written over: only at a terminal, and not at every one."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class ProgressLine:
    """Given to the client: `with ProgressLine("looking") as client.progress: client.rebuild(index=True)`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._told = False

    def __enter__(self) -> ProgressLine | None:
        return self if can_take_back() else None

    def __exit__(self, *_: object) -> None:
        if self._told:
            print(WIPE, end="", file=sys.stderr, flush=True)

    def __call__(self, progress: dict[str, Any]) -> None:
        done, total = progress.get("done") or 0, progress.get("total") or 0
        share = f" {100 * done // total}%" if total else ""
        print(f"{WIPE}{self._what} ...{share}", end="", file=sys.stderr, flush=True)
        self._told = True
