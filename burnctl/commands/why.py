"""`burnctl why`: what each dollar of a session, or of one of its turns, went to."""

from __future__ import annotations

from burnctl import flags
from burnctl.errors import Usage
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "explains what a session cost: prompts, answers, thinking, each tool call with its result, the system prompt; how "
    "many tokens each brought into the context, in how many turns it rode along, and what that came to. The dearest "
    "comes first, and together they are exactly the session's cost. A call that started a subagent costs what the "
    "subagent cost; --tree opens it. --turn shows one turn's context instead, block by block. SESSION is an id, or as "
    "much of its beginning as no other one shares"
)
EXAMPLES = ("burnctl why 0f9c1d2e", "burnctl why 0f9c1d2e --tree", "burnctl why 0f9c1d2e --turn 12")
MOST = 2000
_READABLE, _READABLE_IN_A_TREE = 20, 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help="which session")
    parser.add_argument("--turn", metavar="N", type=flags.index, help="explain turn N of it, counted from 0")
    parser.add_argument("--rail", metavar="RAIL", help="with --turn: of this subagent instead of the main conversation")
    parser.add_argument("--tree", action="store_true", help="open what subagents and child sessions cost")
    parser.add_argument("--since", metavar="TIME", help="only what was paid from then on: 24h, today, an ISO time")
    parser.add_argument("--until", metavar="TIME", help="only what was paid up to then")
    parser.add_argument("--limit", metavar="N", type=flags.up_to(MOST), help=f"tell so many causes apart ({_READABLE})")
    flags.report(parser)


def run(options: argparse.Namespace) -> int:
    if options.rail is not None and options.turn is None:
        raise Usage("--rail says which conversation --turn counts in", "add --turn N, or see all subagents with --tree")
    if options.turn is not None and (options.tree or options.since or options.until):
        raise Usage("--turn explains one turn by itself", "leave out --tree, --since and --until")
    readable = _READABLE_IN_A_TREE if options.tree else _READABLE
    answer = reach(options).why(
        options.session,
        turn=options.turn,
        rail=options.rail,
        tree=options.tree or None,
        limit=options.limit or (None if options.json else readable),
        since=options.since,
        until=options.until,
        tz=flags.time_zone() if options.since or options.until else None,
    )
    if options.json:
        from burnctl.output import as_json

        return as_json(answer)
    from burnctl.render.screen import Screen
    from burnctl.render.why import shown

    screen = Screen.of(options)
    screen.report(answer, shown(answer, screen))
    return 0
