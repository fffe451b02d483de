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


def as_csv(rows: list[dict[str, Any]], answer: dict[str, Any]) -> int:
    """Prints the rows of an answer as CSV with a header; None is an empty cell, a flag `true` or `false`.

    Warns on stderr while old logs are being read. Returns exit code 0.
    """
    import csv

    from burnctl.render.caveats import backfill_line

    if line := backfill_line(answer):
        print(line, file=sys.stderr)
    if rows:
        writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows([{name: safe_cell(value) for name, value in row.items()} for row in rows])
    return 0


def safe_cell(value: Any) -> Any:
    """Spreadsheets take a cell that begins like a formula for one, and names come from logs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
