"""`burnctl limits`: how much of a plan's windows and of the budgets is used, and where the pace leads."""

from __future__ import annotations

from burnctl import flags
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

HELP = (
    "shows the running 5-hour window and week of a subscription, what they have used and where the pace leads, the "
    "windows before them, and budgets. Where `burnctl statusline` has recorded the account's own figures, they stand "
    "beside what was counted. With --check it says only whether a budget is crossed, and ends with 1 if one is"
)
EXAMPLES = (
    "burnctl limits",
    "burnctl limits --history 30",
    "burnctl limits --check || notify-send 'over budget'",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from burnd.harness.registry import PRODUCTS, USUAL

    plans = ", ".join(product.source for product in PRODUCTS if product.has_plan)
    parser.add_argument("--history", metavar="N", type=_count, help="so many windows of the past (10)")
    parser.add_argument("--source", metavar="SOURCE", help=f"whose plan: {plans} ({USUAL})")
    parser.add_argument("--check", action="store_true", help="end with 1 when a budget is crossed")
    flags.report(parser)


def _count(text: str) -> int:
    import argparse

    if not text.isdecimal() or int(text) > 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 1000")
    return int(text)


def run(options: argparse.Namespace) -> int:
    history = 0 if options.check and options.history is None else options.history
    client = reach(options)
    answer = client.limits(source=options.source, history=history)
    from burnctl.render.caveats import backfill_line

    failed = options.check and bool(answer["crossed"])
    if options.json:
        from burnctl.output import as_json

        as_json(answer)
    elif options.check:
        _say_whether_crossed(answer)
        if line := backfill_line(answer):
            print(line)
    else:
        from burnctl.no_matches import no_matches
        from burnctl.render.limits import shown
        from burnctl.render.screen import Screen

        screen = Screen.of(options)
        screen.report(answer, shown(answer, screen) or no_matches(client, options, f"No turns of {answer['source']}"))
    return 1 if failed else 0


def _say_whether_crossed(answer: dict[str, Any]) -> None:
    from burnctl.render.numbers import money

    for budget in answer["budgets"]:
        if budget["crossed"]:
            print(
                f"the {budget['period']} budget is crossed: {money(budget['spentUsd'])} of {money(budget['limitUsd'])}"
            )
    if not answer["budgets"]:
        print("no budget is set; see [budget] in: burnctl config path")
    elif not answer["crossed"]:
        unpriced = max(budget["unpricedTurns"] for budget in answer["budgets"])
        turns = "1 turn" if unpriced == 1 else f"{unpriced:,} turns"
        print("no budget is crossed" + (f", as far as prices are known: {turns} without a price" if unpriced else ""))
