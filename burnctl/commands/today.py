"""`burnctl today`: the overview of today, hour by hour."""

from __future__ import annotations

import time

from burnctl.commands.overview import add_arguments, drawn, gather
from burnctl.output import present
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "shows what today cost so far, hour by hour, on which projects, models and harnesses, and what runs now"
EXAMPLES = ("burnctl today",)


def run(options: argparse.Namespace) -> int:
    options.since = "today"
    client = reach(options, totals=True)
    return present(options, gather(client, time.time(), is_today=True), drawn, client=client)
