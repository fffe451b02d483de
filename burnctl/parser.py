"""The parser of one verb: argparse, with mistakes said in one line and a suggestion for what was meant."""

from __future__ import annotations

import argparse

from burnctl.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, NoReturn


_MISSING = "the following arguments are required: "  # argparse's words
_ALIKE = 0.7


def parser_for(verb: str, module: ModuleType) -> Parser:
    """The parser that `module` describes."""
    parser = Parser(prog=f"burnctl {verb}", description=module.HELP)
    parser.examples = getattr(module, "EXAMPLES", ())
    parser.wraps = getattr(module, "WRAPS", "")
    module.add_arguments(parser)
    return parser


def _shown_choices(action: argparse.Action) -> list[str]:
    """What may be chosen, without what is not meant for people."""
    if isinstance(action, argparse._SubParsersAction):
        return [choice.dest for choice in action._choices_actions]
    return [str(choice) for choice in action.choices or ()]


def _unused_formatter(prog: str) -> argparse.HelpFormatter:
    """argparse makes one for every argument; without a width each would import shutil to measure the terminal."""
    return argparse.HelpFormatter(prog, width=80)


class Parser(argparse.ArgumentParser):
    """An argparse parser whose mistakes raise Usage and whose help is our own."""

    examples: tuple[str, ...] = ()
    wraps = ""  # the program whose own arguments go behind --

    def __init__(self, **facts: Any) -> None:
        # A flag must be written out: an abbreviation that works today may mean two things tomorrow.
        super().__init__(allow_abbrev=False, add_help=False, formatter_class=_unused_formatter, **facts)
        self.add_argument("-h", "--help", action="help", help="show this help")

    def format_help(self) -> str:
        from burnctl.usage import help_of

        return help_of(self)

    def print_help(self, _file: Any = None) -> None:
        from burnctl.render.screen import Screen

        Screen.of().show(self.format_help().rstrip())

    def error(self, message: str) -> NoReturn:
        what, _, hint = message.removeprefix("argument ").partition("; ")
        what, hint = what[0].lower() + what[1:], hint or f"see: burnctl help {self._path()}"
        if message.startswith(_MISSING):
            missing = message.removeprefix(_MISSING)
            what = f"{missing} is missing"
            choices = [
                choice for action in self._actions if action.metavar == missing for choice in _shown_choices(action)
            ]
            hint = f"choose from {', '.join(choices)}" if choices else hint
        raise Usage(f"{self._path()}: {what}", hint)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = self.parse_known_args(args, namespace)
        if unknown and self.wraps:
            from shlex import quote

            given = " ".join(map(quote, unknown + list(getattr(options, "arguments", None) or ())))
            what = f"{self._path()}: arguments for {self.wraps} go behind --"
            raise Usage(what, f"try: burnctl {self._path()} -- {given}")
        if unknown:
            raise self._not_understood(unknown[0])
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """argparse's own hook for choices, so that a mistyped one gets a suggestion."""
        if action.choices is None or value in action.choices:
            return
        from difflib import get_close_matches

        choices = _shown_choices(action)
        kind = str(action.metavar or "choice").lower() if not action.option_strings else action.option_strings[-1]
        close = get_close_matches(str(value), choices, 1)
        hint = f"did you mean: {close[0]}" if close else f"choose from {', '.join(choices)}"
        what = f"no such {kind}: {value!r}" if not action.option_strings else f"{kind} cannot be {value!r}"
        raise Usage(f"{self._path()}: {what}", hint)

    def _path(self) -> str:
        return self.prog.removeprefix("burnctl ")

    def _not_understood(self, word: str) -> Usage:
        from difflib import get_close_matches

        if not word.startswith("-"):
            return Usage(f"{self._path()}: did not expect {word!r}", f"see: burnctl help {self._path()}")
        name = word.split("=", maxsplit=1)[0]
        flags = [flag for action in self._actions for flag in action.option_strings]
        close = get_close_matches(name, flags, 1, _ALIKE)
        hint = f"did you mean: {close[0]}" if close else f"see: burnctl help {self._path()}"
        return Usage(f"{self._path()}: no such option: {name}", hint)
