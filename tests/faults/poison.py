"""A daemon that dies over one line of a log, as a fault in a library might make it."""

from __future__ import annotations

import os
from typing import Any

from burnd.readers.claude_code import ClaudeReader

feed = ClaudeReader.feed


def deadly(self: ClaudeReader, line: bytes, *more: Any) -> Any:
    if b"POISON" in line:
        os._exit(99)
    return feed(self, line, *more)


dying: Any = deadly
ClaudeReader.feed = dying  # type: ignore[method-assign]

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
