"""The command line of burnd: `run`, `check` and `config`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from burnd import __version__
from burnd.errors import BurndError, HomeBusy

EXIT_FAILED, EXIT_BUSY = 1, 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except BaseExceptionGroup as group:
        return _report(_first_of(group))
    except (BurndError, ValueError, OSError) as error:
        return _report(error)


def _report(error: BaseException) -> int:
    """Says what went wrong in one line; what nobody foresaw keeps its traceback."""
    if not isinstance(error, BurndError | ValueError | OSError):
        raise error
    print(f"burnd: {error}", file=sys.stderr)
    return EXIT_BUSY if isinstance(error, HomeBusy) else EXIT_FAILED


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error behind a group of one; task groups wrap what their tasks raise."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="burnd", description="Records every turn your coding agents take. Everything stays on this machine."
    )
    parser.add_argument("--version", action="version", version=f"burnd {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run in the foreground until told to stop")
    run.add_argument("--log-format", choices=("console", "json"), help="how the log on stderr is written")
    run.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    run.set_defaults(command=_run)
    check = commands.add_parser("check", help="check settings and home, and say what is wrong")
    check.set_defaults(command=_check)
    config = commands.add_parser("config", help="make or show the settings")
    config.add_argument("action", choices=("init", "show", "path"))
    config.set_defaults(command=_config)
    return parser


def _run(options: argparse.Namespace) -> int:
    import anyio

    from burnd import config, daemon, logs, paths

    as_json = options.log_format == "json" or (options.log_format is None and not sys.stderr.isatty())
    logs.configure(as_json=as_json, level=options.log_level)
    home = paths.find_home()
    anyio.run(daemon.run, home, config.load(home))
    return 0


def _check(_options: argparse.Namespace) -> int:
    from burnd import config, paths
    from burnd.ledger.files import prepare_home

    home = paths.find_home()
    config.load(home)
    for warning in prepare_home(home.root):
        print(f"warning: {warning}")
    paths.socket_path(home)
    print(f"{home.root}: settings and home are sound")
    return 0


def _config(options: argparse.Namespace) -> int:
    from burnd import config, paths

    home = paths.find_home()
    if options.action == "path":
        print(home.config)
    elif options.action == "init":
        print(f"wrote {config.init(home)}")
    else:
        settings = config.load(home)
        for key in config.KEYS:
            origin = f"  ({key.env})" if key.name in settings.from_env else ""
            print(f"{key.name} = {settings.values[key.name]}{origin}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
