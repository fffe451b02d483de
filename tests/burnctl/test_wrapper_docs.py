"""The pages about tags, wrappers and the service name every action and every flag."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnctl.cli import load
from burnctl.parser import parser_for
from burnctl.service.settings import VARIABLES

DOCS = Path(__file__).parents[2] / "docs"


def words_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield f"{parser.prog} {name}"
                yield from words_of(inner)
        elif not isinstance(action, argparse._HelpAction):
            yield from action.option_strings[-1:]


@pytest.mark.parametrize(
    ("verb", "page"),
    [("stamp", "tags"), ("stamps", "tags"), ("claude", "tags"), ("run", "tags"), ("service", "service")],
)
def test_every_flag_is_documented(verb: str, page: str) -> None:
    """A flag that is not in docs/ is not there."""
    text = (DOCS / f"{page}.md").read_text()
    assert f"burnctl {verb}" in text
    assert [word for word in words_of(parser_for(verb, load(verb))) if word not in text] == []


def test_every_variable_is_documented() -> None:
    """What a service is told is what the page says."""
    assert [name for name in VARIABLES if name not in (DOCS / "service.md").read_text()] == []
