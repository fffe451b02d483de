"""The command line: finds the verb, imports only that, and prints errors in one line.

A command line with one switch or none is read without argparse, which takes longer than the rest.
"""

from __future__ import annotations

import os
import sys

from burnctl import errors
from burnctl.errors import BurnctlError, Failed, MissingField, NotRunning, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

_SHARED_FLAGS = ("--json", "--no-color", "--no-start")


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    try:
        return _answer(words)
    except KeyboardInterrupt:
        return errors.INTERRUPTED
    except BrokenPipeError:
        _give_up_stdout()
        return errors.BROKEN_PIPE
    except OSError as error:
        # Most likely stdout: a full disk behind a redirection.
        _give_up_stdout()
        reason = error.strerror or str(error)
        return _complain(BurnctlError(f"{error.filename}: {reason}" if error.filename else reason))


def _answer(given: list[str]) -> int:
    try:
        try:
            code = _dispatch(given)
        except SystemExit as done:  # argparse's way of ending after --help
            code = int(done.code or 0)
        sys.stdout.flush()
    except BurnctlError as error:
        return _complain(_with_releases(error))
    return code


def _with_releases(error: BurnctlError) -> BurnctlError:
    """Adds both releases to an error that only a burnd of another release causes."""
    if not isinstance(error, MissingField) and not (isinstance(error, Failed) and error.is_of_another_release):
        return error
    from burnctl.client import Client
    from burnd import __version__

    try:
        with Client(timeout=2) as client:
            running = client.call("status")["daemon"]["version"]
    except BurnctlError:
        return error
    other = "another build of it" if running == __version__ else f"burnctl {__version__}"
    mismatch = BurnctlError(
        f"burnd {running} runs, and this is {other}: {error.message}", "restart it: burnctl restart"
    )
    mismatch.exit_code = errors.VERSION_MISMATCH
    return mismatch


def _dispatch(given: list[str]) -> int:
    first_flags = []
    while given and given[0] in _SHARED_FLAGS:
        first_flags.append(given.pop(0))
    if not given:  # the overview, or the help if no daemon runs and none may be started
        try:
            return run("overview", first_flags)
        except NotRunning:
            if "--json" in first_flags or sys.stdout.isatty():
                raise
            return _overview()
    if given[0] in ("-h", "--help"):
        return _overview()
    if given[0] in ("-V", "--version"):
        from burnd import __version__

        print(f"burnctl {__version__}")
        return 0
    verb, rest = given[0], [*first_flags, *given[1:]]
    if verb == "help":
        words = [word for word in rest if word not in ("-h", "--help", "help")]
        if not words or words[0] in _SHARED_FLAGS:
            return _overview()
        return run(words[0], [*words[1:], "--help"])
    return run(verb, rest)


def run(verb: str, arguments: list[str]) -> int:
    module = load(verb)
    options: object = options_of(verb, module, arguments)
    if options is None:
        from burnctl.parser import parser_for

        options = parser_for(verb, module).parse_args(arguments)
    try:
        return int(module.run(options))
    except Failed as error:
        raise _with_suggestion(error, getattr(options, "session", None)) from error


def _with_suggestion(error: Failed, session: object) -> Failed:
    from burnctl import suggestions

    meant = suggestions.session(session) if error.about == "session" and isinstance(session, str) else None
    return Failed(error.code, error.message, f"did you mean: {meant}", error.name) if meant else error


def load(verb: str) -> ModuleType:
    """The module of a verb. Raises UsageError with a suggestion for an unknown one."""
    from burnctl.commands import VERBS, module_of

    if verb not in VERBS:
        raise _no_such(verb)
    name = f"burnctl.commands.{module_of(verb)}"
    try:
        __import__(name)  # importlib's own function would import more
        return sys.modules[name]
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise _no_such(verb) from None


def _no_such(verb: str) -> UsageError:
    if verb.startswith("-"):
        return UsageError(f"no such option: {verb}", "the command comes first; see: burnctl help")
    from burnctl import suggestions
    from burnctl.commands import present

    return UsageError(f"no such command: {verb}", suggestions.command(verb, present()))


def _overview() -> int:
    from burnctl.parser import overview
    from burnctl.render.screen import Screen

    Screen.of().show(overview())
    return 0


def _complain(error: BurnctlError) -> int:
    """Prints an error and its hint on stderr."""
    from burnctl.progress import waiting
    from burnctl.render.screen import columns
    from burnctl.render.text import clean, wrap

    sentence = f"{error.message.rstrip('.')}; {error.hint}" if error.hint else error.message
    waiting.stop()
    try:
        sys.stdout.flush()
        line = f"burnctl: {clean(sentence)}"
        print(*(wrap(line, columns()) if sys.stderr.isatty() else [line]), sep="\n", file=sys.stderr)
    except BrokenPipeError:
        return errors.BROKEN_PIPE
    return error.exit_code


def _give_up_stdout() -> None:
    """Points stdout to /dev/null, so that flushing it at exit does not raise again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it lives as long as we do
    for stream in (sys.stdout, sys.stderr):
        if not hasattr(stream, "reconfigure"):
            continue
        if stream.isatty() and _is_ascii_locale():
            stream.reconfigure(encoding="ascii", errors=_plainly())
        else:
            stream.reconfigure(errors="replace" if stream.encoding.lower().startswith("utf") else _plainly())


def _is_ascii_locale() -> bool:
    """True for `LANG=C`, which Python turns into UTF-8 while it sets LC_CTYPE; False without a locale."""
    if os.environ.get("PYTHONIOENCODING") or os.environ.get("PYTHONUTF8"):
        return False
    charset = os.environ.get("LC_CTYPE", "")
    names = (os.environ.get("LC_ALL"), "" if charset == "C.UTF-8" else charset, os.environ.get("LANG"))
    return next(filter(None, names), "") in ("C", "POSIX")


def _plainly() -> str:
    from burnctl.render import screen

    screen.register_ascii()
    return screen.ASCII_HANDLER


class Options:
    """As argparse's Namespace."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


def options_of(verb: str, module: ModuleType, arguments: Sequence[str]) -> Options | None:
    """The options of a verb, read without argparse; None if argparse has to read them or report an error."""
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


if __name__ == "__main__":
    sys.exit(main())
