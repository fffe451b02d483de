"""`burnctl up`: starts burnd and waits until it answers."""

from __future__ import annotations

import sys

from burnctl import flags
from burnctl.client import Client
from burnctl.errors import NotRunning
from burnd import __version__
from burnd.contract import Params, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from burnd.contract.results.daemon import Status

HELP = (
    "starts burnd and waits until it answers: with systemd or launchd if `burnctl service install` was run, else in "
    "the background. At a terminal it then adds up the logs that are there already and shows the overview and the next "
    "commands, while it reads on in the background; without any logs, the demo"
)


class UpFlags(Params):
    """Flags of `up`."""

    look: bool = param(default=False, help="show the overview also if burnd runs already, or in a script")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, UpFlags)


def run(options: argparse.Namespace) -> int:
    client = Client()
    has_waited = False
    try:
        client.connect()
        _say_that_it_runs(client.status())
    except NotRunning:
        bring_up(client)
        has_waited = sys.stdout.isatty()
    if not has_waited:
        from burnctl.daemon import wait_for_old_logs
        from burnctl.progress import say_if_blocked

        if options.look:
            wait_for_old_logs(client, totals=True)
        say_if_blocked(client.status())
    if options.look or has_waited:
        from burnctl.welcome import welcome

        welcome(client)
    return 0


def _say_that_it_runs(status: Status) -> None:
    print(f"{named(status)} is already running")
    if (status.get("daemon") or {}).get("version") != __version__:
        print(f"this burnctl is {__version__}; update the daemon with: burnctl restart")


def bring_up(client: Client) -> None:
    """Starts burnd, and at a terminal waits until totals are complete."""
    from burnctl import daemon, progress

    daemon.start(client)
    status = client.status()
    print(f"{named(status)} is running", flush=True)
    if sys.stdout.isatty():
        daemon.wait_for_old_logs(client, totals=True)
        progress.say_if_blocked(client.status())
    elif (backfill := status.get("backfill")) and backfill["total"]:
        print("it is reading old logs; see the progress with: burnctl status")


def named(status: Status) -> str:
    """`burnd 0.1.0 (pid 4711)`."""
    daemon = status.get("daemon") or {}
    return f"burnd {daemon.get('version', '')} (pid {daemon.get('pid', '?')})"
