"""The terminal or pipe that a report is printed to: its width, colours, pager, and the lines around a report.

A report has a yellow line above it while old logs are read, and below it a footnote line: what changes how the numbers
are read, and the hidden columns. `--notes` prints all notes.
"""

from __future__ import annotations

import codecs
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

_DEFAULT_COLUMNS, _DEFAULT_LINES = 80, 24
_UNLIMITED = 1_000_000
_STYLES = {
    "bold": "1",
    "dim": "2",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class Screen:
    """Where output goes. Without `color`, `paint` changes nothing; a pipe never cuts the cells of a table."""

    def __init__(
        self,
        width: int = _DEFAULT_COLUMNS,
        *,
        color: bool = False,
        lines: int = 0,
        is_pipe: bool = False,
        with_notes: bool = False,
    ) -> None:
        self.width, self.color, self.lines = width, color, lines
        self.is_pipe, self.with_notes = is_pipe, with_notes
        self._footnotes: list[tuple[str, str, str]] = []
        self._notes: list[str] = []
        self._hints: list[str] = []
        self._hidden: list[str] = []

    @classmethod
    def of(cls, options: argparse.Namespace | None = None, answer: Mapping[str, Any] | None = None) -> Screen:
        """The screen of this process, by its flags and the answer's currency."""
        if answer and answer.get("currency"):
            from burnctl.render.numbers import use_currency

            use_currency(answer["currency"], sys.stdout.encoding)
        is_terminal = sys.stdout.isatty()
        return cls(
            columns(),
            color=_has_color(is_terminal=is_terminal, is_off=getattr(options, "no_color", False)),
            lines=(_number("LINES") or _terminal(1) or _DEFAULT_LINES) if is_terminal else 0,
            is_pipe=not is_terminal and not _number("COLUMNS"),
            with_notes=getattr(options, "notes", False),
        )

    @property
    def room(self) -> int:
        """The columns for a line of text; no limit in a pipe."""
        return _UNLIMITED if self.is_pipe else self.width

    def paint(self, text: str, styles: str) -> str:
        if not self.color or not styles or not text:
            return text
        codes = ";".join(_STYLES[style] for style in styles.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def footnote(self, text: str, short: str = "", shortest: str = "") -> None:
        """Adds to the footnote line, with shorter forms of the note."""
        self._footnotes.append((text, short or text, shortest or short or text))

    def note(self, text: str) -> None:
        self._notes.append(text)

    def hint(self, text: str) -> None:
        """Adds to the line above the footnote: how to see more."""
        from burnctl.render.text import clean

        self._hints.append(clean(text))

    def hide(self, title: str) -> None:
        if title and title not in self._hidden:
            self._hidden.append(title)

    def report(self, answer: Mapping[str, Any], text: str, what: str = "Totals") -> None:
        self.show(self.page(answer, text, what))

    def page(self, answer: Mapping[str, Any], text: str, what: str = "Totals") -> str:
        """The text of an answer with the yellow line and the footnote line."""
        from burnctl.render.notes import backfill_line
        from burnctl.render.text import flow, width_of

        hints, footnotes = flow(self._hints, self), self._below()
        if len(hints) == len(footnotes) == 1 and width_of(f"{hints[0]} · {footnotes[0]}") <= self.width:
            hints, footnotes = [], [f"{hints[0]} · {footnotes[0]}"]
        below = "\n".join(self.paragraph(line, "dim") for line in [*hints, *footnotes])
        parts = [self.paragraph(backfill_line(answer, what), "yellow"), text, below]
        return "\n\n".join(filter(None, parts))

    def _below(self) -> list[str]:
        """The footnote line, as long as fits: shorter forms, then only the first note; hidden columns stay."""
        from burnctl.render.text import clean, width_of

        hidden = [f"No room for: {', '.join(self._hidden)}."] if self._hidden else []
        every, short, shortest = ([note[form] for note in self._footnotes] for form in range(3))
        if self.with_notes:
            return [*every, *hidden, *self._notes]
        more = ["More: --notes"] if self._footnotes or hidden else []
        forms = [
            [*every, *hidden, *(more if self._notes else [])],
            [*short, *hidden, *(more if self._notes else [])],
            [*short, *hidden],
            [*short[:1], *hidden, *(more if len(short) > 1 else [])],
            [*shortest[:1], *hidden, *(more if len(short) > 1 else [])],
            [*shortest[:1], *hidden],
        ]
        lines = [clean(" ".join(parts)) for parts in forms]
        without_notes = [" ".join([*hidden, *more])] if hidden else []
        for line in [*lines, *without_notes]:
            if width_of(line) <= self.width or self.is_pipe:
                return [line] if line else []
        return lines[-1:]

    def paragraph(self, text: str, style: str = "") -> str:
        """A text in as many lines as the screen needs; in a pipe one."""
        if not text:
            return ""
        from burnctl.render.text import clean, wrap

        lines = [clean(text)] if self.is_pipe else wrap(clean(text), self.width)
        return "\n".join(self.paint(line, style) for line in lines)

    def show(self, text: str) -> None:
        """Prints; through a pager if it is longer than the terminal."""
        from burnctl.progress import waiting

        waiting.stop()
        if self.lines and text.count("\n") + 1 >= self.lines and _paged(text):
            return
        print(text)


def _has_color(*, is_terminal: bool, is_off: bool) -> bool:
    """https://no-color.org and https://bixense.com/clicolors: off wins over forced."""
    if is_off or os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return is_terminal and os.environ.get("TERM") != "dumb" and os.environ.get("CLICOLOR") != "0"


def columns() -> int:
    """The terminal's width; `COLUMNS` wins, 80 if unknown."""
    return _number("COLUMNS") or _terminal(0) or _DEFAULT_COLUMNS


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else 0


def _terminal(which: int) -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno())[which]
    except (OSError, ValueError, AttributeError):
        return 0


def _paged(text: str) -> bool:
    """Shows the text in `$PAGER` or less; False if neither runs."""
    import shlex
    import subprocess

    pager_name = os.environ.get("PAGER")
    try:
        command = shlex.split(pager_name) if pager_name is not None else ["less", "-FRX"]
    except ValueError:  # an unbalanced quotation mark
        return False
    if not command or command[0] == "cat" or os.environ.get("TERM") == "dumb":
        return False
    # less passes colours on, and ends if all fits, unless the user has set LESS.
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, env={"LESS": "FRX", "LESSCHARSET": "utf-8"} | os.environ
        ) as pager:
            try:
                pager.communicate(text.encode(sys.stdout.encoding, sys.stdout.errors or "replace") + b"\n")
            except KeyboardInterrupt:
                pager.wait()  # the pager gets the signal too, and restores the terminal
    except OSError:
        return False
    return True


ASCII_HANDLER = "burnctl.plain"  # of the error handler, for `reconfigure(errors=...)`
_SIGNS = {
    "─": "-",
    "└": "`",
    "├": "|",
    "┤": "|",
    "▲": "^",
    "▼": "v",
    "↩": "<",
    "↑": "^",
    "↓": "v",
    "●": "*",
    "│": "|",
    "·": "-",
    "…": "~",
    "⋯": "~",
    "“": '"',
    "”": '"',
    "→": ">",
    "×": "x",  # noqa: RUF001
    "▸": ">",
    "◂": "<",
    "∴": "*",
    "━": "=",
    # the parts of a bill, which must differ without colour
    "█": "#",
    "▓": "+",
    "▒": "=",
    "░": ".",
    "▞": "%",
    # bars, to the cell that is at least half full; columns by how dark a sign is
    **dict.fromkeys("▏▎▍", "|"),
    **dict.fromkeys("▌▋▊▉", "#"),
    **dict(zip("▁▂▃▄▅▆▇", "_.-~=+*", strict=True)),
}


def register_ascii() -> None:
    codecs.register_error(ASCII_HANDLER, _ascii)


def _ascii(error: UnicodeError) -> tuple[str, int]:
    """One character for each, so that columns stay aligned; unknown ones become `?`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_SIGNS.get(sign, "?") for sign in error.object[error.start : error.end]), error.end
