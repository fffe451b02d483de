"""Manual pages agree with the parsers, have every command and flag, and are valid roff."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from burnctl.cli import load as load_verb
from burnctl.commands import present
from burnctl.parser import parser_for
from burnd import cli as burnd_cli
from tests.packaging.scripts import ROOT, load

make_man = load("make_man")
FOLDER = ROOT / "packaging" / "man"


def words_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The names of a parser's flags and actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield name
                yield from words_of(inner)
        elif action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
            yield from action.option_strings


def shown(name: str) -> str:
    return (FOLDER / name).read_text().replace("\\-", "-")


@pytest.mark.parametrize("name", sorted(make_man.PAGES))
def test_the_page_is_what_the_generator_makes(name: str) -> None:
    """Word for word: a help text that changes makes the page stale, though every flag is still on it."""
    assert (FOLDER / name).read_text() == make_man.PAGES[name](), "stale; run: python packaging/make_man.py"


def test_every_page_has_a_generator() -> None:
    assert {path.name for path in FOLDER.iterdir()} == make_man.PAGES.keys()


@pytest.mark.parametrize("verb", sorted(present()))
def test_every_command_of_burnctl_is_there(verb: str) -> None:
    """With all of its flags; else run: python packaging/make_man.py"""
    page = shown("burnctl.1")
    assert f'.SS "{verb}"' in page, "run python packaging/make_man.py"
    missing = [word for word in words_of(parser_for(verb, load_verb(verb))) if word not in page]
    assert missing == [], "run python packaging/make_man.py"


def test_every_command_of_burnd_is_there() -> None:
    """With all of its flags; else run: python packaging/make_man.py"""
    page = shown("burnd.1")
    assert [word for word in words_of(burnd_cli._parser()) if word not in page] == [], "run packaging/make_man.py"


@pytest.mark.parametrize("page", [make_man.burnctl_page, make_man.burnd_page])
def test_roff_has_nothing_to_complain_of(page: object) -> None:
    """groff renders the generated page without a warning."""
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not here, so nobody can say whether the pages can be set")
    assert callable(page)
    done = subprocess.run(
        [groff, "-man", "-Tutf8", "-ww"], input=page(), capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "EXIT STATUS" in re.sub(".\b", "", done.stdout)  # bold is a letter twice, one over the other
