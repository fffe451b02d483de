"""`burnctl sessions`: which sessions there are, those written last first."""

from __future__ import annotations

from burnctl import flags
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "lists sessions, those written last first: when, in which project, how many messages, what they cost at API "
    "prices, and what they are called. What it prints of an id is enough for `burnctl show` and `burnctl resume`"
)
EXAMPLES = ("burnctl sessions --project .", "burnctl sessions --since 7d --source opencode", "burnctl sessions --json")
_USUAL = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.sessions(parser)
    parser.add_argument("--agent", metavar="NAME", help="only sessions of this agent")
    parser.add_argument("--parent", metavar="SESSION", help="only sessions that this one started")
    parser.add_argument(
        "--limit", metavar="N", type=flags.count, default=_USUAL, help=f"at most so many ({_USUAL}; 200 at most)"
    )
    parser.add_argument("--next", metavar="TOKEN", help="go on where the page before ended, as it said")
    flags.report(parser)


def run(options: argparse.Namespace) -> int:
    chosen = flags.sessions_of(options)
    more = {"agent": options.agent, "parent": options.parent, "limit": options.limit, "next": options.next}
    client = reach(options)
    answer = client.sessions_list(**chosen, **more, costs=True)
    if options.json:
        from burnctl.output import as_json

        return as_json(answer)
    import time

    from burnctl.no_matches import no_matches
    from burnctl.render.screen import Screen
    from burnctl.render.sessions import listed

    screen = Screen.of(options)
    screen.report(
        answer, listed(answer, screen, time.time() * 1000) or no_matches(client, options, "No sessions"), "Results"
    )
    return 0
