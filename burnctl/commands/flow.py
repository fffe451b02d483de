"""`burnctl flow`: a session's turns, tools and subagents as a picture, with what they cost."""

from __future__ import annotations

from burnctl import flags
from burnctl.errors import Usage
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

HELP = (
    "draws how a session went: its turns in order with what each cost and called, how its context grew, where the "
    "cache was missed and where the context began anew, and the subagents and child sessions it started. In the "
    "terminal; with --svg as a picture that any browser shows, with --mermaid as a diagram for a document. SESSION is "
    "an id, or as much of its beginning as no other one shares"
)
EXAMPLES = ("burnctl flow 0f9c1d2e", "burnctl flow 0f9c1d2e --svg session.svg", "burnctl flow 0f9c1d2e --mermaid")
MOST = 4000
_IN_A_TERMINAL, _IN_A_PICTURE = 120, 400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help="which session")
    picture = parser.add_mutually_exclusive_group()
    picture.add_argument("--svg", metavar="FILE", help="write an SVG picture to FILE (- is stdout)")
    picture.add_argument("--mermaid", action="store_true", help="print a Mermaid flowchart")
    parser.add_argument(
        "--limit", metavar="N", type=flags.up_to(MOST), help="tell long sessions in about so many steps"
    )
    flags.report(parser)


def run(options: argparse.Namespace) -> int:
    is_picture = options.svg is not None or options.mermaid
    if options.json and is_picture:
        raise Usage("--json prints the answer itself, not a picture", "leave out --json, or --svg and --mermaid")
    usual = None if options.json else _IN_A_PICTURE if is_picture else _IN_A_TERMINAL
    answer = reach(options).flow(options.session, limit=options.limit or usual)
    if options.json:
        from burnctl.output import as_json

        return as_json(answer)
    if options.mermaid:
        from burnctl.render.flow_mermaid import drawn as as_mermaid

        print(as_mermaid(answer))
        _say_if_partial(answer)
        return 0
    if options.svg is not None:
        from burnctl.render.flow_svg import drawn as as_svg

        _say_if_partial(answer)
        return _write(options.svg, as_svg(answer))
    from burnctl.render.flow import drawn
    from burnctl.render.screen import Screen

    screen = Screen.of(options)
    screen.report(answer, drawn(answer, screen))
    return 0


def _say_if_partial(answer: dict[str, Any]) -> None:
    from burnctl.render.caveats import backfill_line
    from burnctl.starting import say

    if line := backfill_line(answer):
        say(line)


def _write(path: str, picture: str) -> int:
    import sys

    from burnctl.errors import BurnctlError

    if path == "-":
        print(picture)
        return 0
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(picture + "\n")
    except OSError as error:
        raise BurnctlError(f"cannot write {path}: {error.strerror}", "choose another file") from None
    print(f"wrote {path}", file=sys.stderr)
    return 0
