"""Classifies runners of project-defined names: scripts of npm and the like, goals of make and the like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from burnd.classify.shell_programs import (
    BUILD_DEPLOY,
    DEPS,
    FORMAT,
    TESTING,
    VERIFICATION,
    by_word,
    positionals,
    word_set,
)

FamilyAndWords = tuple[str | None, tuple[str, ...]]
"""A family, and the words that follow the program's name in its verb."""

UNKNOWN_GOAL: Final = "other"
"""Replaces a project-defined goal or script in a verb. `make` alone is a build and `yarn` alone an install."""

SCRIPT_RUNNERS: Final = word_set("npm pnpm yarn bun")
_RUN: Final = word_set("run run-script")
_ASKS_FOR_HELP: Final = word_set("-h --help -v --version")
_TEST_SCRIPT: Final = re.compile(r"test(?!.*\.[cm]?[jt]sx?$)", re.DOTALL)

_SCRIPTS: Final = by_word(
    {
        FORMAT: "format fmt",
        VERIFICATION: "lint typecheck type-check check",
        BUILD_DEPLOY: "build deploy release",
        None: "dev start serve preview watch stop restart fix clean docs e2e"
        " coverage storybook types validate generate codegen migrate seed prepare setup",
    }
)

_PACKAGE_COMMANDS: Final = by_word(
    {
        DEPS: "install add remove uninstall update upgrade ci",
        BUILD_DEPLOY: "publish",
        None: "run exec dlx x audit outdated list ls info view why pack link unlink init create"
        " config cache version login whoami prune dedupe rebuild root bin search pm import patch store",
    }
)

_SAME_COMMAND: Final[dict[str, dict[str, str]]] = {
    "npm": {"i": "install", "rm": "remove", "un": "uninstall", "up": "update", "t": "test", "tst": "test"},
    "pnpm": {"i": "install", "rm": "remove", "un": "uninstall", "up": "update", "t": "test"},
    "yarn": {"i": "install", "up": "upgrade"},
    "bun": {"i": "install", "a": "add", "rm": "remove"},
}

_MAKE_GOALS: Final = by_word(
    {
        TESTING: "test check",
        FORMAT: "fmt format",
        VERIFICATION: "lint typecheck verify",
        BUILD_DEPLOY: "build release dist package deploy install",
        None: "all clean help run dev start stop up down docs",
    }
)

_JVM_GOALS: Final = by_word(
    {
        TESTING: "test",
        BUILD_DEPLOY: "build package",
        None: "clean install verify compile assemble check deploy validate tasks dependencies run",
    }
)


def _read_scripts(program: str, args: Sequence[str]) -> FamilyAndWords:
    words = (word for _, word in positionals(program, args))
    first = next(words, "")
    if first in _RUN:
        return _script(next(words, "")) or (None, ("run",))
    if program == "yarn" and not first:
        return (None, (UNKNOWN_GOAL,)) if _ASKS_FOR_HELP & set(args) else (DEPS, ("install",))
    command = _SAME_COMMAND[program].get(first, first)
    if command in _PACKAGE_COMMANDS:
        return _PACKAGE_COMMANDS[command], (command,)
    return _script(command) or (None, (UNKNOWN_GOAL,) if program == "yarn" else ())


def _script(name: str) -> FamilyAndWords | None:
    """A verb contains only script names that many projects share: others are private to the project."""
    if _TEST_SCRIPT.match(name):
        return TESTING, ("test",)
    return (_SCRIPTS[name], (name,)) if name in _SCRIPTS else None


def _read_make(program: str, args: Sequence[str]) -> FamilyAndWords:
    words = (word for _, word in positionals(program, args))
    # `-j 4` may be written with a space, and `CC=clang` sets a variable: neither is a goal.
    goals = [word for word in words if "=" not in word and not word.replace(".", "").isdigit()]
    if not goals:
        return BUILD_DEPLOY, ()
    return _deciding(goals, _MAKE_GOALS) or (None, (UNKNOWN_GOAL,))


def _read_jvm(program: str, args: Sequence[str]) -> FamilyAndWords:
    goals = [word.rpartition(":")[2] for _, word in positionals(program, args)]
    return _deciding(goals, _JVM_GOALS) or (None, ())


def _deciding(goals: Iterable[str], table: dict[str, str | None]) -> FamilyAndWords | None:
    """The goal that comes first in the table, which lists families in the order of precedence."""
    present = set(goals)
    first = next((goal for goal in table if goal in present), None)
    return (table[first], (first,)) if first else None


RUNNERS: Final[dict[str, Callable[[str, Sequence[str]], FamilyAndWords]]] = {
    **dict.fromkeys(SCRIPT_RUNNERS, _read_scripts),
    "make": _read_make,
    "gradle": _read_jvm,
    "mvn": _read_jvm,
}
