"""Prints an answer as JSON or CSV for programs, or as a screen for people."""

from __future__ import annotations

import sys

from burnctl import quick_json
from burnctl.progress import waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

    from burnctl.client import Client
    from burnctl.render.screen import Screen


def present(
    options: argparse.Namespace,
    answer: dict[str, Any],
    draw: Callable[[dict[str, Any], Screen], str],
    *,
    rows: Callable[[dict[str, Any]], list[dict[str, Any]]] | None = None,
    client: Client | None = None,
    empty: str = "",
    what: str = "Totals",
) -> int:
    """Prints an answer as the flags ask. `draw` makes its screen, `rows` its CSV. Returns exit code 0.

    If the screen is empty, a sentence that begins with `empty` says why.
    """
    if options.json:
        return as_json(answer)
    if rows and options.csv:
        return as_csv(rows(answer), answer)
    from burnctl.render.screen import Screen

    screen = Screen.of(options, answer)
    text = draw(answer, screen)
    if not text and client is not None:
        from burnctl.render.notes import no_matches

        text = screen.paragraph(no_matches(client, options, empty))
    screen.report(answer, text, what)
    return 0


def as_json(answer: Any) -> int:
    """Prints the answer of the socket; indented at a terminal. Returns exit code 0.

    It is ASCII: the same in every locale, and harmless to a terminal.
    """
    waiting.stop()
    if sys.stdout.isatty():
        import json

        print(json.dumps(answer, indent=2))
    else:
        print(quick_json.dumps(answer))
    return 0


def json_line(answer: Any) -> None:
    """Prints one object of a stream at once."""
    print(quick_json.dumps(answer), flush=True)


def as_csv(rows: list[dict[str, Any]], answer: dict[str, Any]) -> int:
    """Prints rows as CSV with a header; None is an empty cell. Cleaned for a terminal.

    Warns on stderr while old logs are being read. Returns exit code 0.
    """
    import csv

    from burnctl.render.text import clean

    waiting.stop()
    if sys.stdout.isatty():
        rows = [{name: clean(cell) if isinstance(cell, str) else cell for name, cell in row.items()} for row in rows]
    from burnctl.render.notes import backfill_line

    if line := backfill_line(answer):
        print(line, file=sys.stderr)
    if rows:
        writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows([{name: safe_cell(value) for name, value in row.items()} for row in rows])
    return 0


def safe_cell(value: Any) -> Any:
    """Keeps spreadsheets from taking a cell for a formula: names come from logs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def write_file(path: str, text: str) -> None:
    """Writes a picture or report to a file, or to stdout if it is `-`."""
    if path == "-":
        sys.stdout.write(text)
        return
    from burnctl.errors import BurnctlError

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BurnctlError(f"cannot write {path}: {error.strerror}", "choose another file") from None
    print(f"wrote {path}", file=sys.stderr)
