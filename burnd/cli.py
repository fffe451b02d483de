"""The command line of burnd: `run`, `check` and `config`."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from burnd import __version__
from burnd.errors import BurndError, HomeBusy, HomeError

if TYPE_CHECKING:
    from burnd.ledger.files import HomeLock
    from burnd.logs import Background
    from burnd.paths import Home
    from burnd.settings.config import Settings

EXIT_FAILED, EXIT_USAGE, EXIT_BUSY = 1, 2, 5
# How long a thread may keep the interpreter to itself while others want it: an answer takes a dozen turns of it.
SWITCH_S = 0.001


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except (BurndError, ValueError, OSError) as error:
        if options.command is _run:
            from burnd.unforeseen import write_stderr

            write_stderr(f"burnd: {error}")
        else:
            print(f"burnd: {error}", file=sys.stderr)
        return EXIT_BUSY if isinstance(error, HomeBusy) else EXIT_FAILED


class _Parser(argparse.ArgumentParser):
    """An argparse parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"burnd: {message}; see: {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="burnd", description="Records every turn your coding agents take. Everything stays on this machine."
    )
    parser.add_argument("--version", action="version", version=f"burnd {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run in the foreground until told to stop")
    run.add_argument("--log-file", metavar="PATH", help="write the log there, below the home unless it begins with /")
    run.add_argument("--log-format", choices=("auto", "console", "json"), help="how the log is written")
    run.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="the least that is logged")
    run.set_defaults(command=_run)
    check = commands.add_parser("check", help="check settings and home, and say what is wrong")
    check.set_defaults(command=_check)
    config = commands.add_parser("config", help="make or show the settings")
    config.add_argument("action", choices=("init", "show", "path"))
    config.set_defaults(command=_config)
    return parser


def _run(options: argparse.Namespace) -> int:
    from burnd import paths
    from burnd.ledger.files import HomeLock, prepare_home

    _fill_standard_streams()
    os.umask(0o077)  # not every library asks for private files
    _leave_no_core()
    home = paths.find_home()
    prepare_home(home.root)
    # Before all that takes long to import: of many that are started at once, all but one are gone in a moment.
    lock = HomeLock(home.lock)
    try:
        _run_holding(lock, home, options)
    finally:
        lock.release()
    return 0


def _run_holding(lock: HomeLock, home: Home, options: argparse.Namespace) -> None:
    _do_without_rich()
    import anyio

    from burnd import daemon, memory, unforeseen
    from burnd.settings import config

    settings = config.load(home)
    log = _configure_log(options, settings, home)
    unforeseen.never_quote(_log_a_stray)
    try:
        memory.keep_little()
        memory.collect_seldom()
        sys.setswitchinterval(SWITCH_S)
        anyio.run(partial(daemon.run, home, settings, lock=lock))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told without its words
        raise _end_by(error, home) from None
    finally:
        log.drain()


def _do_without_rich() -> None:
    """Where it is installed, structlog imports all of it for tracebacks that no daemon draws: a fifth of our start."""
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]


def _end_by(error: Exception, home: Home) -> BurndError:
    """What the daemon ended by, said in the log as well; what nobody foresaw by its kind and its place alone."""
    import structlog

    from burnd import unforeseen

    kinds, place = unforeseen.kinds(error), unforeseen.place(error)
    foreseen = [said for one in unforeseen.leaves(error) if (said := _foreseen(one, home)) is not None]
    end = foreseen[0] if foreseen else BurndError(f"stopped on {kinds} at {place}", remedy="please report it")
    structlog.get_logger().error("daemon.failed", error=kinds, reason=end.what if foreseen else "", where=place)
    return end


def _foreseen(error: BaseException, home: Home) -> BurndError | None:
    """An error of ours, or one of the system's about a file of ours: both are in words that are nobody's."""
    if isinstance(error, BurndError):
        return error
    if isinstance(error, OSError) and error.errno and str(error.filename).startswith(str(home.root)):
        return HomeError(os.strerror(error.errno), str(error.filename))
    return None


def _log_a_stray(error: BaseException) -> None:
    """Where nobody waits for what is done: in a thread, or at the very end."""
    import structlog

    from burnd import unforeseen

    kinds, place = unforeseen.kinds(error), unforeseen.place(error)
    structlog.get_logger().error("daemon.stray_failure", error=kinds, where=place)


def _fill_standard_streams() -> None:
    """Whoever started us may have closed them; the ledger must not get a number that others write errors to."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def _leave_no_core() -> None:
    """What was said must not lie in a core, wherever we die. A service manager may forbid to set limits: it has then
    set this one itself."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _configure_log(options: argparse.Namespace, settings: Settings, home: Home) -> Background:
    """Sets up the log by the command line, else by the settings; returns its writer."""
    from burnd import logs

    file = settings.log_file if options.log_file is None else options.log_file
    style = options.log_format or settings.log_format
    at_terminal = not file and sys.stderr is not None and sys.stderr.isatty()
    as_json = style == "json" or (style == "auto" and not at_terminal)
    writer = logs.Background(logs.RotatedFile(home.root / file) if file else logs.Stderr())
    logs.configure(as_json=as_json, level=options.log_level or settings.log_level, stream=writer, colors=at_terminal)
    return writer


def _check(_options: argparse.Namespace) -> int:
    from burnd import paths
    from burnd.checking import check

    home = paths.find_home()
    findings = list(check(home, os.environ))
    for finding in findings:
        print(f"{finding.level + ':':9}{finding.text}")
    if any(finding.level == "error" for finding in findings):
        return EXIT_FAILED
    print(f"{home.root}: settings and home are sound")
    return 0


def _config(options: argparse.Namespace) -> int:
    from burnd import paths
    from burnd.settings import config

    home = paths.find_home()
    if options.action == "path":
        print(home.config)
    elif options.action == "init":
        print(f"wrote {config.init(home)}")
    else:
        from burnd.settings.keys import KEYS

        settings = config.load(home)
        for key in KEYS:
            origin = f"  ({key.env})" if key.name in settings.from_env else ""
            print(f"{key.name} = {settings.values[key.name]}{origin}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
