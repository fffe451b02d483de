"""Owns what a shell command means: the family it belongs to, and the verb that stands for it in reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from burnd.classify.families import word_set
from burnd.classify.shell_programs import ANY_USE, FLAGGED, SUBCOMMANDS, canonical, positionals, subcommand
from burnd.classify.shell_runners import RUNNERS, Finding
from burnd.classify.shell_split import RESERVED, simple_commands
from burnd.classify.shell_wrappers import base_name, runs_elsewhere, unwrap, without_assignments

UNREADABLE: Final = "(shell)"
COMMAND_LIMIT: Final = 64 * 1024
"""What stands beyond it is not looked at: a command that long carries a file, not a longer list."""

_NESTING_LIMIT: Final = 5
_WRAPPER_LIMIT: Final = 16

_PROGRAM_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
_SETUP: Final = word_set(
    "cd pushd popd export set unset source true false sleep shopt umask trap alias local readonly declare"
)
"""Commands that prepare for another one; they name the whole only where there is no other."""


class Reading(NamedTuple):
    """A command's family, if it has one, and its verb: a program's name and listed words, no argument."""

    family: str | None
    verb: str


_UNREAD: Final = Reading(None, UNREADABLE)


def family(command: str) -> str | None:
    return read(command).family


def verb(command: str) -> str:
    return read(command).verb


def read(command: str) -> Reading:
    """Read a command by its first part that belongs to a family, else by its first part with a name.

    A verb reads back to itself, so that labels can be made anew where only verbs were kept.
    """
    if command == UNREADABLE:
        return _UNREAD
    best = _UNREAD
    for argv in _invocations(command, 0):
        reading = _read_one(argv)
        if reading.family:
            return reading
        if _weight(reading) > _weight(best):
            best = reading
    return best


def _weight(reading: Reading) -> int:
    if reading.verb == UNREADABLE:
        return 0
    return 1 if reading.verb in _SETUP else 2


def _invocations(text: str, depth: int) -> Iterator[list[str]]:
    """Every program the text runs with its arguments, wrappers taken off, in the order written."""
    for words in simple_commands(text[:COMMAND_LIMIT]):
        yield from _unwrapped(without_assignments(words), depth)


def _unwrapped(argv: list[str], depth: int) -> Iterator[list[str]]:
    for _ in range(_WRAPPER_LIMIT):
        inner = unwrap(argv) if argv else None
        if inner is None:
            break
        if runs_elsewhere(argv):
            yield argv  # names the command unless the one inside has a family
        if isinstance(inner, str):
            if depth < _NESTING_LIMIT:
                yield from _invocations(inner, depth + 1)
            return
        argv = inner
    if argv:
        yield argv


def _read_one(argv: Sequence[str]) -> Reading:
    base, args = base_name(argv[0]), argv[1:]
    if base in RESERVED or not _PROGRAM_NAME.fullmatch(base):
        return _UNREAD
    program = canonical(base)
    runner = RUNNERS.get(program)
    found, words = runner(program, args) if runner else _listed(program, args)
    return Reading(found, " ".join((base, *words)))


def _listed(program: str, args: Sequence[str]) -> Finding:
    phrase = subcommand(program, args)
    words = tuple(phrase.split())
    if f"{program} {phrase}".rstrip() in FLAGGED:
        return _flagged(program, words, args)
    return SUBCOMMANDS.get(program, {}).get(phrase) or ANY_USE.get(program), words


def _flagged(program: str, words: tuple[str, ...], args: Sequence[str]) -> Finding:
    rule = FLAGGED[" ".join((program, *words))]
    given = set(_leading(program, args) if rule.leading_only else args)
    chosen = next((choice for choice in rule.choices if choice.spellings & given), None)
    return (chosen.family, (*words, chosen.flag)) if chosen else (rule.otherwise, words)


def _leading(program: str, args: Sequence[str]) -> Sequence[str]:
    first, _ = next(positionals(program, args), (len(args), ""))
    return args[:first]
