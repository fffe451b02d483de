"""`burnctl status`: what burnd is doing, in a form for people or for programs."""

from __future__ import annotations

from burnctl import flags
from burnctl.output import as_json
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "shows what burnd is doing: each source and how far behind it is, how much is recorded, and whatever is not as it "
    "should be, with what to do about it"
)
EXAMPLES = ("burnctl status", "burnctl status --json | jq .degraded")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.reading(parser)


def run(options: argparse.Namespace) -> int:
    answer = reach(options).status()
    if options.json:
        return as_json(answer)
    from burnctl.render import Screen
    from burnctl.render.status import status_text

    screen = Screen.of(options)
    screen.show(status_text(answer, screen))
    return 0
