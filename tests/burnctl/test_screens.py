"""Every screen on the demo's sessions, to the character: at 40, 80 and 160 columns, in colour, in ASCII and in a pipe.

`BURNCTL_GOLDEN=write` writes the expected screens again; look at them before you keep them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnctl.render.text import width_of
from tests.burnctl.screens import DemoScreens, demo_screens

GOLDEN = Path(__file__).parent / "golden" / "screens"
SCREENS = (
    "",
    "today",
    "daily",
    "daily --breakdown",
    "weekly",
    "monthly",
    "projects",
    "models",
    "harnesses",
    "agents --tree",
    "tags",
    "tags persona",
    "summary",
    "summary --notes",
    "summary --by session",
    "summary --by day,model",
    "summary --by activity --quality",
    "summary --chart",
    "compare",
    "compare --what-if claude-haiku-4-5",
    "limits",
    "blocks",
    "hotspots",
    "hotspots --by file --limit 8",
    "hotspots --by prompt",
    "hotspots --by tool,model --limit 4",
    "hotspots --by cache-miss",
    "why --costliest",
    "why cart --tree",
    "why checkout --by kind",
    "why checkout --by file",
    "why checkout --by command",
    "why checkout --by turn --limit 5",
    "why checkout --turn 6",
    "waste",
    "waste --kind cache-miss",
    "explain",
    "explain cache-miss",
    "flow cart",
    "search cron refactor",
    "search cron refactor -C 1",
    "show checkout --limit 12",
    "show cart --raw --limit 4",
    "overhead --project shop-api",
    "stamps list",
    "top",
    "sessions",
    "sessions --sort cost --limit 4",
)


@pytest.fixture(scope="session")
def demo() -> Iterator[DemoScreens]:
    with demo_screens() as made:
        yield made


@pytest.mark.parametrize("screen", SCREENS)
def test_screens(demo: DemoScreens, screen: str) -> None:
    """As the golden file has them; no line is wider than its terminal, and a pipe has all of every value."""
    words = screen.split()
    at_terminal = {f"{columns} columns": demo.rendered(words, columns) for columns in (40, 80, 160)}
    for name, text in at_terminal.items():
        columns = int(name.split()[0])
        assert [line for line in text.splitlines() if width_of(line) > columns] == [], name
        if "No room for" in text and columns >= 80 and screen != "summary --notes":
            assert "No room for" in text.splitlines()[-1], "the footnote is one line"
    ascii_text = demo.rendered(words, 80, encoding="ascii")
    pipe = demo.rendered(words, is_pipe=True)
    assert "…" not in pipe or words[0] == "show"  # which folds long results in a pipe, too
    assert "No room for" not in pipe
    views = {
        **at_terminal,
        "80 columns, colour": demo.rendered(words, 80, color=True),
        "80 columns, ASCII": ascii_text,
        "pipe": pipe,
    }
    text = "".join(f"$ {' '.join(['burnctl', *words])}   # {name}\n\n{text}\n" for name, text in views.items())
    path = GOLDEN / file_name(screen)
    if os.environ.get("BURNCTL_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def file_name(screen: str) -> str:
    return f"{screen.replace(' --', ' ').replace(' ', '-').replace(',', '-') or 'overview'}.txt"


def test_every_golden_file_has_its_screen() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {file_name(screen) for screen in SCREENS}
