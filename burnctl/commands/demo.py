"""`burnctl demo`: overview, why and waste on made-up sessions."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time

from burnctl import flags
from burnctl.client import Client
from burnctl.errors import BurnctlError
from burnd.contract import Params, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from burnctl.demo_machine import Machine

HELP = (
    "shows the overview, where the most expensive session's money went, and what could have been saved, on made-up "
    "sessions of every harness in a temporary folder; your own data is neither read nor changed. At a terminal a key "
    "leads from one screen to the next"
)
EXAMPLES = ("burnctl demo", "burnctl demo --keep")
_SCREENS = (("",), ("why", "--costliest"), ("waste",))
_RUNNING_S = 150.0  # age of the running session
_FINDABLE_S = 1.0  # seconds for the search index to catch up


class DemoFlags(Params):
    keep: bool = param(default=False, help="leave it running, and print how to use it")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, DemoFlags)
    flags.add(parser, flags.Output, only=("no_color",))


def run(options: argparse.Namespace) -> int:
    from burnctl.daemon import stop
    from burnctl.demo_machine import Machine

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    machine = Machine(tempfile.mkdtemp(prefix="burnd-demo-"))
    machine.enter()
    client = Client()
    try:
        _begin(machine, client)
        _tour(["--no-color"] if options.no_color else [])
        if options.keep:
            print("\nIt is still running. To use it in this shell:\n")
            for name, value in machine.environment.items():
                if name != "HOME":
                    print(f"  export {name}={value}")
            print(f"\nWhen you are done: burnctl down && rm -r {machine.folder}")
    finally:
        if not options.keep:
            try:
                stop(client)
            except BurnctlError as error:
                print(f"burnctl: {error.message}", file=sys.stderr)
            shutil.rmtree(machine.folder, ignore_errors=True)
    if not options.keep:
        from burnctl.commands.up import program_name

        print("\nThese sessions were made up, and have been removed.")
        print(f"See your own sessions with: {program_name()} up --look")
    return 0


def _tour(flags: list[str]) -> None:
    """Shows the screens; at a terminal a key leads to the next, q or Ctrl-C ends."""
    from burnctl.commands.up import show

    for n, (verb, *arguments) in enumerate(_SCREENS):
        show(verb, [*arguments, *flags])
        if n + 1 < len(_SCREENS) and not _goes_on(f"screen {n + 1} of {len(_SCREENS)}"):
            return


def _goes_on(place: str) -> bool:
    """Waits for a key at a terminal; False if it is q."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    import termios
    import tty

    from burnctl.progress import WIPE

    print(f"\n{place}: press a key for the next one, q to quit ", end="", flush=True)
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)
        key = sys.stdin.read(1)
    except KeyboardInterrupt:
        key = "q"
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    print(WIPE, end="", flush=True)
    return key.lower() not in ("q", "")


def _begin(machine: Machine, client: Client) -> None:
    from burnctl.daemon import await_answer
    from burnctl.daemon_process import Detached
    from burnctl.demo_machine import live
    from burnd.paths import find_home

    now = time.time()
    written = machine.write_logs(now)
    story = live()
    log = machine.live_log(story, now - _RUNNING_S)
    for act in story.acts:
        log.act(act)
    await_answer(client, Detached(find_home()))
    for session_id, one in written.items():
        if one.tags:
            client.stamp(session=session_id, **dict(one.tags))
    client.flush()
    time.sleep(_FINDABLE_S)
