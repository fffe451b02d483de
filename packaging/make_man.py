"""Makes the manual pages packaging/man/burnctl.1 and burnd.1 from the parsers of both programs.

    python packaging/make_man.py

The parsers are what `--help` shows, so a command or a flag cannot be missing here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from burnctl.cli import load
from burnctl.commands import present
from burnctl.parser import parser_for
from burnd import __version__
from burnd import cli as burnd_cli
from burnd.harness.registry import PRODUCTS, all_titles

FOLDER = Path(__file__).parent / "man"

_ENVIRONMENT = (
    ("RELAYBURN_HOME", "The folder that holds everything burnd keeps; ~/.relayburn unless set."),
    ("BURND_SOCKET", "Where burnd listens; burnd.sock in the home unless set."),
    ("RELAYBURN_CONTENT_STORE", "What is kept of conversations: full, hash-only or off."),
    ("RELAYBURN_CONTENT_TTL_DAYS", "For how many days, or forever."),
    *((variable.name, f"{variable.about}.") for product in PRODUCTS for variable in product.variables),
)
_FILES = (
    ("~/.relayburn/config.toml", "The settings; burnctl config init writes it with comments."),
    ("~/.relayburn/ledger.jsonl", "Every turn that was recorded, one JSON object a line."),
    ("~/.relayburn/content/", "What was said, one file a session."),
    ("~/.relayburn/spool/", "Stamps that were made while burnd was down."),
    ("~/.relayburn/burnd.log", "The log of a burnd that burnctl started."),
)
_CODES = {
    "burnctl": (
        ("0", "All went well."),
        ("1", "It failed; the message says why."),
        ("2", "The command line could not be understood."),
        ("3", "burnd is not running."),
        ("4", "burnd speaks another version of the protocol."),
    ),
    "burnd": (
        ("0", "It was told to stop, and has."),
        ("1", "It failed; the message says why."),
        ("2", "The command line could not be understood."),
        ("5", "Another burnd is using the home; the message names its pid."),
    ),
}


def burnctl_page() -> str:
    lines = [*_head("burnctl", "asks burnd what coding agents spent, why, and where to save")]
    lines += [".SH SYNOPSIS", ".B burnctl", ".I COMMAND", "[OPTIONS]"]
    lines += [".SH DESCRIPTION", _text("burnctl is the client of burnd(1). Everything stays on this machine.")]
    lines += [_text("Commands that read take --json for programs, --no-color (as NO_COLOR) and --no-start.")]
    lines += _entries([("--version", "Print the version."), ("-h, --help", "List the commands.")])
    group = ""
    for verb, (its_group, _) in present().items():
        if its_group != group:
            group = its_group
            lines.append(f".SH {_quoted(group.upper())}")
        parser = parser_for(verb, load(verb))
        lines += _command(parser)
    return "\n".join([*lines, *_tail("burnctl", "burnd")]) + "\n"


def burnd_page() -> str:
    lines = [*_head("burnd", "records every turn that coding agents take on this machine")]
    lines += [".SH SYNOPSIS", ".B burnd", ".I COMMAND", "[OPTIONS]"]
    lines += [
        ".SH DESCRIPTION",
        _text(f"burnd reads the logs of {all_titles()} as they grow, and keeps what"),
    ]
    lines += [_text("was spent for good. It stays in the foreground: systemd, launchd or burnctl up start it.")]
    lines += [*_entries([("--version", "Print the version."), ("-h, --help", "Show the help.")]), ".SH COMMANDS"]
    for _, parser in _actions_of(burnd_cli._parser()):
        lines += _command(parser)
    return "\n".join([*lines, *_tail("burnd", "burnctl")]) + "\n"


def _head(name: str, does: str) -> list[str]:
    return [f'.TH {name.upper()} 1 "" "burnd {__version__}" "User Commands"', ".SH NAME", _text(f"{name} - {does}")]


def _tail(name: str, other: str) -> Iterator[str]:
    for title, entries in (("EXIT STATUS", _CODES[name]), ("ENVIRONMENT", _ENVIRONMENT), ("FILES", _FILES)):
        yield f'.SH "{title}"'
        yield from _entries(entries)
    yield ".SH SEE ALSO"
    yield f".BR {other} (1)"


def _command(parser: argparse.ArgumentParser, about: str = "") -> Iterator[str]:
    """A command with what it takes, and its actions after it."""
    path = parser.prog.removeprefix("burnctl ").removeprefix("burnd ")
    yield f".SS {_quoted(path)}"
    if said := about or parser.description:
        yield _text(said[0].upper() + said[1:] + ("" if said.endswith(".") else "."))
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    yield from _entries(
        (_name(action), action.help or "")
        for action in shown
        if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
    )
    examples = getattr(parser, "examples", ())
    if examples:
        yield from (".PP", "For example:", ".PP", ".nf", *map(_text, examples), ".fi")
    for help_line, action in _actions_of(parser):
        yield from _command(action, action.description or help_line)


def _actions_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for chooser in parser._actions:
        if isinstance(chooser, argparse._SubParsersAction):
            lines = {choice.dest: choice.help or "" for choice in chooser._choices_actions}
            for name, action in chooser.choices.items():
                action.description = action.description or lines.get(name, "")
                yield lines.get(name, ""), action


def _name(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    if not action.option_strings:
        return str(value)
    flags = ", ".join(action.option_strings)
    return flags if action.nargs == 0 else f"{flags} {value}"


def _entries(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, about in entries:
        yield from (".TP", f".B {_text(name)}", _text(about[:1].upper() + about[1:]))


def _text(words: str) -> str:
    """Words that mean themselves to roff: hyphens as they are typed, no command at the start of a line."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _quoted(words: str) -> str:
    return f'"{_text(words)}"'


PAGES = {"burnctl.1": burnctl_page, "burnd.1": burnd_page}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())


if __name__ == "__main__":
    main()
