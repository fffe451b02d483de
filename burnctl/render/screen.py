"""The place where output appears: how wide it is, whether it takes colour, and a pager when there is much to read."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

_DEFAULT_COLUMNS, _DEFAULT_LINES = 80, 24
_STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class Screen:
    """What is known of stdout. `color` off makes `paint` leave text as it is."""

    def __init__(self, width: int = _DEFAULT_COLUMNS, *, color: bool = False, lines: int = 0) -> None:
        self.width, self.color, self.lines = width, color, lines

    @classmethod
    def of(cls, options: argparse.Namespace | None = None) -> Screen:
        """The screen as it is, with what the person asked for."""
        tty = sys.stdout.isatty()
        wanted = not getattr(options, "no_color", False) and not os.environ.get("NO_COLOR")
        color = tty and wanted and os.environ.get("TERM") != "dumb"
        return cls(columns(), color=color, lines=_lines() if tty else 0)

    def paint(self, text: str, styles: str) -> str:
        """The text in the named styles (`"bold red"`), where the screen takes colour."""
        if not self.color or not styles or not text:
            return text
        codes = ";".join(_STYLES[style] for style in styles.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def report(self, answer: Mapping[str, Any], text: str, what: str = "Totals") -> None:
        """Prints the text of an answer, below a yellow line while old logs are being read."""
        from burnctl.render.caveats import backfill_line
        from burnctl.render.paragraphs import wrapped

        line = "\n".join(self.paint(part, "yellow") for part in wrapped(backfill_line(answer, what), self.width))
        self.show(f"{line}\n\n{text}" if line else text)

    def show(self, text: str) -> None:
        """Prints; through a pager when it is a terminal and the text is longer than that."""
        if self.lines and text.count("\n") + 1 >= self.lines and _paged(text):
            return
        print(text)


def columns() -> int:
    """The terminal's width; `COLUMNS` wins, 80 where it is not known."""
    said = os.environ.get("COLUMNS", "")
    if said.isdigit() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _DEFAULT_COLUMNS
    except (OSError, ValueError, AttributeError):
        return _DEFAULT_COLUMNS


def _lines() -> int:
    said = os.environ.get("LINES", "")
    if said.isdigit() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or _DEFAULT_LINES
    except (OSError, ValueError, AttributeError):
        return _DEFAULT_LINES


def _paged(text: str) -> bool:
    """Shows the text in `$PAGER`, or in less; False when neither can be had."""
    import shlex
    import subprocess

    chosen = os.environ.get("PAGER")
    try:
        command = shlex.split(chosen) if chosen is not None else ["less", "-FRX"]
    except ValueError:  # a quotation mark without its other half
        return False
    if not command or command[0] == "cat" or os.environ.get("TERM") == "dumb":
        return False
    # less should pass colours on and give the terminal back when all fits, unless the person's own LESS says otherwise.
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, env={"LESS": "FRX", "LESSCHARSET": "utf-8"} | os.environ
        ) as pager:
            try:
                pager.communicate(text.encode(errors="replace") + b"\n")
            except KeyboardInterrupt:
                pager.wait()  # the pager has seen it too, and lets go of the terminal itself
    except OSError:
        return False
    return True
