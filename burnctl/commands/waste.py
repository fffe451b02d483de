"""`burnctl waste`: spending that could have been avoided, with evidence and what to do about it."""

from __future__ import annotations

from burnctl import flags
from burnctl.progress_line import ProgressLine
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "looks for spending that could have been avoided: files read again unchanged, large results carried along, calls "
    "that failed again and again, edits taken back, caches missed, contexts compacted again and again, sessions that "
    "began with too much, subagents that cost more than they saved. Each finding says where, how much, and what to do; "
    "findings of different kinds may be about the same tokens, so they are not to be added up. The first time it looks "
    "at everything; later only at what has changed"
)
EXAMPLES = ("burnctl waste", "burnctl waste --since 7d --min-cost 0.50", "burnctl waste --session 0f9c1d2e")
MOST = 500
_READABLE = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.filters(parser)
    parser.add_argument("--min-cost", metavar="USD", type=flags.dollars, help="only what cost at least so much")
    parser.add_argument("--limit", metavar="N", type=flags.up_to(MOST), help=f"at most so many findings ({_READABLE})")
    flags.report(parser)


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    with ProgressLine("looking") as heard:
        answer = client.waste(
            min_cost=options.min_cost,
            limit=options.limit or (None if options.json else _READABLE),
            heard=heard,
            **flags.filters_of(options),
        )
    if options.json:
        from burnctl.output import as_json

        return as_json(answer)
    from burnctl.no_matches import no_matches
    from burnctl.render.screen import Screen
    from burnctl.render.waste import shown

    screen = Screen.of(options)
    screen.report(answer, shown(answer, screen) or no_matches(client, options))
    return 0
