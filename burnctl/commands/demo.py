"""`burnctl demo`: a made-up machine with a few days of sessions, and one that grows while you watch."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time

from burnctl import flags
from burnctl.client import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from burnctl.demo.machine import Machine

HELP = (
    "tries everything on made-up sessions of every harness, in a folder of its own that is removed in the end: "
    "nothing of yours is read or changed. Shows a few reports, then turns as they happen in a session that grows"
)
EXAMPLES = ("burnctl demo", "burnctl demo --keep")

_PACE_S = 1.5
_BEHIND_S = 60.0  # the live session's own time goes faster than it is played
_FINDABLE_S = 1.0  # what is recorded can be searched a moment later
_DEAREST = "the dearest session"
_TOUR = (
    ("summary", "--by", "project"),
    ("compare",),
    ("why", _DEAREST, "--limit", "6"),
    ("waste", "--limit", "5"),
    ("sessions",),
    ("search", "cron", "refactor"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help="leave it running, and say how to go on with it")
    parser.add_argument(
        "--pace",
        type=flags.seconds,
        default=_PACE_S,
        metavar="SECONDS",
        help="how long a step of the live session takes",
    )
    parser.add_argument("--no-color", action="store_true", help="print without colours (as with NO_COLOR)")


def run(options: argparse.Namespace) -> int:
    from burnctl.demo.machine import Machine
    from burnctl.render.names import short_id
    from burnctl.welcome import show

    _leave_in_good_order()
    machine = Machine(tempfile.mkdtemp(prefix="burnd-demo-"))
    machine.enter()
    client = Client()
    try:
        _begin(machine, client)
        flags = ["--no-color"] if options.no_color else []
        dearest = short_id(client.summary(by="session", limit=1)["rows"][0]["key"])
        for verb, *arguments in _TOUR:
            show(verb, [dearest if one == _DEAREST else one for one in arguments] + flags)
        _live(machine, options.pace, flags)
        if options.keep:
            _say_how_to_go_on(machine)
    finally:
        if not options.keep:
            _end(machine, client)
    if not options.keep:
        _say_that_it_is_over()
    return 0


def _leave_in_good_order() -> None:
    """Whoever ends the demo or closes its terminal must not leave its daemon behind."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def _begin(machine: Machine, client: Client) -> None:
    from burnctl.spawning import Detached
    from burnctl.starting import await_answer
    from burnd.paths import find_home

    written = machine.write_logs(time.time())
    await_answer(client, Detached(find_home()))
    for session_id, story in written.items():
        if story.tags:
            client.stamp(session=session_id, **dict(story.tags))
    client.flush()
    time.sleep(_FINDABLE_S)


def _live(machine: Machine, pace: float, flags: list[str]) -> None:
    """A session that grows, with `burnctl tail` beside it."""
    from burnctl.demo.stories import live

    print("\n$ burnctl tail\n", flush=True)
    story = live()
    log = machine.live_log(story, time.time() - _BEHIND_S)
    watcher = subprocess.Popen([sys.executable, "-P", "-m", "burnctl", "tail", *flags])
    try:
        for act in story.acts:
            time.sleep(pace)
            log.act(act)
        time.sleep(pace)
    finally:
        watcher.terminate()
        watcher.wait()
        if sys.stdout.isatty():
            print()  # the line of a turn that was still open has no end


def _say_that_it_is_over() -> None:
    from burnctl.welcome import program_name

    print("\nThat was made up, and everything of it is removed again.")
    print(f"To see your own sessions: {program_name()} up --look")


def _say_how_to_go_on(machine: Machine) -> None:
    print("\nIt is still there. To go on with it in this shell:\n")
    for name, value in machine.environment.items():
        if name != "HOME":
            print(f"  export {name}={value}")
    print(f"\nand when you are done: burnctl down && rm -r {machine.folder}")


def _end(machine: Machine, client: Client) -> None:
    from burnctl.errors import BurnctlError
    from burnctl.stopping import stop

    try:
        stop(client)
    except BurnctlError as error:
        print(f"burnctl: {error.message}", file=sys.stderr)
    shutil.rmtree(machine.folder, ignore_errors=True)
