"""`burnctl content`: prunes stored conversations."""

from __future__ import annotations

from burnctl import flags
from burnctl.daemon import reach
from burnctl.output import as_json
from burnctl.progress import waiting
from burnctl.render.numbers import size
from burnd.contract.sessions import PruneParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = "deletes stored conversations; requests, tokens and costs stay"
EXAMPLES = ("burnctl content prune --older-than 30d --dry-run",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    prune = actions.add_parser("prune", help="delete the content of sessions that ended long ago")
    prune.description = (
        "deletes the content of sessions whose last message is older than that, from the store and from search. What "
        "was pruned never comes back, even when its log is read again"
    )
    flags.add(prune, PruneParams)
    flags.add(prune, flags.Output, only=("json", "no_start"))


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    with waiting.during("looking" if options.dry_run else "deleting"):
        answer = flags.ask(client, PruneParams, options)
    if options.json:
        return as_json(answer)
    files = answer["files"]
    what = f"the content of {'1 session' if files == 1 else f'{files:,} sessions'}, {size(answer['bytes'])}"
    print(f"would delete {what}" if answer["dryRun"] else f"deleted {what}")
    return 0
