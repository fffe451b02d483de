"""What `burnctl help` says: made from the table of verbs and from each verb's parser, the same on every Python."""

from __future__ import annotations

import argparse
import textwrap

from burnctl.commands import present
from burnctl.render.screen import columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from burnctl.parser import Parser

_WIDEST = 100  # longer lines of prose are hard to read


def overview(width: int | None = None) -> str:
    """Every verb with its line, by group."""
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
    """The help of one verb, or of one action of it."""
    wide = width or min(columns(), _WIDEST)
    parts = [*_usage(parser, wide), "", *_wrapped(_sentence(parser.description or ""), wide)]
    places, flags = _by_kind(parser)
    for title, actions in (("arguments", places), ("options", flags)):
        if entries := [(_name(action), action.help or "") for action in actions]:
            indent = min(max(len(name) for name, _ in entries) + 4, 28)
            parts += ["", f"{title}:"]
            for name, about in entries:
                parts += _entry(name, about, indent, wide)
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
    shown = [a for a in parser._actions if a.help != argparse.SUPPRESS and not _is_chooser(a)]
    flags = [a for a in shown if a.option_strings]
    return [a for a in shown if not a.option_strings], [a for a in flags if not _is_help(a)]


def _choosers(parser: Parser) -> Iterable[argparse._SubParsersAction[Parser]]:
    return (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))


def _is_chooser(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)


def _is_help(action: argparse.Action) -> bool:
    return isinstance(action, argparse._HelpAction)


def _usage(parser: Parser, width: int) -> list[str]:
    places, flags = _by_kind(parser)
    words = [_flag_word(flag) for flag in flags]
    words += [_place_word(place) for place in places]
    words += [str(chooser.metavar) for chooser in _choosers(parser)]
    head = f"usage: {parser.prog} "
    indent = " " * min(len(head), 24)
    # Words of the usage line are kept whole: a flag and its value belong together.
    glued = " ".join(word.replace(" ", "\0") for word in words)
    lines = textwrap.wrap(head + glued, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def _flag_word(action: argparse.Action) -> str:
    flag = action.option_strings[-1]
    word = f"{flag} {_value(action)}" if action.nargs != 0 else flag
    return word if action.required else f"[{word}]"


def _place_word(action: argparse.Action) -> str:
    word = _value(action)
    return f"[{word}]" if action.nargs == "?" else word


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


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":", "?", "")) and text[-1:] in ".:?" else ".")


def _entry(name: str, about: str, indent: int, width: int) -> list[str]:
    """A name on the left and what it means beside it, or below it where the name is long."""
    lines = textwrap.wrap(about, max(width - indent - 2, 20)) or [""]
    head = f"  {name}"
    space = " " * (indent + 2)
    if len(head) > indent:
        return [head, *(space + line for line in lines)]
    return [(head.ljust(indent + 2) + lines[0]).rstrip(), *(space + line for line in lines[1:])]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)
