"""The command line of burnd: `run`, `check`, `config` and `scan`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import resource
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from burnd import __version__
from burnd.errors import BurndError, HomeBusy, HomeError

if TYPE_CHECKING:
    from burnd.daemon.log import Background
    from burnd.ledger.files import HomeLock
    from burnd.paths import Home
    from burnd.settings.config import Settings

EXIT_FAILED, EXIT_USAGE, EXIT_BUSY = 1, 2, 5
# with Python's 5 ms a report under load waits: an answer needs a dozen switches between threads
SWITCH_S = 0.001


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except (BurndError, ValueError, OSError) as error:
        if options.command is _run:
            from burnd.errors import write_stderr

            write_stderr(f"burnd: {error}")
        else:
            print(f"burnd: {error}", file=sys.stderr)
        return EXIT_BUSY if isinstance(error, HomeBusy) else EXIT_FAILED


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"burnd: {message}; see: {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="burnd", description="Records every turn your coding agents take. Everything stays on this machine."
    )
    parser.add_argument("--version", action="version", version=f"burnd {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run in the foreground until stopped")
    run.add_argument("--log-file", metavar="PATH", help="log file; relative to the home")
    run.add_argument("--log-format", choices=("auto", "console", "json"), help="log format")
    run.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="lowest level to log")
    run.set_defaults(command=_run)
    check = commands.add_parser("check", help="check settings and home")
    check.set_defaults(command=_check)
    config = commands.add_parser("config", help="create or show the settings")
    config.add_argument("action", choices=("init", "show", "path"))
    config.set_defaults(command=_config)
    scan = commands.add_parser(
        "scan", help="answer requests on standard input from the logs alone, for `burnctl ... --scan`"
    )
    scan.add_argument("--totals", action="store_true", help="write an index of totals; burnd runs this at its start")
    scan.set_defaults(command=_scan)
    return parser


def _scan(options: argparse.Namespace) -> int:
    _block_rich()
    import anyio

    gc.disable()  # it ends soon, and makes few cycles
    if not options.totals:
        from burnd import paths
        from burnd.server.scan import serve

        anyio.run(serve, paths.find_home(), sys.stdin.buffer, sys.stdout.buffer)
        return 0
    from burnd import memory
    from burnd.totals.index import run_pass

    memory.limit_malloc()
    os.umask(0o077)
    _disable_core_dumps()
    if request := sys.stdin.buffer.read():
        anyio.run(run_pass, request, sys.stdout.buffer)
    return 0


def _run(options: argparse.Namespace) -> int:
    from burnd import paths
    from burnd.ledger.files import HomeLock, prepare_home

    _fill_standard_streams()
    os.umask(0o077)  # some libraries create files without a mode
    _disable_core_dumps()
    home = paths.find_home()
    prepare_home(home.root)
    # before the slow imports: of several daemons started at once, all but one exit quickly
    lock = HomeLock(home.lock)
    try:
        _run_locked(lock, home, options)
    finally:
        lock.release()
    return 0


def _run_locked(lock: HomeLock, home: Home, options: argparse.Namespace) -> None:
    _block_rich()
    from burnd.paths import user_home
    from burnd.settings import config
    from burnd.totals.child import start_ahead

    settings = config.load(home)
    pass_process = None if home.index_db.exists() else start_ahead(settings, os.environ, str(user_home()))
    import anyio
    import structlog

    from burnd import errors, memory
    from burnd.daemon import lifecycle

    log_writer = _configure_log(options, settings, home)

    def log_uncaught(error: BaseException) -> None:
        types, where = errors.error_types(error), errors.error_location(error)
        structlog.get_logger().error("daemon.uncaught", error=types, where=where)

    errors.report_uncaught(log_uncaught)
    try:
        memory.limit_malloc()
        memory.relax_gc()
        sys.setswitchinterval(SWITCH_S)
        anyio.run(partial(lifecycle.run, home, settings, lock=lock, pass_process=pass_process))
    except Exception as error:  # noqa: BLE001 - reported without its text
        raise _exit_error(error, home) from None
    finally:
        if pass_process is not None:
            pass_process.stop()
        log_writer.drain()


def _block_rich() -> None:
    """structlog imports rich if it is installed, which takes a fifth of the start."""
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]


def _exit_error(error: Exception, home: Home) -> BurndError:
    """Returns an unexpected error without its text."""
    import structlog

    from burnd import errors

    types, location = errors.error_types(error), errors.error_location(error)
    result, reason = BurndError(f"stopped on {types} at {location}", remedy="please report it"), ""
    for one in errors.leaves(error):  # a BurndError or an error of a file in the home quotes no content
        if isinstance(one, BurndError):
            result, reason = one, one.what
            break
        if isinstance(one, OSError) and one.errno and str(one.filename).startswith(str(home.root)):
            result, reason = HomeError(os.strerror(one.errno), str(one.filename)), os.strerror(one.errno)
            break
    structlog.get_logger().error("daemon.failed", error=types, reason=reason, where=location)
    return result


def _fill_standard_streams() -> None:
    """The ledger must not get the descriptor of stderr."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def _disable_core_dumps() -> None:
    """A core dump would contain conversations."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _configure_log(options: argparse.Namespace, settings: Settings, home: Home) -> Background:
    """By the command line, else by the settings."""
    from burnd.daemon import log

    file = settings.values["log.file"] if options.log_file is None else options.log_file
    style = options.log_format or settings.values["log.format"]
    at_terminal = not file and sys.stderr is not None and sys.stderr.isatty()
    as_json = style == "json" or (style == "auto" and not at_terminal)
    writer = log.Background(log.RotatedFile(home.root / file) if file else log.Stderr())
    level = options.log_level or settings.values["log.level"]
    log.configure(as_json=as_json, level=level, stream=writer, colors=at_terminal)
    return writer


def _check(_options: argparse.Namespace) -> int:
    from burnd import paths
    from burnd.daemon.check import check

    home = paths.find_home()
    results = list(check(home, os.environ))
    for result in results:
        print(f"{result.level + ':':9}{result.text}")
    if any(result.level == "error" for result in results):
        return EXIT_FAILED
    print(f"{home.root}: settings and home are fine")
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
