"""Reads a shell command: its family (testing, git, deps, ...) and its verb, the short name used in reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from burnd.classify.shell_programs import (
    ANY_USE,
    FLAGGED,
    RUNNERS,
    SUBCOMMANDS,
    canonical,
    positionals,
    subcommand,
    word_set,
)
from burnd.classify.shell_syntax import RESERVED, simple_commands
from burnd.classify.shell_wrappers import base_name, runs_elsewhere, unwrap, without_assignments

UNREADABLE: Final = "(shell)"
COMMAND_LIMIT: Final = 64 * 1024
"""Characters. A longer command contains a file; the rest is ignored."""

_NESTING_LIMIT: Final = 5
_WRAPPER_LIMIT: Final = 16

_PROGRAM_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
_SETUP: Final = word_set(
    "cd pushd popd export set unset source true false sleep shopt umask trap alias local readonly declare"
)
"""Commands that prepare another one; they name the command line only if there is no other."""


class ShellCommand(NamedTuple):
    """The family of a command, if any, and its verb: the program and its subcommands, without arguments."""

    family: str | None
    verb: str


_UNREAD: Final = ShellCommand(None, UNREADABLE)


def family(command: str) -> str | None:
    return read(command).family


def verb(command: str) -> str:
    return read(command).verb


def read(command: str) -> ShellCommand:
    """Reads the first part with a family, else the first part with a name.

    A verb reads back as itself, so labels can be recomputed where only verbs are stored.
    """
    best, best_weight = _UNREAD, 0
    for argv in _invocations(command, 0) if command != UNREADABLE else ():
        reading = _read_one(argv)
        if reading.family:
            return reading
        weight = 0 if reading.verb == UNREADABLE else 1 if reading.verb in _SETUP else 2
        if weight > best_weight:
            best, best_weight = reading, weight
    return best


def runs(command: str) -> Iterator[tuple[str, ...]]:
    """Every program that a command runs, with its arguments that are no flags, in order."""
    for program, *args in _invocations(command, 0):
        name = base_name(program)
        yield name, *(word for _, word in positionals(canonical(name), args))


def _invocations(text: str, depth: int) -> Iterator[list[str]]:
    """Every program that the text runs, with arguments and without wrappers, in order."""
    for words in simple_commands(text[:COMMAND_LIMIT]):
        argv = without_assignments(words)
        for _ in range(_WRAPPER_LIMIT):
            inner = unwrap(argv) if argv else None
            if inner is None:
                break
            if runs_elsewhere(argv):
                yield argv  # the name, unless the wrapped command has a family
            if isinstance(inner, str):
                if depth < _NESTING_LIMIT:
                    yield from _invocations(inner, depth + 1)
                argv = []
                break
            argv = inner
        if argv:
            yield argv


def _read_one(argv: Sequence[str]) -> ShellCommand:
    base, args = base_name(argv[0]), argv[1:]
    if base in RESERVED or not _PROGRAM_NAME.fullmatch(base):
        return _UNREAD
    program = canonical(base)
    if runner := RUNNERS.get(program):
        family_name, words = runner(program, args)
        return ShellCommand(family_name, " ".join((base, *words)))
    phrase = subcommand(program, args)
    verb_name = f"{base} {phrase}".rstrip()
    rule = FLAGGED.get(f"{program} {phrase}".rstrip())
    if rule is None:
        return ShellCommand(SUBCOMMANDS.get(program, {}).get(phrase) or ANY_USE.get(program), verb_name)
    if rule.leading_only:
        first, _ = next(positionals(program, args), (len(args), ""))
        args = args[:first]
    choice = next((choice for choice in rule.choices if not choice.spellings.isdisjoint(args)), None)
    return (
        ShellCommand(choice.family, f"{verb_name} {choice.flag}") if choice else ShellCommand(rule.otherwise, verb_name)
    )
