"""The command line of burnctl."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from burnd import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the version: no command of the client is here yet."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"burnctl {__version__}")
        return 0
    print("usage: burnctl --version", file=sys.stderr)
    return 2
