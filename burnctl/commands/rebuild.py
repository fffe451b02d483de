"""`burnctl rebuild`: rebuilds the index or the activity labels while burnd keeps answering."""

from __future__ import annotations

from burnctl import flags
from burnctl.daemon import reach
from burnctl.errors import UsageError
from burnctl.output import json_line
from burnd.contract.daemon import RebuildParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from burnctl.client import Client

HELP = (
    "rebuilds the index from ledger and content, which is the default, or with --reclassify the activity labels of "
    "requests, from their tool calls, prompts and errors. Reports use the old index until the new one is complete; "
    "the ledger is replaced at once or not at all"
)
EXAMPLES = ("burnctl rebuild", "burnctl rebuild --reclassify", "burnctl rebuild --reclassify --force")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, RebuildParams)
    flags.add(parser, flags.Output, only=("json", "no_start"))


def run(options: argparse.Namespace) -> int:
    if options.force and not options.reclassify:
        raise UsageError("rebuild: --force goes with --reclassify", "see: burnctl help rebuild")
    client = reach(options)
    answers = []
    if options.reclassify:
        answers.append(_done(client, "labelling requests", reclassify=True, force=options.force or None))
    if options.index or not options.reclassify:
        answers.append(_done(client, "building the index", index=True))
    for answer in answers:
        if options.json:
            json_line(answer)
        elif answer["rebuilt"] == "index":
            print("the index is rebuilt")
        elif count := answer["turns"]:
            print(f"{count:,} requests are labelled" if count != 1 else "1 request is labelled")
        else:
            print("no request has a new label" if options.force else "every request was labelled already")
    return 0


def _done(client: Client, what: str, **params: Any) -> dict[str, Any]:
    from burnctl.progress import ProgressLine

    with ProgressLine(what) as client.progress:
        return client.ask(RebuildParams, params)
