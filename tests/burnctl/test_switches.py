"""A command line of one switch gives the same options without argparse as with it."""

from __future__ import annotations

import pytest

from burnctl.cli import load
from burnctl.commands import present
from burnctl.parser import parser_for
from burnctl.switches import options_of


@pytest.mark.parametrize("verb", list(present()))
@pytest.mark.parametrize("words", [[], ["--json"], ["--no-color"], ["--memory"], ["--all"]])
def test_options_are_those_of_the_parser(verb: str, words: list[str]) -> None:
    options = options_of(verb, load(verb), words)
    if options is not None:
        assert vars(options) == vars(parser_for(verb, load(verb)).parse_args(words))


@pytest.mark.parametrize(
    "verb", ["overview", "today", "status", "summary", "daily", "sessions", "waste", "limits", "why"]
)
def test_common_commands_need_no_parser(verb: str) -> None:
    assert options_of(verb, load(verb), []) is not None
    assert options_of(verb, load(verb), ["--json"]) is not None


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("search", []),
        ("config", []),
        ("status", ["--help"]),
        ("status", ["x"]),
        ("summary", ["--json", "--csv"]),
    ],
)
def test_the_rest_is_for_the_parser(verb: str, words: list[str]) -> None:
    assert options_of(verb, load(verb), words) is None
