"""Every flag, method and MCP parameter comes from the table of methods, or is declared by burnctl."""

from __future__ import annotations

import argparse
import copy

import pytest

from burnctl.cli import load
from burnctl.commands import present
from burnctl.parser import Parser, parser_for
from burnd.contract import Param, Params, methods
from burnd.server.methods import METHODS
from tests.burnctl.pages import actions_of

VERBS = {verb: load(verb) for verb in present()}  # each may declare its own flags
NESTED = [table for table in Params.__subclasses__() if not table.method]
DECLARED = {id(one): one for table in (*methods().values(), *NESTED) for one in table.params.values()}


def made_by_hand(parser: Parser) -> list[str]:
    """The flags of a verb and its actions that are not a parameter of a table, or have another help."""
    found = []
    for one in (parser, *actions_of(parser)):
        for action in one._actions:
            declared: Param | None = getattr(action, "param", None)
            is_own = isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
            is_declared = id(declared) in DECLARED and (action.help or "").startswith(DECLARED[id(declared)].help)
            if not is_own and not is_declared:
                found.append(f"{one.prog}: {action.dest}")
    return found


@pytest.mark.parametrize("verb", present())
def test_every_flag_comes_from_a_table(verb: str) -> None:
    assert made_by_hand(parser_for(verb, VERBS[verb])) == []


def test_a_flag_that_was_made_by_hand_is_found() -> None:
    parser = parser_for("pricing", VERBS["pricing"])
    parser.add_argument("--plain", help="a flag")
    action = next(iter(actions_of(parser)))
    action.add_argument("--copied", help="the name").param = copy.copy(methods()["pricing.show"].params["model"])  # type: ignore[attr-defined]
    assert made_by_hand(parser) == ["burnctl pricing: plain", f"{action.prog}: copied"]


def test_every_parameter_of_a_tool_comes_from_its_method() -> None:
    """Under its name, with its help and its choices; only the caller's own session has another name, and `full`."""
    from burnctl.mcp_tools import OFFERS, server

    tools = {tool.name: tool.parameters["properties"] for tool in server()._tool_manager.list_tools()}
    assert tools.keys() == {offer.name for offer in OFFERS}
    for offer in OFFERS:
        names = {"session" if name == offer.own else name: name for name in offer.takes}
        assert tools[offer.name].keys() == {*names, "full"}
        for shown, name in names.items():
            declared, field = offer.method.params[name], tools[offer.name][shown]
            assert field["description"].lower().startswith(declared.help.lower()), (offer.name, name)
            choices = [value for kind in field.get("anyOf", [field]) for value in kind.get("enum", ())]
            assert choices == [*declared.choices], (offer.name, name)


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
