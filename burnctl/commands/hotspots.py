"""`burnctl hotspots`: what the money went to, rolled up over all sessions."""

from __future__ import annotations

from burnctl import flags
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from burnctl.client import Client

HELP = (
    "shows what cost most: the same causes as `why`, added up over all sessions by tool, file, command, MCP server, "
    "skill, subagent, prompt, project's prefix or reason of a cache miss. A result pays when it comes in and again in "
    "every turn it rides along. What is none of these is there as well, so that the column is the bill"
)
EXAMPLES = (
    "burnctl hotspots",
    "burnctl hotspots --by file --since 7d",
    "burnctl hotspots --by command --rank rides",
    "burnctl hotspots --by cache-miss --project .",
)
BY = ("tool", "file", "command", "mcp", "skill", "subagent", "prompt", "prefix", "cache-miss")
RANKS = ("cost", "tokens", "rides")
READABLE = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.filters(parser)
    parser.add_argument(
        "--by", metavar="WHAT", choices=BY, default="tool", help=f"what the rows are: {', '.join(BY)} (tool)"
    )
    shared(parser)


def shared(parser: argparse.ArgumentParser) -> None:
    """What `by-tool` takes as well."""
    parser.add_argument(
        "--rank", choices=RANKS, help="what comes first: what cost most, had most tokens, rode most (cost)"
    )
    parser.add_argument("--limit", metavar="N", type=flags.count, help=f"at most so many rows ({READABLE} in a table)")
    flags.reading_rows(parser, "rows")


def run(options: argparse.Namespace) -> int:
    limit = options.limit or (None if options.json or options.csv else READABLE)
    client = reach(options, causes=True)
    answer = client.hotspots(by=options.by, rank=options.rank, limit=limit, **flags.filters_of(options))
    return show(answer, client, options)


def show(answer: dict[str, object], client: Client, options: argparse.Namespace) -> int:
    if options.json:
        from burnctl.output import as_json

        return as_json(answer)
    if options.csv:
        from burnctl.output import as_csv
        from burnctl.render.hotspots import flat_rows

        return as_csv(flat_rows(answer), answer)
    from burnctl.no_matches import no_matches
    from burnctl.render.hotspots import shown
    from burnctl.render.screen import Screen

    screen = Screen.of(options)
    screen.report(answer, shown(answer, screen) or no_matches(client, options))
    return 0
