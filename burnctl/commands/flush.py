"""`burnctl flush`: waits until everything logged so far is recorded."""

from __future__ import annotations

from burnctl import flags
from burnctl.daemon import reach, wait_until_open
from burnctl.errors import BurnctlError
from burnctl.output import as_json
from burnctl.progress import waiting
from burnctl.session_choice import whole_id
from burnd.contract.daemon import FlushParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "waits until everything that agents have logged so far is recorded, running requests included. For scripts that "
    "ask for a report right after an agent has ended"
)
EXAMPLES = ("burnctl flush && burnctl summary --since 1h --json",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, FlushParams)
    flags.add(parser, flags.Output, only=("json", "no_start"))


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    if options.session:
        wait_until_open(client)  # a starting burnd cannot look up the id
    waiting.start()
    answer = client.flush(session=whole_id(client, options.session))
    waiting.stop()
    missing = [source for source in answer["sources"] if not source["flushed"]]
    if options.json:
        as_json(answer)
        return 1 if missing else 0
    if missing:
        reasons = "; ".join(f"{source['name']}: {source.get('reason', 'does not run')}" for source in missing)
        raise BurnctlError(
            f"some logs are not recorded yet: {reasons}", "do not delete any logs yet; see: burnctl status"
        )
    print("everything logged so far is recorded")
    return 0
