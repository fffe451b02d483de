"""`burnctl summary`: what was spent, added up by whatever is asked."""

from __future__ import annotations

from burnctl import flags
from burnctl.errors import Usage
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "adds up what was spent: turns, tokens by kind, cost at API prices, how much came from the cache, and each row's "
    "share. Turns that are still open count and are marked; what has no price is said, never shown as nothing"
)
EXAMPLES = (
    "burnctl summary",
    "burnctl summary --since 7d --by project",
    "burnctl summary --since today --by hour",
    "burnctl summary --by month",
    "burnctl summary --by tag:persona --workflow wf-1",
    "burnctl summary --by agent --tree",
    "burnctl summary --since 4w --chart",
)
_READABLE = 30
_TIMES = ("day", "hour", "week", "month")
BY = "model, provider, project, branch, session, day, hour, week, month, activity, agent, source, or tag:KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.filters(parser)
    parser.add_argument("--by", metavar="WHAT", default="model", help=f"what the rows are: {BY} (model)")
    parser.add_argument(
        "--limit", metavar="N", type=flags.count, help="at most so many rows (30 in a table, unless by time)"
    )
    parser.add_argument("--tree", action="store_true", help="with --by agent: agents below those that started them")
    parser.add_argument("--quality", action="store_true", help="add one-shot rates, and how sessions ended")
    parser.add_argument("--chart", action="store_true", help="draw what was spent each day")
    flags.reading_rows(parser, "rows")


def run(options: argparse.Namespace) -> int:
    if options.tree and options.by != "agent":
        raise Usage("summary: --tree goes with --by agent", "see: burnctl help summary")
    wants_series = not options.csv and not options.json
    by_time = options.by in _TIMES
    client = reach(options)
    answer = client.summary(
        by=options.by,
        limit=options.limit or (_READABLE if wants_series and not by_time and not options.tree else None),
        tree=options.tree or None,
        quality=options.quality or None,
        series=wants_series or options.chart or None,
        **flags.filters_of(options, days=by_time or options.chart or wants_series),
    )
    if options.json:
        from burnctl.output import as_json

        return as_json(answer)
    if options.csv:
        from burnctl.output import as_csv
        from burnctl.render.summary import flat_rows

        return as_csv(flat_rows(answer), answer)
    from burnctl.no_matches import no_matches
    from burnctl.render.screen import Screen
    from burnctl.render.summary import shown

    screen = Screen.of(options)
    screen.report(answer, shown(answer, screen, chart=options.chart) or no_matches(client, options))
    return 0
