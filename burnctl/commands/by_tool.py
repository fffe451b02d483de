"""`burnctl by-tool`: what each tool cost, with all that its results cost later on."""

from __future__ import annotations

from burnctl import flags
from burnctl.commands.hotspots import READABLE, shared, show
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "shows what each tool cost: its calls, their arguments and results, and what these paid again in every turn they "
    "rode along. Calls of agents are here without what the agents did: `hotspots --by subagent` has both. What is no "
    "tool (the prefix, prompts, answers, thinking) comes below, so that the column is the bill"
)
EXAMPLES = ("burnctl by-tool", "burnctl by-tool --since 7d", "burnctl by-tool --project . --rank rides")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.filters(parser)
    shared(parser)


def run(options: argparse.Namespace) -> int:
    limit = options.limit or (None if options.json or options.csv else READABLE)
    client = reach(options, causes=True)
    return show(client.by_tool(rank=options.rank, limit=limit, **flags.filters_of(options)), client, options)
