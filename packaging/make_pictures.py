"""Makes docs/pictures/ from what burnctl prints on the demo's made-up sessions, so that they show what there is.

python packaging/make_pictures.py
"""

from __future__ import annotations

import errno
import html
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.text import Text

from burnctl.client import Client
from burnctl.daemon import stop
from burnctl.demo_machine import Machine, live

_CONSOLE = Console()
FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
COLUMNS = 96
_RUNNING_S = 150.0
COMMANDS: dict[str, tuple[str, ...]] = {
    "overview": (),
    "summary": ("summary", "--by", "project"),
    "why": ("why", "--costliest"),
    "search": ("search", "cron", "refactor"),
    "waste": ("waste", "--limit", "4"),
}
_FONTS = "ui-monospace, Menlo, Consolas, monospace"
_LINES_SHOWN = 26
_LINE, _CHARACTER, _MARGIN = 18.0, 8.1, 14.0
# By the numbers that terminals give them: red, green, yellow, blue, magenta, cyan.
_COLORS = {1: "#f47067", 2: "#6bc46d", 3: "#daaa3f", 4: "#6cb6ff", 5: "#dcbdfb", 6: "#76e3ea"}
_SPACE = "\u00a0"  # browsers merge plain spaces, and stretch the rest to fill the line
_PAPER, _INK, _FAINT = "#1c2128", "#d5dbe3", "#8b949e"
# What depends on the day on which a picture was made.
_OF_THE_DAY = re.compile(
    r"[0-9a-f]{8}\b|ses_\w+|\d+ (?:min|h|days) ago|in \d+ days|yesterday|by day .*|(?:today|7 days|.*┤).*|.*└.*"
    r"|[A-Z][a-z]{2} +\d+"
)


def outputs() -> dict[str, str]:
    """What each command prints at a terminal, colours included, on a made-up machine of its own."""
    machine = Machine(tempfile.mkdtemp(prefix="burnd-"))
    machine.enter()
    os.environ |= {"COLUMNS": str(COLUMNS), "LINES": "500", "TERM": "xterm-256color"}
    machine.write_logs(time.time())
    story = live()
    log = machine.live_log(story, time.time() - _RUNNING_S)
    for act in story.acts:
        log.act(act)
    _burnctl("up")
    client = Client()
    try:
        client.flush()
        time.sleep(1.5)  # what is recorded can be searched, and is explained, a moment later
        return {name: _at_terminal(words) for name, words in COMMANDS.items()}
    finally:
        stop(client)
        subprocess.run(["rm", "-r", machine.folder], check=True)  # noqa: S607


def plain(printed: str) -> str:
    """Without colours, and cut where a picture is."""
    lines = Text.from_ansi(printed).plain.splitlines()
    return "\n".join(line.rstrip() for line in lines[:_LINES_SHOWN])


def masked(text: str) -> str:
    """Without what another day would show in another way."""
    return re.sub(r"\s+", " ", _OF_THE_DAY.sub("…", text))


def picture(name: str, printed: str) -> str:
    """An SVG that stands alone; its description is the text, for those who cannot see it and for the tests."""
    text = plain(printed)
    rows = [Text.from_markup(f"[bold green]$[/] [bold]burnctl {' '.join(COMMANDS[name])}[/]"), Text("")]
    rows += Text.from_ansi(printed.rstrip()).split("\n", allow_blank=True)[:_LINES_SHOWN]
    width, height = COLUMNS * _CHARACTER + 2 * _MARGIN, len(rows) * _LINE + 2 * _MARGIN
    drawn = "\n".join(_row(row, number) for number, row in enumerate(rows))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">\n'
        f"<title>burnctl {html.escape(' '.join(COMMANDS[name]))}</title>\n<desc>{html.escape(text)}</desc>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{_PAPER}"/>\n'
        f'<g font-family="{_FONTS}" font-size="13.5" fill="{_INK}">\n'
        f"{drawn}\n</g>\n</svg>\n"
    )


def _row(row: Text, number: int) -> str:
    """Each run of characters in one style has its own place, so that columns hold in any font."""
    y = _MARGIN + (number + 0.75) * _LINE
    spans = []
    for begin, end, style in _runs(row):
        words = row.plain[begin:end].rstrip()
        begin += len(words) - len(words.lstrip())
        words = words.lstrip().replace(" ", _SPACE)
        if words:
            x, length = _MARGIN + begin * _CHARACTER, len(words) * _CHARACTER
            place = f'x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}"'
            spans.append(f"<text {place}{_look(style)}>{html.escape(words)}</text>")
    return "".join(spans)


def _runs(row: Text) -> list[tuple[int, int, Style]]:
    styles = [row.get_style_at_offset(_CONSOLE, at) for at in range(len(row.plain))]
    edges = [at for at in range(len(styles)) if at == 0 or styles[at] != styles[at - 1]]
    ends = [*edges[1:], len(styles)] if edges else []
    return [(begin, end, styles[begin]) for begin, end in zip(edges, ends, strict=True)]


def _look(style: Style) -> str:
    number = style.color.number if style.color is not None else None
    fill = _COLORS.get(number or 0) or (_FAINT if style.dim else "")
    return (f' fill="{fill}"' if fill else "") + (' font-weight="bold"' if style.bold else "")


def _burnctl(*words: str) -> None:
    subprocess.run([sys.executable, "-P", "-m", "burnctl", *words], check=True, stdout=subprocess.DEVNULL)


def _at_terminal(words: tuple[str, ...]) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-P", "-m", "burnctl", *words], stdout=theirs, stdin=theirs)
    os.close(theirs)
    printed = b""
    try:
        while data := os.read(ours, 1 << 16):
            printed += data
    except OSError as error:
        if error.errno != errno.EIO:  # how a terminal says that nobody is there any more
            raise
    finally:
        os.close(ours)
    process.wait()
    return printed.decode().replace("\r\n", "\n")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, printed in outputs().items():
        (FOLDER / f"{name}.svg").write_text(picture(name, printed))


if __name__ == "__main__":
    main()
