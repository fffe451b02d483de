"""`burnctl content`: prunes what is kept of conversations."""

from __future__ import annotations

from burnctl import flags
from burnctl.errors import Usage
from burnctl.output import as_json
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = "looks after what is kept of conversations; turns, tokens and costs stay for ever whatever is done here"
EXAMPLES = ("burnctl content prune --older-than 30d --dry-run",)
_DAYS = {"h": 1 / 24, "d": 1, "w": 7, "y": 365}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    prune = actions.add_parser("prune", help="delete the content of sessions that ended long ago")
    prune.description = (
        "deletes what is kept of sessions whose last word is older than that, from the store and from search, and says "
        "how much it was. What was pruned never comes back, even when its log is read again"
    )
    prune.add_argument(
        "--older-than", metavar="AGE", type=days, help="such as 30d, 12h, 2w; what the settings say unless given"
    )
    prune.add_argument("--dry-run", action="store_true", help="only say how much it would be")
    flags.as_json(prune)
    flags.no_start(prune)


def run(options: argparse.Namespace) -> int:
    answer = reach(options).content_prune(older_than_days=options.older_than, dry_run=options.dry_run or None)
    if options.json:
        return as_json(answer)
    from burnctl.render import size

    files = answer["files"]
    what = f"the content of {'1 session' if files == 1 else f'{files:,} sessions'}, {size(answer['bytes'])}"
    print(f"would delete {what}" if answer["dryRun"] else f"deleted {what}")
    return 0


def days(text: str) -> float:
    """`30d`, `12h`, `2w` or a bare number of days."""
    figure, unit = (text[:-1], text[-1]) if text[-1:] in _DAYS else (text, "d")
    try:
        age = float(figure) * _DAYS[unit]
    except ValueError:
        age = -1.0
    if not 0 <= age < 1e6:
        raise Usage(f"content prune: {text!r} is not an age", "write it like 30d, 12h or 2w")
    return age
