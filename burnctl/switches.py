"""Reads a command line with one switch or none without argparse, which takes longer than the rest."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any


class Options:
    """As argparse's Namespace."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


def options_of(verb: str, module: ModuleType, arguments: Sequence[str]) -> Options | None:
    """The options of a verb; None if argparse has to read them or report an error."""
    if len(arguments) > 1:
        return None
    switches = Switches(f"burnctl {verb}")
    try:
        module.add_arguments(switches)
    except _NeedsParser:
        return None
    values = switches.values | switches.defaults
    if arguments:
        if arguments[0] not in switches.names:
            return None
        values[switches.names[arguments[0]]] = True
    return Options(values)


class _NeedsParser(Exception):
    """Raised for what only argparse reads: a required argument or an action."""


class _Argument:
    """An argument, to which `flags` attaches its parameter."""

    param: object = None


class Switches:
    """Takes declarations as a parser does, and records defaults and switches."""

    def __init__(self, prog: str) -> None:
        self.prog = prog
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}

    def add_argument(self, *names: str, **facts: Any) -> _Argument:
        is_flag = names[0].startswith("-")
        if facts.get("required") or (not is_flag and facts.get("nargs") != "?"):
            raise _NeedsParser
        dest = facts.get("dest") or names[-1].lstrip("-").replace("-", "_")
        is_switch = facts.get("action") == "store_true"
        if is_switch:
            self.names.update(dict.fromkeys(names, dest))
        self.values[dest] = facts.get("default", False if is_switch else None)
        return _Argument()

    def add_mutually_exclusive_group(self) -> Switches:
        return self

    def add_subparsers(self, **_facts: Any) -> None:
        raise _NeedsParser

    def set_defaults(self, **values: Any) -> None:
        self.defaults.update(values)
