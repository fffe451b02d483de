"""`burnctl up`, `down` and `restart`: start and stop burnd, and wait until that is done."""

from __future__ import annotations

import os
import shutil
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

HELP = {
    "up": "starts burnd and waits until it answers: with systemd or launchd if `burnctl service install` was run, else "
    "in the background. At a terminal it then adds up the logs that are there already and shows the overview and the "
    "next commands, while it reads on in the background; without any logs, the demo",
    "down": "stops burnd and waits until it is gone. Nothing is lost: the next start reads logs written meanwhile",
    "restart": "stops burnd if it runs and starts it again, to apply new settings or a new version",
}


_INDENT = 2
_PRICES = "Costs are at API list prices. With a subscription, set it once: {} config set plan max20"


class UpFlags(Params):
    look: bool = param(default=False, help="show the overview also if burnd runs already, or in a script")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verb = parser.prog.rpartition(" ")[2]
    if verb == "up":
        flags.add(parser, UpFlags)
    parser.set_defaults(run={"up": up, "down": down, "restart": restart}[verb])


def run(options: argparse.Namespace) -> int:
    return int(options.run(options))


def up(options: argparse.Namespace) -> int:
    client = Client()
    is_shown = options.look
    try:
        client.connect()
        status = client.status()
        print(f"{named(status)} is already running")
        if (status.get("daemon") or {}).get("version") != __version__:
            print(f"this burnctl is {__version__}; update the daemon with: burnctl restart")
        _wait_for_totals(client, is_waiting=options.look)
    except NotRunning:
        bring_up(client, is_waiting=options.look)
        is_shown = is_shown or sys.stdout.isatty()
    if is_shown:
        welcome(client)
    return 0


def down(_options: argparse.Namespace) -> int:
    from burnctl.daemon import stop

    try:
        print(f"burnd (pid {stop(Client())}) has stopped")
    except NotRunning:
        print("burnd is not running")
    return 0


def restart(_options: argparse.Namespace) -> int:
    from burnctl.daemon import stop

    try:
        stop(Client())
    except NotRunning:
        print("burnd was not running")
    bring_up(Client())
    return 0


def bring_up(client: Client, *, is_waiting: bool = False) -> None:
    """Starts burnd, and at a terminal waits until totals are complete."""
    from burnctl import daemon

    daemon.start(client)
    status = client.status()
    print(f"{named(status)} is running", flush=True)
    if not sys.stdout.isatty() and (backfill := status.get("backfill")) and backfill["total"]:
        print("it is reading old logs; see the progress with: burnctl status")
    _wait_for_totals(client, is_waiting=is_waiting or sys.stdout.isatty())


def _wait_for_totals(client: Client, *, is_waiting: bool) -> None:
    """Waits for totals, and prints why old logs cannot be read."""
    from burnctl import daemon, progress

    if is_waiting:
        daemon.wait_for_old_logs(client, totals=True)
    progress.print_if_blocked(client.status())


def named(status: Status) -> str:
    """`burnd 0.1.0 (pid 4711)`."""
    daemon = status.get("daemon") or {}
    return f"burnd {daemon.get('version', '')} (pid {daemon.get('pid', '?')})"


def welcome(client: Client) -> None:
    """Shows the overview and the next commands; without usage, where burnd looks and the demo."""
    status = client.status()
    backfill = status.get("backfill")
    is_blocked = bool(backfill and backfill.get("blocked"))
    if not is_blocked and (backfill is None or not backfill.get("exact")):
        client.flush()  # logs that were just found may not be recorded yet
        status = client.status()
    totals = client.summary(limit=1)["totals"]
    if totals["turns"] or totals["openTurns"]:
        show("", [])
        from burnctl.render.screen import columns

        program = program_name()
        if not client.summary(limit=1).get("plans"):
            print("\n" + _PRICES.format(program))
        commands = (
            (f"{program} why --costliest", "where the most expensive session's money went"),
            (f"{program} waste", "where to save, with evidence"),
            (f"{program} search WORDS", "find a conversation"),
        )
        width = max(len(command) for command, _ in commands)
        are_beside = _INDENT + width + 2 + max(len(what) for _, what in commands) <= columns()
        print("\nNext:")
        for command, what in commands:
            print(f"{'':{_INDENT}}{command:{width}}  {what}" if are_beside else f"{'':{_INDENT}}{what}:\n    {command}")
        print(f"\nburnd keeps recording in the background. Start it at login with: {program} service install")
        return
    if is_blocked:  # the reason was printed below the bar
        return
    print("\nThere are no logs of agents on this machine yet:")
    for source in status.get("sources") or []:
        if source.get("detail"):
            print(f"  {source['detail']}")
    print("burnd keeps looking. This is what it shows, on made-up sessions:", flush=True)
    show("demo", [], heading=False)


def show(verb: str, arguments: list[str], *, heading: bool = True) -> None:
    """Runs a command below a line with its name; an empty verb is `burnctl` alone."""
    from burnctl import cli

    if heading:
        print(f"\n$ {' '.join(word for word in ('burnctl', verb, *arguments) if word)}\n", flush=True)
    cli.run(verb or "overview", arguments)
    sys.stdout.flush()


def program_name() -> str:
    """`burnctl`, or its path if the shell would not find it."""
    if shutil.which("burnctl"):
        return "burnctl"
    beside = os.path.join(os.path.dirname(sys.executable), "burnctl")
    if not os.path.exists(beside):
        return f"{sys.executable} -m burnctl"
    return min(beside, os.path.relpath(beside), key=len)
