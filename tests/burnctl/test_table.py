"""Every flag, method and MCP parameter comes from the table of methods, or is declared by burnctl."""

from __future__ import annotations

import argparse

import pytest

from burnctl.cli import load
from burnctl.commands import present
from burnctl.parser import parser_for
from burnd.contract import Param, Params, methods
from burnd.server.methods import METHODS
from tests.burnctl.pages import actions_of

VERBS = {verb: load(verb) for verb in present()}  # each may declare its own flags
NESTED = [table for table in Params.__subclasses__() if not table.method]
DECLARED = {id(one): one for table in (*methods().values(), *NESTED) for one in table.params.values()}


@pytest.mark.parametrize("verb", present())
def test_every_flag_comes_from_a_table(verb: str) -> None:
    parser = parser_for(verb, VERBS[verb])
    for one in (parser, *actions_of(parser)):
        for action in one._actions:
            if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
                declared: Param | None = getattr(action, "param", None)
                assert declared is not None, f"{one.prog}: {action.dest}"
                assert id(declared) in DECLARED
                assert (action.help or "").startswith(declared.help)


def test_every_method_has_one_entry_and_one_handler() -> None:
    assert METHODS.keys() == methods().keys()
    assert all(handler.params is methods()[name] for name, handler in METHODS.items())


def test_every_parameter_is_explained_in_a_line() -> None:
    for params in methods().values():
        assert params.about().endswith("."), params.method
        for one in params.params.values():
            assert one.help, f"{params.method}: {one.name}"
            assert "\n" not in one.help
            assert not one.help.endswith(".")
