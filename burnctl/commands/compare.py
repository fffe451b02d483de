"""`burnctl compare`: models, harnesses or tags side by side on the same kinds of work."""

from __future__ import annotations

from burnctl import flags
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "compares models (or harnesses, or the values of a tag) on the same kinds of work: turns, cost per turn, how often "
    "the first try held with its 95% interval, cache hits, retries. A dash is no data; what rests on too few turns is "
    "marked with ~. The same model through two harnesses is one model"
)
EXAMPLES = (
    "burnctl compare",
    "burnctl compare --models opus,sonnet --since 4w",
    "burnctl compare --by source",
    "burnctl compare --by tag:persona --activity coding",
    "burnctl compare --what-if claude-haiku-4-5",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.filters(parser)
    parser.add_argument("--models", metavar="A,B", help="only these models, by name or family")
    parser.add_argument(
        "--by", metavar="WHAT", default="model", help="what is compared: model, source or tag:KEY (model)"
    )
    parser.add_argument("--min-sample", metavar="N", type=flags.count, help="fewer turns than this are marked (5)")
    parser.add_argument(
        "--what-if", metavar="MODEL", help="price the same tokens as this model's: arithmetic, no prediction"
    )
    flags.reading_rows(parser, "cells")


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    answer = client.compare(
        by=options.by,
        models=options.models,
        min_sample=options.min_sample,
        what_if=options.what_if,
        **flags.filters_of(options),
    )
    if options.json:
        from burnctl.output import as_json

        return as_json(answer)
    if options.csv:
        from burnctl.output import as_csv
        from burnctl.render.compare import flat_cells

        return as_csv(flat_cells(answer), answer)
    from burnctl.no_matches import no_matches
    from burnctl.render.compare import shown
    from burnctl.render.screen import Screen

    screen = Screen.of(options)
    screen.report(answer, shown(answer, screen) or no_matches(client, options))
    return 0
