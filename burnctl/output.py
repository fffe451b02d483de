"""How answers leave the program for other programs: JSON, one object, nothing else on stdout."""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def as_json(answer: Any) -> int:
    """Prints what the socket said, unchanged; indented where a person looks. Returns exit code 0.

    Everything beyond ASCII is escaped: the same text in every locale, and nothing in it can steer a terminal.
    """
    print(json.dumps(answer, indent=2 if sys.stdout.isatty() else None))
    return 0


def json_line(answer: Any) -> None:
    """Prints one object of a stream, at once."""
    print(json.dumps(answer), flush=True)
