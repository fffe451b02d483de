"""The pictures in the README and the pages show what burnctl prints today."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from tests.packaging.scripts import ROOT, load

_PRINT = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("make_pictures", "packaging/make_pictures.py")
pictures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pictures)
print(json.dumps({name: pictures.plain(printed) for name, printed in pictures.outputs().items()}))
"""


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """In a separate process, since it changes to a simulated machine."""
    done = subprocess.run([sys.executable, "-c", _PRINT], cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_the_pictures_are_not_stale(printed: dict[str, str]) -> None:
    """Apart from times, ids and bars per day; `python packaging/make_pictures.py` renders them again."""
    pictures = load("make_pictures")
    assert printed.keys() == {path.stem for path in pictures.FOLDER.glob("*.svg")}
    for name, text in printed.items():
        root = ET.fromstring((pictures.FOLDER / f"{name}.svg").read_text())
        shown = root.findtext("{http://www.w3.org/2000/svg}desc") or ""
        assert pictures.masked(shown) == pictures.masked(text), name


def test_the_pictures_have_colours() -> None:
    """Parts of the bar differ in colour, as at a terminal."""
    pictures = load("make_pictures")
    drawn = pictures.picture("why", "\x1b[31m█\x1b[0m\x1b[33m▓\x1b[0m\x1b[2mfaint\x1b[0m")
    for colour in ("#f47067", "#daaa3f", "#8b949e"):
        assert f'fill="{colour}"' in drawn


def test_spaces_stay_spaces() -> None:
    """Browsers merge plain spaces and stretch the text: words begin in their column, and have no plain spaces."""
    drawn = load("make_pictures").picture("why", "  a  b   \x1b[31mc\x1b[0m")
    assert 'textLength="32.4">a\u00a0\u00a0b</text>' in drawn
    assert 'x="30.2"' in drawn


def test_each_has_its_place() -> None:
    """One is in the README, the others on a page; nothing in them is fetched from elsewhere."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text() for page in pages)
    for path in load("make_pictures").FOLDER.glob("*.svg"):
        assert f"pictures/{path.name})" in text
        assert path.read_text().count("http") == 1  # the name of the format
