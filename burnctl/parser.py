"""The parser of a verb: argparse with our own errors, suggestions and help."""

from __future__ import annotations

import argparse

from burnctl.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any, NoReturn


_MISSING = "the following arguments are required: "  # argparse's words
_ALIKE = 0.7
_MANY = 3  # shared options that have a section of their own


def parser_for(verb: str, module: ModuleType) -> Parser:
    about, examples = module.HELP, getattr(module, "EXAMPLES", ())
    parser = Parser(prog=f"burnctl {verb}", description=about[verb] if isinstance(about, dict) else about)
    parser.examples = examples[verb] if isinstance(examples, dict) else examples
    parser.wraps = getattr(module, "WRAPS", "")
    module.add_arguments(parser)
    return parser


def _shown_choices(action: argparse.Action) -> list[str]:
    """The choices of an argument; of subcommands those that the help lists."""
    if isinstance(action, argparse._SubParsersAction):
        return [choice.dest for choice in action._choices_actions]
    return [str(choice) for choice in action.choices or ()]


def _unused_formatter(prog: str) -> argparse.HelpFormatter:
    """argparse makes one for every argument; without a width each would import shutil."""
    return argparse.HelpFormatter(prog, width=80)


class Parser(argparse.ArgumentParser):
    """Raises UsageError for errors, and prints our own help."""

    examples: tuple[str, ...] = ()
    wraps = ""  # the program whose arguments go behind --

    def __init__(self, **facts: Any) -> None:
        # no abbreviations: one that works today may be ambiguous tomorrow
        super().__init__(allow_abbrev=False, add_help=False, formatter_class=_unused_formatter, **facts)
        self.add_argument("-h", "--help", action="help", help="show this help")

    def format_help(self) -> str:
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
            if choices:
                hint = f"choose from {', '.join(choices)}"
            elif self.examples:
                hint = f"for example: {self.examples[0]}"
        raise UsageError(f"{self._path()}: {what}", hint)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = self.parse_known_args(args, namespace)
        if unknown and self.wraps:
            from shlex import quote

            rest = " ".join(map(quote, unknown + list(getattr(options, "arguments", None) or ())))
            what = f"{self._path()}: arguments for {self.wraps} go behind --"
            raise UsageError(what, f"try: burnctl {self._path()} -- {rest}")
        if unknown:
            raise self._not_understood(unknown[0])
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Overrides argparse, to add a suggestion."""
        if action.choices is None or value in action.choices:
            return
        from burnctl.suggestions import near

        choices = _shown_choices(action)
        kind = str(action.metavar or "choice").lower() if not action.option_strings else action.option_strings[-1]
        hint = near(str(value), choices, f"choose from {', '.join(choices)}")
        what = f"no such {kind}: {value!r}" if not action.option_strings else f"{kind} cannot be {value!r}"
        raise UsageError(f"{self._path()}: {what}", hint)

    def _path(self) -> str:
        return self.prog.removeprefix("burnctl ")

    def _not_understood(self, word: str) -> UsageError:
        from burnctl.suggestions import near

        see = f"see: burnctl help {self._path()}"
        if not word.startswith("-"):
            return UsageError(f"{self._path()}: did not expect {word!r}", see)
        name = word.split("=", maxsplit=1)[0]
        flags = [flag for action in self._actions for flag in action.option_strings]
        return UsageError(f"{self._path()}: no such option: {name}", near(name, flags, see, _ALIKE))


_WIDEST = 100  # longer lines are hard to read


def overview(width: int | None = None) -> str:
    """Every verb with its line, by group."""
    from burnctl.commands import present
    from burnctl.render.screen import columns

    wide = width or min(columns(), _WIDEST)
    parts = ["usage: burnctl COMMAND [OPTIONS]", "", *_wrapped(_ABOUT, wide)]
    group = ""
    for verb, (its_group, line) in present().items():
        if its_group != group:
            group = its_group
            parts += ["", f"{group}:"]
        parts += _entry(verb, line, 13, wide)
    parts += ["", *_wrapped(_MORE, wide)]
    return "\n".join(parts)


_ABOUT = "Asks burnd what your coding agents spent, why, and where to save. Everything stays on this machine."
_MORE = (
    "`burnctl help COMMAND` explains one of them. Commands that read take --json for programs, --no-color, and "
    "--no-start. Exit codes: 0 ok, 1 failed, 2 usage, 3 burnd is not running, 4 burnd speaks another version."
)


def help_of(parser: Parser, width: int | None = None) -> str:
    """The help of a verb, or of one of its actions."""
    from burnctl.render.screen import columns

    wide = width or min(columns(), _WIDEST)
    about = parser.description or ""
    about = about[:1].upper() + about[1:] + ("" if not about or about.endswith((".", ":", "?")) else ".")
    parts = [*_usage(parser, wide), "", *_wrapped(about, wide)]
    places, flags = _by_kind(parser)
    for title, actions in (("arguments", places), *_groups(flags).items()):
        if entries := [(_name(action), action.help or "") for action in actions]:
            indent = min(max(len(name) for name, _ in entries) + 4, 28)
            parts += ["", f"{title}:"]
            for name, text in entries:
                parts += _entry(name, text, indent, wide)
    for action in _choosers(parser):
        parts += ["", f"{str(action.metavar).lower()}s:"]
        for choice in action._choices_actions:
            parts += _entry(choice.dest, choice.help or "", 13, wide)
        path = parser.prog.removeprefix("burnctl ")
        parts += ["", f"`burnctl help {path} {action.metavar}` explains one of them."]
    if parser.examples:
        parts += ["", "examples:", *(f"  {line}" for line in parser.examples)]
    return "\n".join(parts) + "\n"


def _by_kind(parser: Parser) -> tuple[list[argparse.Action], list[argparse.Action]]:
    """The arguments and the flags that the help shows."""
    actions = [
        a for a in parser._actions if a.help != argparse.SUPPRESS and not isinstance(a, argparse._SubParsersAction)
    ]
    flags = [a for a in actions if a.option_strings]
    return [a for a in actions if not a.option_strings], [a for a in flags if not isinstance(a, argparse._HelpAction)]


def _groups(flags: list[argparse.Action]) -> dict[str, list[argparse.Action]]:
    """A verb's own options first; filters and output options, which many verbs share, in sections of their own."""
    from burnctl.flags import Output
    from burnd.contract.reports import Filters

    shared = {"filters": {*Filters.params}, "output": {*Output.params}}
    groups: dict[str, list[argparse.Action]] = {"options": []}
    for title, names in shared.items():
        members = [flag for flag in flags if flag.dest in names]
        groups[title] = members if len(members) >= _MANY else []
    grouped = [flag for members in groups.values() for flag in members]
    return groups | {"options": [flag for flag in flags if flag not in grouped]}


def _choosers(parser: Parser) -> Iterable[argparse._SubParsersAction[Parser]]:
    return (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))


def _usage(parser: Parser, width: int) -> list[str]:
    places, flags = _by_kind(parser)
    groups = _groups(flags)
    words = []
    for flag in groups.pop("options"):
        word = f"{flag.option_strings[-1]} {_value(flag)}" if flag.nargs != 0 else flag.option_strings[-1]
        words.append(word if flag.required else f"[{word}]")
    words += [f"[{title.upper()}]" for title, members in groups.items() if members]
    words += [f"[{_value(place)}]" if place.nargs == "?" else _value(place) for place in places]
    words += [f"{chooser.metavar}" if chooser.required else f"[{chooser.metavar}]" for chooser in _choosers(parser)]
    head = f"usage: {parser.prog} "
    indent = " " * min(len(head), 24)
    # keep a flag and its value on one line
    glued = " ".join(word.replace(" ", "\0") for word in words)
    from textwrap import wrap

    lines = wrap(head + glued, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        word = action.metavar
    elif action.choices is not None:
        word = "|".join(map(str, action.choices))
    else:
        word = action.dest.replace("_", "-").upper()
    return {"*": f"[{word} ...]", "+": f"{word} [{word} ...]", argparse.REMAINDER: f"[{word} ...]"}.get(
        str(action.nargs), word
    )


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest.upper())
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {_value(action)}"


def _entry(name: str, about: str, indent: int, width: int) -> list[str]:
    from textwrap import wrap

    lines = wrap(about, max(width - indent - 2, 20)) or [""]
    head = f"  {name}"
    space = " " * (indent + 2)
    if len(head) > indent:
        return [head, *(space + line for line in lines)]
    return [(head.ljust(indent + 2) + lines[0]).rstrip(), *(space + line for line in lines[1:])]


def _wrapped(text: str, width: int) -> list[str]:
    from textwrap import wrap

    return wrap(text, width, break_on_hyphens=False)
